// The report's figures of a study as it is now: the server draws them, one at a time is shown and drawn again in its place.
import { get, path } from "./api.js";
import { el, tell } from "./dom.js";
import { frameOf, onTheme, titleApart } from "./figure.js";
import { trialAt } from "./figure_trials.js";

const KINDS = {
  history: "History",
  importance: "Importance",
  parallel: "Parallel coordinates",
  slice: "Slices",
  contour: "Contour",
  rank: "Ranks",
  timeline: "Timeline",
  savings: "Early stopping",
  costs: "Memory and speed",
};

const WIDE = ["parallel", "slice"];

export function figuresOf(study, choose) {
  const title = el("p", { id: "figure-title", role: "status" });
  const choices = Object.entries(KINDS).map(([kind, name]) => [el("label", {}, el("input", { type: "radio", name: "figure", value: kind, checked: kind === "history" }), ` ${name}`), " "]);
  const choice = el("div", { class: "toolbar", role: "radiogroup", "aria-label": "figure" }, choices);
  let found = null;
  let asked = 0; // an answer that a later one has overtaken is not shown
  const { frame, draw } = frameOf({ id: "figure", title: "figure" }, (trace, point) => {
    const trial = found?.data[trace] && trialAt(found.data[trace], point, (id) => /^\d{5,}$/.test(id));
    if (trial) choose(trial);
  });
  const room = el("div", {}, frame);
  const section = el("section", { "data-keep": "", id: "figures-section" }, el("h2", {}, "Figures"), choice, title, room);
  const redraw = () => draw(found.data, { ...found.layout, uirevision: found.kind });
  choice.addEventListener("change", () => {
    title.textContent = "Drawing …";
    load().catch((error) => tell(error.message));
  });
  onTheme(() => found && redraw());

  async function load(head) {
    const number = (asked += 1);
    const kind = choice.querySelector(":checked").value;
    const told = await get(path(["studies", study, "figures", kind]));
    await head; // what the figure stands in
    if (number !== asked) return;
    found = { kind, ...titleApart(told) };
    title.textContent = found.title;
    room.classList.toggle("broad", WIDE.includes(kind)); // a narrow screen scrolls it
    redraw();
  }

  return { section, load };
}
