// One study: how far it is, its curves and trials, what failed, what it cost, and what may be done about it.
import { aboutOf } from "./about.js";
import { buttons, perform, settings } from "./actions.js";
import { adviceOf } from "./advice.js";
import { get, ofPage, path } from "./api.js";
import { curvesOf } from "./curves.js";
import { badge, el, external, show, table, tagsOf } from "./dom.js";
import { prepare } from "./figure.js";
import { figuresOf } from "./figures.js";
import { SUBMITS } from "./looks.js";
import { doneOf, duration, hours, leftOf, moment, percent, plural, progressOf, short } from "./text.js";
import { trialPanel } from "./trial.js";
import { trialsOf } from "./trials.js";

const ALONE = document.body.hasAttribute("data-alone"); // the page of one run, without a service
const NO_MORE = ["cancelled", "refused"];
const OVER = ["finished", "failed", "cancelled", "refused"];

export function studyPage(study, again) {
  const main = document.getElementById("main");
  let row = null;
  let found = null;
  const panel = trialPanel(study, () => row);
  const curves = curvesOf(study, panel.choose);
  const figures = figuresOf(study, panel.choose);
  const trials = trialsOf(study, panel.choose);
  const about = aboutOf(study, again);
  const advice = adviceOf(study, () => ({ submit: !ALONE && SUBMITS.includes(row?.role), steer: row?.steerable }));

  function draw() {
    document.title = titleOf(row);
    show(
      main,
      head(row, found),
      found && pauseOf(found, row),
      found && tiles(found, row),
      found?.best && found.best.ships.map((sentence) => el("p", { class: "soft" }, `${sentence[0].toUpperCase()}${sentence.slice(1)}.`)),
      found && curves.section,
      found && figures.section,
      found && trials.section,
      found && failuresOf(found),
      found && hoursOf(found),
      found && advice.section,
      !found && el("p", { class: "soft" }, row.has_run ? "Reading its trials …" : "It has no trials yet."),
      !ALONE && about.section,
    );
  }

  main.addEventListener("submit", (event) => event.preventDefault());
  main.addEventListener("click", async (event) => {
    const verb = event.target.closest("[data-verb]")?.dataset.verb;
    if (verb && (await perform(verb, [row], document.getElementById("toolbar")))) again();
    const text = event.target.closest("[data-find]")?.dataset.find;
    if (text) trials.find(text);
  });

  return {
    studies: [study],
    async load() {
      const first = found === null;
      const asked = [ofPage(get(path(["studies", study, "row"]))), get("users/me")];
      let user;
      [row, user] = await Promise.all(asked);
      document.getElementById("user").textContent = ALONE ? "read-only" : `${user.name}, ${user.role}`;
      row.role = user.role;
      if (first) draw(); // reading a long run for the first time takes seconds
      if (first && row.has_run) prepare();
      if (!row.has_run) {
        found = null;
        draw();
        await about.ready(row, found);
        return;
      }
      const head = get(path(["studies", study, "summary"])).then((told) => {
        found = told;
        draw();
        curves.names(found.metrics);
      });
      // answers come while the head is drawn, and what one of them lacks keeps none of the others from being shown
      const parts = await Promise.allSettled([head, trials.load(), curves.load(head), panel.refresh()]);
      figures.load();
      if (found) advice.ready(row);
      if (!ALONE) await about.ready(row, found);
      const failed = parts.find((part) => part.status === "rejected");
      if (failed) throw failed.reason;
    },
  };
}

function titleOf({ name, id, state, progress }) {
  const share = progress && state === "running" ? progressOf(progress.trials, progress.wanted).share : null;
  return `${share === null ? state : percent(share)} · ${name}${ALONE ? "" : ` @${id}`} · tuner`;
}

function head(row, found) {
  const { id, place } = row;
  return [
    el("h2", { class: "study" }, ALONE ? `${row.name} ` : `@${id} ${row.name} `, badge(row.state), row.external && [" ", external()], tagsOf(row)),
    el(
      "p",
      { class: "soft" },
      !ALONE && `of ${row.user}, priority ${row.priority}`,
      place && `; number ${place.position} in the queue`,
      row.why && `${ALONE ? "" : "; "}${row.why}`,
      place?.start && ` (may start at ${moment(place.start)})`,
    ),
    row.external && el("p", { class: "soft" }, "Workers ask for its trials and run them elsewhere; it holds no devices here."),
    row.has_run && el(
      "p",
      { class: "links" },
      found?.has_report && el("a", { href: `/api/v1/studies/${id}/report`, target: "_blank", rel: "noopener" }, "report"),
      " ",
      !ALONE && el("a", { href: `/api/v1/studies/${id}/logs`, target: "_blank", rel: "noopener" }, row.external ? "log of its search" : "driver's log"),
      " ",
      el("a", { href: `/api/v1/studies/${id}/archive` }, "all files"),
    ),
    row.steerable && !NO_MORE.includes(row.state) && el(
      "form",
      { class: "toolbar", id: "toolbar", "aria-label": "what to do with this study" },
      buttons([row.state]),
      settings(row.role, true),
    ),
  ];
}

