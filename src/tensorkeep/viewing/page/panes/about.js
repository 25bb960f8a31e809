// What a checkpoint says of itself: metadata, files such as config.json beside it, and what was not read.

import { el } from "../base/dom.js";
import { badge, card, copyButton, note, table } from "../base/parts.js";
import { countText, counted, nameText, printable } from "../base/texts.js";

const LONG = 160; // characters of a value that are shown unfolded

export function about({ facts: asked }) {
  const pane = el("div", { class: "pane", "aria-busy": "true" }, el("header", { class: "title" }, el("h1", {}, "Metadata")));
  asked.then((found) => {
    pane.removeAttribute("aria-busy");
    pane.append(...cardsOf(found));
  }, (error) => pane.append(el("p", { class: "message bad", role: "alert" }, error.message)));
  return pane;
}

function cardsOf(found) {
  const cards = [];
  if (found.dangers.length) {
    cards.push(card("Could only do harm", { wide: true }, note("The pickles in this file use these names. A program that loads the file with pickle would call them; tensorkeep runs nothing."),
      table("Dangerous names", ["name", "what it does"], found.dangers.map(([name, deed]) => [mono(name), badge(printable(deed), "bad")]))));
  }
  if (found.n_unknowns) {
    const rest = found.n_unknowns - found.unknowns.length;
    cards.push(card("Not built", { wide: true }, note(`${counted(found.n_unknowns, "object")} of unknown classes. They are kept as the data that they would have been built from.`),
      table("Objects that were not built", ["place", "what it would be"], found.unknowns.map(([place, what]) => [mono(place), value(what)])),
      rest > 0 && note(`… and ${countText(rest)} more.`)));
  }
  cards.push(card("In the file", { wide: true }, found.metadata.length ? pairs("Metadata", found.metadata) : note("The file has no metadata.")));
  if (found.attributes.length) cards.push(card("Header", { wide: true }, pairs("Keys of the header", found.attributes)));
  if (found.strings.length) cards.push(card("Strings", { wide: true }, pairs("Arrays of strings", found.strings)));
  if (found.splits.length) cards.push(card("Split tensors", {}, table("Tensors and their pieces", ["tensor", ["pieces", "number"]], found.splits.map(([name, n]) => [mono(name), countText(n)]))));
  for (const file of found.beside) cards.push(card(nameText(file.name), { wide: true, tools: copyButton(file.text, nameText(file.name)) }, json(file.text)));
  return cards;
}

function pairs(caption, list) {
  const shown = list.slice(0, 1000);
  return [
    table(caption, ["key", "value"], shown.map(([key, text]) => [mono(key), value(text)])),
    list.length > shown.length && note(`… and ${countText(list.length - shown.length)} more.`),
  ];
}

function mono(text) {
  return el("bdi", { class: "mono" }, nameText(text));
}

/** Return a value from a file; a long one is folded, and JSON is written in lines. */
function value(text) {
  if (text.length <= LONG && !text.includes("\n")) return el("bdi", { class: "mono" }, printable(text));
  return el("details", {}, el("summary", { class: "mono" }, el("bdi", {}, `${printable(text.slice(0, 100))}…`), " ", el("span", { class: "dim" }, `${countText(text.length)} characters`)), json(text));
}

function json(text) {
  let written = text;
  try {
    written = text.length < 200_000 && /^\s*[[{]/.test(text) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  } catch {
    // it is shown as it is
  }
  return el("pre", { tabindex: 0 }, el("bdi", {}, written.split("\n").map(printable).join("\n")));
}
