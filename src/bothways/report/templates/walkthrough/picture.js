// The input on top: the signal in its patches or the sentence in its tokens; masked positions can be chosen here.

const SVG = "http://www.w3.org/2000/svg";
const svg = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};

/** What signal and sentence share: a place on the page for each position, and how it is chosen. */
class Picture {
  /** `onToggle(position)` hides a position or shows it again. */
  constructor(engine, onToggle) {
    this.engine = engine;
    this.onToggle = onToggle;
    this.places = new Map();
    this.order = [];
    this.element = el("div", { class: "picture" });
    this.build(engine.page.picture);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.order[0]?.setAttribute("tabindex", 0);
  }

  /** One position: a button where it can be hidden, else only a name. */
  position(index, attributes, ...children) {
    const can = this.engine.canMask && this.engine.page.content.includes(index);
    const node = el(can ? "button" : "span", { ...attributes, "data-position": index, tabindex: can && -1 }, children);
    if (can) {
      node.type = "button";
      node.addEventListener("click", () => this.onToggle(index));
      node.addEventListener("focus", () => this.rove(node));
      this.order.push(node);
    }
    this.places.set(index, node);
    return node;
  }

  rove(node) {
    for (const other of this.order) other.tabIndex = other === node ? 0 : -1;
  }

  onKey(event) {
    const here = this.order.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const ends = { Home: 0, End: this.order.length - 1 }[event.key];
    if (here < 0 || (step === undefined && ends === undefined)) return;
    event.preventDefault();
    this.order[ends ?? Math.max(0, Math.min(here + step, this.order.length - 1))].focus();
  }

  /** Shows which positions are hidden. */
  update() {
    const { masked } = this.engine.state;
    for (const [index, node] of this.places) {
      const hidden = masked.includes(index);
      node.classList.toggle("masked", hidden);
      if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", hidden);
    }
  }

  /** Shows what one position attends to, by its shares of all positions; nothing where `row` is null. */
  attend(row, shares) {
    const most = shares ? largest(shares) || 1 : 1;
    for (const [index, node] of this.places) {
      node.classList.toggle("asking", index === row);
      node.style.setProperty("--share", `${shares ? (100 * shares[index]) / most : 0}%`);
    }
  }
}

class Signal extends Picture {
  build(picture) {
    const { page } = this.engine;
    this.signal = decode(picture.signal);
    const [channels, samples] = this.signal.shape;
    this.size = picture.patch_samples;
    // A walk through one layer alone knows no content: its last positions are the tokens.
    const { content, positions } = page, before = positions.length - picture.tokens.length;
    this.at = content.length ? content : picture.tokens.map((_, place) => before + place);
    this.placeOf = new Map(picture.tokens.map(([channel, patch], place) => [`${channel},${patch}`, place]));
    this.together = picture.tokens.every(([channel]) => channel === null);
    this.row = Math.max(34, Math.min(92, 420 / channels));
    this.most = largest(this.signal.data.map((value) => (Number.isFinite(value) ? Math.abs(value) : 0))) || 1;
    const seconds = (sample) => write(picture.start_s + sample / picture.sfreq_hz, 2);

    this.paths = svg("svg", { viewBox: `0 0 ${samples} ${channels * this.row}`, preserveAspectRatio: "none", "aria-hidden": true });
    // Where a patch holds all channels its name stands above them.
    this.head = this.together ? 24 : 0;
    const tall = this.head + channels * this.row;
    const plot = el("div", { class: "plot", role: "group", "aria-label": "Patches", style: `height: ${tall}px; --head: ${this.head}px` });
    picture.tokens.forEach(([channel, patch], place) => {
      const top = this.together ? 0 : channel * this.row, height = this.together ? tall : this.row;
      const name = positions[this.at[place]] ?? `position ${this.at[place]}`, from = patch * this.size;
      const label = `${name}, ${seconds(from)} to ${seconds(from + this.size)} s`;
      const style = `left: ${(100 * from) / samples}%; width: ${(100 * this.size) / samples}%; top: ${top}px; height: ${height}px`;
      plot.append(this.position(this.at[place], { class: "patch", style, "aria-label": label, title: label }, el("span", {}, name)));
    });
    plot.prepend(this.paths);

    const names = picture.ch_names.map((name) => el("span", { style: `height: ${this.row}px`, title: name }, name));
    const others = positions.flatMap((name, i) =>
      this.at.includes(i) ? [] : [this.position(i, { class: "chip" }, name)]);
    const n = samples / this.size, every = Math.ceil(n / 16);
    const ticks = Array.from({ length: n + 1 }, (_, i) => i).filter((i) => i % every === 0 || i === n)
      .map((i) => el("span", { style: `left: ${(100 * i) / n}%` }, seconds(i * this.size)));
    const grid = el("div", { class: "signal", style: `--least: ${n * 26}px` },
      el("div", { class: "others" }, others), el("div", {}),
      el("div", { class: "names", style: `--head: ${this.head}px` }, names), plot,
      el("div", { class: "unit" }, `±${write(this.most, 2)} ${picture.unit}`), el("div", { class: "ticks" }, ticks, el("em", {}, "s")));
    this.element.append(el("div", { class: "box" }, grid));
    this.edges = Array.from({ length: n - 1 }, (_, i) => `M${(i + 1) * this.size} 0V${channels * this.row}`).join("");
  }

