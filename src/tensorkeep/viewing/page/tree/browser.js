// The list of tensors beside everything else: search, order, and a tree that is walked by keys.

import { go, here } from "../base/address.js";
import { el, fill } from "../base/dom.js";
import { linkAs } from "../base/links.js";
import { Rows } from "../base/rows.js";
import { countText, counted, nameText, shapeText, sizeText } from "../base/texts.js";
import { Outline } from "./outline.js";

const INDENTED = 14; // levels that are shown as such; a name may have thousands
const ORDERS = { name: "name", size: "size", dtype: "dtype", offset: "position in the file" };

export class Browser {
  /** `isFaulty(of, node)` says whether something is wrong with a tensor or in a module. */
  constructor(place, isFaulty) {
    this.isFaulty = isFaulty;
    this.search = el("input", { type: "search", id: "search", placeholder: "Search names and dtypes", autocomplete: "off", spellcheck: "false", "aria-label": "Search tensors by name and dtype", "aria-keyshortcuts": "/", maxlength: 500 });
    this.order = el("select", { "aria-label": "Order" }, Object.entries(ORDERS).map(([value, text]) => el("option", { value }, `by ${text}`)));
    this.grouped = el("input", { type: "checkbox", checked: true });
    this.found = el("p", { class: "found", role: "status" });
    this.tree = el("div", { class: "tree", role: "tree", "aria-label": "Tensors" });
    fill(
      place,
      el("div", { class: "tools" },
        el("div", { class: "searchbox" }, this.search, el("kbd", { "aria-hidden": "true" }, "/")),
        el("div", { class: "choices" }, this.order, el("label", { class: "check" }, this.grouped, "Modules"), this.found)),
      this.tree,
    );
    this.rows = new Rows(this.tree, makeRow, (row, at) => this.draw(row, at));
    this.focused = 0;
    this.selected = -1;
    this.search.addEventListener("input", () => go({ q: this.search.value }, { replace: true }));
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
    this.order.addEventListener("change", () => go({ sort: this.order.value === "name" ? null : this.order.value }, { replace: true }));
    this.grouped.addEventListener("change", () => go({ flat: this.grouped.checked ? null : "1" }, { replace: true }));
    this.tree.addEventListener("click", (event) => this.clicked(event));
    this.tree.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show the tensors of a checkpoint. */
  show(tensors) {
    this.tensors = tensors;
    this.asked = null;
    this.moved();
  }

  /** Follow the address: another search, order or tensor. */
  moved() {
    if (!this.tensors) return;
    const { q = "", sort = "name", flat, tensor } = here();
    const asked = JSON.stringify([q, sort, flat]);
    if (asked !== this.asked) this.list(q, sort in ORDERS ? sort : "name", Boolean(flat));
    this.asked = asked;
    const t = tensor === undefined ? -1 : (this.tensors.find(tensor) ?? -1);
    if (t !== this.selected) this.select(t);
  }

  list(q, order, isFlat) {
    if (this.search.value !== q) this.search.value = q;
    this.order.value = order;
    this.grouped.checked = !isFlat;
    const places = this.tensors.matching(q);
    this.outline = new Outline(this.tensors, { places, order, isFlat, isFound: Boolean(q.trim()) });
    this.marked = q.toLowerCase().split(/\s+/).filter(Boolean);
    this.focused = 0;
    this.rows.kept = -1;
    fill(this.found, q.trim() ? `${countText(places.length)} of ${countText(this.tensors.count)}` : counted(this.tensors.count, "tensor"));
    this.rows.show(this.outline.rows.length, { top: true });
    if (this.selected >= 0) this.select(this.selected, { isQuiet: Boolean(q) });
  }

  select(t, { isQuiet = false } = {}) {
    this.selected = t;
    if (t >= 0 && !isQuiet) {
      const n = this.outline.rows.length;
      const place = this.outline.reveal(t);
      if (this.outline.rows.length !== n) this.rows.show(this.outline.rows.length);
      if (place >= 0) {
        this.focused = place;
        this.rows.reveal(place);
      }
    }
    this.rows.redraw();
  }

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  focusTree() {
    if (this.outline.rows.length) this.focus(this.focused);
  }

  focus(place) {
    this.focused = Math.max(0, Math.min(place, this.outline.rows.length - 1));
    this.rows.reveal(this.focused);
    const row = this.rows.keep(this.focused);
    this.rows.redraw();
    row?.focus({ preventScroll: true });
  }

  searchKey(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (this.search.value) go({ q: null }, { replace: true });
      else this.focusTree();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      const first = this.outline.rows.findIndex((node) => !node.isModule);
      this.focus(event.key === "Enter" && first >= 0 ? first : 0);
      if (event.key === "Enter") this.open(this.focused);
    }
  }

  clicked(event) {
    const row = event.target.closest(".row");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.focus(row.place);
    this.open(row.place);
  }

