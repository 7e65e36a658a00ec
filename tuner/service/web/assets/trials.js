// The trials of a study, best first, a part at a time: the server sorts and filters, and says what columns there are and
// what stands in each cell (tuner/results/trial_rows.py), as in reports and notebooks.
import { get, path } from "./api.js";
import { badge, el, show, table, tell } from "./dom.js";
import { STATUSES } from "./looks.js";

const PAGE = 50;
const NUMBERS = ["trial", "value", "number"]; // kinds of columns that stand at the right
const LONGEST = 200; // characters that the server takes
const PATIENCE = 250; // milliseconds after a key, before the server is asked

export function trialsOf(study, choose) {
  const rows = el("div", { id: "trials" });
  const filter = el("input", { type: "search", id: "trial-filter", maxlength: LONGEST, placeholder: "id, lr=0.1, out_of_memory …", "aria-keyshortcuts": "/" });
  const status = el("select", { id: "trial-status" }, el("option", { value: "" }, "all"), STATUSES.map((name) => el("option", { value: name }, name)));
  const order = el("select", { id: "trial-order" }, el("option", { value: "best" }, "best first"), el("option", { value: "started" }, "as started"));
  const more = el("button", { type: "button", id: "more-trials", hidden: true }, "Show more");
  const section = el(
    "section",
    { "data-keep": "", id: "trials-section" },
    el("h2", {}, "Trials"),
    el(
      "form",
      { class: "toolbar", role: "search", "aria-label": "trials" },
      el("label", { for: "trial-filter" }, "Filter "),
      filter,
      el("label", { for: "trial-status" }, "Status "),
      status,
      el("label", { for: "trial-order" }, "Order "),
      order,
    ),
    rows,
    more,
  );
  let shown = PAGE;
  let asked = 0; // an answer that a later one has overtaken is not shown
  let timer = null;

  async function load() {
    const number = (asked += 1);
    const found = [];
    let columns = [];
    let cursor = null;
    do {
      const query = { order: order.value, status: status.value, text: filter.value, cursor, limit: Math.min(200, shown - found.length) };
      const page = await get(path(["studies", study, "table"], query));
      if (number !== asked) return;
      columns = page.columns;
      found.push(...page.rows);
      cursor = page.cursor;
    } while (cursor && found.length < shown);
    more.hidden = !cursor;
    draw(columns, found);
  }

  function draw(columns, found) {
    const lines = found.map((row) => el("tr", { "data-key": row.trial, class: row.shorter && "shorter" }, row.cells.map((cell, index) => cellOf(row, columns[index], cell))));
    show(rows, lines.length ? table("trials", columns.map(({ name, kind }) => [name, NUMBERS.includes(kind) && "number"]), lines) : el("p", { class: "soft" }, filter.value || status.value ? "No trial fits the filter." : "No trial has begun."));
  }

  function asUserAsked() {
    load().catch((error) => tell(error.message));
  }

  function anew() {
    shown = PAGE;
    clearTimeout(timer);
    timer = setTimeout(asUserAsked, PATIENCE);
  }

  section.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", anew);
  status.addEventListener("change", anew);
  order.addEventListener("change", anew);
  more.addEventListener("click", () => {
    shown += PAGE;
    asUserAsked();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      filter.focus();
    }
  });

  return {
    section,
    load,
    find(text) {
      filter.value = text;
      status.value = "";
      anew();
      filter.focus();
    },
  };
}

function cellOf(row, { name, kind }, { text, aside }) {
  const more = aside && [" ", el("span", { class: "soft" }, aside)];
  if (kind === "trial") return el("td", { class: "number" }, el("a", { href: `#trial=${row.trial}` }, text), more);
  if (kind === "status") return el("td", {}, badge(row.status, text), more);
  return el("td", { class: `${NUMBERS.includes(kind) ? "number" : "setting"} ${kind}`, "data-name": name, title: text.length > 24 ? text : null }, text, more);
}
