// A matrix as colors, from a sample of all of it to single values: a canvas that is moved and zoomed.

import { numbersIn } from "../base/api.js";
import { el, fill } from "../base/dom.js";
import { countText, numberText } from "../base/texts.js";
import { imageOf, isLight, onScheme, palette } from "./colors.js";
import { Window } from "./window.js";

const PIXELS = 512; // most rows and columns of a sample
const CELL = { width: 46, height: 17 }; // pixels in which a value can be read
const LOWEST = 140;
const HIGHEST = 440;

export class Heatmap {
  /** `load({rows, columns, height, width}, signal)` gives a sample; `onPick(row, column)` and `onWindow(text)` tell what is done. */
  constructor(n_rows, n_columns, { load, onPick, onWindow, window: text, signal, onError }) {
    Object.assign(this, { load, onPick, onWindow, signal, onError });
    this.window = new Window(n_rows, n_columns);
    this.window.text = text;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `Heatmap of ${countText(n_rows)} rows and ${countText(n_columns)} columns` });
    this.readout = el("p", { class: "readout" });
    this.scaleText = [el("span"), el("span")];
    this.element = el("div", { class: "heatmap" },
      this.canvas,
      el("div", { class: "under" },
        el("div", { class: "buttons" },
          el("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.zoom(0.5) }, "+"),
          el("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.zoom(2) }, "−"),
          el("button", { type: "button", onclick: () => this.reset() }, "Whole")),
        el("div", { class: "legend", "aria-hidden": "true" }, this.scaleText[0], el("i", { class: "ramp" }), this.scaleText[1])),
      this.readout);
    this.layers = []; // the sample of all, and the one of what is in sight
    this.listen();
    new ResizeObserver(() => this.resized()).observe(this.element);
    onScheme(() => this.recolor(), signal);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, this.shareAt(event)));
    canvas.addEventListener("pointerdown", (event) => {
      this.held = { x: event.offsetX, y: event.offsetY, isMoved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => (this.held ? this.drag(event) : this.say(event)));
    canvas.addEventListener("pointerup", (event) => {
      if (this.held && !this.held.isMoved) this.onPick(...this.placeAt(event));
      this.held = null;
    });
    canvas.addEventListener("pointercancel", () => (this.held = null));
    canvas.addEventListener("pointerleave", () => this.describe());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  resized() {
    const width = this.element.clientWidth;
    if (!width || width === this.width) return;
    const [n_rows, n_columns] = this.window.n;
    this.width = width;
    this.height = Math.round(Math.max(Math.min(LOWEST, n_rows * 40), Math.min(HIGHEST, (width * n_rows) / n_columns)));
    const ratio = devicePixelRatio;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.changed();
  }

  /** Draw what there is, and ask for what is in sight. */
  changed() {
    this.canvas.classList.toggle("near", !this.window.isWhole);
    this.draw();
    this.describe();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refine(), this.layers.length ? 90 : 0);
  }

  async refine() {
    this.request?.abort();
    this.request = new AbortController();
    const signal = AbortSignal.any([this.request.signal, this.signal]);
    this.onWindow(this.window.text);
    try {
      if (!this.layers.length) this.layers.push(await this.sample(new Window(...this.window.n), 0, signal));
      this.layers.length = 1;
      if (!this.window.isWhole) this.layers.push(await this.sample(this.window, 0.25, signal));
      this.draw();
      this.describe();
    } catch (error) {
      if (error.name !== "AbortError") this.onError(error);
    }
  }

  async sample(window, margin, signal) {
    const [rows, columns] = window.ranges(margin);
    const size = { height: Math.min(PIXELS, Math.ceil(this.height * (1 + 2 * margin))), width: Math.min(PIXELS, Math.ceil(this.width * (1 + 2 * margin))) };
    const found = await this.load({ rows: rows.join(":"), columns: columns.join(":"), ...size }, signal);
    found.numbers = numbersIn(found.numbers);
    if (!this.scale) {
      this.scale = Number(found.scale) || 1;
      this.scaleText[0].textContent = numberText(-this.scale, 3);
      this.scaleText[1].textContent = numberText(this.scale, 3);
    }
    return this.painted(found);
  }

  painted(found) {
    const [height, width] = found.shape;
    found.image = el("canvas", { width, height });
    if (width && height) found.image.getContext("2d").putImageData(imageOf(found.numbers, width, height, this.scale, palette()), 0, 0);
    return found;
  }

  recolor() {
    this.layers.forEach((layer) => this.painted(layer));
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const ratio = devicePixelRatio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    for (const layer of this.layers) {
      const [y, yEnd] = [layer.rows.start, layer.rows.start + layer.shape[0] * layer.rows.step].map((row) => this.pixel(0, row));
      const [x, xEnd] = [layer.columns.start, layer.columns.start + layer.shape[1] * layer.columns.step].map((column) => this.pixel(1, column));
      context.imageSmoothingEnabled = (xEnd - x) / layer.shape[1] < 1;
      context.drawImage(layer.image, x, y, xEnd - x, yEnd - y);
    }
    this.write(context);
  }

  /** Write the values where cells are large enough. */
  write(context) {
    const layer = this.layers.at(-1);
    const cell = { width: this.width / this.window.extent(1), height: this.height / this.window.extent(0) };
    if (!layer?.is_exact || cell.width < CELL.width || cell.height < CELL.height) return;
    const colors = palette();
    context.font = "12px ui-monospace, monospace";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const [rows, columns] = this.window.ranges();
    for (let row = rows[0]; row < rows[1]; row += 1) {
      for (let column = columns[0]; column < columns[1]; column += 1) {
        const value = this.valueAt(row, column);
        if (value === undefined) continue;
        context.fillStyle = isLight(value, this.scale, colors) ? "#101a18" : "#ffffff";
        context.fillText(numberText(value, cell.width > 80 ? 5 : 3), this.pixel(1, column + 0.5), this.pixel(0, row + 0.5));
      }
    }
  }

  pixel(axis, place) {
    return ((place - this.window.start[axis]) / this.window.extent(axis)) * (axis ? this.width : this.height);
  }

  shareAt(event) {
    return [event.offsetY / this.height, event.offsetX / this.width];
  }

  placeAt(event) {
    return this.shareAt(event).map((share, axis) => {
      const place = Math.floor(this.window.start[axis] + share * this.window.extent(axis));
      return Math.max(0, Math.min(this.window.n[axis] - 1, place));
    });
  }

  /** Return the number at a place, or undefined where only neighbors are known. */
  valueAt(row, column) {
    const layer = this.layers.at(-1);
    if (!layer) return undefined;
    const [down, across] = [(row - layer.rows.start) / layer.rows.step, (column - layer.columns.start) / layer.columns.step];
    const isThere = Number.isInteger(down) && Number.isInteger(across) && down >= 0 && across >= 0 && down < layer.shape[0] && across < layer.shape[1];
    return isThere ? layer.numbers[down * layer.shape[1] + across] : undefined;
  }

  say(event) {
    const layer = this.layers.at(-1);
    if (!layer) return;
    const place = this.placeAt(event);
    const [row, column] = place.map((at, axis) => {
      const { start, step } = axis ? layer.columns : layer.rows;
      return start + Math.floor((at - start) / step) * step;
    });
    const value = this.valueAt(row, column);
    fill(this.readout, el("b", {}, `[${countText(row)}, ${countText(column)}]`), value === undefined ? "" : ` = ${numberText(value, 7)}`);
  }

  describe() {
    const [rows, columns] = this.window.ranges();
    const layer = this.layers.at(-1);
    const part = ([start, stop], n, what) => `${what} ${countText(start)} to ${countText(stop - 1)}${stop - start < n ? ` of ${countText(n)}` : ""}`;
    const steps = layer && !layer.is_exact ? `, every ${ordinal(layer.rows.step)}row and ${ordinal(layer.columns.step)}column` : layer ? ", every value" : "";
    this.readout.textContent = `${part(rows, this.window.n[0], "Rows")}, ${part(columns, this.window.n[1], "columns")}${steps}`;
  }

  drag(event) {
    const { held } = this;
    const [dx, dy] = [event.offsetX - held.x, event.offsetY - held.y];
    if (!held.isMoved && Math.hypot(dx, dy) < 4) return;
    this.held = { x: event.offsetX, y: event.offsetY, isMoved: true };
    this.move([-dy / this.height, -dx / this.width]);
  }

  /** Zoom by a pinch, or by the wheel if the picture has the focus; otherwise the page scrolls. */
  wheel(event) {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.canvas) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * (event.ctrlKey ? 0.01 : 0.002)))), this.shareAt(event));
  }

  key(event) {
    const moves = { ArrowUp: [-0.2, 0], ArrowDown: [0.2, 0], ArrowLeft: [0, -0.2], ArrowRight: [0, 0.2] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) this.move(moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.reset();
    else if (event.key === "Enter") this.onPick(...[0, 1].map((axis) => Math.floor((this.window.start[axis] + this.window.stop[axis]) / 2)));
    else return;
    event.preventDefault();
  }

  zoom(factor, at) {
    this.window.zoom(factor, at);
    this.changed();
  }

  move(shares) {
    this.window.move(shares);
    this.changed();
  }

  reset() {
    this.window.whole();
    this.changed();
  }
}

function ordinal(n) {
  const ends = { 1: "st", 2: "nd", 3: "rd" };
  return n === 1 ? "" : `${countText(n)}${(n % 100 > 10 && n % 100 < 14 ? null : ends[n % 10]) ?? "th"} `;
}
