// Figures that the server draws, shown by the script that the installed plotly brings; it comes once one is to be seen.
import { el } from "./dom.js";
import { dress, onPage } from "./figure_looks.js";
import { FONT, THEMES, TITLE_LINE, TITLE_ROOM } from "./looks.js"; // those of the report's figures

const dark = window.matchMedia("(prefers-color-scheme: dark)");
let loading = null;

// The script takes a second to start: time in which the server reads. Where it doesn't come, `plot` tells.
export function prepare() {
  plotly().catch(() => {});
}

const source = () => document.querySelector("script[data-plotly]").dataset.plotly;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = el("script", { src: source() });
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => {
      loading = null;
      script.remove();
      reject(Object.assign(new Error("the script for figures didn't come; reload the page"), { status: null }));
    };
    document.head.append(script);
  });
  return loading;
}

const OPTIONS = { responsive: true, displaylogo: false, displayModeBar: false };

function dressed(layout) {
  const shades = THEMES[dark.matches ? "dark" : "light"];
  const whole = { ...onPage(shades, FONT), hoverlabel: { namelength: -1 }, ...layout };
  whole.xaxis ??= {};
  whole.yaxis ??= {};
  dress(whole, shades);
  return whole;
}

export async function plot(place, traces, layout) {
  const drawn = await plotly();
  const axis = { automargin: true, exponentformat: "e" }; // powers need styles that the page forbids
  const whole = { ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  await drawn.react(place, traces, dressed(whole), OPTIONS);
}

// Some figures need styles, or code that plotly compiles, which this page forbids: a page without rights draws them. It
// tells which point of which trace is clicked.
export function frameOf(attributes, onClick) {
  const frame = el("iframe", { ...attributes, sandbox: "allow-scripts", src: source().replace("plotly.js", "drawing.html") });
  let drawing = null; // the newest, until there is a page for it
  let ready = false;
  const send = () => ready && drawing && frame.contentWindow.postMessage(drawing, "*");
  frame.addEventListener("load", () => {
    ready = true;
    send();
  });
  window.addEventListener("message", (event) => {
    if (event.source === frame.contentWindow) onClick(event.data.trace, event.data.point);
  });
  return {
    frame,
    draw(traces, layout) {
      drawing = { traces, layout: dressed(layout), options: OPTIONS };
      frame.height = layout.height;
      send();
    },
  };
}

// A report's figure has its title inside: here it stands above, as text, and its room goes.
export function titleApart({ data, layout }) {
  const { title, margin, height, ...rest } = layout;
  const lines = title.text.split("<br>");
  const room = TITLE_ROOM + TITLE_LINE * (lines.length - 1);
  const text = lines.join(" ").replaceAll("&lt;", "<").replaceAll("&amp;", "&");
  return { title: text, data, layout: { ...rest, height: height - room, margin: { ...margin, t: Math.max(0, margin.t - room) } } };
}

export function onTheme(redraw) {
  dark.addEventListener("change", redraw);
}
