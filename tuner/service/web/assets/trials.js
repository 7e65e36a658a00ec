// The trials of a study: best first, a page at a time, with every metric; the server sorts and filters.
import { get, path } from "./api.js";
import { badge, el, show, table } from "./dom.js";
import { short } from "./text.js";

const PAGE = 50;
const STATUSES = ["running", "completed", "stopped", "paused", "failed", "interrupted"];
const PATIENCE = 250; // milliseconds after a key, before the server is asked

export function trialsOf(study, choose) {
  const rows = el("div", { id: "trials" });
  const filter = el("input", { type: "search", id: "trial-filter", placeholder: "id, lr=0.1, out_of_memory …", "aria-keyshortcuts": "/" });
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
  let columns = { metrics: [], hyperparameters: [], metric: "" };

  async function load(head) {
    const number = (asked += 1);
    const found = [];
    let cursor = null;
    do {
      const query = { order: order.value, status: status.value, text: filter.value, cursor, limit: Math.min(200, shown - found.length) };
      const page = await get(path(["studies", study, "trials"], query));
      found.push(...page.items);
      cursor = page.cursor;
    } while (cursor && found.length < shown);
    await head; // which says what columns there are
    if (number !== asked) return;
    more.hidden = !cursor;
    draw(found);
  }

  function draw(found) {
    const { metrics, hyperparameters, metric } = columns;
    const others = metrics.filter((name) => name !== metric);
    const heads = [["trial", "number"], ["status"], [metric, "number"], ["epoch", "number"], ...others.map((name) => [name, "number"]), ...hyperparameters.map((name) => [name, numeric(found, name) && "number"])];
    const lines = found.map((trial) => {
      const config = flat(trial.config);
      return el(
        "tr",
        { "data-key": trial.trial },
        el("td", { class: "number" }, el("a", { href: `#trial=${trial.trial}` }, trial.trial)),
        el("td", {}, badge(trial.status), trial.cause && el("span", { class: "soft" }, ` ${trial.cause}`)),
        cell(metric, trial.best, "best"),
        cell("epoch", trial.epoch),
        others.map((name) => cell(name, trial.metrics[name])),
        hyperparameters.map((name) => cell(name, config[name], "setting")),
      );
    });
    show(rows, lines.length ? table("trials", heads, lines) : el("p", { class: "soft" }, filter.value || status.value ? "No trial fits the filter." : "No trial has begun."));
  }

  function anew() {
    shown = PAGE;
    clearTimeout(timer);
    timer = setTimeout(() => load(), PATIENCE);
  }

  section.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", anew);
  status.addEventListener("change", anew);
  order.addEventListener("change", anew);
  more.addEventListener("click", () => {
    shown += PAGE;
    load();
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
    columns(found) {
      columns = found;
    },
    find(text) {
      filter.value = text;
      status.value = "";
      anew();
      filter.focus();
    },
  };
}

function numeric(found, name) {
  return found.every((trial) => ["number", "undefined"].includes(typeof flat(trial.config)[name]));
}

function cell(name, value, kind = "") {
  const text = short(value);
  return el("td", { class: typeof value === "number" ? `number ${kind}` : `setting ${kind}`, "data-name": name, title: text.length > 24 ? text : null }, text);
}

export function flat(config, prefix = "") {
  return Object.entries(config).reduce((found, [name, value]) => {
    const nested = value !== null && typeof value === "object" && !Array.isArray(value);
    return { ...found, ...(nested ? flat(value, `${prefix}${name}.`) : { [prefix + name]: value }) };
  }, {});
}
