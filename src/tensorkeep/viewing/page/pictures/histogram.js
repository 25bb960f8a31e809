// A histogram as bars, with counts on a linear or a logarithmic axis.

import { svg } from "../base/dom.js";
import { countText, numberText } from "../base/texts.js";
import { drawn } from "./drawn.js";
import { tickText, ticks } from "./scales.js";

const HEIGHT = 190;
const EDGE = { top: 22, right: 10, bottom: 22, left: 10 };

/** Draw bins; with `isLog` each unit of height is a factor of counts. */
export function histogram(title, { edges, counts }, { isLog = false, isByPower = false } = {}) {
  const most = counts.reduce((one, other) => Math.max(one, other), 0);
  const label = `${title}: ${counts.length} bins from ${numberText(edges[0])} to ${numberText(edges.at(-1))}, the largest with ${countText(most)}`;
  return drawn(label, (width) => draw(width, edges.map(Number), counts, most, isLog, isByPower));
}

function draw(width, edges, counts, most, isLog, isByPower) {
  const floor = HEIGHT - EDGE.bottom;
  const room = floor - EDGE.top;
  const step = (width - EDGE.left - EDGE.right) / counts.length;
  const heightOf = (count) => (count ? Math.max(2, (room * (isLog ? Math.log1p(count) / Math.log1p(most) : count / most))) : 0);
  const place = (at) => EDGE.left + at * step;
  const readout = svg("text", { x: EDGE.left, y: 13, class: "readout" }, `most: ${countText(most)}`);
  const bars = counts.map((count, at) => {
    const height = heightOf(count);
    return svg("rect", { x: place(at) + 0.5, y: floor - height, width: Math.max(step - 1, 0.8), height, rx: Math.min(2, step / 4), class: "bar" });
  });
  const over = svg("rect", { x: EDGE.left, y: 0, width: width - EDGE.left - EDGE.right, height: floor, class: "over" });
  let lit = null;
  over.addEventListener("pointermove", (event) => {
    const at = Math.max(0, Math.min(counts.length - 1, Math.floor((event.offsetX - EDGE.left) / step)));
    lit?.classList.remove("lit");
    lit = bars[at];
    lit.classList.add("lit");
    readout.textContent = `${numberText(edges[at], 4)} to ${numberText(edges[at + 1], 4)}: ${countText(counts[at])}`;
  });
  over.addEventListener("pointerleave", () => {
    lit?.classList.remove("lit");
    readout.textContent = `most: ${countText(most)}`;
  });
  return svg("svg", { width, height: HEIGHT, class: "histogram", "aria-hidden": "true" },
    readout,
    bars,
    svg("line", { x1: EDGE.left, x2: width - EDGE.right, y1: floor, y2: floor, class: "axis" }),
    (isByPower ? byPower(edges, place) : byValue(edges, place, counts.length)).map(([x, text]) =>
      svg("text", { x, y: HEIGHT - 6, class: "tick", "text-anchor": x < 40 ? "start" : x > width - 40 ? "end" : "middle" }, text)),
    over);
}

function byValue(edges, place, n) {
  const [low, high] = [edges[0], edges.at(-1)];
  return ticks(low, high, 5).map((value) => [place(((value - low) / (high - low)) * n), tickText(value)]);
}

function byPower(edges, place) {
  const every = Math.max(1, Math.ceil(edges.length / 6));
  return edges.map((edge, at) => [place(at), powerText(edge), at]).filter(([, , at]) => at % every === 0);
}

const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function powerText(value) {
  const power = Math.round(Math.log2(value));
  return `2${String(power).replace(/./g, (char) => (char === "-" ? "⁻" : DIGITS[char]))}`;
}
