// Lines, bands and points over two axes, with what is under the pointer in words.

import { svg } from "../base/dom.js";
import { numberText } from "../base/texts.js";
import { drawn, textWidth } from "./drawn.js";
import { extent, linear, logarithmic, powers, tickText, ticks } from "./scales.js";

/**
 * Draw series `{name, points: [[x, y]…], bands: [[x, low, high]…], texts: [text of each point]}`.
 *
 * Options: `label` for screen readers, `height`, `isLog`, `isDots`, `xName`, `marks` as `[[x, text]…]`, and
 * `onPick(series, place)` when a point is clicked.
 */
export function plot(series, options) {
  const figure = drawn(options.label, (width) => draw(width, series, { height: 220, ...options }));
  if (options.onPick) figure.classList.add("pickable");
  return figure;
}

function draw(width, series, { height, isLog, isDots, xName = "", marks = [], onPick, integers }) {
  const all = series.flatMap(({ points, bands = [] }) => [...points.map(([, y]) => y), ...bands.flatMap(([, low, high]) => [low, high])]);
  const shown = isLog ? all.filter((y) => y > 0) : all;
  const xs = extent(series.flatMap(({ points, bands = [] }) => [...points, ...bands].map(([x]) => x))) ?? [0, 1];
  let ys = extent(shown) ?? [isLog ? 0.1 : 0, 1];
  if (ys[0] === ys[1]) ys = isLog ? [ys[0] / 2, ys[1] * 2] : [ys[0] - (Math.abs(ys[0]) || 1) / 2, ys[1] + (Math.abs(ys[1]) || 1) / 2];
  const yTicks = isLog ? powers(...ys, 4) : ticks(...ys, 6);
  const left = Math.max(...yTicks.map((value) => textWidth(tickText(value)))) + 6;
  const [top, right, floor] = [marks.length ? 34 : 24, 14, height - 24];
  const x = linear(...xs, left, width - right);
  const y = (isLog ? logarithmic : linear)(...ys, floor - 4, top + 4);
  const rest = xName && `by ${xName}`;
  const readout = svg("text", { x: left, y: 13, class: "readout" }, rest);
  const cross = svg("line", { y1: top, y2: floor, class: "cross", visibility: "hidden" });
  const dot = svg("circle", { r: 5, class: "cursor", visibility: "hidden" });
  const over = svg("rect", { x: left - 6, y: 0, width: Math.max(0, width - left), height: floor + 20, class: "over" });
  const near = (event) => nearest(series, x, y, event.offsetX, event.offsetY, isDots, isLog);
  over.addEventListener("pointermove", (event) => {
    const found = near(event);
    for (const mark of [cross, dot]) mark.setAttribute("visibility", found ? "visible" : "hidden");
    if (!found) return;
    const { at, one } = found;
    const [px, py] = one.points[at];
    cross.setAttribute("x1", x(px));
    cross.setAttribute("x2", x(px));
    dot.setAttribute("cx", x(px));
    dot.setAttribute("cy", y(py));
    readout.textContent = one.texts?.[at] ?? `${series.length > 1 ? `${one.name} · ` : ""}${xName} ${numberText(px)}: ${numberText(py)}`;
  });
  over.addEventListener("pointerleave", () => {
    for (const mark of [cross, dot]) mark.setAttribute("visibility", "hidden");
    readout.textContent = rest;
  });
  if (onPick) {
    over.addEventListener("click", (event) => {
      const found = near(event);
      if (found) onPick(found.one, found.at);
    });
  }
  const xTicks = ticks(...xs, Math.max(2, Math.min(10, Math.floor(width / 90)))).filter((value) => !integers || Number.isInteger(value));
  return svg("svg", { width, height, class: "plot", "aria-hidden": "true" },
    yTicks.map((value) => [
      svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid" }),
      svg("text", { x: left - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, tickText(value))]),
    xTicks.map((value) => svg("text", { x: x(value), y: height - 6, class: "tick", "text-anchor": x(value) > width - 30 ? "end" : "middle" }, tickText(value))),
    svg("line", { x1: left, x2: width - right, y1: floor, y2: floor, class: "axis" }),
    marks.map(([at, text], place) => [
      svg("line", { x1: x(at), x2: x(at), y1: top, y2: floor, class: "mark" }),
      svg("text", { x: x(at) + (x(at) < left + 60 ? 0 : 4), y: 14 + 13 * (place % 2), class: "tick", "text-anchor": x(at) < left + 60 ? "start" : "end" }, text)]),
    series.map((one, place) => svg("g", { class: `series s${place % 8}` }, shapes(one, x, y, isDots, isLog))),
    readout, cross, dot, over);
}

function shapes({ points, bands = [] }, x, y, isDots, isLog) {
  const usable = points.filter(([, value]) => Number.isFinite(value) && (!isLog || value > 0));
  const found = [];
  const finite = bands.filter(([, low, high]) => Number.isFinite(low) && Number.isFinite(high));
  if (finite.length) {
    const upper = finite.map(([at, , high]) => `${x(at).toFixed(1)},${y(high).toFixed(1)}`);
    const lower = finite.map(([at, low]) => `${x(at).toFixed(1)},${y(low).toFixed(1)}`).reverse();
    found.push(svg("polygon", { points: [...upper, ...lower].join(" "), class: "band" }));
  }
  if (!isDots) found.push(svg("polyline", { points: usable.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" "), class: "line" }));
  if (isDots || usable.length <= 40) found.push(usable.map(([at, value]) => svg("circle", { cx: x(at).toFixed(1), cy: y(value).toFixed(1), r: isDots ? 3.5 : 2.5, class: "dot" })));
  return found;
}

/** Return the series and the place of the point nearest to the pointer: of lines the nearest in x. */
function nearest(series, x, y, px, py, isDots, isLog) {
  let best = null;
  for (const one of series) {
    one.points.forEach(([at, value], place) => {
      if (!Number.isFinite(value) || (isLog && value <= 0)) return;
      const [dx, dy] = [x(at) - px, y(value) - py];
      const distance = isDots ? dx * dx + dy * dy : dx * dx + dy * dy * 1e-4;
      if (!best || distance < best.distance) best = { one, at: place, distance };
    });
  }
  return best;
}
