// What happens on the server. Browsers allow six connections to a server, so all tabs share one stream: the tab that
// holds the lock reads it, and tells the others. Where there are no locks, each tab has its own.
const AGAIN = 5000; // milliseconds until a refused stream is tried again
const STALE = 40; // seconds without a word from the server
const tabs = new BroadcastChannel("tuner-events");
const listeners = new Set();
const age = document.getElementById("age");
let heard = Date.now();
let connected = true;

export function onChange(listener) {
  listeners.add(listener);
}

// The server answered, or didn't.
export function heardFrom(answered) {
  connected = answered;
  if (answered) heard = Date.now();
  tell();
}

function take(word) {
  if (word.kind === "lost") {
    heardFrom(false);
    return;
  }
  heardFrom(true);
  if (word.kind !== "open") for (const listener of listeners) listener(word);
}

function spread(word) {
  take(word);
  tabs.postMessage(word);
}

function tell() {
  const seconds = Math.round((Date.now() - heard) / 1000);
  const fresh = connected && seconds < STALE;
  const text = fresh ? "live" : `${seconds} s old, reconnecting`;
  if (age.textContent !== text) age.textContent = text;
  age.className = fresh ? "fresh" : "stale";
}

function listen() {
  const stream = new EventSource("/api/v1/events");
  stream.onopen = () => spread({ kind: "open" });
  stream.onerror = () => {
    spread({ kind: "lost" });
    if (stream.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN); // a browser alone would give up
  };
  for (const kind of ["reset", "state", "progress", "priority", "deleted"]) {
    stream.addEventListener(kind, (event) => spread({ kind, study: JSON.parse(event.data).study ?? null }));
  }
}

export function begin() {
  tabs.onmessage = (message) => take(message.data);
  setInterval(tell, 1000);
  if (!navigator.locks) {
    listen();
    return;
  }
  navigator.locks.request("tuner-events", () => {
    listen();
    return new Promise(() => {}); // held until this tab closes
  });
}
