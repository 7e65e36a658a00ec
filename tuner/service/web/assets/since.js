// What has happened since this browser last showed the page; kept in this browser alone.
import { el } from "./dom.js";
import { ago, plural, short } from "./text.js";

const KEY = "tuner-last-look";
const AWAY = 600; // seconds without a look, after which there is something to tell
const MOST = 8; // lines
let before = read();
let closed = false;

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY));
  } catch {
    return null;
  }
}

// Called after each look that somebody could see.
export function seen(found) {
  if (document.hidden) return;
  const now = Date.now() / 1000;
  if (before && now - before.time < AWAY && !before.kept) before = null; // was here a moment ago
  if (before) before.kept = true; // told until it is closed
  const best = Object.fromEntries(found.alive.filter((row) => row.progress?.best != null).map((row) => [row.id, row.progress.best]));
  try {
    localStorage.setItem(KEY, JSON.stringify({ time: now, user: found.user, best }));
  } catch {
    // a browser that keeps nothing: then nothing is told
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close=since]")) {
    closed = true;
    document.getElementById("since")?.remove();
  }
});

export function sinceLast(found) {
  const lines = closed || !before || before.user !== found.user || (!before.kept && Date.now() / 1000 - before.time < AWAY) ? [] : news(found);
  if (!lines.length) return null;
  return el(
    "section",
    { id: "since", "data-key": "since", "aria-label": "since you last looked" },
    el("h2", {}, `Since you last looked, ${ago(before.time)}`),
    el("ul", {}, lines.slice(0, MOST), lines.length > MOST && el("li", {}, `and ${plural(lines.length - MOST, "more change")}`)),
    el("button", { type: "button", "data-close": "since" }, "Close"),
  );
}

function news(found) {
  const link = (row) => el("a", { href: `/studies/${row.id}` }, `@${row.id} ${row.name}`);
  const ended = found.over
    .filter((row) => row.changed > before.time)
    .map((row) => el("li", {}, link(row), ` ${row.state === "cancelled" || row.state === "refused" ? "was " : row.state === "failed" ? "has " : ""}${row.state}`, row.why && `: ${row.why}`));
  const better = found.alive
    .filter((row) => row.progress?.best != null && isBetter(row, before.best[row.id]))
    .map((row) => el("li", {}, link(row), ` has a better ${row.progress.metric}: ${short(before.best[row.id])} became ${short(row.progress.best)}`));
  const begun = found.alive
    .filter((row) => row.changed > before.time && row.state === "running")
    .map((row) => el("li", {}, link(row), " has begun"));
  return [...ended, ...better, ...begun];
}

function isBetter(row, value) {
  if (value === undefined) return false;
  return row.progress.mode === "max" ? row.progress.best > value : row.progress.best < value;
}
