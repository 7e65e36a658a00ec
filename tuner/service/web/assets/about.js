// What is known of a study beside its search: notes, who changed what, and its file, which can be submitted again.
import { ask, get, path } from "./api.js";
import { done, el, folded, show, table, tell } from "./dom.js";
import { SUBMITS } from "./looks.js";
import { moment, short } from "./text.js";

const LATEST = 50; // changes

export function aboutOf(study, again) {
  const notes = el("div", { "data-keep": "" });
  const changes = el("div", { "data-keep": "" });
  const file = el("textarea", { id: "study-file", spellcheck: "false", rows: 24, "aria-label": "the study's file" });
  const submit = el("button", { type: "button", hidden: true }, "Submit it as a new study");
  const submitted = el("p", { role: "status" });
  const write = el("form", { class: "toolbar" }, el("label", {}, "Note ", el("input", { name: "note", size: 50, maxlength: 1000, required: true })), el("button", {}, "Write it down"));
  const history = folded("Who changed what", changes, loadChanges);
  const source = folded("Study file", [file, el("p", {}, submit), submitted], loadFile);
  const section = el("section", { "data-keep": "", id: "about" }, el("h2", {}, "Notes and changes"), notes, history, source);
  let text = null; // of the file, as it was submitted
  write.addEventListener("submit", async () => {
    const answer = await done(ask("POST", `studies/${study}/notes`, { text: write.elements.note.value }));
    if (!answer) return;
    tell(answer.message);
    write.reset();
    again();
  });
  submit.addEventListener("click", async () => {
    submit.disabled = true; // a second click would submit it twice
    const made = await done(ask("POST", `studies/${study}:again`, { text: file.value }));
    submit.disabled = false;
    if (made) show(submitted, "Submitted as ", el("a", { href: `/studies/${made.id}` }, `@${made.id} ${made.name}`), "; it is checked now.");
  });

  async function loadChanges() {
    const { items } = await get(path(["studies", study, "history"], { limit: LATEST }));
    const lines = items.map(({ id, time, user, action, detail }) =>
      el("tr", { "data-key": String(id) }, el("td", {}, moment(time)), el("td", { class: "user" }, user || "the server"), el("td", {}, action), el("td", { class: "reason" }, inWords(detail))),
    );
    show(changes, items.length === LATEST && el("p", { class: "soft" }, `The last ${LATEST}.`), table("changes", [["when"], ["who"], ["what"], ["details"]], lines));
  }

  async function loadFile() {
    if (text !== null) return;
    ({ text } = await get(path(["studies", study, "file"])));
    file.value = text;
  }

  return {
    section,
    async ready(row, found) {
      const told = (found?.notes ?? []).map((note) => el("p", { class: "note", "data-key": String(note.time) }, note.text, " ", el("span", { class: "soft" }, `${note.by}, ${moment(note.time)}`)));
      show(notes, told, row.steerable && found ? write : !told.length && el("p", { class: "soft" }, "No notes."));
      submit.hidden = !SUBMITS.includes(row.role);
      file.readOnly = submit.hidden;
      if (history.open) await loadChanges();
    },
  };
}

function inWords(detail) {
  return Object.entries(detail).filter(([, value]) => value !== null).map(([name, value]) => `${name.replaceAll("_", " ")} ${short(value)}`).join(", ");
}
