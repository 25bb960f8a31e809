// Sizes as a map: modules in modules, each area the bytes. A module is a step nearer, a tensor opens.

import { el, fill } from "../base/dom.js";
import { countText, counted, nameText, sizeText } from "../base/texts.js";
import { childrenOf, topOf } from "../tree/modules.js";
import { divided } from "./squares.js";

const MOST = 260; // boxes
const MOST_IN_ONE = 60; // of one module; the smallest are together
const HEAD = 20; // pixels of a module's name
const GAP = 2;
const SMALLEST = 5;

/** Draw tensors below a module, given by the beginning of their names; `onModule(prefix)`, `onTensor(t)` are clicks. */
export function treemap(tensors, prefix, { onModule, onTensor }) {
  const map = el("div", { class: "treemap", role: "group", "aria-label": "Map of sizes" });
  let top = null;
  let last = "";
  const draw = () => {
    const size = `${map.clientWidth} ${map.clientHeight}`;
    if (size === last || !map.clientWidth) return;
    last = size;
    top ??= within(tensors, prefix);
    fill(map, boxesOf(tensors, top, map.clientWidth, map.clientHeight, onModule, onTensor));
    map.querySelector("button")?.setAttribute("tabindex", 0);
  };
  new ResizeObserver(draw).observe(map);
  map.addEventListener("keydown", (event) => walk(map, event));
  return map;
}

/** Return the module whose tensors begin with a text, or the top. */
export function within(tensors, prefix) {
  const places = tensors.all.filter((t) => tensors.name[t].startsWith(prefix) && Number(tensors.nbytes[t]) > 0);
  const top = topOf(tensors, places);
  top.start = prefix.length;
  return top;
}

/** Return what all names in a module begin with. */
export function prefixOf(tensors, node) {
  return tensors.name[node.places[0]].slice(0, node.start);
}

function boxesOf(tensors, top, width, height, onModule, onTensor) {
  const boxes = [];
  const roles = new Map();
  const open = [{ node: top, box: { x: 0, y: 0, width, height }, depth: 0 }];
  while (open.length && boxes.length < MOST) {
    open.sort((one, other) => other.box.width * other.box.height - one.box.width * one.box.height);
    const { node, box, depth } = open.shift();
    const parts = partsOf(tensors, node);
    const areas = divided(parts.map((part) => part.nbytes), box);
    parts.forEach((part, place) => {
      const area = areas[place];
      const inner = { x: area.x + GAP, y: area.y + HEAD, width: area.width - 2 * GAP, height: area.height - HEAD - GAP };
      const isOpen = part.node?.isModule && inner.width > 46 && inner.height > 22 && boxes.length + open.length < MOST;
      boxes.push(boxOf(tensors, part, area, depth, isOpen ? null : hueOf(part.label, roles), onModule, onTensor));
      if (isOpen) open.push({ node: part.node, box: inner, depth: depth + 1 });
    });
  }
  return boxes;
}

/** Return what is in a module, the largest first; the smallest of very many are one. */
function partsOf(tensors, node) {
  const children = [...childrenOf(tensors, node, "size")].sort((one, other) => other.nbytes - one.nbytes);
  const parts = children.slice(0, MOST_IN_ONE).map((child) => ({ node: child, nbytes: child.nbytes, label: child.label }));
  const rest = children.slice(MOST_IN_ONE);
  if (rest.length) parts.push({ node: null, nbytes: rest.reduce((sum, child) => sum + child.nbytes, 0), label: `${countText(rest.length)} more` });
  return parts.sort((one, other) => other.nbytes - one.nbytes);
}

/** Return the color of a label: the same for what differs in numbers only, such as a part of each layer. */
function hueOf(label, roles) {
  const role = label.replace(/\d+/g, "");
  if (!roles.has(role)) roles.set(role, roles.size % 8);
  return roles.get(role);
}

function boxOf(tensors, part, area, depth, hue, onModule, onTensor) {
  const isOpen = hue === null;
  const { node, nbytes } = part;
  const label = nameText(part.label, 80);
  const size = sizeText(nbytes);
  const text = `${label}: ${size}${node?.isModule ? `, ${counted(node.places.length, "tensor")}` : node ? `, ${tensors.dtypeOf(node.t)}` : ""}`;
  const fits = area.width > 34 && area.height > 17;
  return el("button", {
    type: "button",
    class: `box ${isOpen ? "holder" : `c${hue}`} ${area.width < SMALLEST || area.height < SMALLEST ? "tiny" : ""}`,
    "aria-label": text,
    title: text,
    tabindex: -1,
    disabled: !node,
    style: { left: `${area.x}px`, top: `${area.y}px`, width: `${Math.max(area.width - 1, 1)}px`, height: `${Math.max(area.height - 1, 1)}px`, "--depth": depth },
    onclick: () => node && (node.isModule ? onModule(prefixOf(tensors, node)) : onTensor(node.t)),
  }, fits && el("bdi", {}, label), fits && area.height > 34 && !isOpen && el("small", {}, size));
}

/** Move among the boxes by arrows: one of them is in the order of tabs. */
function walk(map, event) {
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const step = steps[event.key];
  if (!step || !event.target.matches(".box")) return;
  event.preventDefault();
  const boxes = [...map.querySelectorAll(".box:not(:disabled)")];
  const next = boxes[(boxes.indexOf(event.target) + step + boxes.length) % boxes.length];
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
