// A picture that is drawn for the width it has, and again when that changes.

import { el } from "../base/dom.js";

/** Return a figure; `draw(width)` gives its content. */
export function drawn(label, draw, attributes = {}) {
  const figure = el("div", { class: "figure", role: "img", "aria-label": label, ...attributes });
  let last = 0;
  figure.draw = () => {
    last = figure.clientWidth;
    if (last) figure.replaceChildren(draw(last));
  };
  new ResizeObserver(() => {
    if (figure.clientWidth !== last) figure.draw();
  }).observe(figure);
  return figure;
}

/** Return the width in pixels of short texts such as labels of axes. */
export function textWidth(text) {
  return 6.6 * text.length + 4;
}
