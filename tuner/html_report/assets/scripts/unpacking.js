// What the page holds packed: texts as gzip in base85 (five letters for four bytes), among them plotly's script.
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
const DIGITS = new Uint8Array(128);
[...LETTERS].forEach((letter, digit) => { DIGITS[letter.charCodeAt(0)] = digit; });

function bytesOf(packed) {
  const lacking = (5 - (packed.length % 5)) % 5;
  const padded = packed + "~".repeat(lacking);
  const bytes = new DataView(new ArrayBuffer((padded.length / 5) * 4));
  for (let from = 0, to = 0; from < padded.length; from += 5, to += 4) {
    let number = 0;
    for (let index = from; index < from + 5; index += 1) number = number * 85 + DIGITS[padded.charCodeAt(index)];
    bytes.setUint32(to, number);
  }
  return bytes.buffer.slice(0, bytes.byteLength - lacking);
}

async function unpacked(source) {
  const stream = new Blob([bytesOf(source.textContent)]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).text();
}

const byId = (id) => document.getElementById(id);
const idle = window.requestIdleCallback ?? ((call) => setTimeout(call, 200));
const canDraw = () => document.documentElement.classList.contains("drawn");

// Where figures can't be drawn, the tables stay in their place.
function plainly(error) {
  document.documentElement.classList.remove("drawn");
  wake();
  for (const numbers of document.querySelectorAll("details.numbers")) numbers.open = true;
  console.warn(`The figures can't be drawn (${error}); their numbers are shown as tables.`);
}

let starting;
function plotly() {
  starting ??= unpacked(byId("plotly")).then((code) => {
    const script = document.createElement("script");
    script.textContent = code; // its hash is in the page's Content-Security-Policy
    document.head.append(script);
    script.remove();
    if (!window.Plotly) throw new Error("plotly did not start");
    return window.Plotly;
  });
  return starting;
}

let reading;
function details() {
  reading ??= unpacked(byId("trial-data")).then((text) => {
    const found = JSON.parse(text);
    found.byId = new Map(found.trials.map((trial) => [trial.id, trial]));
    return found;
  });
  return reading;
}

// Buttons that copy what stands in their data-copy.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await copied(button.dataset.copy);
  byId("said").textContent = `${button.textContent}: copied`;
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), 1500);
});
