// The part of a matrix that is in sight, as half-open ranges of rows and columns.

const LEAST = 4; // rows or columns in sight at most zoom

export class Window {
  constructor(n_rows, n_columns) {
    this.n = [n_rows, n_columns];
    this.whole();
  }

  whole() {
    this.start = [0, 0];
    this.stop = [...this.n];
  }

  get isWhole() {
    return this.start[0] <= 0 && this.start[1] <= 0 && this.stop[0] >= this.n[0] && this.stop[1] >= this.n[1];
  }

  extent(axis) {
    return this.stop[axis] - this.start[axis];
  }

  /** Make what is in sight smaller or larger by a factor, around a place given as shares of it. */
  zoom(factor, [row, column] = [0.5, 0.5]) {
    [row, column].forEach((share, axis) => {
      const most = this.n[axis];
      const extent = Math.min(most, Math.max(Math.min(LEAST, most), this.extent(axis) * factor));
      const fixed = this.start[axis] + share * this.extent(axis);
      this.set(axis, fixed - share * extent, extent);
    });
  }

  /** Move by shares of what is in sight. */
  move([rows, columns]) {
    [rows, columns].forEach((share, axis) => this.set(axis, this.start[axis] + share * this.extent(axis), this.extent(axis)));
  }

  set(axis, start, extent) {
    const kept = Math.max(0, Math.min(start, this.n[axis] - extent));
    this.start[axis] = kept;
    this.stop[axis] = kept + extent;
  }

  /** Return whole ranges with a margin, as shares of what is in sight. */
  ranges(margin = 0) {
    return [0, 1].map((axis) => {
      const more = margin * this.extent(axis);
      return [Math.max(0, Math.floor(this.start[axis] - more)), Math.min(this.n[axis], Math.ceil(this.stop[axis] + more))];
    });
  }

  get text() {
    return this.isWhole ? null : this.ranges().map(([start, stop]) => `${start}:${stop}`).join(",");
  }

  /** Take what `text` gave; anything else is the whole. */
  set text(text) {
    this.whole();
    const found = /^(\d+):(\d+),(\d+):(\d+)$/.exec(text ?? "")?.slice(1).map(Number);
    if (!found) return;
    [0, 1].forEach((axis) => {
      const [start, stop] = found.slice(2 * axis, 2 * axis + 2);
      if (stop > start && start < this.n[axis]) this.set(axis, start, Math.min(stop, this.n[axis]) - start);
    });
  }
}
