// One tensor on both sides: the numbers of the difference, its histogram and heatmap.

import { el } from "../../base/dom.js";
import { linkAs } from "../../base/links.js";
import { badge, card, note } from "../../base/parts.js";
import { nameText, numberText, shapeText } from "../../base/texts.js";
import { tensorLink } from "../../tree/browser.js";
import { Slice } from "../tensor/slice.js";
import { sliceCards } from "../tensor/slice_cards.js";
import { statisticsCards } from "../tensor/statistics.js";

export function pairPane(row, { first, second }, context) {
  const { a, b } = context;
  const { ta, tb, shapes } = row;
  const isComparable = shapes[0].join() === shapes[1].join() && row.status !== "unread" && Number(first.nbytes[ta]) > 0;
  const head = card("B − A", { wide: true, tools: linkAs({ class: "quiet button" }, { pair: null }, "Close") },
    el("h3", { class: "name" }, el("bdi", {}, nameText(row.name))),
    el("p", { class: "chips" },
      badge(row.dtypes[0] === row.dtypes[1] ? row.dtypes[0] : row.dtypes.join(" → "), "dtype"),
      badge(shapes[0].join() === shapes[1].join() ? shapeText(shapes[0]) : shapes.map(shapeText).join(" → ")),
      Number.isFinite(row.relative) && badge(`relative change ${numberText(row.relative, 3)}`)),
    el("p", {}, tensorLink(first, ta, "Open in A"), " · ", tensorLink(second, tb, "Open in B")));
  if (!isComparable) return [head, note("Their shapes differ, so their elements cannot be compared.")];
  const slice = new Slice(shapes[0], context);
  return [
    head,
    el("div", { class: "cards" },
      statisticsCards("difference", { a, ta, b, tb }, context, Number(first.nbytes[ta]) + Number(second.nbytes[tb])),
      sliceCards(slice, { of: b, t: tb, minus: a, minus_t: ta }, context, { withValues: false })),
  ];
}
