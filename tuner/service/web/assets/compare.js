// Studies side by side.
import { get, ofPage, path } from "./api.js";
import { el, show, table } from "./dom.js";
import { escaped, LINES, onTheme, plot } from "./figure.js";
import { short } from "./text.js";

export function comparePage(studies) {
  const main = document.getElementById("main");
  const place = el("div", { id: "comparison", class: "figure", "data-keep": "" });
  let found = null;
  onTheme(() => found && draw());

  function draw() {
    document.title = `${studies.map((study) => `@${study}`).join(" and ")} · tuner`;
    const columns = Object.keys(found.rows[0] ?? {});
    const lines = found.rows.map((row) => el("tr", {}, columns.map((name) => el("td", { class: typeof row[name] === "number" ? "number" : "setting", "data-name": name }, short(row[name])))));
    show(
      main,
      el("h2", {}, "Side by side"),
      el("p", { class: "conclusion" }, found.conclusion),
      table("comparison", columns.map((name) => [name.replaceAll("_", " "), found.rows.some((row) => typeof row[name] === "number") && "number"]), lines),
      el("h2", {}, `Best ${found.metric} so far`),
      place,
    );
    return plot(
      place,
      found.courses.map((course, index) => ({ x: course.epochs, y: course.values, mode: "lines", name: escaped(course.name), line: { color: LINES[index % LINES.length], shape: "hv", width: 2 } })),
      { uirevision: found.metric, xaxis: { title: { text: "epochs of all trials" } }, yaxis: { title: { text: escaped(found.metric) } } },
    );
  }

  return {
    studies,
    async load() {
      const asked = ofPage(get(path(["comparison"], { study: studies })), [404, 409, 422]);
      const [user, comparison] = await Promise.all([get("users/me"), asked]);
      document.getElementById("user").textContent = `${user.name}, ${user.role}`;
      found = comparison;
      await draw();
    },
  };
}
