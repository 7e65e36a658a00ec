// Live learning curves: of the best trials and of those that run; of all others the quantiles; rungs as lines.
import { get, path } from "./api.js";
import { el, show } from "./dom.js";
import { colourOf, escaped, onTheme, plot } from "./figure.js";
import { BANDS, GREY } from "./looks.js";

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
  choice.addEventListener("change", () => load());
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
    const shown = found.curves.length;
    note.textContent =
      found.count === 0
        ? "No trial has reported a value yet."
        : `${shown === found.count ? `${found.count} of ${found.count} trials` : `The best and the running trials, ${shown} of ${found.count}, over the quantiles of all`}; the best is bold.${found.rungs.length ? " Dotted lines: rungs, where early stopping compares." : ""}`;
    place.hidden = found.count === 0;
    if (found.count === 0) return;
    await plot(place, tracesOf(found), layoutOf(found));
    if (!place.dataset.listens) {
      place.dataset.listens = "yes";
      place.on("plotly_click", ({ points }) => points[0].data.meta && choose(points[0].data.meta));
    }
  }

  return { section, names, load };
}

function tracesOf(found) {
  const told = new Set();
  const lines = found.curves.map((curve, rank) => {
    const first = !told.has(curve.status);
    told.add(curve.status);
    return {
      x: curve.epochs,
      y: curve.values,
      mode: curve.epochs.length === 1 ? "markers" : "lines",
      name: curve.status,
      legendgroup: curve.status,
      showlegend: first,
      meta: curve.trial,
      line: { color: colourOf(curve.status), width: rank === 0 ? 4 : 1.2 },
      marker: { color: colourOf(curve.status) },
      hovertemplate: `trial ${escaped(curve.trial)}, epoch %{x}: %{y:.5g}<extra></extra>`,
    };
  });
  return [...bandsOf(found), ...lines.reverse()];
}

function bandsOf({ bands, band_epochs: epochs }) {
  if (!bands["50"]) return [];
  const areas = BANDS.flatMap(([low, high, opacity]) => {
    const common = { x: epochs, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    return [
      { ...common, y: bands[low], showlegend: false },
      { ...common, y: bands[high], fill: "tonexty", fillcolor: `rgba(128,128,128,${opacity})`, name: `${low} to ${high} %` },
    ];
  });
  return [...areas, { x: epochs, y: bands["50"], mode: "lines", name: "median", line: { color: GREY, dash: "dash" } }];
}

// A failed trial, whose loss may be 1e30, doesn't set the axis.
function rangeOf({ curves, bands }) {
  const sound = curves.filter((curve) => curve.status !== "failed");
  if (sound.length === curves.length || !sound.length) return { autorange: true };
  const values = [...sound.flatMap((curve) => curve.values), ...(bands["25"] ?? []), ...(bands["75"] ?? [])];
  const [least, most] = values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
  const margin = (most - least || Math.abs(most) || 1) * 0.06;
  return { range: [least - margin, most + margin] };
}

function layoutOf(found) {
  const rung = (x) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: { color: GREY, dash: "dot", width: 1 } });
  const margin = Math.max(1, found.longest - 1) * 0.03; // so that marks at its ends are whole
  return {
    xaxis: { title: { text: "epoch" }, range: [1 - margin, found.longest + margin], ...(found.longest <= 20 && { dtick: 1 }) },
    yaxis: { title: { text: escaped(found.metric.length > 28 ? `${found.metric.slice(0, 27)}…` : found.metric) }, ...rangeOf(found) },
    shapes: found.rungs.map(rung),
  };
}
