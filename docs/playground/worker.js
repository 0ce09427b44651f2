// Runs programs apart from the page, so that the page can stop one that does not end.

import { startPython } from "./python.js";

const MOST_LINES = 2000; // of one program; a page with many more gets slow
const WAIT = 50; // milliseconds between two messages with lines

let lines = [];
let shown = 0;
let sent = 0;

function print(stream, line) {
  shown += 1;
  if (shown < MOST_LINES) lines.push([stream, line]);
  if (shown === MOST_LINES) lines.push(["error", `... more than ${MOST_LINES} lines; the rest is left out`]);
  if (performance.now() - sent > WAIT) send();
}

function send() {
  if (lines.length) postMessage({ lines });
  lines = [];
  sent = performance.now();
}

// Pyodide fetches what it needs; each block that arrives is told to the page.
const plainFetch = globalThis.fetch;
globalThis.fetch = async (...request) => {
  const response = await plainFetch(...request).catch(() => undefined);
  if (!response?.ok) {
    const failed = `${String(request[0]).split("/").pop()} cannot be had`;
    postMessage({ failed }); // at once: Pyodide waits for ever if its own file is missing
    throw new Error(failed);
  }
  const count = new TransformStream({
    transform(block, controller) {
      postMessage({ loaded: block.byteLength });
      controller.enqueue(block);
    },
  });
  return new Response(response.body.pipeThrough(count), { status: response.status, headers: response.headers });
};

async function start(parts) {
  const library = fetch(new URL("train_manager.zip", parts)).then((response) => response.arrayBuffer());
  const { loadPyodide } = await import(new URL("pyodide.mjs", parts));
  const answer = await startPython(loadPyodide, parts, await library, print);
  onmessage = ({ data: { action, program } }) => {
    shown = 0;
    const well = answer(action, program);
    send();
    postMessage({ done: true, well });
  };
  globalThis.fetch = plainFetch; // what programs fetch is not counted
  postMessage({ ready: true });
}

onmessage = ({ data: { parts } }) =>
  start(parts).catch((error) => postMessage({ failed: error.message ?? "it did not start" }));
