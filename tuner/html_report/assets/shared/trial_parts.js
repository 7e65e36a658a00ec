// What is said of a trial, which tuner/results/trial_told.py words: in a report's panel and on a service's page.
import { el } from "./elements.js";

// What became of it, and why it failed.
export function fateOf(told) {
  return [
    el("p", { class: "lead" }, told.said),
    told.notes.map((note) => el("p", { class: "note" }, note)),
    told.message && el("p", {}, el("code", {}, told.message)),
    told.traceback && folded("Traceback", told.traceback),
  ];
}

// Its configuration, metrics, and where it ran.
export function factsOf(told) {
  return [
    factsTable("Configuration", told.settings),
    told.metrics.length > 0 && factsTable(told.metrics_of, told.metrics),
    factsTable("Of the run", told.of_run),
  ];
}

export function folded(title, text) {
  return el("details", { open: true }, el("summary", {}, title), el("pre", { tabindex: "0", role: "region", "aria-label": title }, text));
}

function factsTable(caption, pairs) {
  const rows = pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)));
  return el("table", { class: "facts" }, el("caption", {}, caption), el("tbody", {}, rows));
}
