// The page itself: switch, figures, attention, steps, and the panel that shows a calculation.

const byId = (id) => document.getElementById(id);
const engine = new Engine(JSON.parse(byId("data").textContent));
const { page } = engine;

/** A figure by its label, null where the walk has none; of several classes the likeliest. */
function figureOf(label) {
  const name = page.outputs[label];
  if (!name) return null;
  const { data } = engine.values[name], place = data.indexOf(largest(data)), classes = engine.columnNames(name);
  const of = page.outputs[`${label}_of`] ?? (data.length > 1 ? classes?.[place] ?? place : null);
  return { words: of === null ? label : `${label} of ${of}`, value: data[place], nothing: engine.overNothing(name) };
}

const app = {
  engine,
  head: 0,
  shown: null,

  /** Explains one number of a result, or says what a number of an input is. */
  point(card, view, i, j) {
    clearTimeout(this.leaving);
    if (this.shown && this.shown !== card) this.shown.clear();
    this.shown = card;
    const made = engine.steps.get(view.name), own = view === card.result;
    const value = numberAt(view.array, view.head, i, j);
    const found = own ? explain(engine, card.step, view.head, i, j) : { lit: [], body: [], said: made ? "made by an earlier step" : "given" };
    card.views.forEach((one, k) => one !== view && one.light(found.lit.filter(({ input }) => input === k)));
    byId("dock-name").textContent = `${view.label(i, j)} = ${inWords(value, engine.overNothing(view.name), 6)}${found.said ? `, ${found.said}` : ""}`;
    byId("dock-body").replaceChildren(...found.body);
    byId("dock").classList.add("open");
    const shares = own && page.outputs.attention?.includes(view.name);
    picture.attend(shares ? i : null, shares ? lineAt(view.array, view.head, i) : null);
    if (view === attention.view) attention.show(view, i);
  },

  /** The pointer or the focus went elsewhere: soon the panel does too. */
  leave() {
    clearTimeout(this.leaving);
    this.leaving = setTimeout(() => this.shown?.element.contains(document.activeElement) || this.close(), 500);
  },

  close() {
    byId("dock").classList.remove("open");
    this.shown?.clear();
    this.shown = null;
    picture.attend(null);
  },

  goTo(name) {
    const card = byId(`step-${name}`);
    for (let node = card; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    card.scrollIntoView({ block: "start" });
    card.querySelector("h4").focus({ preventScroll: true });
  },

  chooseHead(head) {
    this.head = head;
    this.close();
    for (const card of cards.values()) card.showHead(head);
    attention.choose({ head });
  },

  set(change) {
    const before = { loss: figureOf("loss"), probability: figureOf("probability") };
    const changed = engine.set(change);
    this.close();
    for (const card of cards.values()) card.update(changed);
    showState(before);
    picture.update();
    attention.update(changed);
    return engine.state;
  },

  /** As `set`; where that takes long, the page says so first. */
  change(change) {
    if (!engine.slow) return void this.set(change);
    document.body.classList.add("busy");
    setTimeout(() => {
      this.set(change);
      document.body.classList.remove("busy");
    }, 40);
  },

  toggle(position) {
    const { masked } = engine.state;
    this.change({ masked: masked.includes(position) ? masked.filter((i) => i !== position) : [...masked, position] });
  },
};

// --- switch and figures

function figure(label, { words, value, nothing }, before) {
  const changed = before && !before.nothing && before.value !== value;
  const note = [nothing && "nothing hidden", changed && `before ${write(before.value)}`].filter(Boolean).join(", ");
  return el("div", { class: "figure", id: `figure-${label}` }, el("dt", {}, words), el("dd", {}, inWords(value, nothing)),
    el("dd", { class: "before" }, note));
}

function showState(before = {}) {
  byId("causal").setAttribute("aria-checked", engine.state.causal);
  byId("reset").disabled = engine.state.causal === engine.start.causal && engine.state.masked === engine.start.masked;
  byId("figures").replaceChildren(...["loss", "probability"].flatMap((label) => {
    const now = figureOf(label);
    return now ? [figure(label, now, before[label])] : [];
  }));
  if (page.outputs.predictions) byId("guesses").replaceChildren(...predictions(engine));
}

// --- attention

const attention = {
  names: page.outputs.attention ?? [],
  layer: 0,
  row: 0,

  start() {
    byId("attention").hidden = !this.names.length;
    if (!this.names.length) return;
    this.row = engine.state.masked[0] ?? 0;
    const heads = [...Array(dims(engine.values[this.names[0]])[0]).keys()];
    byId("layer").append(...this.names.map((name, i) => el("option", { value: i }, `layer ${engine.steps.get(name)?.layer ?? i}`)));
    byId("head").append(...heads.map((i) => el("option", { value: i }, `head ${i}`)));
    byId("layer").addEventListener("change", () => this.choose({ layer: Number(byId("layer").value) }));
    byId("head").addEventListener("change", () => app.chooseHead(Number(byId("head").value)));
    for (const select of [byId("layer"), byId("head")]) select.hidden = select.options.length < 2;
    this.choose({});
  },

  choose({ layer = this.layer, head = app.head }) {
    if (!this.names.length) return;
    Object.assign(this, { layer });
    byId("layer").value = layer;
    byId("head").value = head;
    const name = this.names[layer], n = dims(engine.values[name])[1];
    const step = engine.steps.get(name), card = { step, element: byId("weights"), clear: () => this.view.clear() };
    this.view = showMatrix({
      engine, name, title: "attention", table: small(engine.values[name]), cell: cellFor(n, n, 520, 520, 26),
      onPoint: (view, i, j) => app.point(card, view, i, j), onLeave: () => app.leave(),
    });
    Object.assign(card, { views: [this.view], result: this.view });
    this.view.update(head);
    leaveRoom(byId("weights"), engine.rowNames(name) ?? []);
    byId("weights").replaceChildren(this.view.element);
    this.show(this.view, this.row);
  },

  /** Says what a row attends to. */
  show(view, row) {
    this.row = row;
    const shares = lineAt(view.array, view.head, row), names = view.names[1] ?? page.positions;
    const top = [...shares.keys()].filter((k) => shares[k] > 0).sort((a, b) => shares[b] - shares[a]).slice(0, 8);
    const fate = engine.fate(row);
    byId("row-name").textContent = `${view.names[0]?.[row] ?? row}${fate && ` (${fate})`} attends to`;
    byId("row-shares").replaceChildren(...top.map((k) => el("li", { style: `--share: ${100 * shares[k]}%` },
      el("span", {}, names[k] ?? String(k)), el("b", {}, shares[k].toFixed(3)))));
  },

  update(changed) {
    if (!changed.has(this.names[this.layer])) return;
    this.view.update();
    this.show(this.view, this.row);
  },
};

// --- steps

/** Runs of steps that share a value: [[value, steps], …]. */
function runs(steps, key) {
  const found = [];
  for (const step of steps) {
    if (found.length && found.at(-1)[0] === key(step)) found.at(-1)[1].push(step);
    else found.push([key(step), [step]]);
  }
  return found;
}

const cards = new Map(page.steps.map((step) => [step.name, new Card(app, step)]));

function group(title, steps, open, inner) {
  const build = () => steps.forEach((step) => cards.get(step.name).build());
  const node = el("details", { class: "group", open, toggle: () => node.open && build() },
    el("summary", {}, el("h3", {}, title), el("span", {}, `${steps.length} step${steps.length > 1 ? "s" : ""}`)), inner);
  if (open) build();
  return node;
}

function showSteps() {
  const own = (steps) => steps.map((step) => cards.get(step.name).element);
  const first = page.steps.find((step) => step.layer !== null)?.layer;
  const groups = runs(page.steps, (step) => step.layer).flatMap(([layer, steps]) => {
    const sections = runs(steps, (step) => step.section);
    if (layer === null) return sections.map(([section, few]) => group(sentence(section || "steps").slice(0, -1), few, true, own(few)));
    const inner = sections.map(([section, few]) => el("section", { class: "part" }, el("h3", { class: "part-name" }, section), own(few)));
    return [group(`Layer ${layer}`, steps, layer === first, inner)];
  });
  byId("all-steps").append(...groups);
  byId("contents").append(...groups.map((node, i) => {
    node.id = `group-${i}`;
    const go = (event) => {
      event.preventDefault();
      node.open = true;
      node.scrollIntoView();
      node.querySelector("summary").focus({ preventScroll: true });
    };
    return el("li", {}, el("a", { href: `#group-${i}`, click: go }, node.querySelector("h3").textContent));
  }));
}

// --- light and dark

const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";

function repaint() {
  byId("theme").setAttribute("aria-pressed", isDark());
  const views = [...cards.values()].flatMap((card) => card.views ?? []);
  for (const view of [...views, attention.view]) view?.paint?.();
}

// --- all together

const picture = draw(engine, (position) => app.toggle(position));
byId("picture").append(picture.element);
byId("mask-hint").hidden = !engine.canMask;
byId("causal").hidden = !engine.canLookBack;
byId("reset").hidden = !engine.canLookBack && !engine.canMask;
byId("predictions").hidden = !page.outputs.predictions;
byId("causal").addEventListener("click", () => app.change({ causal: !engine.state.causal }));
byId("reset").addEventListener("click", () => app.change(engine.start));
byId("close").addEventListener("click", () => app.close());
byId("dock").addEventListener("pointerenter", () => clearTimeout(app.leaving));
byId("dock").addEventListener("pointerleave", () => app.leave());
document.addEventListener("keydown", (event) => event.key === "Escape" && app.close());
dark.addEventListener("change", repaint);
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  repaint();
});
showState();
picture.update();
showSteps();
attention.start();
repaint();

/** For those who want to look further, and for tests. */
window.bothways = {
  get state() { return engine.state; },
  get values() { return engine.values; },
  set: (change) => app.set(change),
  compute: (operation, inputs, options) => OPERATIONS[operation](inputs, options),
};
