// What to try next; of a study that goes on it is asked for by a button, as it takes a moment. What can be done from
// here has buttons: to go on, and to search the good region, whose study is shown before it is submitted.
import { ask, get, path } from "./api.js";
import { el, show, tell } from "./dom.js";

const KINDS = { grid: "a grid", narrowed: "narrower ranges" };

export function adviceOf(study, may) {
  const place = el("div", { id: "advice" });
  const next = el("div", { id: "next-study", tabindex: "-1" });
  const button = el("button", { type: "button", id: "ask-advice" }, "What to try next?");
  const section = el("section", { "data-keep": "", id: "advice-section" }, el("h2", {}, "Advice"), el("p", {}, button), place, next);
  let asked = false;

  async function load() {
    asked = true;
    button.disabled = true;
    show(place, el("p", { class: "soft" }, "Reckoning …"));
    try {
      const found = await get(path(["studies", study, "advice"]));
      show(place, found.items.length ? el("ul", {}, found.items.map((one) => lineOf(one, may()))) : el("p", { class: "soft" }, "Nothing yet: too few trials, or all is well."));
    } catch (error) {
      show(place, el("p", { class: "warning" }, error.message));
    }
    button.disabled = false;
  }

  // The study for the good region: shown, then submitted by a button of its own.
  async function refine(kind, submit) {
    const buttons = section.querySelectorAll("button");
    for (const one of buttons) one.disabled = true;
    if (!submit) show(next, el("p", { class: "soft" }, "Reckoning …"));
    try {
      const found = await ask("POST", `studies/${study}:refine`, { kind, submit });
      show(next, submit ? submittedOf(found.study) : shownOf(found, kind));
      if (!submit) next.focus();
    } catch (error) {
      show(next, el("p", { class: "warning" }, error.message));
    }
    for (const one of section.querySelectorAll("button")) one.disabled = false;
  }

  async function extend(limits) {
    try {
      await ask("PATCH", `studies/${study}`, { limits });
      tell(`Study @${study}: goes on to ${inWords(limits)}.`);
    } catch (error) {
      tell(error.message);
    }
  }

  button.addEventListener("click", load);
  section.addEventListener("click", (event) => {
    const { refine: kind, submitRefined, extend: limits } = event.target.dataset;
    if (kind) refine(kind, false);
    if (submitRefined) refine(submitRefined, true);
    if (limits) extend(JSON.parse(limits));
  });
  return {
    section,
    ready(row) {
      if (row.state === "finished" && !asked) load();
    },
  };
}

const inWords = (limits) => Object.entries(limits).map(([name, limit]) => `${limit} ${name.replaceAll("_", " ")}`).join(", ");

function lineOf({ text, command, verb, limits }, { submit, steer }) {
  const refines = verb === "refine" && submit && Object.entries(KINDS).map(([kind, words]) => [el("button", { type: "button", "data-refine": kind }, `Show it with ${words}`), " "]);
  const extends_ = verb === "extend" && steer && el("button", { type: "button", "data-extend": JSON.stringify(limits) }, `Go on to ${inWords(limits)}`);
  return el("li", { "data-key": text }, text, command && [" ", el("code", {}, command)], (refines || extends_) && el("p", {}, refines, extends_));
}

function shownOf({ summary, diff }, kind) {
  return [
    el("h3", {}, `The next study, with ${KINDS[kind]}`),
    el("p", {}, summary),
    el("pre", { class: "diff", tabindex: "0", "aria-label": "what changes" }, diff.map((line) => [markOf(line), "\n"])),
    el("p", {}, el("button", { type: "button", "data-submit-refined": kind }, "Submit it")),
  ];
}

function markOf(line) {
  if (line.startsWith("+") && !line.startsWith("+++")) return el("ins", {}, line);
  if (line.startsWith("-") && !line.startsWith("---")) return el("del", {}, line);
  return line;
}

function submittedOf({ id, name }) {
  return el("p", {}, "Submitted as ", el("a", { href: `/studies/${id}` }, `@${id} ${name}`), "; it is checked now.");
}
