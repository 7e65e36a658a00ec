// Figures, each drawn from the packed JSON beside it: while the reader rests once it is in view, then once it comes near.
const narrow = window.matchMedia("(max-width: 600px)");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const looks = JSON.parse(byId("looks").textContent);
const drawers = new Map(); // of each figure's place, until it is drawn
const LIT = "lit"; // marks the traces that show the chosen trial
let chosen = null; // the trial's id

const shades = () => looks.themes[printing || !dark.matches ? "light" : "dark"];
let printing = false;

async function plotted(place, data, layout) {
  await plotly();
  await plottedNow(place, data, layout);
}

function plottedNow(place, data, layout) {
  if (narrow.matches && !place.classList.contains("wide")) layout.margin = { ...layout.margin, l: 45, r: 8 };
  dress(layout, shades());
  const options = { responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover" };
  const done = window.Plotly.react(place, data, layout, options);
  if (place.dataset.listens) return done;
  place.dataset.listens = "true";
  place.on("plotly_click", (event) => {
    const { data: trace, pointNumber, pointIndex } = event.points[0];
    const trial = trialOf(trace, pointNumber ?? pointIndex);
    if (trial) choose(trial);
  });
  if (data.some((trace) => trace.type === "parcoords")) chooseLines(place);
  return done;
}

// Plotly tells which line of parallel coordinates is pointed at, and nothing of a click on it.
function chooseLines(place) {
  let line = null;
  let pressed = null;
  place.on("plotly_hover", ({ curveNumber }) => { line = curveNumber; place.style.cursor = "pointer"; });
  place.on("plotly_unhover", () => { line = null; place.style.cursor = ""; });
  place.addEventListener("pointerdown", ({ clientX, clientY }) => { pressed = [clientX, clientY]; });
  place.addEventListener("click", ({ clientX, clientY }) => {
    const moved = !pressed || Math.hypot(clientX - pressed[0], clientY - pressed[1]) > 4; // along an axis: that picks lines
    const trial = moved || line === null ? null : trialOf(place.data[0], line);
    if (trial) choose(trial);
  });
}

async function draw(source) {
  const place = byId(source.dataset.plot);
  const text = texts.get(place) ?? (await unpacked(source));
  texts.delete(place);
  if (place.data) return; // a printer was faster
  const { data, layout } = JSON.parse(text);
  await plotted(place, data, layout);
  await light(place);
}

const trialOf = (trace, index) => trialAt(trace, index, drawnTrial);
const rowOf = new Map([...document.querySelectorAll("tr[data-trial]")].map((row) => [row.dataset.trial, row]));
const drawnTrial = (id) => rowOf.has(id);

// The chosen trial stands out in a figure: rings around its points, its bars and curve in one colour.
const ARRAYS = { f4: Float32Array, f8: Float64Array, i1: Int8Array, i2: Int16Array, i4: Int32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };

function listed(values) {
  if (!values?.bdata) return values ?? [];
  const packed = atob(values.bdata);
  return new ARRAYS[values.dtype](Uint8Array.from(packed, (letter) => letter.charCodeAt(0)).buffer);
}

function pointsOf(trace, trial) {
  const [x, y, base] = [listed(trace.x), listed(trace.y), listed(trace.base)];
  const found = { x: [], y: [] };
  const count = Math.max(x.length, y.length);
  for (let index = 0; index < count; index += 1) {
    if (trialOf(trace, index) !== trial) continue;
    if (trace.type === "bar") {
      found.x.push(base[index] ?? 0, (base[index] ?? 0) + x[index], null);
      found.y.push(y[index], y[index], null);
    } else {
      found.x.push(x[index]);
      found.y.push(y[index]);
    }
  }
  return found;
}

function litTrace(trace, trial) {
  if (!["scatter", "scattergl", "bar", undefined].includes(trace.type)) return null;
  if (trace.type === "bar" && trace.orientation !== "h") return null;
  const points = pointsOf(trace, trial);
  if (!points.x.length) return null;
  const line = trace.type === "bar" || (trace.mode ?? "").includes("lines");
  const { lit } = shades();
  return {
    ...points,
    type: "scatter",
    mode: line && points.x.length > 1 ? "lines" : "markers",
    line: { color: lit, width: trace.type === "bar" ? 9 : 4 },
    marker: { color: "rgba(0,0,0,0)", size: 17, line: { color: lit, width: 3 } },
    xaxis: trace.xaxis,
    yaxis: trace.yaxis,
    meta: LIT,
    name: `trial ${trial}`,
    showlegend: false,
    hoverinfo: "skip",
  };
}

async function ownCurve(place, trial) {
  if (place.id !== "plot-learning-curves") return null;
  const { metric, byId: trials } = await details();
  const found = trials.get(trial);
  if (!found?.metrics[metric]) return null;
  const curve = { x: found.epochs, y: found.metrics[metric], mode: "lines", customdata: found.epochs.map(() => trial) };
  return litTrace(curve, trial);
}

const ownLines = new Map(); // how lines of parallel coordinates are drawn while no trial is chosen

function linesOf(place, trial) {
  let found = false;
  place.data.forEach((trace, index) => {
    if (trace.type !== "parcoords" || !Array.isArray(trace.customdata)) return;
    if (!ownLines.has(trace)) ownLines.set(trace, { ...trace.line });
    const { color, colorscale, reversescale, showscale, cmin, cmax } = ownLines.get(trace);
    const chosenOnes = trace.customdata.map((_, row) => Number(trialOf(trace, row) === trial));
    const { grid, lit } = shades();
    const change = chosenOnes.includes(1)
      ? { color: [chosenOnes], colorscale: [[[0, grid], [1, lit]]], reversescale: false, showscale: false, cmin: 0, cmax: 1 }
      : { color: [color], colorscale: [colorscale], reversescale, showscale, cmin: cmin ?? null, cmax: cmax ?? null };
    const named = Object.entries(change).map(([key, value]) => [`line.${key}`, value]);
    window.Plotly.restyle(place, Object.fromEntries(named), [index]);
    found ||= chosenOnes.includes(1);
  });
  return found;
}

async function light(place) {
  if (!place.data || !window.Plotly) return;
  const trial = chosen;
  const old = place.data.flatMap((trace, index) => (trace.meta === LIT ? [index] : []));
  const own = trial && (await ownCurve(place, trial));
  const found = trial && !own ? place.data.map((trace) => (trace.meta === LIT ? null : litTrace(trace, trial))) : [own];
  const added = found.filter(Boolean);
  if (old.length) await window.Plotly.deleteTraces(place, old);
  if (trial !== chosen) return;
  if (added.length) await window.Plotly.addTraces(place, added);
  const lines = linesOf(place, trial);
  place.dataset.lit = lines || added.length ? trial : "";
}

function lightAll() {
  return Promise.all([...document.querySelectorAll(".js-plotly-plot[data-figure]")].map(light));
}

function recolour() {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) window.Plotly.relayout(plot, themed(plot.layout, shades()));
  if (chosen) lightAll();
}

