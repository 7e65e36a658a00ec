// Pages are drawn again from data each time, and what differs is carried over to what is there: focus, chosen rows and
// what was typed stay.
import { el } from "./elements.js";

export { el };

const keyOf = (node) => node.dataset?.key ?? null;

// Elements among the children that are in the place already stay there: one that is taken out of a document, even if it
// is put back at once, loses focus and scrolling.
export function show(place, ...children) {
  const held = document.activeElement;
  const staying = new Map(); // what is there already, by what stands for it in the drawing
  const fresh = el(place.tagName, {}, ...children.flat(4).map((child) => (child?.parentNode === place ? standIn(child, staying) : child)));
  carryChildren(place, fresh, staying);
  if (held !== document.activeElement && place.contains(held)) held.focus({ preventScroll: true }); // its row has moved
}

function standIn(node, staying) {
  const made = document.createComment("");
  staying.set(made, node);
  return made;
}

function carry(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data && !reads(old)) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  const held = old === document.activeElement; // who works by keys would lose their place with a button that is off
  for (const { name, value } of fresh.attributes) {
    if (held && name === "disabled") old.setAttribute("aria-disabled", "true");
    else if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  carryChildren(old, fresh);
}

// Who marks a part of a long text, as of a log, would lose it.
function reads(text) {
  const marked = getSelection();
  return text.parentNode.nodeName === "PRE" && !marked.isCollapsed && marked.containsNode(text, true);
}

function carryChildren(old, fresh, staying = new Map()) {
  const stays = new Set(staying.values());
  const keyed = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  const wantedKeys = new Set([...fresh.childNodes].map(keyOf));
  const goes = (node) => keyOf(node) !== null && !wantedKeys.has(keyOf(node)); // before it, others would have to move
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    while (next && goes(next)) next = removed(next);
    const key = keyOf(wanted);
    const there = staying.get(wanted);
    if (there) while (next && !stays.has(next)) next = removed(next);
    const found = there ?? (key === null ? alike(next, wanted) : keyed.get(key));
    if (found) {
      keyed.delete(key);
      if (found === next) next = next.nextSibling;
      else old.insertBefore(found, next);
      if (!there) carry(found, wanted);
    } else {
      old.insertBefore(wanted, next);
    }
  }
  while (next) next = removed(next);
}

function removed(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

// What has `data-keep` is drawn by somebody else, as figures are.
function alike(node, wanted) {
  return node && node.nodeName === wanted.nodeName && keyOf(node) === null && node.dataset?.keep === undefined ? node : null;
}

export function badge(state, text = state) {
  return el("span", { class: `state ${state}` }, text);
}

// A study whose trials run outside the service.
export function external() {
  return el("span", { class: "state external", title: "workers ask for its trials and run them elsewhere" }, "external");
}

// What its notes have as #words.
export function tagsOf({ tags }) {
  return tags.map((tag) => [" ", el("span", { class: "state tag" }, `#${tag}`)]);
}

export function table(label, heads, rows, attributes = {}) {
  const cells = heads.map(([text, kind]) => el("th", { class: kind, scope: "col" }, text));
  const body = el("tbody", {}, rows);
  return el(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": label, ...attributes },
    el("table", {}, el("thead", {}, el("tr", {}, cells)), body),
  );
}

// Says something once, also to those who don't see it.
export function tell(text) {
  const place = document.getElementById("told");
  place.textContent = text;
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => (place.textContent = ""), 12000);
}

// The answer; where there is none, it is told why.
export async function done(answer) {
  try {
    return await answer;
  } catch (error) {
    tell(error.message);
    return null;
  }
}

// A part that is loaded when it is opened.
export function folded(name, content, load) {
  const made = el("details", {}, el("summary", {}, name), content);
  made.addEventListener("toggle", () => made.open && done(load()));
  return made;
}
