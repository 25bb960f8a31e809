// A long list of which only the rows in sight are in the page.

const BEYOND = 8; // rows drawn above and below what is in sight
const MOST = 400; // rows in the page, however high the window

export class Rows {
  /** `make()` gives an empty row; `draw(row, place)` shows what is at a place in it. */
  constructor(scroller, make, draw) {
    this.scroller = scroller;
    this.make = make;
    this.draw = draw;
    this.count = 0;
    this.kept = -1; // a row that is drawn even out of sight, since it has the focus
    this.drawn = new Map();
    this.free = [];
    this.canvas = document.createElement("div");
    this.canvas.className = "rows";
    this.canvas.setAttribute("role", "presentation");
    scroller.append(this.canvas);
    this.height = 0;
    scroller.addEventListener("scroll", () => this.later(), { passive: true });
    new ResizeObserver(() => this.resized()).observe(scroller);
  }

  /** Show another list, from a place on. */
  show(count, { top = false } = {}) {
    this.count = count;
    this.measure();
    for (const [place, row] of this.drawn) this.release(place, row);
    this.canvas.style.height = `${count * this.height}px`;
    if (top) this.scroller.scrollTop = 0;
    this.update();
  }

  /** Draw again what is drawn. */
  redraw() {
    for (const [place, row] of this.drawn) this.draw(row, place);
  }

  /** Keep a row in the page, and return it. */
  keep(place) {
    this.kept = place;
    this.update();
    return this.drawn.get(place);
  }

  /** Scroll as little as shows a row. */
  reveal(place) {
    const top = place * this.height;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.scroller.scrollTop = top + this.height - clientHeight;
    this.update();
  }

  get perPage() {
    return Math.max(1, Math.floor(this.scroller.clientHeight / (this.height || 1)) - 1);
  }

  measure() {
    const row = this.make();
    row.style.visibility = "hidden";
    this.canvas.append(row);
    this.height = row.offsetHeight || this.height || 28;
    row.remove();
  }

  resized() {
    const before = this.height;
    if (!this.scroller.clientHeight) return;
    this.measure();
    if (this.height !== before) this.show(this.count);
    else this.later();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.update();
    });
  }

  update() {
    if (!this.height) return;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / this.height) - BEYOND);
    const n = Math.min(MOST, Math.ceil(this.scroller.clientHeight / this.height) + 2 * BEYOND);
    const end = Math.min(this.count, first + n);
    for (const [place, row] of this.drawn) {
      if ((place < first || place >= end) && place !== this.kept) this.release(place, row);
    }
    for (let place = first; place < end; place += 1) if (!this.drawn.has(place)) this.take(place);
    if (this.kept >= 0 && this.kept < this.count && !this.drawn.has(this.kept)) this.take(this.kept);
    for (const row of this.free.splice(0)) row.remove();
  }

  take(place) {
    const row = this.free.pop() ?? this.canvas.appendChild(this.make());
    row.style.transform = `translateY(${place * this.height}px)`;
    row.place = place;
    this.drawn.set(place, row);
    this.draw(row, place);
  }

  release(place, row) {
    this.drawn.delete(place);
    this.free.push(row);
  }
}