// The same error again and again: to go on costs device-hours for nothing.
function pauseOf(found, row) {
  if (!found.alike || row.state !== "running") return null;
  return el(
    "p",
    { class: "warning", role: "alert" },
    `The same error in ${plural(found.alike, "trial")}: ${found.failures[0].described}. `,
    row.steerable && el("button", { type: "button", "data-verb": "pause" }, "Pause the study"),
  );
}

function tile(name, value, ...more) {
  return el("div", { class: "tile", "data-key": name }, el("dt", {}, name), el("dd", {}, el("b", {}, value), more.map((text) => text && el("span", { class: "soft" }, text))));
}

function tiles(found, row) {
  const { best, progress } = { best: found.best, progress: row.progress };
  const share = progress ? progressOf(progress.trials, found.wanted).share : null;
  const used = Object.values(found.device_hours).reduce((sum, one) => sum + one, 0);
  const counts = Object.entries(found.trials).filter(([, count]) => count).map(([status, count]) => `${count} ${status}`).join(", ");
  const next = found.next_hour;
  return el(
    "dl",
    { class: "tiles" },
    tile(`best ${found.metric}`, best ? best.told : "none yet", best && [el("a", { href: `#trial=${best.trial}` }, `trial ${best.trial}`), ` at epoch ${best.epoch}`], best?.averaged && `the mean ${best.averaged}`, best?.tests.map(([name, text]) => `${name} ${text}`).join(", ")),
    tile("trials", doneOf(progress ?? { trials: found.trials, wanted: found.wanted }), share !== null && el("progress", { max: 1, value: share, "aria-label": "progress" }), counts),
    !OVER.includes(row.state) && tile("time left", progress?.left ? leftOf(progress.left) : "not known yet", progress?.left && `about ${duration(progress.left[1])}`, progress?.still),
    tile("device-hours", hours(used), plural(found.epochs, "epoch") + (found.epochs_again ? `, and ${found.epochs_again} trained again` : ""), found.saved_hours > 0 && `early stopping saved ${hours(found.saved_hours)}, ${percent(found.saved_share)}`),
    next && share !== 1 && tile("next device-hour", `${next.chance > 0.99 ? "more than 99 %" : percent(next.chance)} chance of a new best`, `about ${plural(Math.round(next.trials), "trial")}, if they are like those so far`, next.gained !== null && `the last one gained ${short(next.gained)}`, row.steerable && row.state === "running" && el("button", { type: "button", "data-verb": "finish" }, "Finish now")),
    found.wandb !== "off" && tile("Weights & Biases", found.wandb_url ? el("a", { href: found.wandb_url, target: "_blank", rel: "noopener noreferrer" }, "open the runs") : found.wandb, found.wandb === "offline" && "send it with wandb sync"),
    found.mlflow && tile("MLflow", found.mlflow_url ? el("a", { href: found.mlflow_url, target: "_blank", rel: "noopener noreferrer" }, "open the run") : "not reached yet"),
  );
}

function failuresOf(found) {
  if (!found.failures.length) return null;
  const lines = found.failures.map((one) =>
    el(
      "tr",
      { "data-key": one.described },
      el("td", { class: "number" }, String(one.count)),
      el("td", {}, one.cause),
      el("td", { class: "reason" }, one.described),
      el("td", {}, one.trials.slice(0, 3).map((trial) => [el("a", { href: `#trial=${trial}` }, trial), " "]), one.count > 3 && el("button", { type: "button", "data-find": one.cause }, `all with ${one.cause}`)),
    ),
  );
  return el("section", { "data-key": "failures" }, el("h2", {}, "Failures by cause"), table("failures", [["trials", "number"], ["cause"], ["what happened"], ["which"]], lines));
}

function hoursOf(found) {
  const spent = Object.entries(found.device_hours).filter(([, value]) => value > 0);
  if (!spent.length) return null;
  const most = Math.max(...spent.map(([, value]) => value), found.saved_hours);
  const line = (name, value) => el("tr", { "data-key": name }, el("th", { scope: "row" }, name), el("td", {}, el("meter", { min: 0, max: 1, value: most ? value / most : 0, "aria-hidden": "true" })), el("td", { class: "number" }, hours(value)));
  return el(
    "section",
    { "data-key": "hours" },
    el("h2", {}, "Device-hours by outcome"),
    el("div", { class: "sums" }, table("device-hours by outcome", [["outcome"], ["share"], ["device-hours", "number"]], [...spent.map(([status, value]) => line(status, value)), found.saved_hours > 0 && line("saved by early stopping", found.saved_hours)].filter(Boolean))),
  );
}
