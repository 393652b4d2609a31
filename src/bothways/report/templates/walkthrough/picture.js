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
    this.labels = new Map();
    this.order = [];
    this.tally = el("p", { class: "tally", "aria-live": "polite" });
    this.key = el("ul", { class: "key", "aria-label": "Legend" });
    this.element = el("div", { class: "picture" });
    this.build(engine.page.picture);
    this.element.append(el("div", { class: "under" }, this.tally, this.key));
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.order[0]?.setAttribute("tabindex", 0);
  }

  /** One position: a button where it can be hidden or shown, else only a name. */
  position(index, label, attributes, ...children) {
    const { content, fixed } = this.engine.page;
    const can = this.engine.canMask && content.includes(index) && !fixed.includes(index);
    const kind = can ? { type: "button", tabindex: -1 } : { role: "img" };
    const node = el(can ? "button" : "span", { ...attributes, ...kind, "data-position": index }, children);
    this.labels.set(index, label);
    if (can) {
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

  /** Shows which positions are hidden, and how. */
  update() {
    const seen = new Set();
    for (const [index, node] of this.places) {
      const fate = this.engine.fate(index);
      seen.add(fate);
      for (const kind of ["replaced", "kept"]) node.classList.toggle(kind, fate === kind);
      node.classList.toggle("masked", fate !== "");
      node.title = this.labels.get(index) + this.words(index, fate);
      node.setAttribute("aria-label", node.title);
      if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", fate !== "");
    }
    const n = this.engine.state.masked.length, of = this.total ? ` of ${this.total}` : "";
    this.tally.textContent = n || this.engine.canMask ? `${n}${of} hidden` : "";
    const entries = [
      ...this.entries(),
      ["masked", "masked", seen.has("masked")],
      ["replaced", "replaced by another’s content", seen.has("replaced")],
      ["kept", "kept: its own content stands there", seen.has("kept")],
      ["share", "attended to", this.engine.page.outputs.attention],
    ];
    this.key.replaceChildren(...entries.filter(([, , there]) => there)
      .map(([kind, words]) => el("li", { class: kind }, el("i"), words)));
  }

  words(index, fate) {
    const { fixed, fates } = this.engine.page;
    if (fixed.includes(index)) return ", masked; it stays so, for what it hides is not known";
    if (!fate) return "";
    return fate === "masked" ? ", masked" : `, ${fate}: ${fates[index]}`;
  }

  /** Shows what one position attends to, by its shares of all positions; nothing where `row` is null. */
  attend(row, shares = null) {
    const most = shares ? largest(shares) || 1 : 1;
    this.key.classList.toggle("attending", shares !== null);
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
    this.total = this.at.length;
    const seconds = (sample) => String(Number((picture.start_s + sample / picture.sfreq_hz).toFixed(4))).replace("-", "−");

    this.paths = svg("svg", { viewBox: `0 0 ${samples} ${channels * this.row}`, preserveAspectRatio: "none", "aria-hidden": true });
    const head = 24, n = samples / this.size, tall = head + channels * this.row;
    const style = `height: ${tall}px; --head: ${head}px`;
    const plot = el("div", { class: "plot", role: "group", "aria-label": "Patches", style }, this.paths);
    const across = (patch) => `left: ${(100 * patch) / n}%; width: ${100 / n}%`;
    const groups = this.together ? [null] : picture.ch_names.map((_, channel) => channel);
    for (const channel of groups) {
      const [top, height] = channel === null ? [0, tall] : [head + channel * this.row, this.row];
      for (let patch = 0; patch < n; patch++) {
        const index = this.at[this.placeOf.get(`${channel},${patch}`)], known = index !== undefined;
        const name = positions[index] ?? `${channel === null ? "" : `${picture.ch_names[channel]} `}p${patch}`;
        const label = `${name}, ${seconds(patch * this.size)} to ${seconds((patch + 1) * this.size)} s`;
        const style = `${across(patch)}; top: ${top}px; height: ${height}px`;
        plot.append(known ? this.position(index, label, { class: "patch", style })
          : el("span", { class: "absent", style, title: `${label}, no token` }));
      }
    }
    this.absent = groups.length * n > picture.tokens.length;
    plot.append(...Array.from({ length: n }, (_, patch) =>
      el("span", { class: "patch-name", "aria-hidden": "true", style: across(patch) }, `p${patch}`)));

    const names = picture.ch_names.map((name) => el("span", { style: `height: ${this.row}px`, title: name }, name));
    const others = positions.flatMap((name, i) =>
      this.at.includes(i) ? [] : [this.position(i, name, { class: "chip" }, name)]);
    // Ticks as close as their texts allow where the plot is narrowest.
    const least = 28, texts = Array.from({ length: n + 1 }, (_, i) => seconds(i * this.size));
    const every = Math.ceil((6 + 7 * Math.max(...texts.map((text) => text.length))) / least);
    const ticks = texts.flatMap((text, i) => (i === n || (i % every === 0 && i <= n - every)
      ? [el("span", { style: `left: ${(100 * i) / n}%` }, text)] : []));
    const grid = el("div", { class: "signal", style: `--least: ${n * least}px` },
      el("div", { class: "others" }, others), el("div", {}),
      el("div", { class: "names", style: `--head: ${head}px` }, names), plot,
      el("div", { class: "unit" }, `±${write(this.most, 2)} ${picture.unit || "(no unit)"}`), el("div", { class: "ticks" }, ticks, el("em", {}, "s")));
    this.element.append(el("div", { class: "box" }, grid));
    this.edges = Array.from({ length: n - 1 }, (_, i) => `M${(i + 1) * this.size} 0V${channels * this.row}`).join("");
  }

  entries() {
    const rebuilt = this.engine.page.outputs.reconstruction && this.engine.state.masked.length;
    return [["plain", "signal", true], ["rebuilt", "rebuilt", rebuilt], ["absent", "no token: bad or missing", this.absent]];
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
        const masked = state.masked.includes(this.at[place]), fate = this.engine.fate(this.at[place]);
        const seen = place !== undefined && (!masked || fate === "kept");
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
    const kinds = [...new Set(segments ?? [])].sort();
    this.segments = kinds.map((kind) => [`segment-${kind}`, `segment ${"AB"[kind] ?? kind}`, kinds.length > 1]);
    this.total = this.engine.page.content.length;
    const chips = tokens.map((token, i) => this.position(i, `${token}, position ${i}`, { class: `chip token segment-${segments?.[i] ?? 0}` },
      el("span", {}, token), el("small", {}, String(i))));
    this.element.append(el("div", { class: "tokens", role: "group", "aria-label": "Tokens" }, chips));
  }

  entries() {
    return this.segments;
  }
}

const percent = (share) => `${share < 0.001 ? write(100 * share, 2) : (100 * share).toFixed(1)} %`;

/** The five likeliest tokens for each hidden position. */
function predictions(engine) {
  const name = engine.page.outputs.predictions, scores = engine.values[name], words = engine.page.columns[name];
  const { masked } = engine.state, { fixed, picture } = engine.page;
  if (!masked.length) return [el("p", { class: "hint" }, "Nothing is hidden, so there is nothing to guess.")];
  const likely = engine.steps.get(name)?.operation === "softmax" ? scores : OPERATIONS.softmax([scores], {});
  return masked.slice(0, dims(scores)[1]).map((position, row) => {
    const shares = lineAt(likely, 0, row);
    // Rows that only pad the vocabulary have no name.
    const top = [...shares.keys()].filter((k) => words?.[k] !== "").sort((a, b) => shares[b] - shares[a]).slice(0, 5);
    const items = top.map((k) => el("li", { style: `--share: ${100 * shares[k]}%` },
      el("span", {}, words?.[k] ?? `token ${k}`), el("b", {}, percent(shares[k]))));
    const truth = !fixed.includes(position) && el("small", {}, `truly “${picture.tokens[position]}”`);
    return el("div", { class: "guess" }, el("h3", {}, `Position ${position}`, truth), el("ol", {}, items));
  });
}

const draw = (engine, onToggle) => new (engine.page.picture.kind === "signal" ? Signal : Sentence)(engine, onToggle);
