// Where one is, in the part of the address after "#", so that reload, back and bookmarks work.

const listeners = new Set();
let now = parsed();

function parsed() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Return where one is: texts by name, such as `view` and `tensor`. */
export function here() {
  return now;
}

/** Write an address with some parts changed; null removes a part. */
export function addressOf(changes, from = now) {
  const parts = Object.entries({ ...from, ...changes }).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(parts.map(([name, value]) => [name, String(value)]))}`;
}

/** Move, as a new entry of the history or in place of the last one. */
export function go(changes, { replace = false, from = now } = {}) {
  const address = addressOf(changes, from);
  if (address === location.hash || (address === "#" && !location.hash)) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  moved();
}

/** Call with (now, before) whenever one has moved. */
export function onMove(listener) {
  listeners.add(listener);
}

function moved() {
  const before = now;
  now = parsed();
  for (const listener of listeners) listener(now, before);
}

addEventListener("popstate", moved);
