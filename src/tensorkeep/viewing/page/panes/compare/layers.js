// How much each layer changed: the first number in a name is its layer, what is before it the stack, the rest the kind.

import { el, fill } from "../../base/dom.js";
import { card, note } from "../../base/parts.js";
import { nameText, numberText } from "../../base/texts.js";
import { plot } from "../../pictures/plot.js";

const MOST = 8; // kinds of tensors with a color of their own
const MOST_POINTS = 2000; // of a stack, the largest changes
const NUMBER = /(^|[./_])(\d{1,6})(?=[./_]|$)/;
const OPTIMIZER = /^optimi[sz]er/;

/** Return a plot of relative change by layer, or null if names have no numbers. */
export function layerPlot(rows, onPick) {
  const stacks = stacksOf(rows);
  if (!stacks.length) return null;
  const place = el("div");
  const show = (at) => fill(place, drawn(stacks[at][1], onPick));
  show(0);
  const select = el("select", { "aria-label": "Stack of layers", onchange: () => show(Number(select.value)) }, stacks.map(([name], at) => el("option", { value: at }, nameText(name, 60))));
  return card("Change by layer", { wide: true, tools: stacks.length > 1 ? select : [] }, place,
    note("Relative change is the norm of B − A divided by the norm of A. Click a point to open its tensor."));
}

/** Return stacks of several layers as `[name, layers]`: models before optimizers, the largest first. The rows are, too. */
function stacksOf(rows) {
  const stacks = new Map();
  for (const row of rows) {
    const found = NUMBER.exec(row.name);
    if (!found || !(row.relative > 0) || !Number.isFinite(row.relative)) continue;
    const name = row.name.slice(0, found.index) || "layers";
    const kind = row.name.slice(found.index + found[0].length).replace(/^[./_]/, "") || name;
    if (!stacks.has(name)) stacks.set(name, []);
    if (stacks.get(name).length < MOST_POINTS) stacks.get(name).push({ kind, layer: Number(found[2]), row });
  }
  const isLater = ([name]) => (OPTIMIZER.test(name) ? 1 : 0);
  return [...stacks]
    .filter(([, layers]) => new Set(layers.map(({ layer }) => layer)).size > 1)
    .sort((one, other) => isLater(one) - isLater(other) || other[1].length - one[1].length)
    .slice(0, 20);
}

function drawn(layers, onPick) {
  const kinds = new Map();
  for (const each of layers) {
    if (!kinds.has(each.kind)) kinds.set(each.kind, []);
    kinds.get(each.kind).push(each);
  }
  const ordered = [...kinds].sort(([, one], [, other]) => other.length - one.length || median(other) - median(one));
  const groups = ordered.slice(0, MOST);
  const rest = ordered.slice(MOST).flatMap(([, points]) => points);
  if (rest.length) groups[MOST - 1] = ["others", [...groups[MOST - 1][1], ...rest]];
  const series = groups.map(([name, points]) => {
    const sorted = points.sort((one, other) => one.layer - other.layer);
    return {
      name: nameText(name, 40),
      rows: sorted.map(({ row }) => row),
      points: sorted.map(({ layer, row }) => [layer, row.relative]),
      texts: sorted.map(({ row }) => `${nameText(row.name, 60)}: ${numberText(row.relative, 3)}`),
    };
  });
  const n_layers = new Set(layers.map(({ layer }) => layer)).size;
  return [
    plot(series, { label: `Relative change of ${n_layers} layers`, xName: "layer", isLog: true, isDots: true, height: 260, integers: true, onPick: (one, at) => onPick(one.rows[at]) }),
    el("ul", { class: "keys" }, series.map(({ name }, at) => el("li", { class: `s${at % 8}` }, el("bdi", {}, name)))),
  ];
}

function median(points) {
  const sorted = points.map(({ row }) => row.relative).sort((one, other) => one - other);
  return sorted[sorted.length >> 1];
}
