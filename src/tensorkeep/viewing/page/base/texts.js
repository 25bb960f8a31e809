// Sizes, numbers and names as people read them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
const COUNT = new Intl.NumberFormat("en");
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Write a size with three digits and a decimal unit. */
export function sizeText(nbytes) {
  let value = Number(nbytes);
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function countText(n) {
  return COUNT.format(n);
}

export function counted(n, what) {
  return `${countText(n)} ${what}${n === 1 ? "" : "s"}`;
}

export function shareText(part, whole) {
  if (!whole) return "";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 0.05 ? "<0.1 %" : `${percent.toFixed(1)} %`;
}

/** Write a number with few digits; numbers that JSON cannot say come as texts and stay what they are. */
export function numberText(value, digits = 5) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return COUNT.format(value);
  const size = Math.abs(value);
  const text = size >= 1e-4 && size < 10 ** digits ? value.toPrecision(digits) : value.toExponential(digits - 1);
  return text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "").replace("-", "−");
}

export function shapeText(shape) {
  const shown = shape.slice(0, 8).map(countText).join(" × ");
  return shape.length > 8 ? `${shown} … ${shape.length - 8} more` : shown || "scalar";
}

/** Show control and direction characters as escapes, so that a name looks like what it is. */
export function printable(text) {
  return String(text).replace(UNPRINTABLE, (char) => {
    const code = char.codePointAt(0).toString(16);
    return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\u{${code}}`;
  });
}

/** Write a name from a file: escaped, and without the middle of an absurdly long one. */
export function nameText(name, limit = 200) {
  const text = String(name);
  if (text.length > limit) {
    const side = limit >> 1;
    return `${printable(text.slice(0, side))}…${printable(text.slice(-side))} (${countText(text.length)} characters)`;
  }
  return printable(text) || "“”";
}

/** Turn what JSON carries into a number: NaN and infinities come as texts. */
export function asNumber(value) {
  return typeof value === "number" ? value : value === null ? NaN : Number(value);
}

export function durationText(seconds) {
  return seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 100 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** Return the end of a path; an index stands for its directory. */
export function shortPath(path, index = null) {
  const parts = path.split(/[/\\]/).filter(Boolean);
  if (index && parts.length > 1 && parts.at(-1) === index) parts.pop();
  return parts.slice(-2).join("/") || path;
}

export function shortText(text, limit) {
  return text.length <= limit ? text : `${text.slice(0, limit)}… (${countText(text.length)} characters)`;
}
