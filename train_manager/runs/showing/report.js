// ---- the whole page -------------------------------------------------------------------------------------------------

const dialog = document.getElementById("maximised");
let place = null;

function maximise(figure) {
  if (dialog.open) return dialog.close();
  place = el("div");
  figure.box.replaceWith(place);
  dialog.replaceChildren(figure.box);
  dialog.showModal();
  figure.box.querySelector(".buttons button:last-child").textContent = "Restore";
}

dialog.addEventListener("close", () => {
  const button = dialog.querySelector(".buttons button:last-child");
  button.textContent = "Maximise";
  place.replaceWith(dialog.firstChild);
  button.focus();
});

function renew() {  // after a choice that is for all plots
  picked.box.hidden = !picked.curves.length;
  for (const figure of figures) figure.renew();
}

function scale() {  // norms, or the root mean squares of what they are of
  for (const curve of [...byId.values()]) {
    if (curve.root) for (const name of ["y", "low", "high"]) {
      const norms = curve.norms[name];
      curve[name] = state.rms ? norms.map(value => value == null ? null : value / curve.root) : norms;
    }
    const {x, y} = curve, i = curve.best == null ? -1 : x.findIndex(step => step >= curve.best);
    const best = i < 0 ? "" : i === x.length - 1 ? ", the best" : `, best ${text(y[i])} at ${text(x[i])}`;
    if (!curve.known) curve.end = `${text(y.at(-1))} at step ${text(x.at(-1))}${best}`;
  }
}

function filter() {
  const words = state.filter.toLowerCase();
  const has = name => name.toLowerCase().includes(words);
  for (const {box, name, curves} of figures.filter(one => !one.isPicked))
    box.hidden = !has(name) && !curves.some(curve => has(curve.name));
}

function bind(id, name, read = input => input.value) {
  const input = document.getElementById(id), isBox = input.type === "checkbox";
  if (isBox) input.checked = state[name]; else input.value = state[name];
  input.addEventListener("input", () => {
    state[name] = isBox ? input.checked : read(input);
    if (name === "x" || name === "logx") state.zoom = {};
    save();
    if (name === "rms") scale();
    if (name === "filter") filter(); else renew();
  });
}

for (const plot of data.plots) {
  plot.id = `${plot.section}|${plot.name}`;
  for (const curve of plot.curves) {
    const {y, low, high} = curve, id = `${plot.id}|${curve.run}|${curve.name}`;
    Object.assign(curve, {plot: plot.name, id, norms: {y, low, high}, known: curve.end,
                          mayBeLog: plot.may_be_log});
    byId.set(curve.id, curve);
  }
}
for (const option of [...document.getElementById("x").options])
  if (option.value !== "step" && !data.clocks.some(clock => clock[option.value])) option.remove();
if (!document.querySelector(`#x option[value=${state.x}]`)) state.x = "step";
scale();
const picked = new Figure({name: "picked curves", curves: []}, document.getElementById("plots"), true);
for (const plot of data.plots) new Figure(plot, document.getElementById(plot.section));
for (const map of data.maps) {
  map.id = `${map.section}|${map.run}|${map.name}`;
  new Heat(map, document.getElementById(map.section));
}
bind("smooth", "smooth", input => Number(input.value));
for (const name of ["y", "x", "logx", "filter", "rms"]) bind(name, name);
dark.addEventListener("change", renew);
renew(); filter();
let typed = 0;  // when something was last changed
addEventListener("input", () => { typed = Date.now(); });
if (data.renews) setInterval(() => {
  if (!dialog.open && Date.now() - typed > 3000 && !document.querySelector(":active")) location.reload();
}, data.renews * 1000);
