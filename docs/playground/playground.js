// The page: an editor, three buttons and what Python answers. Python itself is in worker.js.

const here = new URL(".", import.meta.url);
const parts = new URL("parts/", here);
const find = (part) => document.getElementById(`playground-${part}`);
const [editor, numbers, output, status, examples, stop] = ["editor", "numbers", "output", "status", "examples", "stop"].map(find);
const actions = [...document.querySelectorAll(".playground [data-action]")];

let index; // the sizes of what is loaded, and the examples
let worker;
let ready = false;
let waiting; // what was asked for while Python was loading
let running = false; // a program
let started; // when it began

// Python

function startWorker() {
  let loaded = 0;
  const size = Object.values(index.sizes).reduce((sum, each) => sum + each, 0);
  const tellLoaded = () => {
    const percent = Math.min(90, 10 * Math.floor((10 * loaded) / size)); // in tens: a screen reader reads each
    tell(`Loading Python (${(size / 1e6).toFixed(0)} MB) ... ${percent} %`);
  };
  ready = false;
  tellLoaded();
  worker = new Worker(new URL("worker.js", here), { type: "module" });
  worker.onerror = () => failed("its worker could not be started");
  worker.onmessage = ({ data }) => {
    if (data.loaded) {
      loaded += data.loaded;
      if (!ready) tellLoaded();
    }
    if (data.lines) show(data.lines);
    if (data.failed) failed(data.failed);
    if (data.ready) isReady();
    if (data.done) isDone(data.well);
  };
  worker.postMessage({ parts: parts.href });
}

function isReady() {
  ready = true;
  tell("Python is ready.");
  if (waiting) ask(waiting);
}

function failed(why) {
  worker?.terminate();
  worker = waiting = undefined;
  tell(`Python could not be loaded: ${why}. A button tries again.`);
}

function ask(action) {
  output.replaceChildren();
  waiting = ready ? undefined : action;
  if (!ready) return worker || startWorker();
  started = performance.now();
  setRunning(true);
  tell("Python is at work ...");
  worker.postMessage({ action, program: editor.value });
}

function isDone(well) {
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  setRunning(false);
  if (!output.hasChildNodes()) show([["note", "Nothing was printed."]]);
  tell(well ? `Done in ${seconds} s.` : `Done in ${seconds} s, with an error.`);
  if (output.getBoundingClientRect().top > innerHeight * 0.8) status.scrollIntoView(); // on a phone it is below
}

function stopProgram() {
  worker?.terminate();
  setRunning(false);
  show([["note", "Stopped."]]);
  startWorker(); // Python is in an unknown condition, so it starts anew
}

// What is shown

function tell(text) {
  if (status.textContent !== text) status.textContent = text;
}

function show(lines) {
  for (const [kind, line] of lines) {
    const element = document.createElement("span");
    element.className = `playground-${kind}`;
    element.append(...line.split(PLACE).map((text) => (PLACE.test(text) ? linkTo(text) : text)));
    element.style.setProperty("--indent", line.match(/^[ │├└─]*/)[0].length); // what is wrapped stands right of it
    output.append(element);
  }
}

// Two forms, as the checker and as tracebacks write them.
const PLACE = /(example\.py:\d+|"example\.py", line \d+)/;

/** A line of the program that an error names; it is marked in the editor if it is pressed. */
function linkTo(place) {
  const link = document.createElement("button");
  link.type = "button";
  link.textContent = place;
  link.onclick = () => {
    const before = editor.value.split("\n").slice(0, Number(place.match(/\d+$/)) - 1);
    const from = before.reduce((sum, line) => sum + line.length + 1, 0);
    const end = editor.value.indexOf("\n", from);
    editor.focus();
    editor.setSelectionRange(from, end < 0 ? editor.value.length : end);
    editor.scrollTop = before.length * parseFloat(getComputedStyle(editor).lineHeight) - editor.clientHeight / 3;
  };
  return link;
}

