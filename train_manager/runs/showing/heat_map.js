// ---- a heat map -----------------------------------------------------------------------------------------------------

class Heat extends Box {
  constructor(map, host) {
    super(map.id, map.name, host);
    Object.assign(this, {map, curves: map.labels.map(name => ({name})), drawn: el("canvas")});
    this.plot = map;
    this.canvas.append(this.drawn);
    this.canvas.classList.add("map");
    this.canvas.style.height = `${Math.max(200, Math.min(620, 60 + map.labels.length * 15))}px`;
    if (map.columns) this.table.hidden = true;
    let from = null;
    this.canvas.onpointerdown = event => { from = event.offsetX; };
    this.canvas.onpointermove = event => this.tell(event.offsetX, event.offsetY);
    this.canvas.onpointerleave = () => { this.note.textContent = this.words; };
    this.canvas.onpointerup = ({offsetX}) => {
      if (from != null && !map.columns && Math.abs(offsetX - from) > 5)
        this.zoom([from, offsetX].sort((a, b) => a - b).map(x => this.xAt(x)));
      from = null;
    };
  }

  fillLegend() {}
  resize() { this.draw(); }
  xAt(pixel) { const {left, span, low, high} = this.place; return low + (high - low) * (pixel - left) / span; }
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
    this.stale = false;
    const {map} = this, all = this.values.flat(), lowest = extreme(all, Math.min), highest = extreme(all, Math.max);
    const above = all.filter(value => value > 0), smallest = extreme(above, Math.min);
    const isSame = !(highest > lowest);
    this.canvas.hidden = isSame;
    this.note.textContent = this.words = !isFinite(lowest) ? "No value of these is a number." : isSame ?
      `All values are ${text(lowest)}, in ${map.labels.length} rows.` : map.columns ?
      "Rows are the classes, columns what they were taken for: shares of a row." :
      state.rms && map.roots?.length ? RMS : "";
    if (isSame) return;
    const isLog = state.y === "log" ? highest > 0 : state.y === "auto" && lowest > 0 && highest / lowest >= FALLS;
    const floor = isLog ? Math.max(smallest, highest * 1e-8) : map.columns ? 0 : lowest;
    const share = value => isLog ? Math.log(Math.max(value, floor) / floor) / Math.log(highest / floor) :
      (value - floor) / (highest - floor);
    const {width, height} = this.size(), ratio = devicePixelRatio, context = this.drawn.getContext("2d");
    Object.assign(this.drawn, {width: width * ratio, height: height * ratio});
    context.scale(ratio, ratio);
    context.font = "12px system-ui";
    context.fillStyle = getComputedStyle(document.body).color;
    const fits = (name, room) => {  // names differ at their end, before the class
      const short = name.split(" ")[0], isRoom = cut => context.measureText(cut).width <= room;
      let n = 1;
      while (n < short.length && !isRoom("\u2026" + short.slice(n))) n++;
      return isRoom(name) ? name : isRoom(short) ? short : "\u2026" + short.slice(n);
    };
    const room = Math.min(width * 0.35, Math.max(...map.labels.map(name => context.measureText(name).width)));
    const left = room + 10, top = 24, span = width - left - 18, rows = map.labels.length, tall = height - top - 38;
    const x = map.columns ? map.x : xOf(map), zoom = map.columns ? null : state.zoom[this.id];
    const [low, high] = zoom ?? (map.columns ? [-0.5, x.length - 0.5] : [Math.min(0, x[0]), x.at(-1)]);
    this.place = {left, top, span, tall, low, high, x};
    const pixels = Math.max(1, Math.floor(span)), picture = new ImageData(pixels, rows), values = this.values;
    for (let pixel = 0; pixel < pixels; pixel++) {
      const column = this.columnAt(left + pixel + 0.5);
      for (let row = 0; row < rows; row++) {
        const value = values[row][column];
        const colour = value == null ? [128, 128, 128] : viridis(share(value));
        picture.data.set([...colour, 255], 4 * (row * pixels + pixel));
      }
    }
    const small = el("canvas", {width: pixels, height: rows});
    small.getContext("2d").putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, left, top, span, tall);
    const every = Math.ceil(13 / (tall / rows)), wide = Math.ceil(Math.max(...(map.columns ?? [""]).map(name =>
      context.measureText(name).width + 8)) / (span / x.length));
    context.textBaseline = "middle";
    context.textAlign = "right";
    map.labels.forEach((name, n) => {
      if (n % every === 0) context.fillText(fits(name, room), left - 6, top + (n + 0.5) * tall / rows);
    });
    context.textAlign = "center";
    const ten = 10 ** Math.floor(Math.log10((high - low) / 4));
    const apart = [1, 2, 5, 10].find(n => n * ten * 5 >= high - low) * ten;
    const marks = map.columns ? x.filter(n => n % wide === 0) : [0, 1, 2, 3, 4, 5].map(n =>
      (Math.ceil(low / apart) + n) * apart).filter(mark => mark <= high);
    for (const mark of marks)
      context.fillText(map.columns?.[mark] ?? text(mark), left + span * (mark - low) / (high - low), top + tall + 11);
    context.fillText(map.columns ? "taken for" : xName(), left + span / 2, top + tall + 28);
    for (let n = 0; n < 100; n++) {
      context.fillStyle = hex(viridis(n / 100));
      context.fillRect(left + span - 180 + n, 6, 1.5, 10);
    }
    context.fillStyle = getComputedStyle(document.body).color;
    context.textAlign = "right";
    context.fillText(text(floor), left + span - 186, 12);
    context.textAlign = "left";
    context.fillText(text(highest) + (isLog ? " (log)" : ""), left + span - 74, 12);
  }

  columnAt(pixel) {  // each column ends at its x
    const value = this.xAt(pixel), {x} = this.place;
    return this.map.columns ? Math.round(value) : Math.max(0, x.findIndex(one => one >= value));
  }

  tell(x, y) {
    if (!this.place) return;
    const {left, top, span, tall} = this.place, row = Math.floor((y - top) / tall * this.map.labels.length);
    const isIn = x >= left && x < left + span && row >= 0 && row < this.map.labels.length, n = this.columnAt(x);
    const where = isIn && (this.map.columns ? this.map.columns[n] : text(this.place.x[n]));
    this.note.textContent = isIn ? `${this.map.labels[row]} at ${where}: ${text(this.values[row][n])}` : this.words;
  }
}
