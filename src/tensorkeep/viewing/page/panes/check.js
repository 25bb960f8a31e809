// Is anything wrong? Checksums, what others would run, and numbers that should not be there.

import { work } from "../base/api.js";
import { el, fill } from "../base/dom.js";
import { badge, card, during, facts, note, table } from "../base/parts.js";
import { countText, counted, nameText, printable, sizeText } from "../base/texts.js";
import { tensorLink } from "../tree/browser.js";

const MOST = 500; // findings that are shown

const WHOLE = {
  whole: ["good", "Whole", "Every byte that has a checksum is what was saved."],
  damaged: ["bad", "Damaged", "Something differs from what was saved."],
  unverifiable: ["warn", "Cannot be verified", "Some or all bytes have no checksum."],
};

const VERDICTS = {
  clean: ["good", "Clean", "No program that loads it runs anything from it."],
  unknown: ["warn", "Unknown", "It names code that is not known to be harmless."],
  dangerous: ["bad", "Dangerous", "A program that loads it would run what the author of the file chose."],
  unreadable: ["bad", "Unreadable", "It could not be read, so it may hold anything."],
};

export function check(context) {
  return el("div", { class: "pane" },
    el("header", { class: "title" }, el("h1", {}, "Check"), el("p", { class: "dim" }, "Nothing is read until you ask for it.")),
    el("div", { class: "cards" },
      task(context, "verify", "Bytes", "Compare every byte with its checksum.", "Verify", (result) => verified(result, context)),
      task(context, "scan", "Code", "List what other programs would run when they load it.", "Scan", (result) => scanned(result)),
      task(context, "survey", "Numbers", "Look for NaN, infinities and tensors of zeros.", "Survey", (result) => surveyed(result, context))));
}

function task(context, what, title, question, verb, show) {
  const place = el("div", {});
  const run = () => during(place, verb, (meanwhile) => work(what, { of: context.of }, { signal: context.signal, ...meanwhile }), (result) => {
    const shown = show(result);
    context.announce(`${title}: ${place.verdict ?? "done"}`);
    return [shown, el("button", { type: "button", class: "quiet", onclick: run }, "Again")];
  });
  fill(place, note(question), el("button", { type: "button", class: "main", onclick: run }, verb));
  return card(title, { wide: what === "survey" }, place);
}

function verdict([kind, title, text]) {
  return el("p", { class: `verdict ${kind}` }, el("strong", {}, title), " ", text);
}

function verified(result, context) {
  for (const finding of result.findings) if (finding.t !== null) context.findings.set(`${context.of} ${finding.t}`, printable(finding.message));
  if (result.findings.length) context.onFindings();
  return [
    verdict(WHOLE[result.status]),
    facts([
      ["Checked", `${counted(result.n_checked, "tensor")} of ${countText(result.n_tensors)}`],
      ["Read", sizeText(result.nbytes_checked)],
      ["Without a checksum", result.n_unprotected ? countText(result.n_unprotected) : null],
    ]),
    result.findings.length > 0 && findingsOf(result.findings, context),
  ];
}

/** Return findings of a verification as a list, each with its place. */
export function findingsOf(findings, { tensors }) {
  return el("ul", { class: "findings" }, findings.slice(0, MOST).map((finding) => el("li", {},
    badge(finding.kind, "bad"), " ",
    finding.t !== null && tensors ? tensorLink(tensors, finding.t) : finding.tensor !== null ? el("bdi", { class: "mono" }, nameText(finding.tensor)) : finding.file && el("bdi", { class: "mono" }, nameText(finding.file)),
    el("p", {}, el("bdi", {}, printable(finding.message))),
    finding.span && el("p", { class: "dim" }, `bytes ${countText(finding.span[0])} to ${countText(finding.span[1])} of ${nameText(finding.file ?? "")}`),
    finding.expected && el("p", { class: "dim mono" }, `expected ${nameText(finding.expected)}, found ${nameText(finding.found ?? "")}`))),
    findings.length > MOST && el("li", {}, `… and ${countText(findings.length - MOST)} more`));
}

function scanned(result) {
  const found = result.files.flatMap((file) => file.findings.map((finding) => [file, finding]));
  return [
    verdict(VERDICTS[result.verdict]),
    facts([["Files", countText(result.files.length)], ["Pickles", countText(result.files.reduce((sum, file) => sum + file.n_pickles, 0))], ["Other files", result.n_skipped || null]]),
    found.length > 0 && el("ul", { class: "findings" }, found.slice(0, MOST).map(([file, finding]) => el("li", {},
      badge(finding.severity, finding.severity === "dangerous" ? "bad" : "warn"), " ",
      finding.name && el("bdi", { class: "mono" }, nameText(finding.name)),
      el("p", {}, el("bdi", {}, printable(finding.message))),
      finding.arguments.length > 0 && el("p", { class: "dim mono" }, el("bdi", {}, nameText(finding.arguments.join(", "), 300))),
      el("p", { class: "dim" }, el("bdi", {}, [nameText(file.path), finding.member && nameText(finding.member), finding.count > 1 && `${countText(finding.count)} times`].filter(Boolean).join(" · ")))))),
  ];
}

function surveyed(result, context) {
  const { tensors } = context;
  const lists = [["NaN", result.n_nan_tensors], ["infinite numbers", result.n_inf_tensors], ["only zeros", result.zero_tensors]];
  const bad = result.n_nan_tensors.length + result.n_inf_tensors.length;
  return [
    verdict(bad ? ["bad", "Not finite", `${counted(bad, "tensor")} with numbers that are not finite.`] : ["good", "Finite", `All numbers of ${counted(result.n_tensors, "tensor")} are finite.`]),
    lists.filter(([, list]) => list.length).map(([what, list]) => [
      el("h3", {}, `${counted(list.length, "tensor")} with ${what}`),
      table(`Tensors with ${what}`, ["tensor", "dtype", ["size", "number"]], list.slice(0, MOST).map((t) => [tensorLink(tensors, t), tensors.dtypeOf(t), sizeText(tensors.nbytes[t])])),
    ]),
  ];
}
