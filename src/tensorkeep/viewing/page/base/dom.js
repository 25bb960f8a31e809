// Elements. Text is only ever text, so nothing from a file becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. `on…` are listeners, `style` is an object, true is an empty attribute; null and false are left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") styled(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

/** Set properties one by one: a `style` attribute would be inline style, which the page's policy forbids. */
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
