"use strict";
const data = JSON.parse(document.getElementById("plot-data").textContent);
const key = "report " + location.pathname;
const state = {smooth: 0.8, y: "auto", x: "step", logx: false, filter: "", hidden: [], picked: [], zoom: {}, rms: true,
               name: "Picked curves"};
const save = () => {
  try { sessionStorage.setItem(key, JSON.stringify(state)); } catch { /* a frame without storage */ }
};
try { Object.assign(state, JSON.parse(sessionStorage.getItem(key))); } catch { /* the same */ }
const dark = matchMedia("(prefers-color-scheme: dark)");
const COLOURS = {light: ["#707070", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#56b4e9"],
                 dark: ["#a8a8a8", "#56b4e9", "#ff9d5c", "#3fcf9f", "#f0a6d0", "#f5c043", "#b9dcf5"]};
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];
const UNITS = {step: "steps", epoch: "epochs", examples: "examples", time: "time"};
const FEW = 60, SEVERAL = 30, FALLS = 20, APART = 10;  // points with markers; smoothed; a log scale; a second axis
const RMS = "As root mean squares: norms divided by the square root of the number of values (RMS).";
const byId = new Map(), figures = [];

const toggled = (list, id) => list.includes(id) ? list.filter(one => one !== id) : [...list, id];
const finite = values => values.filter(one => one != null);

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    name in made ? made[name] = value : made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function text(value) {  // four digits, and never 3.28e+4 for a step
  if (value == null) return "nan";
  const size = Math.abs(value);
  if (size && (size < 1e-4 || size >= 1e9)) return Number(value.toPrecision(3)).toExponential();
  return value.toLocaleString("en", size >= 1000 ? {maximumFractionDigits: 0} : {maximumSignificantDigits: 4});
}

// ---- what is drawn of a curve ---------------------------------------------------------------------------------------

function interpolated(knots, steps) {
  let at = 1;
  return steps.map(step => {
    while (at < knots.length - 1 && knots[at][0] < step) at++;
    const [[x0, y0], [x1, y1]] = [knots[at - 1], knots[at]];
    return x1 > x0 ? y0 + (y1 - y0) * Math.min(1, Math.max(0, (step - x0) / (x1 - x0))) : y1;
  });
}

function timeUnit() {
  const most = Math.max(...data.clocks.map(clock => clock.time ? clock.time.at(-1)[1] : 0));
  return most > 7200 ? [3600, "hours"] : most > 120 ? [60, "minutes"] : [1, "seconds"];
}

const xName = () => state.x === "time" ? timeUnit()[1] : UNITS[state.x];

function xOf(curve) {
  const knots = data.clocks[curve.run][state.x];
  if (state.x === "step" || !knots) return curve.x;
  const values = interpolated(knots, curve.x);
  return state.x === "time" ? values.map(value => value / timeUnit()[0]) : values;
}

function weights(curve) {  // of the points: how many examples they stand for, beside the usual number
  const knots = data.clocks[curve.run].examples, seen = knots ? interpolated(knots, curve.x) : curve.x;
  const usual = (seen.at(-1) - seen[0]) / (seen.length - 1) || 1;
  return seen.map((value, i) => i ? Math.max(0, value - seen[i - 1]) / usual : 1);
}

function smoothed(curve) {  // a running mean, as if there had been none before the first value
  if (!state.smooth || curve.kind !== "noisy" || curve.y.length < SEVERAL) return curve.y;
  let sum = 0, of = 0;
  const weight = weights(curve);
  return curve.y.map((value, i) => {
    if (value == null) return null;
    const kept = state.smooth ** weight[i];
    [sum, of] = [kept * sum + (1 - kept) * value, kept * of + (1 - kept)];
    return of ? sum / of : value;
  });
}

function linesOf(curve, isLog) {  // x, the line, and behind it what was measured
  const keep = values => values.map(value => value == null || (isLog && value <= 0) ? null : value);
  const line = smoothed(curve), behind = curve.low.length ? [curve.low, curve.high] : line === curve.y ? [] : [curve.y];
  const x = xOf(curve), rows = [x, ...[line, ...behind].map(keep)];
  return state.logx ? rows.map(row => row.filter((_, i) => x[i] > 0)) : rows;
}