/** The numbers beside the editor, as errors name lines. */
function numberLines() {
  const count = editor.value.split("\n").length;
  numbers.textContent = Array.from({ length: count }, (_, line) => line + 1).join("\n");
  numbers.scrollTop = editor.scrollTop;
}

function write(program) {
  editor.value = program;
  numberLines();
}

function setRunning(runs) {
  const focused = document.activeElement === stop;
  running = runs;
  stop.disabled = !runs;
  if (focused && !runs) actions[0].focus(); // a disabled button keeps no focus
}

// The editor

function indent(event) {
  const { selectionStart: from, selectionEnd: to, value } = editor;
  const line = value.lastIndexOf("\n", from - 1) + 1;
  const spaces = value.slice(line, from).match(/^ */)[0];
  if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
    insert("\n" + spaces + (value[from - 1] === ":" ? "    " : ""));
  } else if (event.key === "Tab" && event.shiftKey) {
    const outer = value.slice(line).match(/^ {0,4}/)[0].length;
    editor.setRangeText("", line, line + outer, "preserve");
  } else if (event.key === "Tab" && from === to) {
    insert(" ".repeat(4 - ((from - line) % 4)));
  } else if (event.key === "Tab") {
    const lines = value.slice(line, to);
    editor.setRangeText(lines.replace(/^(?=.)/gm, "    "), line, to, "select");
  } else return false;
  return true;
}

// Typed, not assigned: the browser's undo knows it. execCommand has no successor for this.
function insert(text) {
  if (!document.execCommand("insertText", false, text)) {
    editor.setRangeText(text, editor.selectionStart, editor.selectionEnd, "end");
  }
}

let leaves = false; // Escape was pressed: the next Tab leaves the editor, as everywhere else

function onKey(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    press("run");
  } else if (event.key === "Escape") {
    leaves = true;
    return;
  } else if (!(event.key === "Tab" && leaves) && indent(event)) {
    event.preventDefault();
  }
  if (event.key !== "Shift") leaves = false;
}

function press(action) {
  if (!running) ask(action);
}

// A program in the address: ...#program=<base64 of UTF-8>; it is never sent, and never run before a button is pressed

const encode = (text) => btoa(String.fromCodePoint(...new TextEncoder().encode(text)));
const decode = (code) => new TextDecoder().decode(Uint8Array.from(atob(code), (c) => c.codePointAt(0)));

function fromAddress() {
  const code = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B")).get("program");
  try {
    return code && decode(code);
  } catch {
    return undefined;
  }
}

async function share() {
  history.replaceState(null, "", `#program=${encode(editor.value)}`);
  try {
    await navigator.clipboard.writeText(location.href);
    tell("A link to this program is in the clipboard.");
  } catch {
    tell("The address of this page is now a link to this program.");
  }
}

// The start

async function begin() {
  const response = await fetch(new URL("index.json", parts)).catch(() => undefined);
  index = response?.ok ? await response.json() : { left_out: "This copy of the page was built without Python." };
  find("left-out").hidden = !index.left_out;
  find("work").hidden = Boolean(index.left_out);
  if (index.left_out) {
    find("left-out").textContent = `${index.left_out} "make playground" in a copy of the repository builds it.`;
    return;
  }
  const shared = fromAddress();
  const titles = index.examples.map(({ title }) => title);
  examples.replaceChildren(...titles.map((title, number) => new Option(title, number)));
  if (shared) examples.prepend(new Option("The program of the link", -1, true, true));
  write(shared ?? index.examples[0].program);
  examples.onchange = () => {
    write(examples.value < 0 ? shared : index.examples[examples.value].program);
    output.replaceChildren();
    history.replaceState(null, "", location.pathname + location.search);
  };
  for (const button of actions) button.onclick = () => press(button.dataset.action);
  stop.onclick = stopProgram;
  find("share").onclick = share;
  editor.onkeydown = onKey;
  editor.oninput = numberLines;
  editor.onscroll = () => (numbers.scrollTop = editor.scrollTop);
  if (navigator.connection?.saveData) tell("Python (13 MB) is loaded at the first button.");
  else startWorker();
}

begin();
