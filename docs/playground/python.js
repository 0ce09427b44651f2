// Starts Python with the core and the checker of Train Manager; the page's worker and the tests under node both do it so.

/**
 * @param loadPyodide what pyodide.mjs exports
 * @param parts the folder of what is loaded, as URL or path, with a slash at its end
 * @param library the bytes of train_manager.zip
 * @param print called as print(stream, line) with "out" or "error"
 * @returns a function: answer(action, program) is true if it went without an error
 */
export async function startPython(loadPyodide, parts, library, print) {
  const python = await loadPyodide({
    indexURL: parts,
    stdin: () => null, // input() ends in an EOFError
    stdout: (line) => print("out", line),
    stderr: (line) => print("error", line),
  });
  const packages = python.runPython("import site; site.getsitepackages()[0]");
  python.unpackArchive(library, "zip", { extractDir: packages });
  const { answer } = python.pyimport("playground");
  const { fsync } = python.pyimport("os");
  return (action, program) => {
    const well = answer(action, program);
    for (const stream of [1, 2]) fsync(stream); // prints a last line that has no end
    return well;
  };
}
