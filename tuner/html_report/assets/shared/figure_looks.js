// How figures look on a page: no ground of their own, text and lines in the page's colours, which tuner/plots/base.py has.
export function onPage({ text }, font) {
  const clear = "rgba(0,0,0,0)";
  return { paper_bgcolor: clear, plot_bgcolor: clear, modebar: { bgcolor: clear }, font: { ...font, color: text } };
}

export function themed(layout, { text, grid }) {
  const changes = { "font.color": text, "modebar.color": text };
  for (const axis of Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))) {
    Object.assign(changes, { [`${axis}.gridcolor`]: grid, [`${axis}.zerolinecolor`]: grid });
  }
  return changes;
}

// Puts them into a layout that is not drawn yet.
export function dress(layout, shades) {
  for (const [path, value] of Object.entries(themed(layout, shades))) {
    const keys = path.split(".");
    const last = keys.pop();
    const inner = keys.reduce((found, key) => (found[key] ??= {}), layout);
    inner[last] = value;
  }
}
