// Two checkpoints: what is only in one, what differs, and by how much.

import { work } from "../../base/api.js";
import { go, here } from "../../base/address.js";
import { el, fill } from "../../base/dom.js";
import { linkAs } from "../../base/links.js";
import { card, choice, during, note, table } from "../../base/parts.js";
import { counted, nameText, printable } from "../../base/texts.js";
import { differences } from "./differences.js";
import { layerPlot } from "./layers.js";
import { pairPane } from "./pair.js";

const NAMES = { changed: "Changed", a: "Only in A", b: "Only in B", equal: "Equal" };

export function compare(context) {
  const { a, b } = context;
  const place = el("div", { class: "stack" });
  const pane = el("div", { class: "pane compare" },
    el("header", { class: "title" },
      el("h1", {}, "Compare"),
      el("p", { class: "sides" }, side("A", a, context), linkAs({ class: "swap", "aria-label": "Exchange the two sides", title: "Exchange" }, { a: b, b: a, pair: null }, "⇄"), side("B", b, context))),
    place);
  during(place, "Comparing", async (meanwhile) => {
    const [first, second, compared] = await Promise.all([context.open(a), context.open(b), comparison(a, b, context.signal, meanwhile)]);
    return { ...compared, first: first.tensors, second: second.tensors };
  }, (found) => shown(found, context));
  return pane;
}

const compared = new Map();

/** Compare two checkpoints; asked for once, so that one can look at tensor after tensor. */
async function comparison(a, b, signal, meanwhile) {
  const key = JSON.stringify([a, b]);
  if (!compared.has(key)) {
    const rows = [];
    const result = await work("compare", { a, b }, { signal, ...meanwhile, onRows: (more) => more.forEach((row) => rows.push(row)) });
    compared.set(key, { rows, result });
  }
  return compared.get(key);
}

function side(letter, of, context) {
  const options = context.checkpoints.map((each) => el("option", { value: each.of, selected: each.of === of }, nameText(each.text, 80)));
  const select = el("select", { "aria-label": `Checkpoint ${letter}`, onchange: () => go({ [letter.toLowerCase()]: select.value, pair: null }) }, options);
  return el("label", { class: "side" }, el("b", {}, letter), select);
}

function shown({ rows, first, second, result }, context) {
  const all = rows.map(([ta, tb, status, norm, relative, max_abs, n_different, norm_a]) => ({
    name: first.name[ta], ta, tb, status, norm: asNumber(norm), relative: asNumber(relative), max_abs: asNumber(max_abs), n_different, norm_a, dtypes: [first.dtypeOf(ta), second.dtypeOf(tb)], shapes: [first.shape[ta], second.shape[tb]],
  }));
  const lists = {
    changed: all.filter((row) => row.status !== "equal").sort((one, other) => rank(other) - rank(one)),
    a: result.only_in_a.map((t) => ({ name: first.name[t], ta: t, status: "only in A", shapes: [first.shape[t]], dtypes: [first.dtypeOf(t)] })),
    b: result.only_in_b.map((t) => ({ name: second.name[t], tb: t, status: "only in B", shapes: [second.shape[t]], dtypes: [second.dtypeOf(t)] })),
    equal: all.filter((row) => row.status === "equal"),
  };
  const picked = first.find(context.now.pair);
  const detail = el("div", { class: "detail" });
  const listing = el("div");
  const chosen = here().list in lists ? here().list : (Object.keys(lists).find((name) => lists[name].length) ?? "changed");
  const onPick = (row) => go({ pair: first.handle(row.ta), list: here().list ?? null });
  const list = (name) => fill(listing, differences(lists[name], { first, second, picked }, onPick));
  list(chosen);
  const options = Object.fromEntries(Object.entries(NAMES).map(([name, text]) => [name, `${text} ${lists[name].length.toLocaleString("en")}`]));
  const tabs = choice("Which tensors", options, chosen, (name) => {
    go({ list: name }, { replace: true });
    list(name);
  });
  const paired = all.find((row) => row.ta === picked);
  if (paired) fill(detail, pairPane(paired, { first, second }, context));
  context.announce(`${counted(lists.changed.length, "tensor")} differ`);
  return [
    el("p", { class: `verdict ${lists.changed.length + lists.a.length + lists.b.length + result.data.length ? "warn" : "good"}` }, summary(lists, result)),
    detail,
    lists.changed.length > 1 && layerPlot(lists.changed, onPick),
    card("Tensors", { tools: tabs, wide: true }, listing),
    result.data.length > 0 && dataCard(result.data),
    result.ties?.length > 0 && dataCard(result.ties, "Shared memory"),
  ];
}

function summary(lists, result) {
  const parts = [[lists.changed.length, "changed"], [lists.a.length, "only in A"], [lists.b.length, "only in B"]].filter(([n]) => n).map(([n, what]) => `${counted(n, "tensor")} ${what}`);
  if (result.data.length) parts.push(`${counted(result.data.length, "other value")} changed`);
  return parts.length ? `${parts.join(", ")}; ${counted(lists.equal.length, "tensor")} equal.` : `All ${counted(lists.equal.length, "tensor")} are equal.`;
}

function dataCard(list, title = "Other values") {
  const value = (text) => (text === null ? el("span", { class: "dim" }, "–") : el("bdi", { class: "mono" }, nameText(printable(String(text)), 300)));
  return card(title, { wide: true }, table(title, ["place", "A", "B"], list.slice(0, 500).map((each) => [el("bdi", { class: "mono" }, nameText(each.path)), value(each.a), value(each.b)])), list.length > 500 && note(`… and ${list.length - 500} more.`));
}

/** Order what cannot be compared by numbers before what can. */
function rank(row) {
  return Number.isFinite(row.relative) ? row.relative : row.status === "bits" ? -1 : Infinity;
}

function asNumber(value) {
  return value === null || value === undefined ? NaN : Number(value);
}

