// A matrix of a tensor as colors, one of its rows or columns as a line, its singular values, and its values as a table.

import { ask } from "../../base/api.js";
import { go, here } from "../../base/address.js";
import { el, fill } from "../../base/dom.js";
import { card, message } from "../../base/parts.js";
import { Heatmap } from "../../pictures/heatmap.js";
import { lineCard } from "./line.js";
import { spectrumCard } from "./spectrum.js";
import { valuesCard } from "./values.js";

/** Return the cards of a slice; `asked` names the tensor, and in comparisons what is subtracted. */
export function sliceCards(slice, asked, context, { withValues = true } = {}) {
  const line = lineCard(slice, asked, context);
  const values = withValues ? valuesCard(slice, asked, context) : null;
  const isMatrix = slice.shape.length > 1;
  const pick = (row, column) => {
    line.show(row, column);
    values?.show(row, column);
  };
  return [
    isMatrix && heatmapCard(slice, asked, context, pick),
    slice.shape.length > 0 && line.element,
    isMatrix && withValues && spectrumCard(slice, asked, context),
    values?.element,
  ];
}

function heatmapCard(slice, asked, context, pick) {
  const place = el("div");
  const draw = () => {
    const map = new Heatmap(slice.n_rows, slice.n_columns, {
      load: (part, signal) => ask("sample", { ...asked, ...slice.parameters, ...part }, signal),
      onPick: pick,
      onWindow: (box) => go({ box }, { replace: true }),
      window: here().box,
      signal: context.signal,
      onError: (error) => fill(place, message(error)),
    });
    fill(place, map.element);
  };
  draw();
  slice.onChange(draw);
  const hint = el("p", { class: "hint" }, "Drag to move, double-click or pinch to zoom, click to see a row, a column and values. Keys: arrows, +, −, 0.");
  return card("Heatmap", { wide: true }, slice.controls(), place, hint);
}