// One after another, so that the page answers between two of them.
let queue = Promise.resolve();
function drawSoon(place) {
  const drawer = drawers.get(place);
  if (!drawer) return;
  drawers.delete(place);
  queue = queue.then(drawer).catch(plainly);
}

function seeing(rootMargin) {
  const shown = (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    near.unobserve(entry.target);
    drawSoon(entry.target);
  });
  return new IntersectionObserver(shown, { rootMargin });
}

let near = seeing("-1px 0px"); // what only touches the edge of the view is not in it

function lookAhead() {
  near.disconnect();
  near = seeing("300px 0px");
  for (const place of drawers.keys()) near.observe(place);
}

function drawWhenNear(place, drawer) {
  drawers.set(place, drawer);
  near.observe(place);
}

// A printer waits for nothing: what it is to show has been unpacked before, and is drawn at once.
const texts = new Map(); // the JSON of figures that are not drawn yet
const PAPER = 700; // pixels across an A4 or a letter page

async function unpackForPrint() {
  await plotly();
  for (const source of document.querySelectorAll("script[data-plot]")) {
    await new Promise(idle);
    const place = byId(source.dataset.plot);
    if (drawers.has(place)) texts.set(place, await unpacked(source));
    if (!drawers.has(place)) texts.delete(place);
  }
  document.documentElement.dataset.printable = "true";
}

function drawForPrint() {
  for (const [place, text] of texts) {
    if (!window.Plotly || place.closest("details:not([open])") || !drawers.delete(place)) continue;
    texts.delete(place);
    near.unobserve(place);
    const { data, layout } = JSON.parse(text);
    plottedNow(place, data, layout);
  }
}

// As wide as the paper; a figure that could not be drawn in time has its numbers in its place.
function forPaper() {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    window.Plotly.relayout(plot, printing ? { autosize: false, width: PAPER } : { autosize: true, width: null });
    if (!printing) window.Plotly.Plots.resize(plot);
  }
  for (const source of document.querySelectorAll("script[data-plot]")) {
    const figure = source.closest("figure");
    const missing = printing && !byId(source.dataset.plot).data;
    if (missing || figure.classList.contains("as-numbers")) figure.querySelector("details.numbers").open = missing;
    figure.classList.toggle("as-numbers", missing);
  }
}

if (canDraw()) {
  for (const source of document.querySelectorAll("script[data-plot]")) drawWhenNear(byId(source.dataset.plot), () => draw(source));
  dark.addEventListener("change", recolour);
  for (const event of ["beforeprint", "afterprint"]) {
    window.addEventListener(event, () => {
      printing = event === "beforeprint";
      if (printing) drawForPrint();
      recolour();
      forPaper();
    });
  }
}
