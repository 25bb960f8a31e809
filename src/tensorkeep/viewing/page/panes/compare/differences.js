// Differences as a list, the largest change first.

import { el } from "../../base/dom.js";
import { note } from "../../base/parts.js";
import { Rows } from "../../base/rows.js";
import { nameText, numberText, shapeText } from "../../base/texts.js";
import { tensorLink } from "../../tree/browser.js";

const WORDS = { differs: "", dtype: "dtype differs", shape: "shape differs", bits: "different bits, equal numbers", unread: "not compared" };

/** Return a list of rows; a click on one that is on both sides calls `onPick(row)`. */
export function differences(list, { first, second, picked }, onPick) {
  if (!list.length) return note("None.");
  const changes = list.map((row) => row.relative).filter((value) => Number.isFinite(value) && value > 0);
  const [low, high] = [Math.min(...changes.slice(-1), 1), Math.max(...changes.slice(0, 1), 1e-12)];
  const share = (value) => (value > 0 && Number.isFinite(value) ? Math.max(0.03, low < high ? (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low)) : 1) : 0);
  const scroller = el("div", { class: "listing changes", role: "table", "aria-label": "Differences", "aria-rowcount": list.length, style: { "--n": Math.min(list.length, 18) } });
  const rows = new Rows(scroller, makeRow, (row, at) => draw(row, at));

  const draw = (row, at) => {
    const each = list[at];
    const [name, what, change, largest] = row.cells;
    row.setAttribute("aria-rowindex", at + 1);
    row.classList.toggle("chosen", each.tb !== undefined && each.ta === picked);
    const isPair = each.ta !== undefined && each.tb !== undefined;
    name.replaceChildren(isPair ? el("button", { type: "button", class: "name", onclick: () => onPick(each) }, el("bdi", {}, nameText(each.name))) : tensorLink(each.ta === undefined ? second : first, each.ta ?? each.tb));
    what.textContent = words(each);
    change.textContent = Number.isFinite(each.relative) ? numberText(each.relative, 3) : "";
    change.style.setProperty("--share", share(each.relative));
    largest.textContent = Number.isFinite(each.max_abs) ? numberText(each.max_abs, 3) : "";
  };
  requestAnimationFrame(() => rows.show(list.length));
  return [
    el("div", { class: "listing-head", "aria-hidden": "true" }, ["tensor", "what", "relative change", "largest"].map((text) => el("span", {}, text))),
    scroller,
  ];
}

function words({ status, dtypes, shapes }) {
  const [one, other] = dtypes;
  if (status === "dtype") return `${one} → ${other}`;
  if (status === "shape") return `${shapeText(shapes[0])} → ${shapeText(shapes[1])}`;
  return WORDS[status] || `${one} ${shapeText(shapes[0])}`;
}

function makeRow() {
  const cells = ["name", "what", "change", "largest"].map((kind) => el("span", { class: kind, role: "cell" }));
  const row = el("div", { class: "row", role: "row" }, cells);
  row.cells = cells;
  return row;
}
