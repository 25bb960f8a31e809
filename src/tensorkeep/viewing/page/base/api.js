// Questions to the server that sent this page.

/** Ask, and return the answer; an error has the server's message. */
export async function ask(what, parameters = {}, signal = undefined) {
  const answer = await asked(what, parameters, signal);
  return answer.json();
}

/** Ask for work that takes time, and return its result; `onProgress(done, total)` and `onRows(rows)` are called meanwhile. */
export async function work(what, parameters, { signal, onProgress = () => {}, onRows = () => {}, onWaiting = () => {} } = {}) {
  const answer = await asked(what, parameters, signal);
  for await (const line of lines(answer.body)) {
    if (line.result !== undefined) return line.result;
    if (line.error) throw new Error(line.error.text);
    if (line.progress) onProgress(...line.progress);
    if (line.rows) onRows(line.rows);
    if (line.waiting) onWaiting();
  }
  throw new Error("The server stopped before it had finished.");
}

/** Turn numbers as they are sent into an array. */
export function numbersIn(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

/** Say whether an error only means that one went elsewhere. */
export function isCancelled(error) {
  return error.name === "AbortError";
}

async function asked(what, parameters, signal) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  let answer;
  try {
    answer = await fetch(`api/${what}?${query}`, { signal, cache: "no-store" });
  } catch (error) {
    if (isCancelled(error)) throw error;
    throw new Error("The server does not answer: “tensorkeep view” has ended.");
  }
  if (!answer.ok) throw new Error(await messageOf(answer));
  return answer;
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.text;
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) yield JSON.parse(part);
    }
    if (rest) yield JSON.parse(rest);
  } finally {
    reader.cancel().catch(() => {});
  }
}
