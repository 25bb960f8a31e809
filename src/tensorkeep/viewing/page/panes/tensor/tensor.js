// A tensor: its facts, its statistics, and pictures of its numbers.

import { ask } from "../../base/api.js";
import { el, fill } from "../../base/dom.js";
import { badge, card, copyButton, facts, message, note } from "../../base/parts.js";
import { countText, nameText, shapeText, sizeText } from "../../base/texts.js";
import { tensorLink } from "../../tree/browser.js";
import { link } from "../../base/links.js";
import { Slice } from "./slice.js";
import { sliceCards } from "./slice_cards.js";
import { statisticsCards } from "./statistics.js";

export function tensorPane(context) {
  const { tensors, findings } = context;
  const t = tensors.find(context.now.tensor);
  if (t === undefined) return el("div", { class: "pane" }, message(new Error(`There is no tensor ${nameText(context.now.tensor ?? "")} here.`)));
  const place = el("div", { class: "cards" });
  const more = el("div", { class: "card wide" });
  const problem = findings.get(`${context.of} ${t}`);
  ask("tensor", { of: context.of, t }, context.signal).then(
    (found) => fill(more, factsOf(found, tensors)),
    (error) => error.name !== "AbortError" && fill(more, message(error)),
  );
  fill(place, numbersOf(context, t));
  return el("div", { class: "pane tensor" }, title(tensors, t), problem && el("p", { class: "message bad" }, problem), more, place);
}

function numbersOf(context, t) {
  const { tensors } = context;
  const shape = tensors.shape[t];
  const n_elements = shape.reduce((product, extent) => product * extent, 1);
  if (!n_elements) return card("Numbers", { wide: true }, note("It has no elements."));
  const asked = { of: context.of, t };
  const slice = new Slice(shape, context);
  return [statisticsCards("statistics", asked, context, Number(tensors.nbytes[t])), sliceCards(slice, asked, context)];
}

function title(tensors, t) {
  const name = tensors.name[t];
  const shape = tensors.shape[t];
  const n_elements = shape.reduce((product, extent) => product * extent, 1);
  return el("header", { class: "title" },
    el("p", { class: "back" }, link({ view: "tensors", tensor: null }, "← Tensors")),
    el("h1", {}, parts(tensors, name), " ", copyButton(name, "the name")),
    el("p", { class: "chips" }, badge(tensors.dtypeOf(t), "dtype"), badge(shapeText(shape)), badge(`${countText(n_elements)} number${n_elements === 1 ? "" : "s"}`), badge(sizeText(tensors.nbytes[t]))));
}

/** Return a name with its modules, which lead to their map. */
function parts(tensors, name) {
  const ends = [...name.matchAll(tensors.separator)].map((found) => found.index + 1);
  if (name.length > 300 || ends.length > 12) return el("bdi", {}, nameText(name, 600));
  const starts = [0, ...ends];
  return el("bdi", {}, starts.map((start, at) => {
    const text = nameText(name.slice(start, ends[at])) + (ends[at] === undefined ? "" : "\u200b");
    return ends[at] === undefined ? el("b", {}, name.slice(start) ? text : "“”") : link({ view: "overview", map: name.slice(0, ends[at]), tensor: null }, text);
  }));
}

function factsOf(found, tensors) {
  return facts([
    ["File", found.file && el("bdi", { class: "mono" }, nameText(found.file))],
    ["Bytes", found.span && `${countText(found.span[0])} to ${countText(found.span[1])}`],
    ["BLAKE3", found.digest && el("span", { class: "digest mono", title: found.digest }, found.digest, " ", copyButton(found.digest, "the digest")), "wide"],
    ["Saved from", found.library],
    ["Quantized", found.is_quantized && "yes; the numbers shown are what its blocks encode"],
    ["Shares memory with", found.view_of !== null && tensorLink(tensors, found.view_of)],
    ["Note", found.note && nameText(found.note)],
    ["Pieces", found.pieces.length > 1 && el("bdi", { class: "mono" }, found.pieces.slice(0, 20).map((piece) => nameText(piece)).join(", "))],
    ...found.marks.map(([key, text]) => [nameText(key, 40), nameText(text)]),
  ]);
}
