// Statistics and histograms of a tensor, or of the difference of two.

import { work } from "../../base/api.js";
import { go, here } from "../../base/address.js";
import { el, fill } from "../../base/dom.js";
import { card, choice, during } from "../../base/parts.js";
import { countText, numberText, shareText, sizeText } from "../../base/texts.js";
import { histogram } from "../../pictures/histogram.js";

const AT_ONCE = { local: 4e9, remote: 64e6 }; // bytes that are read without being asked to

/** Return the cards of numbers and of their histogram, which fill when the server has read the tensor. */
export function statisticsCards(what, parameters, context, nbytes) {
  const numbers = el("div");
  const picture = el("div");
  const run = () => during(numbers, "Reading", (meanwhile) => work(what, parameters, { signal: context.signal, ...meanwhile }), (result) => {
    fill(picture, histograms(result));
    context.announce("Statistics are there.");
    return table(result);
  });
  if (nbytes <= (context.isRemote ? AT_ONCE.remote : AT_ONCE.local)) run();
  else fill(numbers, el("button", { type: "button", class: "main", onclick: run }, `Read ${sizeText(nbytes)}`));
  return [card("Statistics", {}, numbers), card("Histogram", {}, picture)];
}

function table(result) {
  const { n_elements } = result;
  const share = (n) => (n ? el("small", {}, ` ${shareText(n, n_elements)}`) : null);
  const pairs = [
    ["min", numberText(result.min, 6)],
    ["max", numberText(result.max, 6)],
    ["mean", numberText(result.mean, 6)],
    ["std", numberText(result.std, 6)],
    ["norm", numberText(result.norm, 6)],
    ["zeros", [countText(result.n_zeros), share(result.n_zeros)]],
    ["NaN", [countText(result.n_nan), share(result.n_nan)], result.n_nan],
    ["Inf", [countText(result.n_inf), share(result.n_inf)], result.n_inf],
    ["distinct", result.n_distinct === null || result.n_distinct === undefined ? null : countText(result.n_distinct)],
    ["relative change", result.relative === undefined ? null : numberText(result.relative, 4)],
    ["different", result.n_different === undefined ? null : [countText(result.n_different), share(result.n_different)]],
  ];
  return el("dl", { class: "numbers" }, pairs.filter(([, value]) => value !== null).map(([name, value, isBad]) =>
    el("div", { class: isBad ? "bad" : null }, el("dt", {}, name), el("dd", {}, value))));
}

function histograms(result) {
  const kinds = { values: result.histogram, magnitudes: result.magnitudes };
  if (!kinds.values.counts.length) return el("p", { class: "note" }, "There are no finite numbers.");
  const chosen = { kind: here().bins === "magnitudes" ? "magnitudes" : "values", scale: here().counts === "log" ? "log" : "linear" };
  const place = el("div");
  const draw = () => {
    const found = kinds[chosen.kind];
    fill(place, found.counts.length ? histogram(chosen.kind === "values" ? "By value" : "By magnitude", found, { isLog: chosen.scale === "log", isByPower: chosen.kind === "magnitudes" }) : el("p", { class: "note" }, "All numbers are zero."));
    go({ bins: chosen.kind === "values" ? null : chosen.kind, counts: chosen.scale === "linear" ? null : "log" }, { replace: true });
  };
  draw();
  return [
    el("div", { class: "choices" },
      choice("Bins", { values: "Values", magnitudes: "Magnitudes" }, chosen.kind, (kind) => {
        chosen.kind = kind;
        draw();
      }),
      choice("Counts", { linear: "Linear", log: "Log" }, chosen.scale, (scale) => {
        chosen.scale = scale;
        draw();
      })),
    place,
  ];
}
