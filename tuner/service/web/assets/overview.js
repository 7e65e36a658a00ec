// The first page: what runs, what waits and why, who has which device, what is over.
import { buttons, perform, settings } from "./actions.js";
import { get, path } from "./api.js";
import { badge, el, external, show, table, tagsOf } from "./dom.js";
import { lanes } from "./lanes.js";
import { FIRST_OF_USER as SHOWN } from "./looks.js"; // in the queue; more of a user's studies there are one row
import { seen, sinceLast } from "./since.js";
import { ago, doneOf, hours, leftOf, moment, percent, plural, progressOf, short } from "./text.js";

const BUSY = ["running", "ending"];
const USAGE_EVERY = 60000;
const DAYS = 7;
const COMPARED = 8; // studies at most
const TYPING = 300; // milliseconds

export function overviewPage(again) {
  const main = document.getElementById("main");
  const chosen = new Map(); // rows by their study, also those that a search hides
  const opened = new Set(); // users whose whole queue is shown
  const search = el("input", { type: "search", id: "search", placeholder: "name, user, @number or #tag", "aria-label": "search in studies that are over" });
  const finder = el("form", { class: "toolbar", role: "search", "data-keep": "" }, search);
  let found = null;
  let usage = { items: [], at: 0 };
  let typing = null;

  function draw() {
    for (const row of [...found.alive, ...found.over]) if (chosen.has(row.id)) chosen.set(row.id, row);
    document.getElementById("user").textContent = `${found.user}, ${found.role}`;
    document.title = titleOf(found);
    show(main, !search.value && sinceLast(found), lanes(found), studies(), over(), usageOf(usage.items));
  }

  // Chosen studies that the page doesn't show now may have changed, or be deleted.
  async function update() {
    const shown = new Set([...found.alive, ...found.over].map((row) => row.id));
    const hidden = [...chosen.keys()].filter((id) => !shown.has(id));
    const asked = hidden.map((id) => get(path(["studies", id, "row"])).then((row) => chosen.set(id, row)));
    const answers = await Promise.allSettled(asked);
    answers.forEach(({ reason }, place) => reason?.status === 404 && chosen.delete(hidden[place]));
  }

  function studies() {
    return el(
      "section",
      {},
      el("h2", {}, "Studies"),
      found.alive.length + found.over.length > 0 && toolbar(),
      found.alive.length
        ? table("studies", heads(), linesOf(found, opened, chosen))
        : el("p", { class: "soft" }, "Nothing runs or waits. Submit a study: ", el("code", {}, "tuner submit space.py")),
    );
  }

  function toolbar() {
    const rows = [...chosen.values()];
    const own = rows.filter((row) => row.steerable);
    const ready = rows.filter((row) => row.has_run);
    return el(
      "form",
      { class: "toolbar", id: "toolbar", "aria-label": "what to do with chosen studies" },
      el("span", { class: "soft", id: "chosen" }, rows.length ? `${rows.length} chosen${own.length < rows.length ? `, ${own.length} yours` : ""}:` : "Choose studies to"),
      [...found.alive, ...found.over].some((row) => row.steerable) && [buttons(own.map((row) => row.state)), settings(found.role, own.length > 0)],
      ready.length > 1 && ready.length <= COMPARED
        ? el("a", { class: "button", href: `/compare?${ready.map((row) => `study=${row.id}`).join("&")}` }, "Compare")
        : el("button", { type: "button", disabled: true, title: `choose two to ${COMPARED} studies that have begun` }, "Compare"),
    );
  }

  function over() {
    if (!found.over.length && !search.value) return null;
    return [
      el("h2", { "data-key": "over" }, "Over"),
      finder, // stays where it is, as what is typed there
      !found.over.length && el("p", { class: "soft" }, "No study that is over fits the search."),
      found.over.length > 0 && table("studies that are over", overHeads(), found.over.map((row) => overLineOf(row, chosen))),
      found.more_over && el("p", { class: "soft" }, "There are older ones: search for them, or ask ", el("code", {}, "tuner queue --all")),
    ];
  }

  main.addEventListener("change", (event) => {
    if (event.target.name !== "chosen") return;
    const id = Number(event.target.value);
    if (event.target.checked) chosen.set(id, [...found.alive, ...found.over].find((row) => row.id === id));
    else chosen.delete(id);
    draw();
  });
  main.addEventListener("keydown", ({ key, target }) => {
    if (key === "Enter" && target.name === "chosen") location.assign(`/studies/${target.value}`);
  });
  main.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(again, TYPING);
  });
  main.addEventListener("click", async (event) => {
    const user = event.target.closest("[data-open]")?.dataset.open;
    if (user !== undefined) {
      if (!opened.delete(user)) opened.add(user);
      draw();
    }
    const verb = event.target.closest("#toolbar [data-verb]")?.dataset.verb;
    if (verb && (await perform(verb, [...chosen.values()].filter((row) => row.steerable), document.getElementById("toolbar")))) again();
  });

  return {
    studies: null, // all of them
    async load() {
      const stale = Date.now() - usage.at > USAGE_EVERY;
      const asked = [get(path(["overview"], { text: search.value })), stale ? get(path(["usage"], { days: DAYS })) : null];
      const [overview, used] = await Promise.all(asked);
      found = overview;
      await update();
      if (used) usage = { items: used.items, at: Date.now() };
      draw();
      if (!search.value) seen(found);
    },
  };
}

