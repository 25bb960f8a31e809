// Pieces that all panes are made of: cards, facts, choices, progress, messages.

import { el, fill } from "./dom.js";
import { counted, durationText, sizeText } from "./texts.js";

let n_titles = 0;

/** Return a titled section; `tools` are beside its title. */
export function card(title, { tools = [], wide = false, level = 2 } = {}, ...children) {
  n_titles += 1;
  const id = `title-${n_titles}`;
  return el("section", { class: wide ? "card wide" : "card", "aria-labelledby": id }, el("header", {}, el(`h${level}`, { id }, title), tools), children);
}

/** Return names and values, and perhaps a class; those without a value are left out. */
export function facts(pairs) {
  const rows = pairs.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "");
  return el("dl", { class: "facts" }, rows.map(([name, value, kind]) => el("div", { class: kind }, el("dt", {}, name), el("dd", {}, value))));
}

/** Return a choice of one among a few, as buttons beside each other. */
export function choice(label, options, chosen, onChoose) {
  const buttons = Object.entries(options).map(([value, text]) => el("button", {
    type: "button",
    "aria-pressed": String(value === chosen),
    onclick: () => {
      for (const [place, name] of Object.keys(options).entries()) buttons[place].setAttribute("aria-pressed", String(name === value));
      onChoose(value);
    },
  }, text));
  return el("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

export function message(error) {
  return el("p", { class: "message bad", role: "alert" }, error.message ?? String(error));
}

export function note(...children) {
  return el("p", { class: "note" }, children);
}

export function badge(text, kind = "") {
  return el("span", { class: `badge ${kind}` }, text);
}

/** Return a bar that shows how far work is, with its speed; `unit` is what is counted, by default bytes. */
export function progressBar(what, unit = "") {
  const amount = (n) => (unit ? counted(Math.round(n), unit) : sizeText(n));
  const bar = el("progress", { max: 1, "aria-label": what });
  const text = el("span", {}, `${what} …`);
  const begun = performance.now();
  const element = el("div", { class: "progress" }, bar, text);
  return {
    element,
    set(done, total) {
      const seconds = (performance.now() - begun) / 1000;
      if (total) bar.value = done / total;
      text.textContent = total
        ? `${what}: ${amount(done)} of ${amount(total)}${seconds > 0.5 ? `, ${amount(done / seconds)}/s, ${durationText(seconds)}` : ""}`
        : `${what}: ${amount(done)}`;
    },
    wait() {
      text.textContent = `${what}: waiting for other work`;
    },
  };
}

/** Do work in a place of the page: its progress, then what `show` makes of the result, or its error. */
export async function during(place, what, run, show, unit) {
  const bar = progressBar(what, unit);
  fill(place, bar.element);
  place.setAttribute("aria-busy", "true");
  try {
    const result = await run({ onProgress: (done, total) => bar.set(done, total), onWaiting: () => bar.wait() });
    fill(place, show(result));
  } catch (error) {
    if (error.name !== "AbortError") fill(place, message(error));
  } finally {
    place.removeAttribute("aria-busy");
  }
}

/** Return a button that copies a text. */
export function copyButton(text, what) {
  const button = el("button", { type: "button", class: "quiet", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

/** Return a table: headings as texts or `[text, "number"]`, rows of cells. */
export function table(caption, headings, rows) {
  const kinds = headings.map((heading) => (Array.isArray(heading) ? heading[1] : null));
  const texts = headings.map((heading) => (Array.isArray(heading) ? heading[0] : heading));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {},
      el("caption", { class: "hidden" }, caption),
      el("thead", {}, el("tr", {}, texts.map((text, at) => el("th", { scope: "col", class: kinds[at] }, text)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell, at) => el("td", { class: kinds[at] }, cell)))))));
}
