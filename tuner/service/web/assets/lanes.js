// Devices: a lane for each GPU; CPUs that one study holds share a lane, as its trials share them.
import { el } from "./dom.js";
import { percent } from "./text.js";

const IDLE = 0.05; // share of the time, below which a device that a study has does nothing for it
const OTHERS = 0.1; // share, above which a device that no study has is worth a word
const NAMED = 4; // trials

export function lanes(found) {
  if (!found.devices.length) return null;
  const rows = new Map(found.alive.map((row) => [row.id, row]));
  return el(
    "section",
    {},
    el("h2", {}, "Devices"),
    el("ul", { class: "devices" }, grouped(found.devices).map((group) => lane(group, rows))),
  );
}

function grouped(devices) {
  const groups = new Map();
  for (const use of devices) {
    const { kind, index } = use.device;
    const key = kind === "gpu" ? `gpu ${index}` : `cpus of ${use.study ?? "nobody"}`;
    if (!groups.has(key)) groups.set(key, { key, kind, study: use.study, user: use.user, uses: [] });
    groups.get(key).uses.push(use);
  }
  return [...groups.values()];
}

function lane({ key, kind, study, user, uses }, rows) {
  const known = uses.map((use) => use.busy).filter((busy) => busy !== null);
  const busy = known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
  const row = rows.get(study);
  const idle = study !== null && busy !== null && busy < IDLE;
  const own = uses.map((use) => use.trial).filter(Boolean);
  const trials = own.length ? own : (row?.running ?? []);
  return el(
    "li",
    { class: idle ? "idle" : study ? "held" : "free", "data-key": key },
    el("b", {}, `${kind.toUpperCase()} ${ranges(uses.map((use) => use.device.index))}`),
    study === null
      ? el("span", {}, "free")
      : el("span", { class: "whose" }, el("a", { href: `/studies/${study}` }, `@${study}${row ? ` ${row.name}` : ""}`), ` ${user ?? ""}`),
    study !== null && el("span", { class: "soft" }, trialsOf(study, trials)),
    busy !== null && el("meter", { min: 0, max: 1, value: Math.min(1, busy), "aria-label": "busy" }),
    busy !== null && el("span", { class: "soft" }, `${percent(busy)} busy`, idle && ": allocated but idle", study === null && busy > OTHERS && " with other programs"),
  );
}

function trialsOf(study, trials) {
  if (!trials.length) return "no trial runs";
  const links = trials.slice(0, NAMED).map((trial) => [" ", el("a", { href: `/studies/${study}#trial=${trial}` }, trial)]);
  const more = trials.length > NAMED ? ` and ${trials.length - NAMED} more` : "";
  return [trials.length === 1 ? "trial" : "trials", links, more];
}

// 0-3, 5
function ranges(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((one, other) => one - other)) {
    const last = parts.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else parts.push([number, number]);
  }
  return parts.map(([first, last]) => (first === last ? first : `${first}–${last}`)).join(", ");
}
