// Modules and the tensors in them. Names are divided only where someone looks, so 100,000 tensors open at once.

const ORDERS = {
  name: () => naturally,
  size: () => (one, other) => other.nbytes - one.nbytes || naturally(one, other),
  dtype: (tensors) => (one, other) => compared(dtypeKey(tensors, one), dtypeKey(tensors, other)) || naturally(one, other),
  offset: (tensors) => (one, other) => placeIn(tensors, one) - placeIn(tensors, other),
};

/** A module, or a tensor if `t` is its place. */
export class Node {
  constructor(label, level, parent, places, nbytes, start, t = -1) {
    this.label = label;
    this.level = level;
    this.parent = parent;
    this.places = places;
    this.nbytes = nbytes;
    this.start = start; // characters that the names in it have in common
    this.t = t;
    this.children = null;
    this.isOpen = false;
    this.order = 1;
    this.siblings = 1;
  }

  get isModule() {
    return this.t < 0;
  }
}

/** Return the top of the modules of some tensors. */
export function topOf(tensors, places) {
  return new Node("", 0, null, places, tensors.total(places), 0);
}

/** Return what is in a module, in an order; with `isFlat`, all its tensors at once. */
export function childrenOf(tensors, node, order, isFlat = false) {
  if (node.children) return node.children;
  node.children = (isFlat ? listed(tensors, node) : divided(tensors, node)).sort(ORDERS[order](tensors));
  node.children.forEach((child, place) => {
    child.order = place + 1;
    child.siblings = node.children.length;
  });
  return node.children;
}

function listed(tensors, node) {
  return node.places.map((t) => leaf(tensors, node, t, 0));
}

function divided(tensors, node) {
  const modules = new Map();
  const children = [];
  for (const t of node.places) {
    const end = nextPart(tensors, t, node.start);
    if (end < 0) {
      children.push(leaf(tensors, node, t, node.start));
      continue;
    }
    const label = tensors.name[t].slice(node.start, end);
    const together = modules.get(label);
    if (together) together.push(t);
    else modules.set(label, [t]);
  }
  for (const [label, places] of modules) children.push(joined(tensors, node, label, places));
  return children;
}

/** Make a module, whose label has the labels below as long as there is only one. */
function joined(tensors, parent, label, places) {
  const first = tensors.name[places[0]];
  let start = parent.start + label.length + 1;
  for (;;) {
    const end = nextPart(tensors, places[0], start);
    if (end < 0) break;
    const part = first.slice(start, end + 1);
    if (!places.every((t) => tensors.name[t].startsWith(part, start) && nextPart(tensors, t, start) === end)) break;
    start = end + 1;
  }
  if (places.length === 1) return leaf(tensors, parent, places[0], parent.start);
  return new Node(first.slice(parent.start, start - 1), parent.level + 1, parent, places, tensors.total(places), start);
}

function leaf(tensors, parent, t, start) {
  return new Node(tensors.name[t].slice(start), parent.level + 1, parent, [t], Number(tensors.nbytes[t]), start, t);
}

function nextPart(tensors, t, start) {
  tensors.separator.lastIndex = start;
  const found = tensors.separator.exec(tensors.name[t]);
  return found ? found.index : -1;
}

/** Compare so that 2 is before 10. */
function naturally(one, other) {
  const [first, second] = [key(one), key(other)];
  return compared(first.text, second.text) || first.number - second.number || compared(one.label, other.label);
}

function key(node) {
  if (!node.key) {
    const digits = /\d{1,15}/.exec(node.label);
    node.key = digits ? { text: node.label.slice(0, digits.index), number: Number(digits[0]) } : { text: node.label, number: -1 };
  }
  return node.key;
}

function compared(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

function dtypeKey(tensors, node) {
  return node.isModule ? "" : tensors.dtypeOf(node.t);
}

function placeIn(tensors, node) {
  node.at ??= tensors.file[node.places[0]] * 2 ** 44 + (tensors.offset[node.places[0]] ?? 2 ** 43);
  return node.at;
}
