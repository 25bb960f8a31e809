// Links to other places of the page.

import { addressOf } from "./address.js";
import { el } from "./dom.js";

/** Return a link that changes some parts of the address, whatever the others are by then. */
export function link(changes, ...children) {
  return linkAs({}, changes, ...children);
}

export function linkAs(attributes, changes, ...children) {
  const refresh = () => anchor.setAttribute("href", addressOf(changes));
  const anchor = el("a", { ...attributes, onclick: refresh, onpointerenter: refresh }, children);
  refresh();
  return anchor;
}