// ---- a plot ---------------------------------------------------------------------------------------------------------

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function viridis(share) {
  const at = Math.min(0.9999, Math.max(0, share || 0)) * (VIRIDIS.length - 1), n = Math.floor(at);
  return VIRIDIS[n].map((one, i) => Math.round(one + (VIRIDIS[n + 1][i] - one) * (at - n)));
}
const hex = parts => "#" + parts.map(one => one.toString(16).padStart(2, "0")).join("");
const faint = (colour, share) => colour + Math.round(share * 255).toString(16).padStart(2, "0");
function ink({depth, run, key}) {
  if (depth != null) return hex(viridis(dark.matches ? 0.3 + 0.7 * depth : 0.85 * depth));
  const colours = COLOURS[dark.matches ? "dark" : "light"];
  return colours[data.runs.length > 1 ? 1 + run % 6 : key < 0 ? 0 : 1 + key % 6];
}
const dash = ({depth, run, key}) =>
  DASHES[(depth != null ? run : data.runs.length > 1 ? key + 1 : Math.floor(Math.max(0, key) / 6)) % 4];

class Box {  // what plots and heat maps have in common
  constructor(id, name, host, title) {
    Object.assign(this, {id, name, stale: true, seen: false});
    this.canvas = el("div", {className: "canvas", role: "img"});
    this.note = el("p", {className: "note"});
    this.table = el("details", {ontoggle: () => this.fillTable()}, el("summary", {}, "As a table"));
    const button = (word, onclick) => el("button", {type: "button", onclick, ariaLabel: `${word} ${name}`}, word);
    this.box = el("figure", {className: "plot"}, el("figcaption", {}, title ?? el("h3", {}, name),
      el("span", {className: "buttons"}, button("Reset", () => this.zoom(null)),
        button("Maximise", () => maximise(this)))), this.canvas, this.note, this.table);
    host.append(this.box);
    figures.push(this);
    new ResizeObserver(() => this.drawn && this.canvas.clientWidth && this.resize()).observe(this.canvas);
    new IntersectionObserver(([{isIntersecting}]) => { this.seen = isIntersecting; this.refresh(); },
      {rootMargin: "300px"}).observe(this.box);
    this.canvas.addEventListener("dblclick", () => this.zoom(null));
  }

