// How much each layer changed: the first number in a name is its layer, the rest is what it is.

import { card, note } from "../../base/parts.js";
import { nameText, numberText } from "../../base/texts.js";
import { el } from "../../base/dom.js";
import { plot } from "../../pictures/plot.js";

const MOST = 8; // kinds of tensors with a color of their own

/** Return a plot of relative change by layer, or null if names have no numbers. */
export function layerPlot(rows, onPick) {
  const kinds = new Map();
  for (const row of rows) {
    const found = /(^|[./_])(\d{1,6})(?=[./_]|$)/.exec(row.name);
    if (!found || !(row.relative > 0) || !Number.isFinite(row.relative)) continue;
    const kind = row.name.slice(found.index + found[0].length).replace(/^[./_]/, "") || row.name.slice(0, found.index);
    if (!kinds.has(kind)) kinds.set(kind, []);
    kinds.get(kind).push([Number(found[2]), row]);
  }
  const layers = new Set([...kinds.values()].flat().map(([layer]) => layer));
  if (layers.size < 2) return null;
  const ordered = [...kinds].sort(([, one], [, other]) => other.length - one.length || median(other) - median(one));
  const rest = ordered.slice(MOST).flatMap(([, points]) => points);
  const groups = ordered.slice(0, MOST);
  if (rest.length) groups[MOST - 1] = ["others", [...groups[MOST - 1][1], ...rest]];
  const series = groups.map(([name, points]) => {
    const sorted = points.sort(([one], [other]) => one - other);
    return {
      name: nameText(name, 40),
      rows: sorted.map(([, row]) => row),
      points: sorted.map(([layer, row]) => [layer, row.relative]),
      texts: sorted.map(([, row]) => `${nameText(row.name, 60)}: ${numberText(row.relative, 3)}`),
    };
  });
  const legend = el("ul", { class: "keys" }, series.map(({ name }, at) => el("li", { class: `s${at % 8}` }, el("bdi", {}, name))));
  return card("Change by layer", { wide: true },
    plot(series, { label: `Relative change of ${layers.size} layers`, xName: "layer", isLog: true, isDots: true, height: 260, integers: true, onPick: (one, at) => onPick(one.rows[at]) }),
    legend,
    note("Relative change is the norm of B − A, divided by the norm of A. A point opens its tensor."));
}

function median(points) {
  const sorted = points.map(([, row]) => row.relative).sort((one, other) => one - other);
  return sorted[sorted.length >> 1];
}
