// The report's figures of a study as it is now: the server draws them, one at a time is shown and drawn again in its place.
import { get, path } from "./api.js";
import { el, folded, show, table } from "./dom.js";
import { frameOf, onTheme, titleApart } from "./figure.js";
import { trialAt } from "./figure_trials.js";

const KINDS = {
  history: "History",
  tradeoff: "Trade-off",
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
const CHOOSING = 300; // milliseconds
const USUAL = 380; // pixels high: what stands below moves little once the first one is drawn

export function figuresOf(study, choose) {
  const title = el("p", { id: "figure-title" });
  const choices = Object.entries(KINDS).map(([kind, name]) => [el("label", {}, el("input", { type: "radio", name: "figure", value: kind, checked: kind === "history" }), ` ${name}`), " "]);
  const choice = el("div", { class: "toolbar", role: "radiogroup", "aria-label": "figure" }, choices);
  let found = null;
  let asked = 0; // an answer that a later one has overtaken is not shown
  let inView = false;
  let waits = null; // who goes through the choices by keys asks for the last one only
  const { frame, draw } = frameOf({ id: "figure", title: "figure", height: USUAL }, (trace, point) => {
    const trial = found?.data[trace] && trialAt(found.data[trace], point, (id) => /^\d{5,}$/.test(id));
    if (trial) choose(trial);
  });
  const room = el("div", {}, frame);
  const cells = el("div", {});
  const numbers = folded("Its numbers as a table", cells, tabulate);
  const section = el("section", { "data-keep": "", id: "figures-section" }, el("h2", {}, "Figures"), choice, title, room, numbers);
  const redraw = () => draw(found.data, { ...found.layout, uirevision: found.kind });
  choice.addEventListener("change", () => {
    say("Drawing …");
    clearTimeout(waits);
    waits = setTimeout(() => load(true), CHOOSING);
  });
  onTheme(() => found && redraw());
  new IntersectionObserver(([{ isIntersecting }]) => {
    inView = isIntersecting;
    load();
  }).observe(section);

  // What changes by itself isn't read aloud, but what was chosen is.
  function say(text, aloud = true) {
    title.ariaLive = aloud ? "polite" : "off";
    if (title.textContent !== text) title.textContent = text;
  }

  const chosenKind = () => choice.querySelector(":checked").value;

  async function tabulate() {
    const kind = chosenKind();
    const { columns, rows, left_out: more } = await get(path(["studies", study, "figures", kind, "table"]));
    if (kind !== chosenKind()) return;
    const lines = rows.map((row) => el("tr", {}, row.map((cell) => el("td", { class: "setting" }, cell))));
    const name = `numbers of the figure: ${KINDS[kind]}`;
    show(cells, rows.length ? table(name, columns.map((column) => [column]), lines) : el("p", { class: "soft" }, "None yet."), more > 0 && el("p", { class: "soft" }, `${more} more rows; all are in the run's files.`));
  }

  // The page waits for no figure, and one that nobody sees isn't drawn.
  async function load(chosen = false) {
    if (!inView) return;
    const number = (asked += 1);
    const kind = chosenKind();
    try {
      const told = titleApart(await get(path(["studies", study, "figures", kind])));
      if (number !== asked) return;
      found = { kind, ...told };
      frame.title = found.title;
      say(found.title, chosen);
      room.classList.toggle("broad", WIDE.includes(kind)); // a narrow screen scrolls it
      redraw();
      if (numbers.open) await tabulate();
    } catch (error) {
      if (number === asked) say(error.message, chosen);
    }
  }

  return { section, load: () => load() };
}
