// The nested value that was saved, as an outline that is read level by level.

import { ask } from "../base/api.js";
import { el } from "../base/dom.js";
import { message, note } from "../base/parts.js";
import { counted, nameText, printable, shortText } from "../base/texts.js";
import { tensorLink } from "../tree/browser.js";

export function state(context) {
  const list = el("ul", { class: "outline", role: "tree", "aria-label": "State" });
  const pane = el("div", { class: "pane" },
    el("header", { class: "title" }, el("h1", {}, "State"), el("p", { class: "dim" }, "The nested data as it was saved: models, optimizers, schedulers, random states.")),
    list);
  level(context, list, "", 0, 1).then(() => {
    const first = list.querySelector("[role=treeitem]");
    if (first) first.tabIndex = 0;
    else list.append(note("Nothing but tensors was saved."));
  });
  list.addEventListener("keydown", (event) => key(list, event));
  return pane;
}

async function level(context, list, node, start, depth) {
  try {
    const found = await ask("state", { of: context.of, node, start }, context.signal);
    list.append(...found.children.map((child) => item(context, child, depth)));
    const next = start + found.children.length;
    if (next < found.n_children && found.children.length) {
      const more = el("button", { type: "button", class: "quiet" }, `${counted(found.n_children - next, "more item")} …`);
      const row = el("li", { role: "none" }, more);
      more.addEventListener("click", async () => {
        row.remove();
        await level(context, list, node, next, depth);
      });
      list.append(row);
    }
  } catch (error) {
    if (error.name !== "AbortError") list.append(el("li", { role: "none" }, message(error)));
  }
}

function item(context, child, depth) {
  const isOpenable = child.n_children > 0;
  const text = child.t === null ? el("bdi", { class: "value" }, shortText(printable(child.text), 400)) : tensorLink(context.tensors, child.t, child.text);
  const line = el("div", { class: "line" }, el("span", { class: "twist", "aria-hidden": "true" }), el("bdi", { class: "label" }, nameText(child.label)), el("span", { class: `kind ${child.kind}` }, child.kind), text);
  const row = el("li", { role: "treeitem", tabindex: -1, "aria-level": depth, "aria-expanded": isOpenable ? "false" : null, class: isOpenable ? "module" : "leaf" }, line);
  row.toggle = async () => {
    if (!isOpenable) return;
    const isOpen = row.getAttribute("aria-expanded") !== "true";
    row.setAttribute("aria-expanded", String(isOpen));
    row.classList.toggle("open", isOpen);
    if (isOpen && !row.querySelector("ul")) {
      const group = el("ul", { role: "group" });
      row.append(group);
      await level(context, group, child.node, 0, depth + 1);
    }
  };
  line.addEventListener("click", (event) => event.target.closest("a") ?? row.toggle());
  return row;
}

function key(list, event) {
  const row = event.target.closest("[role=treeitem]");
  if (!row || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("button")) return;
  const shown = [...list.querySelectorAll("[role=treeitem]")].filter((each) => each.offsetParent);
  const place = shown.indexOf(row);
  const isOpen = row.getAttribute("aria-expanded") === "true";
  const moves = {
    ArrowDown: () => shown[place + 1],
    ArrowUp: () => shown[place - 1],
    Home: () => shown[0],
    End: () => shown.at(-1),
    ArrowRight: () => (isOpen ? shown[place + 1] : void row.toggle()),
    ArrowLeft: () => (isOpen ? void row.toggle() : row.parentElement.closest("[role=treeitem]")),
    Enter: () => (row.querySelector(":scope > .line a") ? void row.querySelector(":scope > .line a").click() : void row.toggle()),
    " ": () => void row.toggle(),
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  const next = moves[event.key]();
  if (!next) return;
  row.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
