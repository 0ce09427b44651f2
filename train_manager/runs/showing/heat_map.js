// ---- a heat map -----------------------------------------------------------------------------------------------------

class Heat extends Box {
  constructor(map, host) {
    super(map.id, map.name, host);
    Object.assign(this, {map, curves: map.labels.map(name => ({name})), scale: el("p", {className: "scale"})});
    this.canvas.before(this.scale);
    this.canvas.style.height = `${Math.max(200, Math.min(620, 60 + map.labels.length * 15))}px`;
    if (!map.columns) return;
    this.table.hidden = true;
    this.box.querySelector("button").remove();  // Reset: classes are not zoomed
  }

  fillLegend() {}
  get label() {
    const [lowest, highest] = [Math.min, Math.max].map(best => text(extreme(this.values.flat(), best)));
    return `${this.name}, of ${this.map.labels.length} rows: from ${lowest} to ${highest}`;
  }
  rows() {
    return [["layer", "ends at", "lowest", "highest"], ...this.values.map((row, n) => [this.map.labels[n],
      text(row.at(-1)), at(this.map.x, row, Math.min), at(this.map.x, row, Math.max)])];
  }
  get values() {
    const {values, roots} = this.map;
    if (!roots?.length || !state.rms) return values;
    return values.map((row, n) => row.map(value => value == null ? null : value / roots[n]));
  }

  draw() {
    this.clear();
    const {map, values} = this, {columns, labels} = map, all = values.flat();
    const lowest = extreme(all, Math.min), highest = extreme(all, Math.max), isSame = !(highest > lowest);
    this.canvas.hidden = this.scale.hidden = isSame;
    this.note.textContent = this.words = !isFinite(lowest) ? "No value of these is a number." : isSame ?
      `All values are ${text(lowest)}, in ${labels.length} rows.` : columns ?
      "Rows are the classes, columns what they were taken for: shares of a row." :
      state.rms && map.roots?.length ? RMS : "";
    if (isSame) return;
    const smallest = extreme(all.filter(value => value > 0), Math.min), ofAll = map.is_size ? smallest : lowest;
    const isLog = state.y === "log" ? highest > 0 : state.y === "auto" && ofAll > 0 && highest / ofAll >= FALLS;
    const floor = isLog ? Math.max(smallest, highest * 1e-8) : columns ? 0 : lowest;
    const share = value => isLog ? Math.log(Math.max(value, floor) / floor) / Math.log(highest / floor) :
      (value - floor) / (highest - floor);
    this.scale.replaceChildren(text(floor), el("i"), text(highest) + (isLog ? " (log)" : ""));
    this.x = columns ? map.x : xOf(map);
    const last = this.x.at(-1), isLogX = state.logx && !columns && last > 0;
    const first = isLogX ? this.x.find(one => one > 0) : Math.min(0, this.x[0]);
    const whole = columns ? [-0.5, columns.length - 0.5] : [first, last > first ? last : first + 1];
    const {axis, yAxis} = axes(false), width = wordWidth(axis.font), none = {show: false};
    const room = Math.min(this.size().width * 0.35, Math.max(...labels.map(width)));
    const each = (u, side, n, pixels) => [...Array(n).keys()].filter(one =>
      one % Math.ceil(pixels * n * devicePixelRatio / u.bbox[side]) === 0);
    const ofColumns = columns && {label: "taken for", values: (_, marks) => marks.map(n => columns[n]),
                                  splits: u => each(u, "width", columns.length, Math.max(...columns.map(width)) + 8)};
    this.drawn = new uPlot({
      ...this.size(), legend: none, series: [{}, {}], cursor: {drag: {x: !columns, setScale: false}},
      scales: {x: {time: false, distr: isLogX ? 3 : 1, range: state.zoom[this.id] ?? whole},
               y: {dir: -1, range: [-0.5, labels.length - 0.5]}},
      axes: [{...axis, grid: none, ...ofColumns}, {...yAxis, grid: none, ticks: none, size: room + 8, gap: 4,
        splits: u => each(u, "height", labels.length, 13),
        values: (_, marks) => marks.map(n => cut(labels[n], room, width))}],
      hooks: {drawClear: [u => this.paint(u, values, share)], setSelect: [u => this.select(u)],
              setCursor: [u => this.tell(u)]},
    }, [whole, [null, null]], this.canvas);
  }

  paint({ctx, bbox, posToVal}, values, share) {
    const {left, top, width, height} = bbox, picture = new ImageData(Math.max(1, Math.floor(width)), values.length);
    for (let pixel = 0; pixel < picture.width; pixel++) {
      const column = this.columnAt(posToVal(pixel / devicePixelRatio, "x"));
      values.forEach((row, n) => {
        const colour = row[column] == null ? [128, 128, 128] : viridis(share(row[column]));
        picture.data.set([...colour, 255], 4 * (n * picture.width + pixel));
      });
    }
    const small = el("canvas", {width: picture.width, height: picture.height});
    small.getContext("2d").putImageData(picture, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(small, left, top, width, height);
  }

  columnAt(value) {  // each column ends at its x
    return this.map.columns ? Math.round(value) : Math.max(0, this.x.findIndex(one => one >= value));
  }

  tell(u) {
    const {left, top} = u.cursor, {columns, labels} = this.map;
    const row = left < 0 ? -1 : Math.round(u.posToVal(top, "y")), n = this.columnAt(u.posToVal(left, "x"));
    const where = row in labels && (columns ? columns[n] : text(this.x[n]));
    this.note.textContent = row in labels ? `${labels[row]} at ${where}: ${text(this.values[row][n])}` : this.words;
  }
}

function wordWidth(font) {
  const context = Object.assign(el("canvas").getContext("2d"), {font});
  return word => context.measureText(word).width;
}

function cut(name, room, width) {  // names differ by the block at their beginning, and the layer before the class
  const short = name.split(" ")[0];
  const ends = n => short.slice(0, Math.ceil(n / 2)) + "\u2026" + short.slice(short.length - Math.floor(n / 2));
  let n = short.length - 1;
  while (n > 1 && width(ends(n)) > room) n--;
  return width(name) <= room ? name : width(short) <= room ? short : ends(n);
}