  renew() {  // after a choice that is for all plots
    this.stale = true;
    this.fillLegend();
    this.fillTable();
    this.canvas.ariaLabel = this.label;
    this.refresh();
  }
  refresh() { if (this.stale && this.seen) this.draw(); }
  clear() {
    this.stale = false;
    this.drawn?.destroy();
    this.drawn = null;
  }
  resize() {
    const {width, height} = this.size();
    if (width !== this.drawn.width || height !== this.drawn.height) this.drawn.setSize({width, height});
  }
  select(u) {
    const {left, width} = u.select;
    if (width >= 4) this.zoom([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
  }
  size() { return {width: this.canvas.clientWidth, height: this.canvas.clientHeight}; }
  zoom(to) {
    if (to) state.zoom[this.id] = to; else delete state.zoom[this.id];
    save();
    this.draw();
  }
  fillTable() {
    if (!this.table.open) return;
    const tag = (n, i) => n && i ? "td" : "th";
    const rows = this.rows().map((cells, n) => el("tr", {}, ...cells.map((cell, i) => el(tag(n, i), {}, cell))));
    this.table.replaceChildren(this.table.firstChild, el("table", {}, ...rows));
  }
}

const extreme = (values, best) => finite(values).reduce((a, b) => best(a, b), best());
function at(x, values, best) {
  const found = extreme(values, best), i = values.indexOf(found);
  return i < 0 ? "none" : `${text(found)} at ${text(x[i])}`;
}

function widthOf(u, labels, side, cycle) {  // of an axis: its longest label must not be cut
  const axis = u.axes[side];
  if (cycle > 1) return axis._size;  // the width has changed the labels: it must not change again
  u.ctx.font = axis.font[0];
  const widths = (labels ?? []).map(one => u.ctx.measureText(one ?? "").width / devicePixelRatio);
  return Math.max(58, Math.ceil(axis.ticks.size + axis.gap + Math.max(0, ...widths)));
}

function axes(isLog) {
  const css = getComputedStyle(document.body), grid = {stroke: css.getPropertyValue("--line"), width: 1};
  const isTen = one => one && Math.log10(one) % 1 === 0;
  const filter = (_, splits) => splits.map(one => isTen(one) ? one : null);
  const plain = (_, splits) => splits.map(one => one == null ? "" : text(one));
  const tens = (_, splits) => splits.map(one => one == null || (splits.length > 8 && !isTen(one)) ? "" : text(one));
  const axis = {stroke: css.color, grid, ticks: grid, font: "12px system-ui", values: plain, size: widthOf};
  return {axis: {...axis, values: state.logx ? tens : plain, size: 30, label: xName(), labelSize: 16, labelGap: 0,
                 labelFont: axis.font},
          yAxis: isLog ? {...axis, values: tens, grid: {...grid, filter}, ticks: {...grid, filter}} : axis};
}

class Figure extends Box {
  constructor(plot, host, isPicked = false) {
    super(isPicked ? "picked" : plot.id, plot.name, host, isPicked ? el("input", {value: state.name,
      className: "name", ariaLabel: "Name of the plot",
      oninput: event => { state.name = event.target.value; save(); }}) : null);
    Object.assign(this, {plot, isPicked, legend: el("ul", {className: "legend"})});
    this.note.after(this.legend);
  }

  get curves() { return this.isPicked ? state.picked.map(id => byId.get(id)).filter(Boolean) : this.plot.curves; }
  get label() {
    return `${this.isPicked ? state.name : this.plot.name} over ${xName()}. ` +
      this.curves.map(curve => `${this.nameOf(curve)} ends at ${curve.end}`).join("; ");
  }
  get shown() { return this.curves.filter(curve => this.isPicked || !state.hidden.includes(curve.id)); }
  inkOf(curve) {  // where picked curves have the same colour, the later one gets another
    const before = this.isPicked ? this.curves.slice(0, this.curves.indexOf(curve)).map(one => this.inkOf(one)) : [];
    return [ink(curve), ...COLOURS[dark.matches ? "dark" : "light"]].find(one => !before.includes(one)) ?? ink(curve);
  }
  isRight(curve) {  // a picked curve that has the second axis: its values are far from those of the first one
    const size = ({y}) => extreme(y.map(value => value && Math.abs(value)), Math.max);
    const ratio = this.isPicked ? size(curve) / size(this.curves[0]) : 1;
    return ratio > 0 && isFinite(ratio) && Math.max(ratio, 1 / ratio) > APART;
  }
  nameOf(curve) {
    const run = data.runs.length > 1 ? `${data.runs[curve.run]} ` : "";
    return (this.isPicked ? `${curve.plot}: ` : "") + run + curve.name + (curve.value && ` (${curve.value})`);
  }

  isLog() {
    const values = this.shown.filter(curve => curve.kind !== "steps").flatMap(curve => curve.y);
    const lowest = extreme(values, Math.min), highest = extreme(values, Math.max);
    if (state.y === "log") return highest > 0;
    return state.y === "auto" && this.shown.every(one => one.mayBeLog) && lowest > 0 && highest / lowest >= FALLS;
  }

  fillLegend() {
    this.legend.replaceChildren(...this.curves.map(curve => {
      const swatch = el("i", {className: "swatch"}), end = el("span", {className: "end"}, curve.end);
      const colour = this.inkOf(curve), [on, off] = dash(curve);
      swatch.style.background = !on ? colour :
        `repeating-linear-gradient(90deg, ${colour} 0 ${on}px, #0000 0 ${on + off}px)`;
      curve.ends = {...curve.ends, [this.id]: end};
      const shows = el("input", {type: "checkbox", checked: !state.hidden.includes(curve.id), onchange: () => {
        state.hidden = toggled(state.hidden, curve.id); save(); this.draw(); }});
      const isIn = state.picked.includes(curve.id), word = this.isPicked ? "remove" : isIn ? "picked" : "pick";
      const pick = el("button", {type: "button", className: "pick", ariaPressed: String(isIn), onclick: () => {
        state.picked = toggled(state.picked, curve.id); save(); renew(); },
        ariaLabel: `${word} ${this.plot.name}: ${this.nameOf(curve)}`}, word);
      const words = this.nameOf(curve) + (this.isRight(curve) ? " (right axis)" : "");
      const name = el("span", {className: "curve", title: words}, words);
      return el("li", {}, el("label", {}, ...(this.isPicked ? [] : [shows]), swatch, name, end), pick);
    }));
  }

  rows() {
    return [["curve", "ends at", "lowest", "highest"], ...this.curves.map(curve => [this.nameOf(curve), curve.end,
      at(curve.x, curve.low.length ? curve.low : curve.y, Math.min),
      at(curve.x, curve.high.length ? curve.high : curve.y, Math.max)])];
  }

  draw() {
    this.clear();
    const isNothing = this.plot.section === "layers" && this.plot.curves.every(({y}) => y.every(value => !value));
    this.canvas.hidden = isNothing;
    if (isNothing) { this.note.textContent = "All values are 0."; return; }
    const curves = this.shown, isLog = this.isLog(), series = [{}], bands = [], tables = [];
    for (const curve of curves) {
      const rows = linesOf(curve, isLog), colour = this.inkOf(curve), scale = this.isRight(curve) ? "right" : "y";
      const isRow = curve.kind === "rows", few = finite(rows[1]).length <= (curve.kind === "noisy" ? 1 : FEW);
      tables.push(rows);
      series.push({curve, scale, stroke: colour, width: 1.6, dash: dash(curve),
        points: {show: few && curve.kind !== "steps", size: isRow ? 6 : 5, fill: colour},
        ...(curve.kind === "steps" ? {paths: uPlot.paths.stepped({align: 1})} : {})});
      for (const _ of rows.slice(2)) series.push({scale, stroke: faint(colour, 0.35), width: 1, points: {show: false}});
      if (rows.length > 3) bands.push({series: [series.length - 1, series.length - 2], fill: faint(colour, 0.2)});
    }
    const joined = curves.length ? uPlot.join(tables) : [[], []], zoom = state.zoom[this.id];
    const isEmpty = !joined.slice(1).some(row => row.some(value => value != null));
    this.note.textContent = !curves.length ? "No curve is chosen." :
      isEmpty ? "No value of these is a number that can be drawn." :
      state.y === "log" && !isLog ? "No value is above zero, so the scale is linear." :
      state.rms && curves.some(curve => curve.root) ? RMS : "";
    const {axis, yAxis} = axes(isLog), hasRight = curves.some(curve => this.isRight(curve)), distr = isLog ? 3 : 1;
    const range = (_, low, high) => low == null ? [isLog ? 0.1 : 0, 1] : isLog ? uPlot.rangeLog(low, high, 10, false) :
      low === high ? [low - (Math.abs(low) / 10 || 1), high + (Math.abs(high) / 10 || 1)] :
      uPlot.rangeNum(low, high, 0.08, true);
    this.drawn = new uPlot({
      ...this.size(), legend: {show: false}, series, bands,
      cursor: {drag: {setScale: false}, bind: {dblclick: () => null}, points: {size: 7}},
      scales: {x: {time: false, distr: state.logx && joined[0].length ? 3 : 1}, y: {distr, range},
               ...(hasRight ? {right: {distr, range}} : {})},
      axes: [axis, yAxis, ...(hasRight ? [{...yAxis, scale: "right", side: 1, grid: {show: false}}] : [])],
      hooks: {draw: [u => curves.forEach(curve => this.ring(u, curve))], setSelect: [u => this.select(u)], setCursor: [u => this.tell(u)]},
    }, joined, this.canvas);
    if (zoom) this.drawn.setScale("x", {min: zoom[0], max: zoom[1]});
  }

  ring(u, curve) {  // around the value that decides which epoch is best
    const i = curve.best == null ? -1 : curve.x.findIndex(step => step >= curve.best), x = xOf(curve)[i];
    const {min, max} = u.scales.x;
    if (i < 0 || curve.y[i] == null || x < min || x > max) return;
    u.ctx.beginPath();
    u.ctx.arc(u.valToPos(x, "x", true), u.valToPos(curve.y[i], this.isRight(curve) ? "right" : "y", true),
      7 * devicePixelRatio, 0, 2 * Math.PI);
    Object.assign(u.ctx, {strokeStyle: this.inkOf(curve), lineWidth: 2 * devicePixelRatio});
    u.ctx.stroke();
  }

  tell(u) {  // the values below the cursor, in the legend
    const at = u.cursor.idx;
    u.series.forEach((series, n) => {
      if (!series.curve) return;
      const value = at == null ? null : u.data[n][at], {end, ends} = series.curve;
      if (value === undefined) return;
      ends[this.id].textContent = at == null ? end : `${text(value)} at ${text(u.data[0][at])}`;
    });
  }
}
