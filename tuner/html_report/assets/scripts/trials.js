// A trial opens from a row, a point or a link; it lights up in every figure, and a panel says all of it.
const panel = byId("trial-panel");
let cameFrom = null; // what had the keyboard's focus before

function number(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : String(Number(value.toPrecision(4)));
}

function copyable(label, text) {
  return element("p", { class: "command" }, element("code", {}, text), " ", element("button", { type: "button", "data-copy": text, "aria-label": `Copy ${label}` }, "Copy"));
}

function factsTable(caption, pairs) {
  const rows = pairs.map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  return element("table", { class: "facts" }, element("caption", {}, caption), element("tbody", {}, ...rows));
}

function folded(title, text) {
  const block = element("pre", { tabindex: "0", role: "region", "aria-label": title }, text);
  return element("details", { open: "" }, element("summary", {}, title), block);
}

// Charts of a trial: training beside validation, every other metric by itself.
function charts(trial) {
  const names = Object.keys(trial.metrics);
  const groups = new Map();
  for (const name of names) {
    const bare = name.replace(/^(train|training|val|valid|validation)_/, "");
    groups.set(bare, [...(groups.get(bare) ?? []), name]);
  }
  return [...groups.values()].sort((a, b) => b.length - a.length);
}

async function drawChart(place, trial, names, { x, log }) {
  const { curves } = shades();
  const data = names.map((name, index) => ({
    x: trial[x],
    y: trial.metrics[name],
    name,
    mode: trial.epochs.length === 1 ? "markers" : "lines",
    line: { color: curves[index % curves.length], dash: name.startsWith("train") ? "dash" : "solid" },
  }));
  const layout = {
    height: 210,
    margin: { l: 50, r: 10, t: 8, b: 36 },
    ...onPage(12),
    showlegend: names.length > 1,
    legend: { orientation: "h", y: 1.15 },
    xaxis: { title: { text: x === "epochs" ? "epoch" : "minutes of the search" }, automargin: true },
    yaxis: { type: log && positive(data) ? "log" : "linear", automargin: true },
  };
  await plotted(place, data, layout);
}

const positive = (data) => data.every(({ y }) => y.every((value) => value === null || value > 0));

function curvesOf(trial) {
  const box = element("div", { class: "curves" });
  const x = element("select", { "aria-label": "Horizontal axis of the curves" }, element("option", { value: "epochs" }, "against epochs"), element("option", { value: "minutes" }, "against time"));
  const log = element("input", { type: "checkbox" });
  const places = charts(trial).map((names) => [names, element("div", { class: "plot" })]);
  const redraw = () => places.forEach(([names, place]) => drawChart(place, trial, names, { x: x.value, log: log.checked }));
  x.addEventListener("change", redraw);
  log.addEventListener("change", redraw);
  box.append(element("p", { class: "controls" }, x, " ", element("label", {}, log, " logarithmic")));
  for (const [names, place] of places) box.append(element("h3", {}, names.join(" and ")), place);
  return [box, redraw];
}

function said(trial, found) {
  const rank = trial.rank ? `, rank ${trial.rank} of ${found.ranked}` : "";
  const value = trial.worth === null ? "" : `; ${found.metric} ${trial.worth}`;
  return `${trial.outcome}, ${trial.epochs.length} of ${trial.full} epochs${value}${rank}`;
}

