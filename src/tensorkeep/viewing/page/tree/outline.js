// Which modules are open, as the list of rows that one sees.

import { childrenOf, topOf } from "./modules.js";

const FEW = 400; // tensors found by a search that are all shown at once
const AT_FIRST = 14; // rows that are opened at first, the largest modules first
const NOT_TOO_MANY = 40; // parts of a module that is opened so

export class Outline {
  constructor(tensors, { places = tensors.all, order = "name", isFlat = false, isFound = false } = {}) {
    this.tensors = tensors;
    this.order = order;
    this.isFlat = isFlat;
    this.top = topOf(tensors, places);
    this.rows = [...this.in(this.top)];
    if (isFound && places.length <= FEW) this.openAll();
    else this.openLargest();
  }

  in(node) {
    return childrenOf(this.tensors, node, this.order, this.isFlat);
  }

  /** Open or close the module at a place. */
  toggle(place) {
    const node = this.rows[place];
    if (!node?.isModule) return;
    if (node.isOpen) {
      let end = place + 1;
      while (end < this.rows.length && this.rows[end].level > node.level) end += 1;
      node.isOpen = false;
      this.rows = this.rows.slice(0, place + 1).concat(this.rows.slice(end));
    } else {
      node.isOpen = true;
      this.rows = this.rows.slice(0, place + 1).concat(this.shownIn(node), this.rows.slice(place + 1));
    }
  }

  /** Open what is around a tensor, and return its row, or -1 if it is not in the list. */
  reveal(t) {
    let place = this.rows.findIndex((node) => node.places.includes(t));
    while (place >= 0 && this.rows[place].isModule) {
      if (!this.rows[place].isOpen) this.toggle(place);
      const { level } = this.rows[place];
      let inner = place + 1;
      while (this.rows[inner]?.level > level && !this.rows[inner].places.includes(t)) inner += 1;
      place = this.rows[inner]?.level > level ? inner : -1;
    }
    return place;
  }

  openLargest() {
    while (this.rows.length < AT_FIRST) {
      const closed = this.rows.filter((node) => node.isModule && !node.isOpen && this.in(node).length <= NOT_TOO_MANY);
      if (!closed.length) return;
      this.toggle(this.rows.indexOf(closed.reduce((one, other) => (other.nbytes > one.nbytes ? other : one))));
    }
  }

  openAll() {
    for (let place = 0; place < this.rows.length; place += 1) {
      if (this.rows[place].isModule && !this.rows[place].isOpen) this.toggle(place);
    }
  }

  parentOf(place) {
    return this.rows.lastIndexOf(this.rows[place].parent, place);
  }

  shownIn(node) {
    const shown = [];
    const left = [...this.in(node)].reverse();
    while (left.length) {
      const next = left.pop();
      shown.push(next);
      if (next.isOpen) for (const child of [...this.in(next)].reverse()) left.push(child);
    }
    return shown;
  }
}