function titleOf(found) {
  const running = found.alive.filter((row) => BUSY.includes(row.state));
  const shares = running.map((row) => row.progress && progressOf(row.progress.trials, row.progress.wanted).share).filter((share) => share !== null);
  const share = shares.length ? `${percent(shares.reduce((sum, one) => sum + one, 0) / shares.length)} · ` : "";
  const waiting = Object.values(found.queued).reduce((sum, one) => sum + one, 0);
  return `${share}${running.length} running, ${waiting} waiting · tuner`;
}

const choiceHead = () => [el("span", { class: "hidden" }, "chosen"), "choice"];
const heads = () => [
  choiceHead(),
  ...[["study", "number"], ["name"], ["user"], ["state"], ["priority", "number"], ["progress"], ["best"], ["left"], ["place and reason"]],
];
const overHeads = () => [choiceHead(), ...[["study", "number"], ["name"], ["user"], ["state"], ["ended"], ["outcome"]]];

function choiceOf(row, chosen) {
  const box = { type: "checkbox", name: "chosen", value: row.id, "aria-label": `choose study ${row.id}; Enter opens it`, title: "Space chooses, Enter opens" };
  return el("td", { class: "choice" }, el("input", { ...box, checked: chosen.has(row.id) }));
}

// By keys a row is one stop, which is its box.
function nameOf(row) {
  return el("td", { class: "name" }, el("a", { href: `/studies/${row.id}`, title: row.name, tabindex: -1 }, row.name));
}

const firstCells = (row, chosen) => [
  choiceOf(row, chosen),
  el("td", { class: "number" }, `@${row.id}`),
  nameOf(row),
  el("td", { class: "user" }, row.user),
  el("td", {}, badge(row.state), row.external && [" ", external()], tagsOf(row)),
];

// A row for each study, and one for what waits behind the first ones of a user.
function linesOf(found, opened, chosen) {
  const seen = new Map(); // by user: studies in the queue so far
  return found.alive.flatMap((row) => {
    if (row.state !== "queued") return [lineOf(row, chosen)];
    const count = (seen.get(row.user) ?? 0) + 1;
    seen.set(row.user, count);
    const known = found.alive.filter((one) => one.state === "queued" && one.user === row.user).length;
    const more = count === SHOWN && found.queued[row.user] - SHOWN > 1 ? [moreOf(row.user, found.queued[row.user] - SHOWN, known - SHOWN, opened.has(row.user))] : [];
    const shown = count <= SHOWN || opened.has(row.user) || found.queued[row.user] === SHOWN + 1 || chosen.has(row.id);
    return [...(shown ? [lineOf(row, chosen)] : []), ...more];
  });
}

function moreOf(user, count, known, open) {
  const part = open && known < count ? `, ${known} shown` : "";
  return el("tr", { "data-key": `more of ${user}` }, el("td", { colspan: heads().length }, el("button", { type: "button", "data-open": user, "aria-expanded": String(open) }, `${count} more of ${user} in the queue${part}`)));
}

function lineOf(row, chosen) {
  const { progress, place } = row;
  return el(
    "tr",
    { "data-key": row.id },
    firstCells(row, chosen),
    el("td", { class: "number", "data-name": "priority" }, String(row.priority)),
    el("td", {}, bar(progress), doneOf(progress)),
    el("td", {}, progress?.best == null ? "" : `${progress.metric} ${short(progress.best)}`),
    el("td", { class: "setting", "data-name": progress?.left ? "left" : null }, leftOf(progress?.left)),
    el(
      "td",
      { class: "reason" },
      place && el("b", {}, `${place.position}. `),
      row.why,
      place?.start && el("span", { class: "soft" }, ` (may start at ${moment(place.start)})`),
    ),
  );
}

function bar(progress) {
  const share = progress && progressOf(progress.trials, progress.wanted).share;
  return share === null || share === undefined ? null : el("progress", { max: 1, value: share, "aria-hidden": "true" });
}

function overLineOf(row, chosen) {
  return el(
    "tr",
    { "data-key": row.id },
    firstCells(row, chosen),
    el("td", {}, el("time", { title: moment(row.changed) }, ago(row.changed))),
    el("td", { class: "reason" }, row.why),
  );
}

// Device-hours by user, and by what became of the studies.
function usageOf(items) {
  if (!items.length) return null;
  return el(
    "section",
    {},
    el("h2", {}, `Device-hours of the last ${plural(DAYS, "day")}`),
    el("div", { class: "sums" }, sums("user", items), sums("state", items)),
  );
}

function sums(by, items) {
  const found = new Map();
  for (const item of items) {
    const key = `${item[by]} ${item.kind.toUpperCase()}`;
    found.set(key, (found.get(key) ?? 0) + item.device_hours);
  }
  const most = Math.max(...found.values(), 1e-9);
  const rows = [...found].sort((one, other) => other[1] - one[1]).map(([key, value]) =>
    el("tr", { "data-key": key }, el("th", { scope: "row" }, key), el("td", {}, el("meter", { min: 0, max: 1, value: value / most, "aria-hidden": "true" })), el("td", { class: "number" }, hours(value))),
  );
  return table(`hours of devices held, by ${by}`, [[by], ["share"], ["hours held", "number"]], rows);
}
