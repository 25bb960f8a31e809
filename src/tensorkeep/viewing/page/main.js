// The page: what the address says is what it shows.
//
// base/ has what everything is made of: elements, texts, the address, questions to the server, long lists.
// tree/ has the tensors and their modules; pictures/ draws numbers; panes/ has one file or folder for each view.

import { ask } from "./base/api.js";
import { go, here, onMove } from "./base/address.js";
import { el, fill } from "./base/dom.js";
import { linkAs } from "./base/links.js";
import { message, progressBar } from "./base/parts.js";
import { nameText, shortPath } from "./base/texts.js";
import { about } from "./panes/about.js";
import { check } from "./panes/check.js";
import { compare } from "./panes/compare/compare.js";
import { files } from "./panes/files.js";
import { overview } from "./panes/overview.js";
import { state } from "./panes/state.js";
import { steps } from "./panes/steps.js";
import { tensorPane } from "./panes/tensor/tensor.js";
import { Browser } from "./tree/browser.js";
import { Tensors } from "./tree/tensors.js";

const PANES = { overview, tensors: overview, tensor: tensorPane, files, about, state, check };
const TITLES = { overview: "Overview", tensors: "Tensors", files: "Files", about: "Metadata", state: "State", check: "Check" };
const SHOWN = ["view", "of", "store", "tensor", "map", "a", "b", "pair"]; // parts of the address that change what is shown

const place = Object.fromEntries(["brand", "which", "sections", "browser", "content", "status"].map((id) => [id, document.getElementById(id)]));
const opened = new Map(); // checkpoint -> its tree, tensors and facts, as a promise
const stepsOf = new Map(); // store -> its steps
const findings = new Map(); // checkpoint and tensor -> what a verification found
const browser = new Browser(place.browser, (of, node) => findings.size > 0 && node.places.some((t) => findings.has(`${of} ${t}`)));
let sides = [];
let running = new AbortController();

async function start() {
  const bar = progressBar("Reading the headers");
  fill(place.content, bar.element);
  ({ sides } = await ask("about"));
  await Promise.all(sides.filter((side) => side.is_store).map(async ({ of }) => stepsOf.set(of, (await ask("store", { of })).steps)));
  onMove((now, before) => {
    if (SHOWN.some((part) => now[part] !== before[part])) show();
    else browser.moved();
  });
  document.addEventListener("keydown", shortcut);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // "#content" would be taken for an address
    place.content.focus();
  });
  await show();
}

/** Return a checkpoint's tree, tensors and facts; asked for once. */
function open(of) {
  if (!opened.has(of)) {
    const asking = ask("tree", { of }).then((tree) => ({ tree, tensors: new Tensors(tree), facts: ask("facts", { of }) }));
    asking.catch(() => opened.delete(of));
    opened.set(of, asking);
  }
  return opened.get(of);
}

async function show() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const now = here();
  const view = isThere(now.view) ? now.view : firstView();
  const of = now.of ?? sides[0].first;
  const [a, b] = comparedSides(now);
  document.body.dataset.view = view;
  document.body.dataset.layout = view === "compare" || view === "steps" ? "wide" : "split";
  const context = {
    now, of, a, b, signal, open, findings,
    checkpoints: checkpoints(),
    store: sides.find((side) => side.is_store && (now.store ?? side.of) === side.of)?.of,
    isRemote: /^[a-z0-9+]+:\/\//i.test(sideOf(of)?.path ?? ""),
    pathOf: (each) => sideOf(each)?.path ?? "",
    announce: (text) => (place.status.textContent = text),
    onFindings: () => browser.rows.redraw(),
    onSteps: (store, list) => stepsOf.set(store, list),
  };
  try {
    if (document.body.dataset.layout === "split") {
      if (!of) throw new Error("There is no whole checkpoint here yet.");
      const { tree, tensors, facts } = await open(of);
      if (signal.aborted) return;
      navigation(view, of, tree);
      facts.then((found) => !signal.aborted && found.has_tree && navigation(view, of, tree, found), () => {});
      if (browser.tensors !== tensors) browser.show(tensors);
      else browser.moved();
      put(PANES[view]({ ...context, tree, tensors, facts }));
    } else {
      navigation(view, of);
      put(view === "compare" ? compare(context) : steps(context));
    }
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    navigation(view, of);
    put(el("div", { class: "pane" }, message(error)));
  }
  titled(view, now);
}

