// One card for each step: what it computes, and its matrices, laid out so that rows and columns meet.

/** The short name of an array within a layer: what every name of the layer begins with is left out. */
function shortName(name, layer) {
  const own = `encoder.layers.${layer}.`;
  if (layer === null || !name.startsWith(own)) return name.replace(/^(encoder|embedding|heads)\./, "");
  return name.slice(own.length).replace(/^(attention|feed_forward)\./, "");
}

class Card {
  /** `app` has `engine`, `point(card, view, i, j)`, `leave()`, `goTo(name)` and `chooseHead(head)`. */
  constructor(app, step) {
    this.app = app;
    this.step = step;
    this.views = null;
    this.shape = el("span", { class: "shape" });
    const title = el("h4", { tabindex: -1 }, this.short(step.name));
    if (this.short(step.name) !== step.name) title.append(el("small", {}, step.name));
    const rule = RULES[step.operation];
    this.text = el("div", { class: "text" },
      title,
      step.about && el("p", { class: "about" }, sentence(step.about)),
      el("p", { class: "formula" }, el("span", {}, this.short(step.name), " = ", this.formula()), this.shape),
      rule && el("p", { class: "rule" }, rule));
    this.turned = step.operation === "product_transposed";
    // A product has its second factor above and its first one beside it: row and column meet in the result.
    this.crossed = this.turned || step.operation === "layer_norm" ||
      (step.operation === "product" && app.engine.values[step.inputs[1]].shape.length > 1);
    this.body = el("div", { class: `box scheme${this.crossed ? " crossed" : ""}` }, this.crossed && this.text);
    this.element = el("article", { class: "step", id: `step-${step.name}`, "data-step": step.name, "data-operation": step.operation },
      !this.crossed && this.text, this.body);
    this.label();
  }

  short(name) {
    return shortName(name, this.step.layer);
  }

  /** A name that leads to the step that made the array. */
  link(name) {
    if (!this.app.engine.steps.has(name)) return el("var", { title: name }, this.short(name));
    const go = (event) => {
      event.preventDefault();
      this.app.goTo(name);
    };
    return el("a", { href: `#step-${name}`, title: name, click: go }, this.short(name));
  }

  formula() {
    return FORMULA[this.step.operation](this.step.options, ...this.step.inputs.map((name) => this.link(name)));
  }

  label() {
    const { values } = this.app.engine, shape = (name) => `[${values[name].shape.join(" ")}]`;
    this.shape.textContent = `${this.step.inputs.map(shape).join(" ")} → ${shape(this.step.name)}`;
  }

  /** Builds the matrices; only when the card is first seen, for there are many. */
  build() {
    if (this.views) return;
    const { engine } = this.app, { step } = this, names = [...step.inputs, step.name];
    const arrays = names.map((name) => engine.values[name]);
    const tables = arrays.map((x) => (this.crossed ? arrays.every(small) : small(x)));
    this.views = names.map((name, i) => showMatrix({
      engine, name, title: this.short(name), turned: this.turned && i === 1, table: tables[i], cell: this.cell(arrays[i], arrays),
      onPoint: (view, row, column) => this.app.point(this, view, row, column),
      onLeave: () => this.app.leave(),
    }));
    this.result = this.views.at(-1);
    if (arrays.some((x) => x.shape.length > 2)) this.addHeads(Math.max(...arrays.map((x) => dims(x)[0])));
    const nodes = this.views.map((view) => view.element);
    this.result.element.classList.add("made");
    if (this.crossed) {
      const [a, b, ...rest] = nodes;
      this.body.append(el("div", { class: "left" }, a), el("div", { class: "top" }, b, rest.slice(0, -1)), el("div", { class: "meet" }, rest.at(-1)));
    } else {
      const sign = { add: "+", subtract: "−", multiply: "⊙", divide: "÷" }[step.operation] ?? "";
      const last = ["add", "subtract", "multiply", "divide"].includes(step.operation) ? "=" : "→";
      this.body.append(...nodes.map((node, i) => el("div", { class: "signed" },
        i > 0 && el("span", { class: "sign" }, i === nodes.length - 1 ? last : sign), node)));
    }
    leaveRoom(this.body, names.flatMap((name) => engine.rowNames(name) ?? []));
  }

  /** Pixels of one number in a heat map: those of a product have to fit around its result. */
  cell(array, arrays) {
    const [, rows, columns] = dims(array);
    if (!this.crossed) return cellFor(columns, rows, 480, 400);
    const [a, b, made] = [arrays[0], arrays[1], arrays.at(-1)].map((x) => dims(x).slice(1));
    const above = b[this.turned ? 1 : 0];
    return cellFor(a[1] + made[1], above + made[0], 860, 620);
  }

  addHeads(n) {
    if (n < 2) return;
    const choose = el("select", { "aria-label": "Head", change: () => this.app.chooseHead(Number(choose.value)) },
      Array.from({ length: n }, (_, i) => el("option", { value: i }, `head ${i}`)));
    choose.value = this.app.head;
    this.heads = choose;
    this.text.append(el("p", { class: "choice" }, choose));
    this.showHead(this.app.head);
  }

  showHead(head) {
    this.views?.forEach((view) => dims(view.array)[0] > 1 && view.update(head));
    if (this.heads) this.heads.value = head;
  }

  update(changed) {
    const names = [...this.step.inputs, this.step.name];
    if (!names.some((name) => changed.has(name))) return;
    this.label();
    this.views?.forEach((view) => changed.has(view.name) && view.update());
  }

  clear() {
    this.views?.forEach((view) => view.clear());
  }
}

/** Makes the names of rows as wide as they need. */
function leaveRoom(node, names) {
  const longest = Math.max(2, ...names.map((name) => name.length));
  node.style.setProperty("--names", `calc(${Math.min(longest, 10)}ch + 0.7rem)`);
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** What is known of one number of a step: [lit parts, body, what is said]. */
function explain(engine, step, head, row, column) {
  const inputs = step.inputs.map((name) => engine.values[name]), made = engine.values[step.name];
  const value = numberAt(made, head, row, column);
  if (engine.overNothing(step.name)) return { lit: [], body: [line("the mean of no numbers")] };
  const upright = made.shape.length === 1; // a vector is seen as one row
  const [i, j] = upright && step.operation === "product" && inputs[0].shape.length > 1 ? [column, 0] : [row, column];
  return EXPLAIN[step.operation](inputs, engine.options(step), head, i, j, value, dims(made));
}
