// What a user does with studies: one or many at once. Each is a separate request to the server, and refusals are shown.
import { ask } from "./api.js";
import { el, tell } from "./dom.js";
import { plural } from "./text.js";

const ALIVE = ["checking", "queued", "starting", "running", "pausing", "paused", "ending"];
const VERBS = {
  pause: { text: "Pause", states: ["queued", "starting", "running"], done: "asked to pause" },
  resume: { text: "Resume", states: ["paused", "pausing", "failed"], done: "in the queue again" },
  finish: {
    text: "Finish now",
    states: ["starting", "running", "paused", "pausing"],
    done: "asked to finish",
    sure: (what) => `End ${what} now, with a winner and a report?`,
  },
  cancel: {
    text: "Cancel",
    states: ALIVE,
    done: "cancelled",
    sure: (what) => `End ${what} without a winner or a report? The files stay.`,
  },
};

export function buttons(states) {
  return Object.entries(VERBS).map(([verb, { text, states: fit }]) =>
    el("button", { type: "button", "data-verb": verb, disabled: !states.some((state) => fit.includes(state)) }, text),
  );
}

export function settings(rank, any) {
  const highest = rank === "admin" ? 10 : 0;
  const disabled = !any;
  return [
    el("label", {}, "Priority ", el("input", { type: "number", name: "priority", min: -10, max: highest, size: 4, placeholder: "0", disabled })),
    el("button", { type: "button", "data-verb": "priority", disabled }, "Set"),
    el("label", {}, "Trials ", el("input", { type: "number", name: "trials", min: 1, size: 6, placeholder: "in all", disabled })),
    el("button", { type: "button", "data-verb": "extend", disabled }, "Extend to"),
  ];
}

// `rows` are those of the overview that the user may act on. Says what became of it; whether anything was done.
export async function perform(verb, rows, place) {
  const asked = requestOf(verb, place);
  if (asked === null) return false;
  const fit = VERBS[verb] ? rows.filter((row) => VERBS[verb].states.includes(row.state)) : rows;
  if (!fit.length) {
    tell(rows.length ? `None of these can do that: they are ${[...new Set(rows.map((row) => row.state))].join(", ")}.` : "Choose studies first.");
    return false;
  }
  const what = fit.length === 1 ? `study @${fit[0].id}` : plural(fit.length, "study").replace("studys", "studies");
  if (VERBS[verb]?.sure && !window.confirm(VERBS[verb].sure(what))) return false;
  const failed = [];
  for (const row of fit) {
    try {
      await asked(row.id);
    } catch (error) {
      failed.push(`@${row.id}: ${error.message}`);
    }
  }
  const done = fit.length - failed.length;
  const left = rows.length - fit.length;
  tell(
    [done && `${done === 1 ? `Study @${fit.find((row) => !failed.some((text) => text.startsWith(`@${row.id}:`))).id}` : `${done} studies`}: ${VERBS[verb]?.done ?? "changed"}.`, left && `${left} in another state left alone.`, ...failed]
      .filter(Boolean)
      .join(" "),
  );
  return true;
}

function requestOf(verb, place) {
  const number = (name) => {
    const field = place.querySelector(`[name=${name}]`);
    if (field.value === "" || !field.checkValidity()) {
      field.reportValidity();
      if (field.value === "") tell(`Type a number for ${name} first.`);
      field.focus();
      return null;
    }
    return Number(field.value);
  };
  if (verb === "priority") {
    const priority = number("priority");
    return priority === null ? null : (study) => ask("PATCH", `studies/${study}`, { priority });
  }
  if (verb === "extend") {
    const trials = number("trials");
    return trials === null ? null : (study) => ask("PATCH", `studies/${study}`, { limits: { trials } });
  }
  return (study) => ask("POST", `studies/${study}:${verb}`);
}

// Enter in a field of `settings` presses the button beside it: a form with two fields does nothing by itself.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches("#toolbar input[type=number]")) return;
  event.preventDefault();
  event.target.closest("label").nextElementSibling.click();
});
