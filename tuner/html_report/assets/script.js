"use strict";

// Figures, each from the JSON beside it; those inside closed details are drawn when they are opened.
const narrow = window.matchMedia("(max-width: 600px)");

function draw(source) {
  const place = document.getElementById(source.dataset.plot);
  const { data, layout } = JSON.parse(source.textContent);
  const options = { responsive: true, displaylogo: false, displayModeBar: narrow.matches ? false : "hover" };
  if (narrow.matches) layout.margin = { ...layout.margin, l: 45, r: 8 };
  return Plotly.newPlot(place, data, layout, options);
}

for (const source of document.querySelectorAll("script[data-plot]")) {
  const closed = source.closest("details:not([open])");
  if (closed) closed.addEventListener("toggle", () => draw(source), { once: true });
  else draw(source);
}

for (const event of ["beforeprint", "afterprint"]) {
  window.addEventListener(event, () => document.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot)));
}

// Tables that sort by a column: numbers as numbers, empty cells last. Headers are buttons, so that the keyboard will do.
function compare(a, b) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

function sort(table, column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const text = (row) => row.cells[column].textContent;
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const order = compare(text(a), text(b));
    return descending && text(a) !== "" && text(b) !== "" ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    button.addEventListener("click", () => sort(table, column, header));
    header.replaceChildren(button);
  });
}

// A row is shown that has all the words typed.
for (const field of document.querySelectorAll("input[data-filters]")) {
  const rows = [...document.getElementById(field.dataset.filters).tBodies[0].rows];
  const count = document.getElementById(`count-${field.dataset.filters}`);
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent.toLowerCase()).join("\n");
      row.hidden = !words.every((word) => text.includes(word));
    }
    count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  };
  field.addEventListener("input", filter);
}
