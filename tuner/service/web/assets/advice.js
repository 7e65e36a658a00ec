// What to try next; of a study that goes on it is asked for by a button, as it takes a moment.
import { get, path } from "./api.js";
import { el, show } from "./dom.js";

export function adviceOf(study) {
  const place = el("div", { id: "advice" });
  const button = el("button", { type: "button", id: "ask-advice" }, "What to try next?");
  const section = el("section", { "data-keep": "", id: "advice-section" }, el("h2", {}, "Advice"), el("p", {}, button), place);
  let asked = false;

  async function load() {
    asked = true;
    button.disabled = true;
    show(place, el("p", { class: "soft" }, "Reckoning …"));
    try {
      const found = await get(path(["studies", study, "advice"]));
      show(place, found.items.length ? el("ul", {}, found.items.map(lineOf)) : el("p", { class: "soft" }, "Nothing yet: too few trials, or all is well."));
    } catch (error) {
      show(place, el("p", { class: "warning" }, error.message));
    }
    button.disabled = false;
  }

  button.addEventListener("click", load);
  return {
    section,
    ready(row) {
      if (row.state === "finished" && !asked) load();
    },
  };
}

function lineOf({ text, command }) {
  return el("li", { "data-key": text }, text, command && [" ", el("code", {}, command)]);
}
