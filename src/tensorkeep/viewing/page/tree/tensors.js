// The tensors of a checkpoint: columns of equal length, as the server sends them.

export class Tensors {
  constructor(tree) {
    Object.assign(this, tree.tensors);
    this.dtypes = tree.dtypes;
    this.files = tree.files;
    this.views = tree.views;
    this.of = tree.of;
    this.count = this.name.length;
    this.all = Array.from({ length: this.count }, (_, t) => t);
    this.separator = new RegExp(this.name.some((name) => name.includes(".")) ? "[.]" : "[/]", "g");
  }

  dtypeOf(t) {
    return this.dtypes[this.dtype[t]];
  }

  /** Return the place of a name, or undefined; `#17` is the place of a name too long for an address. */
  find(text) {
    this.places ??= new Map(this.name.map((name, t) => [name, t]));
    const found = this.places.get(text);
    return found ?? (/^#\d+$/.test(text) && Number(text.slice(1)) < this.count ? Number(text.slice(1)) : undefined);
  }

  /** Return how an address names a tensor. */
  handle(t) {
    const name = this.name[t];
    return name.length <= 300 && name && this.find(name) === t ? name : `#${t}`;
  }

  /** Return the places whose names or dtypes have every word. */
  matching(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.all;
    this.lower ??= this.name.map((name, t) => `${name.toLowerCase()} ${this.dtypeOf(t).toLowerCase()}`);
    return this.all.filter((t) => words.every((word) => this.lower[t].includes(word)));
  }

  total(places) {
    let sum = 0;
    for (const t of places) sum += Number(this.nbytes[t]);
    return sum;
  }
}
