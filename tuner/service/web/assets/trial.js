// One trial in a window of its own: configuration, epochs, traceback, output, and a button that ends it.
import { ask, get, path } from "./api.js";
import { badge, el, show, table, tell } from "./dom.js";
import { factsOf, fateOf } from "./trial_parts.js"; // as in the report's panel

export function trialPanel(study, rowOf) {
  const content = el("div", {});
  const panel = el("dialog", { id: "trial", "aria-label": "trial" }, content);
  document.body.append(panel);
  let shown = null;
  let pressed = null; // where a click began
  let awaited = named() !== null; // the page was opened by a link to a trial, which may not have begun
  let warned = false; // that it hasn't

  function named() {
    return /^#trial=([\w.-]+)$/.exec(location.hash)?.[1] ?? null;
  }

  // "Back" leaves the page, however many trials were looked at.
  function open(link) {
    location.replace(link);
  }

  // An answer that comes when another trial is asked for, or none, is not shown.
  async function follow() {
    const before = shown;
    const wanted = (shown = named());
    if (wanted === null) {
      if (panel.open) panel.close();
      return;
    }
    try {
      await load();
    } catch (error) {
      if (!awaited || !warned) tell(error.message);
      warned = true;
      if (awaited || named() !== wanted) return;
      shown = before;
      leave(); // else the same link, clicked again, would change nothing
      return;
    }
    if (named() !== wanted) return;
    awaited = false;
    if (!panel.open) panel.showModal();
  }

  function leave() {
    if (named() !== null) history.replaceState(null, "", location.pathname);
  }

  async function load() {
    const wanted = shown;
    const trial = await get(path(["studies", study, "trials", wanted]));
    if (wanted === shown) draw(trial);
  }

  function draw(trial) {
    const { told } = trial;
    const parts = [
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
    ];
    show(content, el("div", { "data-key": trial.trial_id }, parts)); // nothing of another trial stays
  }

  // Beside the panel, not on its margin; who marks text and lets go beside it goes on reading.
  function isBeside({ clientX, clientY }) {
    const { left, right, top, bottom } = panel.getBoundingClientRect();
    return pressed === panel && (clientX < left || clientX > right || clientY < top || clientY > bottom);
  }

  panel.addEventListener("close", leave);
  panel.addEventListener("pointerdown", (event) => (pressed = event.target));
  panel.addEventListener("click", async (event) => {
    if ((event.target === panel && isBeside(event)) || event.target.dataset.close) panel.close();
    const stop = event.target.dataset.stop;
    if (!stop) return;
    try {
      tell((await ask("POST", `studies/${study}/trials/${stop}:stop`)).message);
    } catch (error) {
      tell(error.message);
    }
    panel.close();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#trial=']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(link.hash);
  });
  window.addEventListener("hashchange", () => {
    awaited = false;
    follow();
  });

  return {
    choose(trial) {
      open(`#trial=${trial}`);
    },
    refresh() {
      if (panel.open) return load();
      return awaited ? follow() : undefined;
    },
  };
}