  y(channel, value) {
    const share = Math.max(-1.15, Math.min(1.15, value / this.most));
    return (this.row * (channel + 0.5 - 0.42 * share)).toFixed(2);
  }

  /** A line through n samples; what is missing breaks it. */
  line(channel, from, value, n) {
    let path = "";
    for (let k = 0, pen = "M"; k < n; k++) {
      if (Number.isFinite(value(k))) path += `${pen}${from + k} ${this.y(channel, value(k))}`;
      pen = Number.isFinite(value(k)) ? "L" : "M";
    }
    return path;
  }

  update() {
    super.update();
    const { page, state, values } = this.engine;
    const [channels, samples] = this.signal.shape, rebuilt = values[page.outputs.reconstruction];
    const drawn = { plain: "", faint: "", rebuilt: "" };
    for (let channel = 0; channel < channels; channel++) {
      for (let patch = 0; patch < samples / this.size; patch++) {
        const place = this.placeOf.get(`${this.together ? null : channel},${patch}`), from = patch * this.size;
        const masked = state.masked.includes(this.at[place]), seen = place !== undefined && !masked;
        const sample = (k) => this.signal.data[channel * samples + from + k];
        drawn[seen ? "plain" : "faint"] += this.line(channel, from, sample, Math.min(this.size + 1, samples - from));
        if (!masked || !rebuilt) continue;
        const at = place * dims(rebuilt)[2] + (this.together ? channel * this.size : 0);
        drawn.rebuilt += this.line(channel, from, (k) => rebuilt.data[at + k], this.size);
      }
    }
    const zero = Array.from({ length: channels }, (_, c) => `M0 ${this.y(c, 0)}H${samples}`).join("");
    const lines = { zero, edges: this.edges, ...drawn };
    this.paths.replaceChildren(...Object.entries(lines).map(([kind, d]) => svg("path", { class: kind, d })));
  }
}

class Sentence extends Picture {
  build({ tokens, segments }) {
    const chips = tokens.map((token, i) => this.position(i, { class: "chip token", "data-segment": segments?.[i] ?? 0 },
      el("span", {}, token), el("small", {}, String(i))));
    const kinds = [...new Set(segments ?? [])].sort();
    const key = kinds.length > 1 ? kinds.map((kind) => el("li", { "data-segment": kind }, `segment ${"AB"[kind] ?? kind}`)) : [];
    this.element.append(el("div", { class: "tokens", role: "group", "aria-label": "Tokens" }, chips), el("ul", { class: "segments" }, key));
  }
}

/** The five likeliest tokens for each hidden position. */
function predictions(engine) {
  const name = engine.page.outputs.predictions, scores = engine.values[name], words = engine.page.columns[name];
  const likely = engine.steps.get(name)?.operation === "softmax" ? scores : OPERATIONS.softmax([scores], {});
  return engine.state.masked.slice(0, dims(scores)[1]).map((position, row) => {
    const shares = lineAt(likely, 0, row);
    const top = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 5);
    const items = top.map((k) => el("li", { style: `--share: ${100 * shares[k]}%` },
      el("span", {}, words?.[k] ?? `token ${k}`), el("b", {}, `${(100 * shares[k]).toFixed(1)} %`)));
    const truth = engine.page.picture.tokens[position];
    const known = engine.page.outputs.loss && el("small", {}, `truly “${truth}”`);
    return el("div", { class: "guess" }, el("h3", {}, `Position ${position}`, known), el("ol", {}, items));
  });
}

const draw = (engine, onToggle) => new (engine.page.picture.kind === "signal" ? Signal : Sentence)(engine, onToggle);