  /** Open a module or close it; show a tensor. */
  open(place) {
    const node = this.outline.rows[place];
    if (!node) return;
    if (node.isModule) this.toggle(place);
    else go(tensorAddress(this.tensors, node.t));
  }

  toggle(place) {
    this.outline.toggle(place);
    this.rows.show(this.outline.rows.length);
    this.focus(place);
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const place = this.focused;
    const node = this.outline.rows[place];
    const moves = {
      ArrowDown: () => this.focus(place + 1),
      ArrowUp: () => this.focus(place - 1),
      PageDown: () => this.focus(place + this.rows.perPage),
      PageUp: () => this.focus(place - this.rows.perPage),
      Home: () => this.focus(0),
      End: () => this.focus(this.outline.rows.length - 1),
      ArrowRight: () => (node.isModule && !node.isOpen ? this.toggle(place) : node.isModule && this.focus(place + 1)),
      ArrowLeft: () => (node.isModule && node.isOpen ? this.toggle(place) : this.focus(Math.max(0, this.outline.parentOf(place)))),
      Enter: () => this.open(place),
      " ": () => this.open(place),
    };
    if (!node || !moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  draw(row, place) {
    const node = this.outline.rows[place];
    if (!node) return;
    const { tensors } = this;
    const { label, dtype, shape, size } = row.cells;
    const { name, what, nbytes } = textsOf(tensors, node);
    const type = node.isModule ? "" : tensors.dtypeOf(node.t);
    const isView = !node.isModule && tensors.views[node.t];
    if (this.marked.length) fill(label, marked(name, this.marked));
    else label.textContent = name;
    dtype.textContent = type;
    shape.textContent = what;
    size.textContent = nbytes;
    row.style.setProperty("--level", Math.min(node.level, INDENTED) - 1);
    row.style.setProperty("--share", node.parent.nbytes ? (node.nbytes / node.parent.nbytes).toFixed(3) : 0);
    const kind = node.isModule ? (node.isOpen ? "module open" : "module") : isView ? "leaf view" : "leaf";
    set(row, "class", `row ${kind}${this.isFaulty(tensors.of, node) ? " faulty" : ""}`);
    set(row, "aria-level", node.level);
    set(row, "aria-setsize", node.siblings);
    set(row, "aria-posinset", node.order);
    set(row, "aria-expanded", node.isModule ? node.isOpen : null);
    set(row, "aria-selected", !node.isModule && node.t === this.selected);
    set(row, "aria-label", `${name}, ${type || "module"}, ${what}, ${nbytes}`);
    set(row, "title", node.isModule ? null : nameText(tensors.name[node.t], 1000));
    set(row, "tabindex", place === this.focused ? 0 : -1);
  }
}

/** Return what is written of a module or a tensor. */
function textsOf(tensors, node) {
  node.texts ??= {
    name: nameText(node.label),
    what: node.isModule ? counted(node.places.length, "tensor") : shapeText(tensors.shape[node.t]),
    nbytes: sizeText(node.nbytes),
  };
  return node.texts;
}

/** Return what of the address changes to show a tensor. */
export function tensorAddress(tensors, t) {
  return { view: "tensor", of: tensors.of, tensor: tensors.handle(t), dims: null, at: null, box: null, line: null };
}

/** Return a link to a tensor. */
export function tensorLink(tensors, t, ...children) {
  return linkAs({ class: "name" }, tensorAddress(tensors, t), children.length ? children : el("bdi", {}, nameText(tensors.name[t])));
}

function makeRow() {
  const cells = { label: el("bdi", { class: "label" }), dtype: el("span", { class: "dtype" }), shape: el("span", { class: "shape" }), size: el("span", { class: "size" }) };
  const row = el("div", { class: "row", role: "treeitem" }, el("span", { class: "twist", "aria-hidden": "true" }), Object.values(cells));
  row.cells = cells;
  row.set = {};
  return row;
}

/** Set an attribute if it is not so already; a row that scrolls by has most of them. */
function set(row, name, value) {
  if (row.set[name] === value) return;
  row.set[name] = value;
  if (value === null) row.removeAttribute(name);
  else row.setAttribute(name, value);
}

/** Mark the words that were searched for. */
function marked(text, words) {
  if (!words.length) return [text];
  const lower = text.toLowerCase();
  const parts = [];
  let start = 0;
  while (start < text.length) {
    const hits = words.map((word) => [lower.indexOf(word, start), word.length]).filter(([at]) => at >= 0);
    if (!hits.length || lower.length !== text.length) break;
    const [at, length] = hits.reduce((one, other) => (other[0] < one[0] ? other : one));
    parts.push(text.slice(start, at), el("mark", {}, text.slice(at, at + length)));
    start = at + length;
  }
  return [...parts, text.slice(start)];
}
