// Any metric against epochs, time, a hyperparameter or another metric, of the trials that the table shows.
const MOST_CURVES = 200;
const MOST_MARKED = 30; // curves with a mark at each epoch
const explorer = byId("plot-explorer");

function valueOf(trial, axis) {
  if (axis === "number") return trial.number;
  if (axis === "seconds") return trial.seconds;
  const [kind, name] = [axis.slice(0, 7), axis.slice(7)];
  if (kind === "config/") return trial.values[name];
  const values = trial.metrics[name];
  const at = trial.epochs.indexOf(trial.best_epoch);
  return values ? values[at < 0 ? values.length - 1 : at] : undefined;
}

function curvesAgainst(trials, axis, name) {
  const shown = trials.slice(0, MOST_CURVES);
  return byStatus(shown, shown.length > MOST_MARKED ? "lines" : "lines+markers", (trial) => {
    const gap = trial.epochs.length;
    return gap && trial.metrics[name] ? { x: [...trial[axis], null], y: [...trial.metrics[name], null], customdata: Array(gap + 1).fill(trial.id) } : null;
  });
}

function pointsAgainst(trials, axis, name) {
  return byStatus(trials, "markers", (trial) => {
    const [x, y] = [valueOf(trial, axis), valueOf(trial, `metric/${name}`)];
    return x === undefined || y === undefined ? null : { x: [x === null ? "None" : x], y: [y], customdata: [trial.id] };
  });
}

function byStatus(trials, mode, partOf) {
  const traces = new Map();
  for (const trial of trials) {
    const part = partOf(trial);
    if (!part) continue;
    const color = looks.statuses[trial.status];
    const fresh = { x: [], y: [], customdata: [], name: trial.status, mode, connectgaps: false, line: { color, width: 1.5 }, marker: { color, size: mode === "markers" ? 8 : 4 }, hovertemplate: "trial %{customdata}: %{x}, %{y:.5g}" };
    const trace = traces.get(trial.status) ?? fresh;
    for (const key of ["x", "y", "customdata"]) trace[key].push(...part[key]);
    traces.set(trial.status, trace);
  }
  return [...traces.values()];
}

// A metric over more than two decades has a logarithmic axis from the start, until the reader decides.
function offerLog(trials, name) {
  const box = byId("explore-log-y");
  if (box.dataset.decided) return;
  let [low, high] = [Infinity, -Infinity];
  for (const trial of trials) {
    for (const value of trial.metrics[name] ?? []) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  box.checked = low > 0 && high / low > 100 && !(high <= 1 && /acc|f1|precision|recall/i.test(name));
}

const brief = (name) => (name.length > 28 ? `${name.slice(0, 13)}…${name.slice(-13)}` : name);

async function explore() {
  const found = await details();
  const name = byId("explore-y").value;
  const axis = byId("explore-x").value;
  const trials = trialsShown().map((id) => found.byId.get(id)).filter(Boolean);
  offerLog(trials, name);
  const curves = axis === "epochs" || axis === "minutes";
  const data = curves ? curvesAgainst(trials, axis, name) : pointsAgainst(trials, axis, name);
  const scale = (box, key) => ({ type: byId(box).checked && data.every((trace) => trace[key].every((value) => value === null || value > 0)) ? "log" : undefined, automargin: true, exponentformat: "power" });
  const layout = {
    height: 440,
    margin: { l: 60, r: 20, t: 20, b: 50 },
    ...onPage(shades(), { ...looks.font, size: 13 }),
    legend: { orientation: "h", y: -0.2 },
    showlegend: true,
    xaxis: { ...scale("explore-log-x", "x"), dtick: axis === "epochs" && trials.every((trial) => trial.epochs.length <= 10) ? 1 : undefined, title: { text: brief(byId("explore-x").selectedOptions[0].textContent) } },
    yaxis: { ...scale("explore-log-y", "y"), title: { text: brief(name) } },
  };
  const left = curves && trials.length > MOST_CURVES ? `The first ${MOST_CURVES} of the ${trials.length} trials that the table shows.` : `${trials.length} trials, as the table shows them.`;
  byId("explore-count").textContent = left;
  await plotted(explorer, data, layout);
  await light(explorer);
}

if (explorer && canDraw()) {
  drawWhenNear(explorer, explore);
  byId("explore-log-y").addEventListener("change", (event) => { event.target.dataset.decided = "true"; });
  const again = () => drawers.has(explorer) || explore().catch(plainly);
  for (const control of document.querySelectorAll("#explore select, #explore input")) control.addEventListener("change", again);
  byId("all-trials").addEventListener("filtered", again);
}
