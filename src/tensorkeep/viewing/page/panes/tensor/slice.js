// Which matrix of a tensor is looked at: two of its dimensions, and a position in the others.

import { go, here } from "../../base/address.js";
import { el } from "../../base/dom.js";
import { countText } from "../../base/texts.js";

export class Slice {
  constructor(shape, context) {
    this.shape = shape;
    this.context = context;
    this.listeners = [];
    const { dims, at } = here();
    this.dims = placesIn(dims, shape.map(() => shape.length)) ?? (shape.length > 1 ? [shape.length - 2, shape.length - 1] : shape.length ? [0] : []);
    if (this.dims.length !== Math.min(2, shape.length) || new Set(this.dims).size !== this.dims.length) this.dims = shape.length > 1 ? [shape.length - 2, shape.length - 1] : [0].slice(0, shape.length);
    const positions = placesIn(at, shape);
    this.at = positions?.length === shape.length ? positions : shape.map(() => 0);
  }

  get n_rows() {
    return this.dims.length > 1 ? this.shape[this.dims[0]] : 1;
  }

  get n_columns() {
    return this.dims.length ? this.shape[this.dims.at(-1)] : 1;
  }

  /** Return the matrix as parameters of questions. */
  get parameters() {
    return this.shape.length ? { dims: this.dims.join(","), at: this.at.join(",") } : {};
  }

  /** Return a row or a column as parameters; a tensor of one dimension is one row. */
  line(isRow, place) {
    const at = [...this.at];
    if (this.dims.length > 1) at[this.dims[isRow ? 0 : 1]] = place;
    return { dim: isRow ? this.dims.at(-1) : this.dims[0], at: at.join(",") };
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  change(changes) {
    Object.assign(this, changes);
    go({ dims: this.dims.join(","), at: this.at.join(","), box: null, line: null }, { replace: true });
    for (const listener of this.listeners) listener();
  }

  /** Return controls for tensors of more than two dimensions. */
  controls() {
    if (this.shape.length <= 2) return null;
    const place = el("div", { class: "slicing", role: "group", "aria-label": "Slice" });
    const draw = () => place.replaceChildren(this.axis("Rows", 0, draw), this.axis("Columns", 1, draw), ...this.positions());
    draw();
    return place;
  }

  axis(name, side, draw) {
    const options = this.shape.slice(0, 64).map((extent, dim) => el("option", { value: dim, selected: dim === this.dims[side] }, `dimension ${dim} (${countText(extent)})`));
    const choose = (event) => {
      const dims = [...this.dims];
      const dim = Number(event.target.value);
      if (dims[1 - side] === dim) dims[1 - side] = dims[side];
      dims[side] = dim;
      this.change({ dims });
      draw();
    };
    return el("label", {}, name, el("select", { onchange: choose }, options));
  }

  positions() {
    return this.shape.slice(0, 64).map((extent, dim) => {
      if (this.dims.includes(dim)) return "";
      const number = el("input", { type: "number", min: 0, max: extent - 1, value: this.at[dim] });
      const range = el("input", { type: "range", min: 0, max: extent - 1, value: this.at[dim], "aria-label": `Position in dimension ${dim}` });
      const choose = (event) => {
        const value = Math.max(0, Math.min(extent - 1, Math.trunc(Number(event.target.value)) || 0));
        number.value = range.value = value;
        this.change({ at: this.at.map((old, place) => (place === dim ? value : old)) });
      };
      number.addEventListener("change", choose);
      range.addEventListener("change", choose);
      range.addEventListener("input", () => (number.value = range.value));
      return el("label", {}, `dimension ${dim}`, number, extent > 1 && range);
    });
  }
}

/** Read numbers of an address, each below a bound; null if anything else is there. */
function placesIn(text, bounds) {
  if (!/^\d+(,\d+)*$/.test(text ?? "")) return null;
  const places = text.split(",").map(Number);
  return places.every((place, at) => place < (bounds[at] ?? 0)) ? places : null;
}
