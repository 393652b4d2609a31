// Matrices: small ones as tables, large ones as heat maps; both are read by pointer and by arrow keys.

const TABLE = 16; // rows and columns up to which every number is written out
const MOST = 1024; // rows and columns drawn of a heat map

/** The colours of the page as [r, g, b], asked anew after a change between light and dark. */
const colour = (name) => {
  const probe = document.body.appendChild(el("i", { style: `color: var(${name})` }));
  const numbers = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return numbers;
};

const MOVES = {
  ArrowLeft: (r, c) => [r, c - 1],
  ArrowRight: (r, c) => [r, c + 1],
  ArrowUp: (r, c) => [r - 1, c],
  ArrowDown: (r, c) => [r + 1, c],
  Home: (r) => [r, 0],
  End: (r) => [r, Infinity],
  PageUp: (r, c) => [r - 10, c],
  PageDown: (r, c) => [r + 10, c],
};

/** One head of one array on the page. Rows and columns are those that are seen: `turned` shows the transpose. */
class Matrix {
  /** `settings`: engine, name, title, turned, table, cell [width, height], onPoint(view, row, column), onLeave(). */
  constructor(settings) {
    Object.assign(this, settings);
    this.head = 0;
    this.spot = [0, 0];
    this.caption = el("figcaption");
    this.box = el("div", { class: "box" });
    this.element = el("figure", { class: "matrix" }, this.caption, this.box);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.element.addEventListener("pointerover", (event) => this.onPointer(event));
    this.element.addEventListener("pointermove", (event) => this.drawn && this.onPointer(event));
    this.element.addEventListener("pointerdown", (event) => this.onPointer(event, true));
    this.element.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.onLeave?.());
    this.element.addEventListener("focusout", (event) => this.element.contains(event.relatedTarget) || this.onLeave?.());
    this.update();
  }

  get array() {
    return this.engine.values[this.name];
  }

  /** Shows the present numbers; `head` of a stack. */
  update(head = this.head) {
    const [stack, rows, columns] = dims(this.array);
    this.head = Math.min(head, stack - 1);
    this.own = [rows, columns];
    this.size = this.turned ? [columns, rows] : [rows, columns];
    const alone = this.array.shape.length < 2 ? [""] : undefined; // a vector is one row without a name
    this.names = [this.engine.rowNames(this.name) ?? alone, this.engine.columnNames(this.name)];
    this.seen = this.turned ? [...this.names].reverse() : this.names;
    this.most = largest(this.array.data.map((value) => (Number.isFinite(value) ? Math.abs(value) : 0))) || 1;
    this.spot = [0, 1].map((axis) => Math.max(0, Math.min(this.spot[axis], this.size[axis] - 1)));
    const shape = `[${this.array.shape.join(" ")}]`, which = stack > 1 ? ` head ${this.head}` : "";
    this.caption.replaceChildren(el("b", {}, this.title, this.turned ? "ᵀ" : ""), ` ${shape}${which}`);
    this.draw();
  }

  value(r, c) {
    return numberAt(this.array, this.head, ...this.place(r, c));
  }

  /** From what is seen to the array's own row and column, and back. */
  place(r, c) {
    return this.turned ? [c, r] : [r, c];
  }

  /** The name of one number, by the array's own row and column. */
  label(i, j) {
    const [row, column] = [this.names[0]?.[i] ?? i, this.names[1]?.[j] ?? j];
    return `${this.title}[${this.array.shape.length < 2 ? column : `${row}, ${column}`}]`;
  }

  strength(value) {
    return Number.isFinite(value) ? (Math.abs(value) / this.most) ** 0.7 : 0;
  }

  onKey(event) {
    const move = MOVES[event.key];
    if (!move || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const [r, c] = move(...this.spot);
    this.point(this.clamp(r, 0), this.clamp(c, 1), true);
  }

  clamp(place, axis) {
    return Math.max(0, Math.min(place, Math.min(this.size[axis], this.table ? Infinity : MOST) - 1));
  }

  point(r, c, focus = false) {
    if (!this.size[0] || !this.size[1]) return;
    this.spot = [r, c];
    this.mark(focus);
    this.onPoint(this, ...this.place(r, c));
  }

  /** Lights parts up; a part of another head brings that head forward. */
  light(parts) {
    this.clear();
    for (const { head, rows, columns } of parts) {
      if (dims(this.array)[0] > 1 && head !== this.head) this.update(head);
      this.lightPart(...(this.turned ? [columns, rows] : [rows, columns]));
    }
  }
}

