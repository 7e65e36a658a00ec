// A trial opens from a row, a point or a link; it lights up in every figure, and a panel says all of it.
const panel = byId("trial-panel");
let cameFrom = null; // what had the keyboard's focus before

function copyable(label, text) {
  return el("p", { class: "command" }, el("code", {}, text), " ", el("button", { type: "button", "data-copy": text, "aria-label": `Copy ${label}` }, "Copy"));
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
    ...onPage(shades(), { ...looks.font, size: 12 }),
    showlegend: names.length > 1,
    legend: { orientation: "h", y: 1.15 },
    xaxis: { title: { text: x === "epochs" ? "epoch" : "minutes of the search" }, automargin: true },
    yaxis: { type: log && positive(data) ? "log" : "linear", automargin: true },
  };
  await plotted(place, data, layout);
}

const positive = (data) => data.every(({ y }) => y.every((value) => value === null || value > 0));

function curvesOf(trial) {
  const box = el("div", { class: "curves" });
  const x = el("select", { "aria-label": "Horizontal axis of the curves" }, el("option", { value: "epochs" }, "against epochs"), el("option", { value: "minutes" }, "against time"));
  const log = el("input", { type: "checkbox" });
  const places = charts(trial).map((names) => [names, el("div", { class: "plot" })]);
  const redraw = () => places.forEach(([names, place]) => drawChart(place, trial, names, { x: x.value, log: log.checked }));
  x.addEventListener("change", redraw);
  log.addEventListener("change", redraw);
  box.append(el("p", { class: "controls" }, x, " ", el("label", {}, log, " logarithmic")));
  for (const [names, place] of places) box.append(el("h3", {}, names.join(" and ")), place);
  return [box, redraw];
}

function contentOf(trial) {
  const parts = [fateOf(trial.told)];
  let redraw = () => {};
  if (trial.epochs.length) {
    const [box, drawer] = curvesOf(trial);
    parts.push(box);
    redraw = drawer;
  }
  parts.push(factsOf(trial.told));
  if (trial.output) parts.push(folded("The end of its output", trial.output));
  parts.push(el("h3", {}, "Train it again"), copyable("the command that trains it again", trial.replay));
  parts.push(el("h3", {}, "Its whole output"), copyable("the command that shows its output", trial.show));
  return [parts, redraw];
}

async function open(id) {
  const found = await details();
  const trial = found.byId.get(id);
  if (!trial || chosen !== id) return;
  const [parts, redraw] = contentOf(trial);
  byId("trial-title").textContent = `Trial ${id}`;
  byId("trial-content").replaceChildren(el("div", {}, parts));
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
