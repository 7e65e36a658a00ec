// Which trial a point of a figure is of: its customdata or text says it, or the label of a whole curve. `known` tells ids.
export function trialAt(trace, index, known) {
  const { customdata, text, hovertemplate } = trace;
  const own = Array.isArray(customdata) ? customdata[index] : null;
  const id = Array.isArray(own) ? own[0] : own ?? (Array.isArray(text) ? text[index] : null);
  if (typeof id === "string" && known(id)) return id;
  const named = /trial ([\w.-]*\w)/.exec(typeof hovertemplate === "string" ? hovertemplate : "");
  return named && known(named[1]) ? named[1] : null;
}
