// Figures, drawn by the script that the installed plotly brings; it comes once a figure is to be seen.
import { el } from "./dom.js";
import { dress, onPage } from "./figure_looks.js";
import { CATEGORIES, FONT, THEMES } from "./looks.js"; // those of the report's figures

export const LINES = CATEGORIES;
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let loading = null;

// The script takes a second to start: time in which the server reads. Where it doesn't come, `plot` tells.
export function prepare() {
  plotly().catch(() => {});
}

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const source = document.querySelector("script[data-plotly]").dataset.plotly;
    const script = el("script", { src: source });
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

export async function plot(place, traces, layout) {
  const drawn = await plotly();
  const shades = THEMES[dark.matches ? "dark" : "light"];
  const axis = { automargin: true, exponentformat: "e" }; // powers need styles that the page forbids
  const whole = {
    ...onPage(shades, FONT),
    margin: { l: 50, r: 10, t: 10, b: 40 },
    height: 340,
    hoverlabel: { namelength: -1 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis },
    yaxis: { ...axis, ...layout.yaxis },
  };
  dress(whole, shades);
  await drawn.react(place, traces, whole, { responsive: true, displaylogo: false, displayModeBar: false });
}

export function onTheme(redraw) {
  dark.addEventListener("change", redraw);
}

// Where plotly would take `<` and `&` for markup.
export const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
