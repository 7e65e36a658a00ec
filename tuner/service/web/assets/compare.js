// Studies side by side.
import { get, ofPage, path } from "./api.js";
import { el, show, table } from "./dom.js";
import { onTheme, plot, titleApart } from "./figure.js";
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
    const { data, layout } = titleApart(found.figure);
    return plot(place, data, { ...layout, uirevision: found.metric });
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
