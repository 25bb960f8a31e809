// What is in a checkpoint, at a glance: totals, a map of sizes, dtypes, what deserves a look.

import { go, here } from "../base/address.js";
import { el, fill } from "../base/dom.js";
import { badge, card, facts, note } from "../base/parts.js";
import { countText, counted, nameText, shareText, shortPath, sizeText } from "../base/texts.js";
import { treemap } from "../pictures/treemap.js";
import { tensorAddress } from "../tree/browser.js";
import { link } from "../base/links.js";

const DIGESTS = { all: "every tensor", some: "some tensors", none: "none", stale: "do not match the header" };

export function overview({ tree, tensors, facts: asked }) {
  const concerns = el("div", { class: "concerns" });
  asked.then((found) => fill(concerns, concernsOf(tree, found)), () => {});
  return el("div", { class: "pane overview" },
    el("header", { class: "title" },
      el("h1", {}, el("bdi", {}, nameText(shortPath(tree.path, tree.index)))),
      el("p", { class: "chips" }, badge(tree.form, "form"), badge(counted(tree.n_tensors, "tensor")), badge(`${countText(tree.n_elements)} numbers`), badge(sizeText(tree.nbytes)))),
    concerns,
    mapCard(tensors),
    el("div", { class: "cards" },
      dtypesCard(tree),
      card("Facts", {}, facts([
        ["Path", el("bdi", { class: "mono" }, nameText(tree.path, 400)), "wide"],
        ["Index", tree.index && el("bdi", { class: "mono" }, nameText(tree.index))],
        ["Files", link({ view: "files" }, counted(tree.files.length, "file"))],
        ["Size on disk", sizeText(tree.file_nbytes)],
        ["Checksums (BLAKE3)", DIGESTS[tree.digests] ?? tree.digests],
        ["Tensors that share memory", Object.keys(tree.views).length || null],
      ]))));
}

function mapCard(tensors) {
  const prefix = here().map ?? "";
  const tools = el("nav", { class: "crumbs", "aria-label": "Module of the map" }, crumbs(prefix, tensors));
  return card("Sizes", { tools, wide: true }, treemap(tensors, prefix, {
    onModule: (next) => go({ map: next }),
    onTensor: (t) => go(tensorAddress(tensors, t)),
  }));
}

function crumbs(prefix, tensors) {
  if (!prefix) return el("span", { class: "dim" }, "Click a module to see its map");
  const parts = prefix.match(new RegExp(`[^${tensors.separator.source[1]}]*[${tensors.separator.source[1]}]`, "g")) ?? [prefix];
  const steps = parts.slice(0, 12).map((part, at) => link({ map: parts.slice(0, at + 1).join("") }, el("bdi", {}, nameText(part, 40))));
  return [link({ map: null }, "All"), " / ", steps];
}

function dtypesCard(tree) {
  const most = Math.max(...tree.totals.map((total) => Number(total.nbytes)), 1);
  const rows = tree.totals.map((total) => el("tr", {},
    el("th", { scope: "row" }, el("span", { class: "dtype" }, total.dtype)),
    el("td", { class: "number" }, countText(total.n_tensors)),
    el("td", { class: "number" }, countText(total.n_elements)),
    el("td", { class: "number bar", style: { "--share": total.nbytes / most } }, sizeText(total.nbytes)),
    el("td", { class: "number dim" }, shareText(total.nbytes, tree.nbytes))));
  const head = ["dtype", "tensors", "numbers", "bytes", "share"].map((text, at) => el("th", { scope: "col", class: at ? "number" : null }, text));
  return card("Dtypes", {}, rows.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Totals by dtype" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))) : note("There are no tensors."));
}

/** Return what one should know before using the checkpoint. */
function concernsOf(tree, found) {
  const list = [];
  if (found.dangers.length) list.push(["bad", link({ view: "about" }, `${counted(found.dangers.length, "name")} that could only do harm`), " in its pickles. Nothing was run."]);
  if (found.n_unknowns) list.push(["warn", link({ view: "about" }, counted(found.n_unknowns, "object")), " in its pickles were not built; all tensors are there."]);
  if (tree.digests === "stale") list.push(["warn", "Its checksums belong to another header. ", link({ view: "check" }, "Check it")]);
  return list.map(([kind, ...text]) => el("p", { class: `message ${kind}` }, text));
}
