// Elements of a page. All text goes in as text, never as markup.
export function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return made;
}
