// Which page this is, and when it asks the server again.
import { accountPage } from "./account.js";
import { ask } from "./api.js";
import { comparePage } from "./compare.js";
import { el, show, tell } from "./dom.js";
import { overviewPage } from "./overview.js";
import * as stream from "./stream.js";
import { studyPage } from "./study.js";

const LEAST = 1000; // milliseconds between two reloads
const HIDDEN = 10000; // of a tab that nobody sees, whose title still tells
const SHARE = 4; // times as long as a reload took, so that a slow server isn't asked all the time
const MOST = 10000; // of that
const AFTER_FAILURE = 5000;
const SILENT = 15000; // after which devices, predictions and places in the queue have changed without an event
const main = document.getElementById("main");
let loaded = performance.now();
let timer = null; // of the next reload
let loading = false;
let took = null; // of the first time nothing is known: the script for figures comes then, too
let due = false; // something changed while it was read
let urgent = false; // and the user waits for it

function pageOf(address) {
  const study = /^\/studies\/(\d+)$/.exec(address.pathname);
  if (study) return studyPage(Number(study[1]), again);
  if (address.pathname === "/compare") return comparePage(new URLSearchParams(address.search).getAll("study").map(Number));
  if (address.pathname === "/account") return accountPage(again);
  return overviewPage(again);
}

const page = pageOf(location);

async function reload() {
  clearTimeout(timer);
  timer = null;
  loading = true;
  due = urgent = false;
  const begun = performance.now();
  let least = LEAST;
  try {
    await page.load();
    loaded = performance.now();
    stream.heardFrom(true);
  } catch (error) {
    least = AFTER_FAILURE;
    due = true;
    told(error);
  }
  took = took === null ? 0 : performance.now() - begun;
  loading = false;
  if (urgent) reload();
  else if (due) soon(least);
}

function told(error) {
  if (error.status === undefined) reportError(error);
  else if (error.status === 0) stream.heardFrom(false);
  else if (error.ofPage) {
    for (const panel of document.querySelectorAll("dialog[open]")) panel.close(); // a trial's, of a study that is gone
    show(main, el("p", { class: "soft" }, error.message));
  } else if (error.status !== 429) tell(error.message);
}

// Once for all that changes within a while.
function soon(least = LEAST) {
  due = true;
  if (loading || timer !== null) return;
  timer = setTimeout(reload, Math.max(document.hidden ? HIDDEN : least, Math.min(SHARE * took, MOST)));
}

// At once, as the user has done something.
function again() {
  urgent = loading;
  if (!loading) reload();
}

stream.onChange((word) => {
  if (word.study === null || page.studies === null || page.studies.includes(word.study)) soon();
});
setInterval(() => {
  if (!loading && performance.now() - loaded > SILENT) soon();
}, 1000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) again();
});
document.getElementById("leave")?.addEventListener("click", async () => {
  try {
    await ask("POST", "logout");
    location.replace("/login");
  } catch (error) {
    tell(error.message);
  }
});
again();
stream.begin();
