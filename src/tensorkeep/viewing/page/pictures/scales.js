// From numbers to pixels, and numbers that are good to write at an axis.

/** Return round numbers between two numbers, about `n` of them. */
export function ticks(low, high, n = 5) {
  if (!(high > low) || !Number.isFinite(high - low)) return [low];
  const rough = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough) ?? rough;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9 && found.length < 50; k += 1) found.push(k * step);
  return found;
}

/** Return powers of ten between two positive numbers, about `n` of them. */
export function powers(low, high, n = 5) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first) / n));
  const found = [];
  for (let k = first; k <= last && found.length < 50; k += step) found.push(10 ** k);
  return found.length > 1 ? found : ticks(low, high, n);
}

/** Return a function from numbers to pixels; a range of one number is in the middle. */
export function linear(low, high, from, to) {
  const extent = high - low;
  return extent > 0 && Number.isFinite(extent) ? (value) => from + ((value - low) / extent) * (to - from) : () => (from + to) / 2;
}

export function logarithmic(low, high, from, to) {
  const scale = linear(Math.log(low), Math.log(high), from, to);
  return (value) => scale(Math.log(Math.max(value, low)));
}

/** Return the extremes of the finite numbers, or null without any. */
export function extent(numbers) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of numbers) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** Write a number at an axis. */
export function tickText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e") : String(Number(value.toPrecision(4)));
  return text.replaceAll("-", "−");
}
