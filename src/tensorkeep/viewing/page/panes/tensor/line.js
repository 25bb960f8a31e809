// One row or column of a slice as a line; of a long one, mean and extremes of neighbors.

import { ask, numbersIn } from "../../base/api.js";
import { go, here } from "../../base/address.js";
import { el, fill } from "../../base/dom.js";
import { card, choice, message } from "../../base/parts.js";
import { countText } from "../../base/texts.js";
import { plot } from "../../pictures/plot.js";

export function lineCard(slice, asked, context) {
  const picture = el("div", { class: "steady" });
  const number = el("input", { type: "number", min: 0, "aria-label": "Index of the row or column" });
  const isMatrix = slice.shape.length > 1;
  const saved = /^(row|column):(\d{1,15})$/.exec(here().line ?? "");
  const chosen = { isRow: saved?.[1] !== "column", row: 0, column: 0 };
  if (saved) chosen[saved[1]] = Number(saved[2]);
  let request = null;

  const draw = async () => {
    const n = chosen.isRow ? slice.n_rows : slice.n_columns;
    const side = chosen.isRow ? "row" : "column";
    chosen[side] = Math.max(0, Math.min(chosen[side], n - 1));
    number.max = n - 1;
    number.value = chosen[side];
    request?.abort();
    request = new AbortController();
    try {
      const signal = AbortSignal.any([request.signal, context.signal]);
      const found = await ask("line", { ...asked, ...slice.line(chosen.isRow, chosen[side]) }, signal);
      fill(picture, drawn(found, isMatrix ? `${side} ${countText(chosen[side])}` : "Values"));
    } catch (error) {
      if (error.name !== "AbortError") fill(picture, message(error));
    }
  };
  const remember = () => go({ line: chosen.isRow && !chosen.row ? null : `${chosen.isRow ? "row" : "column"}:${chosen.isRow ? chosen.row : chosen.column}` }, { replace: true });
  const changed = () => {
    remember();
    return draw();
  };
  number.addEventListener("change", () => {
    chosen[chosen.isRow ? "row" : "column"] = Math.trunc(Number(number.value)) || 0;
    changed();
  });
  const sides = choice("Row or column", { row: "Row", column: "Column" }, chosen.isRow ? "row" : "column", (side) => {
    chosen.isRow = side === "row";
    changed();
  });
  slice.onChange(draw);
  if (slice.shape.length) draw();
  const tools = isMatrix ? el("div", { class: "choices" }, sides, number) : [];
  return {
    element: card("Line", { tools, wide: !isMatrix }, picture),
    show(row, column) {
      Object.assign(chosen, { row, column });
      changed();
    },
  };
}

function drawn(found, name) {
  const { start } = found.range;
  const step = found.is_exact ? (found.range.step ?? 1) : found.per_point;
  const at = (place) => start + place * step;
  const means = numbersIn(found.is_exact ? found.numbers : found.mean);
  const points = [...means].map((value, place) => [at(place), value]);
  let bands = [];
  if (!found.is_exact) {
    const [low, high] = [numbersIn(found.low), numbersIn(found.high)];
    bands = [...low].map((value, place) => [at(place), value, high[place]]);
  }
  const note = found.is_exact ? "" : `; line: mean of ${countText(found.per_point)} neighbors, band: their extremes`;
  return [plot([{ name, points, bands }], { label: `${name}, ${countText(points.length)} points`, xName: "position", integers: true }), el("p", { class: "readout" }, `${name}${note}`)];
}
