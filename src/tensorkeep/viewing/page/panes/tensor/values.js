// A table of exact values.

import { ask } from "../../base/api.js";
import { el, fill } from "../../base/dom.js";
import { card, message } from "../../base/parts.js";
import { countText } from "../../base/texts.js";

const N_ROWS = 16;
const CELL = 132; // pixels of a column

export function valuesCard(slice, asked, context) {
  const place = el("div", { class: "scroll values", tabindex: 0, role: "region", "aria-label": "Values" });
  const first = [0, 0];
  let picked = null;
  let request = null;
  const inputs = ["row", "column"].map((side, axis) => {
    const input = el("input", { type: "number", min: 0, value: 0, "aria-label": `First ${side}` });
    input.addEventListener("change", () => move(axis, Math.trunc(Number(input.value)) || 0));
    return input;
  });
  const fitting = () => Math.max(2, Math.min(24, Math.floor((place.clientWidth - 70) / CELL) || 6));
  const n = () => [slice.n_rows, slice.n_columns];

  const move = (axis, to) => {
    const shown = axis ? fitting() : N_ROWS;
    first[axis] = Math.max(0, Math.min(to, n()[axis] - shown));
    draw();
  };
  const draw = async () => {
    const columns = fitting();
    inputs.forEach((input, axis) => {
      input.value = first[axis];
      input.max = n()[axis] - 1;
    });
    request?.abort();
    request = new AbortController();
    try {
      const parameters = { ...asked, ...slice.parameters, rows: range(first[0], N_ROWS, n()[0]), columns: range(first[1], columns, n()[1]) };
      const found = await ask("values", slice.shape.length ? parameters : asked, AbortSignal.any([request.signal, context.signal]));
      fill(place, tableOf(found, picked));
    } catch (error) {
      if (error.name !== "AbortError") fill(place, message(error));
    }
  };
  const step = (axis, direction, text, label) => el("button", { type: "button", "aria-label": label, onclick: () => move(axis, first[axis] + direction * (axis ? fitting() : N_ROWS)) }, text);
  slice.onChange(() => {
    first.fill(0);
    picked = null;
    draw();
  });
  requestAnimationFrame(draw);
  const tools = slice.shape.length
    ? el("div", { class: "choices" },
        slice.n_rows > 1 && el("label", {}, "row", inputs[0]), slice.n_rows > N_ROWS && [step(0, -1, "↑", "Rows before"), step(0, 1, "↓", "Rows after")],
        el("label", {}, "column", inputs[1]), step(1, -1, "←", "Columns before"), step(1, 1, "→", "Columns after"))
    : [];
  return {
    element: card("Values", { tools, wide: true }, place),
    show(row, column) {
      picked = [row, column];
      first[0] = Math.max(0, Math.min(row - (N_ROWS >> 1), n()[0] - N_ROWS));
      first[1] = Math.max(0, Math.min(column - (fitting() >> 1), n()[1] - fitting()));
      draw();
    },
  };
}

function range(start, length, n) {
  return `${start}:${Math.min(start + length, n)}`;
}

function tableOf(found, picked) {
  const rows = found.rows?.start ?? 0;
  const columns = found.columns?.start ?? 0;
  return el("table", {},
    el("thead", {}, el("tr", {}, el("td", {}), (found.values[0] ?? []).map((_, at) => el("th", { scope: "col" }, countText(columns + at))))),
    el("tbody", {}, found.values.map((values, down) => el("tr", {},
      el("th", { scope: "row" }, countText(rows + down)),
      values.map((value, across) => el("td", { class: `number ${picked && picked[0] === rows + down && picked[1] === columns + across ? "picked" : ""} ${value === 0 ? "dim" : ""}` }, String(value)))))));
}
