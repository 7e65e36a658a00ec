// Live learning curves, as reports and notebooks draw them: the server says what is drawn, and how (tuner/plots/learning.py).
import { get, path } from "./api.js";
import { el, show, tell } from "./dom.js";
import { onTheme, plot } from "./figure.js";

const BARE = { height: 340, margin: { l: 50, r: 10, t: 10, b: 40 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" } };

export function curvesOf(study, choose) {
  const place = el("div", { id: "curves", class: "figure", "data-keep": "" });
  const choice = el("select", { name: "metric", id: "curve-metric" });
  const note = el("p", { class: "soft" });
  const section = el(
    "section",
    { "data-keep": "", id: "curves-section" },
    el("h2", {}, "Curves"),
    el("p", {}, el("label", { for: "curve-metric" }, "Metric "), choice),
    place,
    note,
  );
  let found = null;
  let asked = 0; // an answer that a later one has overtaken is not shown
  choice.addEventListener("change", () => load().catch((error) => tell(error.message)));
  onTheme(() => found && draw());

  function names(metrics) {
    const before = choice.value;
    show(choice, metrics.map((name) => el("option", { value: name, "data-key": name }, name)));
    choice.value = metrics.includes(before) ? before : metrics[0]; // browsers choose the last that was put in
  }

  async function load(head) {
    const number = (asked += 1);
    const told = await get(path(["studies", study, "curves"], { metric: choice.value }));
    await head; // what the figure stands in
    if (number !== asked) return;
    found = told;
    await draw();
  }

  async function draw() {
    const { shown, figure } = found;
    note.textContent =
      found.count === 0
        ? "No trial has reported a value yet."
        : `${shown === found.count ? `${found.count} of ${found.count} trials` : `The best and the running trials, ${shown} of ${found.count}, over the quantiles of all`}; the best is bold.${found.rungs.length ? " Dotted lines: rungs, where early stopping compares." : ""}`;
    place.hidden = found.count === 0;
    if (found.count === 0) return;
    await plot(place, figure.data, { ...BARE, ...figure.layout, uirevision: found.metric });
    if (!place.dataset.listens) {
      place.dataset.listens = "yes";
      place.on("plotly_click", ({ points }) => points[0].customdata && choose(points[0].customdata[0]));
    }
  }

  return { section, names, load };
}