function put(pane) {
  fill(place.content, pane);
  place.content.scrollTop = 0;
  performance.mark("shown");
}

function isThere(view) {
  if (view === "compare") return checkpoints().length > 1;
  if (view === "steps") return sides.some((side) => side.is_store);
  return Object.hasOwn(PANES, view ?? "");
}

function firstView() {
  return sides.length > 1 ? "compare" : sides[0].is_store ? "steps" : "overview";
}

function comparedSides(now) {
  const known = checkpoints().map((each) => each.of);
  const last = sides.length > 1 ? sides.map((side) => side.first) : [known.at(-2) ?? known[0], known.at(-1)];
  return [now.a ?? last[0], now.b ?? last[1]];
}

function sideOf(of) {
  return sides.find((side) => side.of === String(of).split(":")[0]);
}

/** Return what can be opened: the sides, or the whole steps of stores. */
function checkpoints() {
  return sides.flatMap((side) => {
    const letter = sides.length > 1 ? `${side.of.toUpperCase()} · ` : "";
    if (!side.is_store) return [{ of: side.first, text: `${letter}${shortPath(side.path)}` }];
    return (stepsOf.get(side.of) ?? []).filter((each) => each.condition === "whole").map((each) => ({ of: each.of, text: `${letter}step ${each.step}` }));
  });
}

/** Show where one can go: the comparison, the steps, and the parts of the checkpoint. */
function navigation(view, of, tree = null, facts = null) {
  const isNow = (name) => view === name || (name === "tensors" && view === "tensor");
  const item = (name, text, changes, isShown = true) => linkAs({ "aria-current": isShown && isNow(name) ? "page" : null, class: name }, { view: name, ...changes }, text);
  const list = checkpoints();
  const many = [];
  const stores = sides.filter((side) => side.is_store);
  for (const side of stores) {
    const isAlone = stores.length === 1;
    const isShown = (here().store ?? stores[0].of) === side.of;
    many.push(item("steps", isAlone ? "Steps" : `Steps of ${side.of.toUpperCase()}`, { store: isAlone ? null : side.of, tensor: null, pair: null, map: null }, isShown));
  }
  if (list.length > 1) many.push(item("compare", "Compare", { tensor: null, map: null }));
  const select = el("select", { "aria-label": "Checkpoint", onchange: () => go({ of: select.value, view: ["compare", "steps"].includes(view) ? "overview" : view, map: null, q: null }) }, list.map((each) => el("option", { value: each.of, selected: each.of === of }, nameText(each.text, 60))));
  const parts = Object.entries(TITLES).filter(([name]) => of && (name !== "state" || facts?.has_tree));
  fill(place.which, list.length > 1 ? select : el("bdi", { class: "path", title: tree ? nameText(tree.path, 1000) : null }, nameText(shortPath(tree?.path ?? sides[0]?.path ?? "", tree?.index), 80)));
  fill(place.sections, many, many.length > 0 && el("span", { class: "divider", "aria-hidden": "true" }), parts.map(([name, text]) => item(name, text, name === "overview" ? { tensor: null, map: null } : { tensor: null })));
  place.sections.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function titled(view, now) {
  const what = view === "tensor" ? nameText(now.tensor ?? "", 80) : (TITLES[view] ?? (view === "steps" ? "Steps" : "Compare"));
  document.title = `${what} · ${nameText(shortPath(sides[0]?.path ?? ""), 80)} · tensorkeep`;
}

function shortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const isTyping = event.target.matches("input:not([type=checkbox], [type=range]), textarea, select");
  if (event.key === "/" && !isTyping && browser.tensors && document.body.dataset.layout === "split") {
    event.preventDefault();
    if (matchMedia("(max-width: 760px)").matches) go({ view: "tensors", tensor: null });
    browser.focusSearch();
  } else if (event.key === "Escape" && !event.target.closest("#browser") && document.body.dataset.layout === "split") {
    browser.focusTree();
  }
}

start().catch((error) => fill(place.content, el("div", { class: "pane" }, message(error))));
