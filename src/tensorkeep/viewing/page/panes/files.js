// Which file holds what.

import { el } from "../base/dom.js";
import { note } from "../base/parts.js";
import { countText, counted, nameText, shareText, sizeText } from "../base/texts.js";
import { Rows } from "../base/rows.js";
import { tensorLink } from "../tree/browser.js";

export function files({ tree, tensors }) {
  const within = tree.files.map(() => []);
  for (const t of tensors.all) within[tensors.file[t]]?.push(t);
  const most = tree.files.reduce((largest, file) => Math.max(largest, Number(file.nbytes) || 0), 1);
  const list = el("div", { class: "files" }, tree.files.slice(0, 2000).map((file, at) => fileOf(file, within[at], tensors, most, tree)));
  return el("div", { class: "pane" },
    el("header", { class: "title" }, el("h1", {}, "Files"), el("p", { class: "dim" }, `${counted(tree.files.length, "file")}, ${sizeText(tree.file_nbytes)}`)),
    list,
    tree.files.length > 2000 && note(`… and ${countText(tree.files.length - 2000)} more files.`));
}

function fileOf(file, places, tensors, most, tree) {
  const content = el("div", { class: "inside" });
  const fold = el("details", { class: "card file" },
    el("summary", {},
      el("bdi", { class: "mono" }, nameText(file.name)),
      el("span", { class: "dim" }, counted(file.n_tensors, "tensor")),
      el("span", { class: "number bar", style: { "--share": (file.nbytes ?? 0) / most } }, sizeText(file.nbytes ?? 0)),
      el("span", { class: "number dim" }, shareText(file.nbytes ?? 0, tree.file_nbytes))),
    content);
  fold.addEventListener("toggle", () => {
    if (fold.open && !content.firstChild) content.append(layout(places, tensors));
  });
  if (tree.files.length === 1) fold.open = true;
  return fold;
}

/** Return the tensors of a file, in the order in which they lie there. */
function layout(places, tensors) {
  if (!places.length) return note("This file holds no tensors.");
  const ordered = [...places].sort((one, other) => (tensors.offset[one] ?? Infinity) - (tensors.offset[other] ?? Infinity) || one - other);
  const scroller = el("div", { class: "listing", role: "table", "aria-label": "Tensors in the file", "aria-rowcount": ordered.length, style: { "--n": Math.min(ordered.length, 16) } });
  const make = () => {
    const cells = ["offset", "name", "dtype", "size"].map((kind) => el("span", { class: kind, role: "cell" }));
    const row = el("div", { class: "row", role: "row" }, cells);
    row.cells = cells;
    return row;
  };
  const rows = new Rows(scroller, make, (row, at) => {
    const t = ordered[at];
    row.setAttribute("aria-rowindex", at + 1);
    row.cells[0].textContent = tensors.offset[t] === null ? "–" : countText(tensors.offset[t]);
    row.cells[1].replaceChildren(tensorLink(tensors, t));
    row.cells[2].textContent = tensors.dtypeOf(t);
    row.cells[3].textContent = sizeText(tensors.nbytes[t]);
  });
  requestAnimationFrame(() => rows.show(ordered.length));
  return scroller;
}
