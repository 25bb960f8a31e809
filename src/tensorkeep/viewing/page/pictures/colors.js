// Numbers as colors: one hue below zero, one above; NaN and infinities have colors of their own.

const SHADES = 255; // from zero to either end

/** Return the colors of the page, light or dark as it is now. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number);
  const [below, zero, above] = [color("--below"), color("--zero"), color("--above")];
  const table = new Uint8ClampedArray((2 * SHADES + 1) * 4);
  for (let shade = -SHADES; shade <= SHADES; shade += 1) {
    const end = shade < 0 ? below : above;
    const share = (Math.abs(shade) / SHADES) ** 0.8;
    table.set([...zero.map((part, place) => part + (end[place] - part) * share), 255], (shade + SHADES) * 4);
  }
  return { table, nan: [...color("--nan"), 255], infinite: [...color("--infinite"), 255] };
}

/** Say whether a number's color is so light that dark text is read on it. */
export function isLight(value, scale, { table, nan, infinite }) {
  const at = Number.isFinite(value) ? (Math.round(Math.max(-1, Math.min(1, value / scale)) * SHADES) + SHADES) * 4 : 0;
  const [red, green, blue] = Number.isFinite(value) ? table.subarray(at, at + 3) : Number.isNaN(value) ? nan : infinite;
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140;
}

/** Return an image of numbers; `scale` is where the colors end. */
export function imageOf(numbers, width, height, scale, { table, nan, infinite }) {
  const image = new ImageData(width, height);
  const { data } = image;
  for (let place = 0; place < numbers.length; place += 1) {
    const value = numbers[place];
    const at = place * 4;
    if (Number.isFinite(value)) {
      const share = Math.max(-1, Math.min(1, value / scale));
      const from = (Math.round(share * SHADES) + SHADES) * 4;
      data[at] = table[from];
      data[at + 1] = table[from + 1];
      data[at + 2] = table[from + 2];
      data[at + 3] = 255;
    } else data.set(Number.isNaN(value) ? nan : infinite, at);
  }
  return image;
}

/** Call when the system changes between light and dark. */
export function onScheme(listener, signal) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener, { signal });
}
