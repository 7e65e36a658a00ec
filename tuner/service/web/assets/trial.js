// One trial in a window of its own: configuration, epochs, traceback, output, and a button that ends it.
import { ask, get, path } from "./api.js";
import { badge, el, show, table, tell } from "./dom.js";
import { factsOf, fateOf } from "./trial_parts.js"; // as in the report's panel

export function trialPanel(study, rowOf) {
  const content = el("div", {});
  const panel = el("dialog", { id: "trial", "aria-label": "trial" }, content);
  document.body.append(panel);
  let shown = null;

  async function follow() {
    const found = /^#trial=([\w.-]+)$/.exec(location.hash);
    if (!found) {
      if (panel.open) panel.close();
      return;
    }
    shown = found[1];
    try {
      await load();
    } catch (error) {
      tell(error.message);
      return;
    }
    if (!panel.open) panel.showModal();
  }

  async function load() {
    const trial = await get(path(["studies", study, "trials", shown]));
    draw(trial);
  }

  function draw(trial) {
    const { told } = trial;
    show(
      content,
      el("h2", {}, `Trial ${trial.trial_id} `, badge(trial.status), el("button", { type: "button", "data-close": "trial", autofocus: true }, "Close")),
      fateOf(told),
      ["running", "paused"].includes(trial.status) && rowOf()?.steerable && el("p", {}, el("button", { type: "button", "data-stop": trial.trial_id }, "Stop this trial")),
      factsOf(told),
      el("h3", {}, "Epochs"),
      told.epochs.length
        ? table("epochs", told.columns.map((name) => [name, "number"]), told.epochs.map((epoch) => el("tr", {}, epoch.map((text, index) => el("td", { class: "number", "data-name": told.columns[index] }, text)))))
        : el("p", { class: "soft" }, "None was reported."),
      el("h3", {}, "Output"),
      trial.output
        ? [el("pre", { tabindex: "0" }, trial.output), el("p", {}, el("a", { href: `/api/v1/${path(["studies", study, "logs"], { trial: trial.trial_id })}`, target: "_blank", rel: "noopener" }, "all of it"))]
        : el("p", { class: "soft" }, rowOf()?.external ? `It runs elsewhere: ${trial.worker ? `worker ${trial.worker}` : "its worker"} has what it printed.` : "It printed nothing."),
    );
  }

  panel.addEventListener("close", () => {
    if (location.hash.startsWith("#trial=")) history.replaceState(null, "", location.pathname);
  });
  panel.addEventListener("click", async (event) => {
    if (event.target === panel || event.target.dataset.close) panel.close();
    const stop = event.target.dataset.stop;
    if (!stop) return;
    try {
      tell((await ask("POST", `studies/${study}/trials/${stop}:stop`)).message);
    } catch (error) {
      tell(error.message);
    }
    panel.close();
  });
  window.addEventListener("hashchange", follow);

  return {
    follow,
    choose(trial) {
      location.hash = `trial=${trial}`;
    },
    refresh() {
      return panel.open ? load() : undefined;
    },
  };
}
