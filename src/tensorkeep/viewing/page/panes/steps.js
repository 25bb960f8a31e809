// The steps of a run: their metrics as lines, what each costs on the disk, and what two of them differ in.

import { ask, work } from "../base/api.js";
import { addressOf, go } from "../base/address.js";
import { el, fill } from "../base/dom.js";
import { link } from "../base/links.js";
import { badge, card, during, message, note } from "../base/parts.js";
import { countText, counted, nameText, numberText, sizeText } from "../base/texts.js";
import { plot } from "../pictures/plot.js";
import { findingsOf } from "./check.js";

export function steps(context) {
  const place = el("div", { class: "stack" });
  const of = context.store;
  const pane = el("div", { class: "pane" }, el("header", { class: "title" }, el("h1", {}, "Steps"), el("p", { class: "dim" }, el("bdi", {}, nameText(context.pathOf(of))))), place);
  const load = () => ask("store", { of }, context.signal).then((found) => {
    context.onSteps(of, found.steps);
    fill(place, contents(found, context, load));
  }, (error) => error.name !== "AbortError" && fill(place, message(error)));
  load();
  return pane;
}

function contents(found, context, load) {
  const list = [...found.steps].sort((one, other) => one.step - other.step);
  if (!list.length) return note("There are no steps yet.");
  const { monitor, mode } = found.rules ?? {};
  const plots = found.metric_names.slice(0, 12).map((name) => metricCard(name, list, context));
  return [monitor && note("The best step has the ", mode === "max" ? "highest " : "lowest ", el("bdi", { class: "mono" }, nameText(monitor)), "."), plots.length > 0 && el("div", { class: "cards" }, plots), tableCard(list, found, context, load)];
}

function metricCard(name, list, context) {
  const known = list.filter((each) => Number.isFinite(Number(each.metrics[name] ?? NaN)));
  const marks = list.filter((each) => each.is_best || each.is_latest).map((each) => [each.step, each.is_best && each.is_latest ? "best, latest" : each.is_best ? "best" : "latest"]);
  const points = known.map((each) => [each.step, Number(each.metrics[name])]);
  const opened = (_, at) => go({ view: "overview", of: known[at].of, tensor: null, map: null });
  return card(nameText(name, 60), {}, plot([{ name: nameText(name, 40), points }], { label: `${nameText(name, 60)} of ${counted(points.length, "step")}`, xName: "step", marks, onPick: opened, integers: true }));
}

function tableCard(list, found, context, load) {
  const chosen = new Set();
  const button = el("a", { class: "button main", "aria-disabled": "true", role: "button" }, "Compare two steps");
  const choose = (box, of) => {
    if (box.checked) chosen.add(of);
    else chosen.delete(of);
    const two = list.map((each) => each.of).filter((each) => chosen.has(each));
    if (two.length === 2) {
      button.href = addressOf({ view: "compare", a: two[0], b: two[1], pair: null, list: null, tensor: null });
      button.removeAttribute("aria-disabled");
    } else {
      button.removeAttribute("href");
      button.setAttribute("aria-disabled", "true");
    }
  };
  const most = Math.max(...list.map((each) => Number(each.nbytes) || 0), 1);
  const metrics = found.metric_names.slice(0, 6);
  const head = ["", "step", "saved", ...metrics.map((name) => nameText(name, 30)), "size", "own", ""];
  const numeric = (at) => (at > 2 && at < head.length - 1 ? "number" : null);
  const sum = list.reduce((total, each) => total + Number(each.own_nbytes ?? 0), 0);
  return card("All steps", { wide: true, tools: el("div", { class: "choices" }, button, el("button", { type: "button", onclick: load }, "Refresh")) },
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "All steps" },
      el("table", { class: "steps" },
        el("thead", {}, el("tr", {}, head.map((text, at) => el("th", { scope: "col", class: numeric(at) }, text || el("span", { class: "hidden" }, at ? "verify" : "choose"))))),
        el("tbody", {}, [...list].reverse().flatMap((each) => rowsOf(each, metrics, most, head.length, choose, context))))),
    note("“Own” is the size of what no other step shares, which removing only this step would free. In total, ", sizeText(sum), " belong to a single step."));
}

function rowsOf(each, metrics, most, n_columns, choose, context) {
  const isWhole = each.condition === "whole";
  const below = el("td", { colspan: n_columns });
  const second = el("tr", { class: "below", hidden: true }, below);
  const verify = () => {
    second.hidden = false;
    during(below, `Verifying step ${each.step}`, (meanwhile) => work("verify", { of: each.of }, { signal: context.signal, ...meanwhile }), (result) => [
      el("p", { class: `verdict ${result.status === "whole" ? "good" : result.status === "damaged" ? "bad" : "warn"}` }, el("strong", {}, `Step ${each.step}: ${result.status}`), ` ${countText(result.n_checked)} of ${counted(result.n_tensors, "tensor")} checked, ${sizeText(result.nbytes_checked)}`),
      result.findings.length > 0 && findingsOf(result.findings, {}),
    ]);
  };
  const box = el("input", { type: "checkbox", "aria-label": `Choose step ${each.step} to compare`, disabled: !isWhole, onchange: () => choose(box, each.of) });
  const first = el("tr", {},
    el("td", {}, box),
    el("th", { scope: "row" },
      isWhole ? link({ view: "overview", of: each.of, tensor: null, map: null }, String(each.step)) : String(each.step), " ",
      each.is_best && badge("best", "good"), each.is_latest && badge("latest", "form"), !isWhole && badge(each.condition, "bad"),
      each.problem && el("p", { class: "dim" }, el("bdi", {}, nameText(each.problem, 300)))),
    el("td", { class: "dim" }, each.saved_at ? when(each.saved_at) : "–"),
    metrics.map((name) => el("td", { class: "number" }, numberText(each.metrics[name] ?? null, 5))),
    el("td", { class: "number" }, sizeText(each.nbytes ?? 0)),
    el("td", { class: "number bar two", style: { "--share": (each.own_nbytes ?? 0) / most, "--whole": (each.nbytes ?? 0) / most }, title: `${sizeText(each.shared_nbytes ?? 0)} shared` }, sizeText(each.own_nbytes ?? 0)),
    el("td", {}, isWhole && el("button", { type: "button", class: "quiet", onclick: verify, "aria-label": `Verify step ${each.step}` }, "Verify")));
  return [first, second];
}

function when(text) {
  const date = new Date(text.replace(/(\.\d{3})\d+/, "$1"));
  return Number.isNaN(date.getTime()) ? nameText(text, 40) : el("time", { datetime: text }, date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }));
}
