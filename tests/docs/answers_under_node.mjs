// Answers on standard output what is asked on standard input, in Python for the browser, started as the page starts it.
//
// node answers_under_node.mjs PAGE    PAGE is a folder written by docs/playground/make_playground.py
// [["check", "program"], ...]   ->    [{"well": false, "out": [...], "error": [...]}, ...]

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { startPython } from "../../docs/playground/python.js";

const parts = `${process.argv[2]}/parts/`;
const { loadPyodide } = await import(pathToFileURL(`${parts}pyodide.mjs`));

let printed;
const answer = await startPython(
  loadPyodide,
  parts,
  new Uint8Array(readFileSync(`${parts}train_manager.zip`)),
  (stream, line) => printed[stream].push(line),
);
const answers = JSON.parse(readFileSync(0, "utf8")).map(([action, program]) => {
  printed = { out: [], error: [] };
  const well = answer(action, program);
  return { well, ...printed };
});
process.stdout.write(JSON.stringify(answers));
