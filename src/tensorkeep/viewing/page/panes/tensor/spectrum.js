// The singular values of a matrix, on request.

import { work } from "../../base/api.js";
import { el, fill } from "../../base/dom.js";
import { card, during, facts, note } from "../../base/parts.js";
import { countText, numberText } from "../../base/texts.js";
import { plot } from "../../pictures/plot.js";

// Limits of the smaller side: up to the first, all values are computed, then the largest.
const ALL = 2048;
const LARGEST = 16384;
const N_LARGEST = 64;

export function spectrumCard(slice, asked, context) {
  const place = el("div");
  let request = null;
  const run = () => {
    request = new AbortController();
    const signal = AbortSignal.any([request.signal, context.signal]);
    during(place, "Computing", (meanwhile) => work("spectrum", { ...asked, ...slice.parameters }, { signal, ...meanwhile }), (result) => drawn(result), "row");
  };
  const offer = () => {
    request?.abort();
    const side = Math.min(slice.n_rows, slice.n_columns);
    if (side > LARGEST) fill(place, note(`Available only if the smaller side is at most ${countText(LARGEST)}; here it is ${countText(side)}.`));
    else fill(place, el("button", { type: "button", class: "main", onclick: run }, side > ALL ? `Compute the ${N_LARGEST} largest of ${countText(side)} singular values` : `Compute ${countText(side)} singular value${side === 1 ? "" : "s"}`));
  };
  offer();
  slice.onChange(offer);
  return card("Singular values", {}, place);
}

function drawn(result) {
  const values = result.values.map(Number);
  return [
    plot([{ name: "singular value", points: values.map((value, place) => [place + 1, value]) }], { label: `${values.length} singular values from ${numberText(values[0])} to ${numberText(values.at(-1))}`, xName: "number", isLog: values.some((value) => value > 0), integers: true }),
    facts([
      ...(result.rank === null ? [] : [["Effective rank", numberText(result.rank, 4)]]),
      ["Stable rank", numberText(result.stable_rank, 4)],
      ["Largest", numberText(values[0], 5)],
      values.length < result.n_values
        ? ["Shown", `${countText(values.length)} of ${countText(result.n_values)}, to about 3 digits`]
        : ["Above rounding error", `${countText(values.filter((value) => value > Number(result.floor)).length)} of ${countText(values.length)}`],
    ]),
  ];
}