/** Every number written out, tinted by sign and size. */
class TableMatrix extends Matrix {
  draw() {
    const [rows, columns] = this.size, numbers = (n) => Array.from({ length: n }, (_, i) => String(i));
    const across = this.seen[1] ?? numbers(columns), down = this.seen[0] ?? numbers(rows);
    const shape = `${across}|${down}`;
    if (shape !== this.drawnShape) this.build(across, down);
    this.drawnShape = shape;
    const nothing = this.engine.overNothing(this.name);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const cell = this.cells[r][c], value = this.value(r, c);
        cell.textContent = inWords(value, nothing, 2);
        cell.className = value < 0 ? "negative" : value > 0 ? "positive" : "zero";
        cell.style.setProperty("--size", `${Math.round(100 * this.strength(value))}%`);
      }
    }
    this.lit = [];
    this.current = null;
  }

  build(across, down) {
    this.cells = down.map((_, r) => across.map((_, c) => el("td", { tabindex: -1, "data-cell": `${r},${c}` })));
    const head = el("tr", {}, el("td"), across.map((name) => el("th", { scope: "col", title: name }, name)));
    const body = down.map((name, r) => el("tr", {}, el("th", { scope: "row", title: name }, name), this.cells[r]));
    const grid = el("table", { role: "grid", "aria-label": this.title }, el("thead", {}, head), el("tbody", {}, body));
    grid.addEventListener("focusin", (event) => this.fromCell(event.target));
    this.box.replaceChildren(grid);
    this.cells[this.spot[0]]?.[this.spot[1]]?.setAttribute("tabindex", 0);
  }

  onPointer(event) {
    this.fromCell(event.target);
  }

  fromCell(target) {
    const place = target.closest("[data-cell]")?.dataset.cell.split(",").map(Number);
    if (place) this.point(...place);
  }

  mark(focus) {
    const cell = this.cells[this.spot[0]][this.spot[1]];
    this.clear();
    this.box.querySelector("[tabindex='0']")?.setAttribute("tabindex", -1);
    cell.setAttribute("tabindex", 0);
    cell.classList.add("at");
    this.current = cell;
    if (focus) cell.focus();
  }

  clear() {
    for (const cell of this.lit) cell.classList.remove("lit");
    this.current?.classList.remove("at");
    this.lit = [];
  }

  lightPart([r0, r1], [c0, c1]) {
    for (let r = r0; r < r1; r++) this.lit.push(...this.cells[r].slice(c0, c1));
    for (const cell of this.lit) cell.classList.add("lit");
  }
}

/** One coloured pixel for each number. */
class HeatMatrix extends Matrix {
  draw() {
    const [rows, columns] = this.size.map((n) => Math.min(n, MOST));
    this.drawn = [rows, columns];
    if (!this.canvas) {
      this.canvas = el("canvas");
      this.frame = el("div", { class: "heat", tabindex: 0, role: "application", "aria-roledescription": "heat map" }, this.canvas);
      this.frame.addEventListener("focus", () => this.frame.matches(":focus-visible") && this.point(...this.spot));
      this.note = el("p", { class: "cut" });
      [this.across, this.down] = ["across", "down"].map((name) => el("div", { class: name, "aria-hidden": true }));
      this.box.append(el("div", { class: "framed" }, this.across, this.down, this.frame), this.note);
    }
    const [width, height] = this.cell, legible = 11;
    const numbers = Array.from({ length: rows }, (_, r) => r);
    this.across.replaceChildren(...(width >= legible && this.seen[1] ? this.seen[1] : []).map((name) =>
      el("span", { style: `width: ${width}px`, title: name }, name)));
    this.down.replaceChildren(...(height >= legible ? this.seen[0] ?? numbers : []).map((name) =>
      el("span", { style: `height: ${height}px`, title: name }, name)));
    this.frame.setAttribute("aria-label", `${this.title}, ${this.size[0]} rows, ${this.size[1]} columns; arrow keys move`);
    this.frame.style.width = `${columns * width}px`;
    this.frame.style.height = `${rows * height}px`;
    this.note.textContent = ["rows", "columns"].map((what, axis) =>
      this.size[axis] > MOST ? `the first ${MOST} of ${this.size[axis]} ${what}` : "").filter(Boolean).join(", ");
    this.paint();
  }

  paint() {
    const [rows, columns] = this.drawn, ground = colour("--zero");
    if (!rows || !columns) return;
    const ends = { true: colour("--negative"), false: colour("--positive") };
    Object.assign(this.canvas, { width: columns, height: rows });
    const context = this.canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let r = 0, at = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const value = this.value(r, c), share = this.strength(value), end = ends[value < 0];
        for (let k = 0; k < 3; k++) image.data[at++] = ground[k] + (end[k] - ground[k]) * share;
        image.data[at++] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }

  onPointer(event, focus = false) {
    if (!this.frame.contains(event.target)) return;
    const box = this.frame.getBoundingClientRect();
    const r = Math.floor((event.clientY - box.top) / this.cell[1]), c = Math.floor((event.clientX - box.left) / this.cell[0]);
    this.point(this.clamp(r, 0), this.clamp(c, 1));
    if (focus) this.frame.focus({ preventScroll: true });
  }

  overlay(kind, [r0, r1], [c0, c1]) {
    const [rows, columns] = this.drawn;
    const style = `left: ${(100 * c0) / columns}%; width: ${(100 * (c1 - c0)) / columns}%; ` +
      `top: ${(100 * r0) / rows}%; height: ${(100 * (r1 - r0)) / rows}%`;
    return this.frame.appendChild(el("i", { class: kind, style }));
  }

  mark() {
    this.clear();
    const [r, c] = this.spot;
    this.overlay("at", [r, r + 1], [c, c + 1]);
  }

  clear() {
    this.frame.querySelectorAll("i").forEach((node) => node.remove());
  }

  lightPart(rows, columns) {
    const within = (range, axis) => range.map((end) => Math.min(end, this.drawn[axis]));
    this.overlay("lit", within(rows, 0), within(columns, 1));
  }
}

const small = ({ shape }) => dims({ shape }).slice(1).every((n) => n <= TABLE);

/** Pixels of one number, so that so many lines fit into a box. */
const cellFor = (columns, rows, width, height, most = 16) =>
  [[width, columns], [height, rows]].map(([room, n]) => Math.max(2, Math.min(most, Math.floor(room / Math.min(n, MOST)))));

/** A table where `settings.table`, else a heat map with cells of `settings.cell` pixels. */
const showMatrix = (settings) => (settings.table ? new TableMatrix(settings) : new HeatMatrix(settings));
