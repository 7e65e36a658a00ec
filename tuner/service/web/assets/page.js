// Which page this is, and when it asks the server again.
import { ask } from "./api.js";
import { comparePage } from "./compare.js";
import { el, show, tell } from "./dom.js";
import { overviewPage } from "./overview.js";
import * as stream from "./stream.js";
import { studyPage } from "./study.js";

const LEAST = 1000; // milliseconds between two reloads
const HIDDEN = 10000; // of a tab that nobody sees, whose title still tells
const SHARE = 4; // times as long as a reload took, so that a slow server isn't asked all the time
const AFTER_FAILURE = 5000;
const main = document.getElementById("main");
let timer = null;
let took = 0;
let due = 0;

function pageOf(address) {
  const study = /^\/studies\/(\d+)$/.exec(address.pathname);
  if (study) return studyPage(Number(study[1]), again);
  if (address.pathname === "/compare") return comparePage(new URLSearchParams(address.search).getAll("study").map(Number));
  return overviewPage(again);
}

const page = pageOf(location);

async function reload() {
  const begun = performance.now();
  try {
    await page.load();
    stream.heardFrom(true);
  } catch (error) {
    if (error.status === undefined) stream.heardFrom(false); // no answer
    else if (error.status === 404) show(main, el("p", { class: "soft" }, error.message));
    else if (error.status !== 429) tell(error.message);
    if (!(error instanceof TypeError) && error.status === undefined) console.error(error);
    took = performance.now() - begun;
    timer = null;
    soon(AFTER_FAILURE);
    return;
  }
  took = performance.now() - begun;
  timer = null;
  if (due) soon();
}

// Once for all that changes within a while.
function soon(least = LEAST) {
  if (timer === "loading") {
    due = 1;
    return;
  }
  const pause = Math.max(document.hidden ? HIDDEN : least, SHARE * took);
  if (timer !== null) return;
  due = 0;
  timer = setTimeout(() => {
    timer = "loading";
    reload();
  }, pause);
}

// At once, as the user has done something.
function again() {
  if (timer === "loading") {
    due = 1;
    return;
  }
  clearTimeout(timer);
  timer = "loading";
  due = 0;
  reload();
}

stream.onChange((word) => {
  if (word.study === null || page.study === null || page.study === word.study) soon();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) again();
});
document.getElementById("leave").addEventListener("click", async () => {
  await ask("POST", "logout");
  location.replace("/login");
});
again();
stream.begin();
