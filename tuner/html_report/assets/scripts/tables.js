// Tables that sort by a column: numbers as numbers, empty cells last. Headers are buttons, so that the keyboard will do.
function compare(a, b) {
  if (a === "" || b === "") return (a === "") - (b === "");
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

const worth = (cell) => cell.dataset.value ?? cell.textContent;

function sort(table, column, header) {
  const before = header.getAttribute("aria-sort");
  const first = header.dataset.first ?? "ascending"; // best first, where the column has a best
  const order = before === first ? { ascending: "descending", descending: "ascending" }[first] : first;
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", order);
  const sign = order === "descending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map((row) => [worth(row.cells[column]), row]);
  rows.sort(([a], [b]) => (a !== "" && b !== "" ? sign : 1) * compare(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = el("button", { type: "button" }, header.textContent);
    button.addEventListener("click", () => sort(table, column, header));
    header.replaceChildren(button);
  });
}

// A row is shown that has all the words typed.
for (const field of document.querySelectorAll("input[data-filters]")) {
  const table = byId(field.dataset.filters);
  const rows = [...table.tBodies[0].rows];
  const count = byId(`count-${field.dataset.filters}`);
  const texts = new Map();
  const textOf = (row) => texts.get(row) ?? texts.set(row, [...row.cells].map((cell) => cell.textContent.toLowerCase()).join("\n")).get(row);
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => textOf(row).includes(word));
    count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    table.dispatchEvent(new Event("filtered"));
  };
  field.addEventListener("input", filter);
}

// The trials in the table's order, as they are sorted and filtered.
function trialsShown() {
  return [...document.querySelectorAll("tr[data-trial]:not([hidden])")].map((row) => row.dataset.trial);
}
