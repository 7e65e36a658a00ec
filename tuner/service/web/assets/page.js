// Keeps the page as it is on the server. All tabs share one stream, as browsers allow six connections to a server:
// the tab that holds the lock reads it, and tells the others.
const LEAST_PAUSE = 1000; // milliseconds between two reloads of the tables
const STALE = 40; // seconds without a word from the server, which says something every 15
const tabs = new BroadcastChannel("tuner-events");
const age = document.getElementById("age");
let heard = Date.now();
let connected = true;
let reload = null;

function take(word) {
  heard = Date.now();
  connected = word !== "lost";
  if (word === "change" && reload === null) {
    reload = setTimeout(show, LEAST_PAUSE);
  }
  tell();
}

async function show() {
  reload = null;
  try {
    const answer = await fetch("/?part=true");
    if (answer.status === 401) {
      location.replace("/login");
      return;
    }
    if (!answer.ok) {
      throw new Error(String(answer.status));
    }
    const found = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("main").replaceChildren(...found.body.childNodes);
    document.title = `${document.querySelector("[data-title]").dataset.title} · tuner`;
    take("fresh");
  } catch {
    connected = false;
    reload = setTimeout(show, 5 * LEAST_PAUSE);
    tell();
  }
}

function tell() {
  const seconds = Math.round((Date.now() - heard) / 1000);
  const fresh = connected && seconds < STALE;
  age.textContent = fresh ? "live" : `${seconds} s old, reconnecting`;
  age.className = fresh ? "fresh" : "stale";
}

function spread(word) {
  take(word);
  tabs.postMessage(word);
}

function listen() {
  const stream = new EventSource("/api/v1/events");
  stream.onopen = () => spread("fresh");
  stream.onerror = () => {
    connected = false;
    tell();
    if (stream.readyState === EventSource.CLOSED) {
      setTimeout(listen, 5 * LEAST_PAUSE); // refused, as by a limit: a browser alone would give up
    }
  };
  for (const kind of ["reset", "state", "progress", "priority", "deleted"]) {
    stream.addEventListener(kind, () => spread("change"));
  }
}

tabs.onmessage = (message) => take(message.data);
setInterval(() => {
  if (Date.now() - heard > 15000) {
    take("change"); // predictions and devices change without an event
  }
  tell();
}, 1000);
document.getElementById("leave").addEventListener("click", async () => {
  await fetch("/api/v1/logout", { method: "POST" });
  location.replace("/login");
});
navigator.locks.request("tuner-events", () => {
  listen();
  return new Promise(() => {}); // held until this tab closes
});