function contentOf(trial, found) {
  const parts = [element("p", { class: "lead" }, said(trial, found))];
  for (const note of trial.notes) parts.push(element("p", { class: "note" }, note.text, element("small", {}, ` (${note.by})`)));
  if (trial.message) parts.push(element("p", {}, element("code", {}, trial.message)));
  if (trial.traceback) parts.push(folded("Traceback", trial.traceback));
  let redraw = () => {};
  if (trial.epochs.length) {
    const [box, drawer] = curvesOf(trial);
    parts.push(box);
    redraw = drawer;
  }
  parts.push(factsTable("Configuration", Object.entries(trial.config).map(([name, value]) => [name, value])));
  const at = trial.epochs.indexOf(trial.best_epoch);
  const metrics = Object.entries(trial.metrics).map(([name, values]) => [name, number(values[at < 0 ? values.length - 1 : at])]);
  if (metrics.length) parts.push(factsTable(at < 0 ? "Metrics at its last epoch" : `Metrics after epoch ${trial.best_epoch}, whose network stands for it`, metrics));
  parts.push(factsTable("Of the run", [["seed", String(trial.seed)], ["seconds", number(trial.seconds)], ...(trial.where ? [["where", trial.where]] : [])]));
  if (trial.output) parts.push(folded("The end of its output", trial.output));
  parts.push(element("h3", {}, "Train it again"), copyable("the command that trains it again", trial.replay));
  parts.push(element("h3", {}, "Its whole output"), copyable("the command that shows its output", trial.show));
  return [parts, redraw];
}

async function open(id) {
  const found = await details();
  const trial = found.byId.get(id);
  if (!trial || chosen !== id) return;
  const [parts, redraw] = contentOf(trial, found);
  byId("trial-title").textContent = `Trial ${id}`;
  byId("trial-content").replaceChildren(...parts);
  byId("trial-content").scrollTop = 0;
  panel.hidden = false;
  document.body.classList.add("with-panel");
  byId("trial-title").focus({ preventScroll: true });
  await redraw();
}

function choose(id) {
  if (id === chosen || (id !== null && !drawnTrial(id))) return;
  if (chosen === null) cameFrom = document.activeElement;
  rowOf.get(chosen)?.classList.remove("lit");
  chosen = id;
  rowOf.get(id)?.classList.add("lit");
  history.replaceState(null, "", id ? `#trial=${encodeURIComponent(id)}` : location.pathname + location.search);
  if (id) open(id).catch(plainly);
  else close();
  lightAll();
}

function close() {
  panel.hidden = true;
  document.body.classList.remove("with-panel");
  byId("trial-content").replaceChildren();
  if (cameFrom?.isConnected) cameFrom.focus({ preventScroll: true });
}

function step(by) {
  const shown = trialsShown();
  const next = shown[shown.indexOf(chosen) + by];
  if (next) choose(next);
}

function ofLink() {
  const found = /^#trial=(.+)$/.exec(location.hash);
  if (found) choose(decodeURIComponent(found[1]));
}

const typing = (target) => target.matches("input, select, textarea");

function onKey(event) {
  if (event.key === "Escape" && chosen) choose(null);
  else if (panel.contains(event.target) && !typing(event.target) && event.key === "ArrowLeft") step(-1);
  else if (panel.contains(event.target) && !typing(event.target) && event.key === "ArrowRight") step(1);
  else if (["ArrowDown", "ArrowUp"].includes(event.key)) moveInTable(event);
}

function moveInTable(event) {
  const row = event.target.closest?.("tr[data-trial]");
  if (!row) return;
  const shown = trialsShown();
  const next = shown[shown.indexOf(row.dataset.trial) + (event.key === "ArrowDown" ? 1 : -1)];
  if (!next) return;
  event.preventDefault();
  rowOf.get(next).querySelector("a").focus();
}

if (panel && canDraw()) {
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", (event) => {
    const of = event.target.closest("a[href^='#trial='], tr[data-trial], [data-of-trial]");
    if (!of || panel.contains(event.target) || window.getSelection().toString()) return;
    event.preventDefault();
    choose(of.dataset.trial ?? of.dataset.ofTrial ?? decodeURIComponent(of.hash.slice("#trial=".length)));
  });
  byId("trial-close").addEventListener("click", () => choose(null));
  byId("trial-before").addEventListener("click", () => step(-1));
  byId("trial-after").addEventListener("click", () => step(1));
  window.addEventListener("hashchange", ofLink);
}
