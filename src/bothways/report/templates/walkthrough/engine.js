"use strict";
// What the page computes: every step of the walk in float64, from the given arrays and the state of the page.

const count = (shape) => shape.reduce((a, b) => a * b, 1);
const make = (shape, data = new Float64Array(count(shape))) => ({ shape, data });
/** Any array as a stack of matrices: [stack, rows, columns]. */
const dims = ({ shape }) => [1, 1, 1, ...shape].slice(-3);

function decode({ shape, dtype, data }) {
  const text = atob(data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const Kind = dtype === "f4" ? Float32Array : Float64Array;
  return make(shape, new Float64Array(new Kind(bytes.buffer)));
}

/** Below 2.5 the series of positive terms; above, the continued fraction of what is left to 1. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let term = x, sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (2 * x * x) / (2 * n + 1);
      sum += term;
    }
    return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
  }
  let tail = size;
  for (let n = 60; n > 0; n--) tail = size + n / 2 / tail;
  return Math.sign(x) * (1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * tail));
}

const ACTIVATIONS = {
  gelu: (x) => (x * (1 + erf(x / Math.SQRT2))) / 2,
  gelu_tanh: (x) => (x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))) / 2,
  relu: (x) => Math.max(x, 0),
  silu: (x) => x / (1 + Math.exp(-x)),
  tanh: Math.tanh,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};

const each = (x, f) => make(x.shape, x.data.map((value) => f(value)));

/** f(a, b) element by element; a line of length 1 is repeated. */
function combine(a, b, f) {
  const da = dims(a), db = dims(b), d = da.map((n, i) => (n === 1 ? db[i] : n));
  const strides = (e) => [e[0] === 1 ? 0 : e[1] * e[2], e[1] === 1 ? 0 : e[2], e[2] === 1 ? 0 : 1];
  const sa = strides(da), sb = strides(db), out = new Float64Array(count(d));
  for (let h = 0, to = 0; h < d[0]; h++) {
    for (let i = 0; i < d[1]; i++) {
      let pa = h * sa[0] + i * sa[1], pb = h * sb[0] + i * sb[1];
      for (let j = 0; j < d[2]; j++, pa += sa[2], pb += sb[2]) out[to++] = f(a.data[pa], b.data[pb]);
    }
  }
  return make(d.slice(3 - Math.max(a.shape.length, b.shape.length)), out);
}

/** f(line, place) for each line along the last axis, where `line` is a view of a copy that f may change. */
function eachLine(x, f) {
  const out = x.data.slice(), width = x.shape.at(-1);
  for (let at = 0, line = 0; at < out.length; at += width, line++) f(out.subarray(at, at + width), line);
  return make(x.shape, out);
}

/** One number for each line along the last axis. */
function perLine(x, f) {
  const width = x.shape.at(-1), shape = [...x.shape.slice(0, -1), 1], out = new Float64Array(count(shape));
  for (let i = 0; i < out.length; i++) out[i] = f(x.data.subarray(i * width, (i + 1) * width), i);
  return make(shape, out);
}

const sumOf = (line) => {
  let sum = 0;
  for (let i = 0; i < line.length; i++) sum += line[i];
  return sum;
};
const meanOf = (line) => sumOf(line) / line.length;
const largest = (line) => {
  let top = -Infinity;
  for (let i = 0; i < line.length; i++) if (line[i] > top) top = line[i];
  return top;
};
const variance = (line, mean) => {
  let sum = 0;
  for (let i = 0; i < line.length; i++) sum += (line[i] - mean) ** 2;
  return sum / line.length;
};
const logSum = (line) => {
  const top = largest(line);
  let sum = 0;
  for (let i = 0; i < line.length; i++) sum += Math.exp(line[i] - top);
  return Math.log(sum) + top;
};

/** Takes lines of the first axis. */
function pick(x, which) {
  const [n, ...rest] = x.shape, width = count(rest), out = make([which.length, ...rest]);
  which.forEach((from, to) => {
    const at = from < 0 ? from + n : from;
    out.data.set(x.data.subarray(at * width, (at + 1) * width), to * width);
  });
  return out;
}

/** [n m f] -> [m n f], as `shape`. */
function exchange(x, n, m, f, shape) {
  const out = make(shape);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < m; j++) out.data.set(x.data.subarray((i * m + j) * f, (i * m + j + 1) * f), (j * n + i) * f);
  }
  return out;
}

const huber = (d) => (Math.abs(d) < 1 ? (d * d) / 2 : Math.abs(d) - 0.5);

/** Operations by name, with the definitions of the NumPy walkthrough: (inputs, options) -> array. */
const OPERATIONS = {
  product([a, b, bias]) {
    const upright = b.shape.length === 1;
    const [ha, n, k] = dims(a), [hb, , m] = upright ? [1, 0, 1] : dims(b), heads = Math.max(ha, hb);
    const out = new Float64Array(heads * n * m), x = a.data, y = b.data;
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < n; i++) {
        const from = ((ha === 1 ? 0 : h) * n + i) * k, to = (h * n + i) * m;
        let j = 0, line = (hb === 1 ? 0 : h) * k * m;
        // Four lines at a time: each sum is fetched and kept a quarter as often.
        for (; j + 3 < k; j += 4, line += 4 * m) {
          const p = x[from + j], q = x[from + j + 1], r = x[from + j + 2], s = x[from + j + 3];
          for (let c = 0, at = line; c < m; c++, at++) {
            out[to + c] += p * y[at] + q * y[at + m] + r * y[at + 2 * m] + s * y[at + 3 * m];
          }
        }
        for (; j < k; j++, line += m) {
          const factor = x[from + j];
          for (let c = 0; c < m; c++) out[to + c] += factor * y[line + c];
        }
      }
    }
    const stack = a.shape.length > 2 || b.shape.length > 2 ? [heads] : [];
    const plain = make([...stack, ...(a.shape.length > 1 ? [n] : []), ...(upright ? [] : [m])], out);
    return bias ? combine(plain, bias, (p, q) => p + q) : plain;
  },
  product_transposed([a, b]) {
    const [ha, n, k] = dims(a), [hb, m] = dims(b), heads = Math.max(ha, hb);
    const out = new Float64Array(heads * n * m), x = a.data, y = b.data;
    for (let h = 0, to = 0; h < heads; h++) {
      for (let i = 0; i < n; i++) {
        const from = ((ha === 1 ? 0 : h) * n + i) * k;
        for (let j = 0; j < m; j++) {
          const line = ((hb === 1 ? 0 : h) * m + j) * k;
          let sum = 0;
          for (let c = 0; c < k; c++) sum += x[from + c] * y[line + c];
          out[to++] = sum;
        }
      }
    }
    const stack = a.shape.length > 2 || b.shape.length > 2 ? [heads] : [];
    return make([...stack, ...(a.shape.length > 1 ? [n] : []), m], out);
  },
  add: ([a, b]) => combine(a, b, (p, q) => p + q),
  subtract: ([a, b]) => combine(a, b, (p, q) => p - q),
  multiply: ([a, b]) => combine(a, b, (p, q) => p * q),
  divide: ([a, b], { by = 1 }) => (b ? combine(a, b, (p, q) => p / q) : each(a, (p) => p / by)),
  softmax([scores], { causal = false }) {
    const n = dims(scores)[1];
    return eachLine(scores, (line, at) => {
      if (causal) line.fill(-Infinity, (at % n) + 1);
      const top = largest(line);
      for (let i = 0; i < line.length; i++) line[i] = Math.exp(line[i] - top);
      const sum = sumOf(line);
      for (let i = 0; i < line.length; i++) line[i] /= sum;
    });
  },
  layer_norm([x, weight, bias], { eps }) {
    const centred = eachLine(x, (line) => {
      const mean = meanOf(line), root = Math.sqrt(variance(line, mean) + eps);
      for (let i = 0; i < line.length; i++) line[i] = (line[i] - mean) / root;
    });
    return combine(combine(centred, weight, (p, q) => p * q), bias, (p, q) => p + q);
  },
  activation: ([x], { kind }) => each(x, ACTIVATIONS[kind]),
  split_heads([x], { n_heads: heads }) {
    const [n, width] = x.shape;
    return exchange(x, n, heads, width / heads, [heads, n, width / heads]);
  },
  concat_heads([x]) {
    const [heads, n, width] = x.shape;
    return exchange(x, heads, n, width, [n, heads * width]);
  },
  prepend([row, x]) {
    const width = x.shape[1], out = make([row.data.length / width + x.shape[0], width]);
    out.data.set(row.data);
    out.data.set(x.data, row.data.length);
    return out;
  },
  rows: ([x], { which }) => pick(x, which),
  columns([x], { start, stop }) {
    const [n, width] = x.shape, kept = [...Array(width).keys()].slice(start, stop), out = make([n, kept.length]);
    for (let i = 0; i < n; i++) {
      const from = i * width + kept[0];
      out.data.set(x.data.subarray(from, from + kept.length), i * kept.length);
    }
    return out;
  },
  join(parts) {
    const n = parts[0].shape[0], width = sumOf(parts.map((part) => part.shape[1])), out = make([n, width]);
    let at = 0;
    for (const { shape, data } of parts) {
      for (let i = 0; i < n; i++) out.data.set(data.subarray(i * shape[1], (i + 1) * shape[1]), i * width + at);
      at += shape[1];
    }
    return out;
  },
  mean_rows([x]) {
    const [n, ...rest] = x.shape, width = count(rest), out = make([1, ...rest]);
    for (let i = 0; i < x.data.length; i++) out.data[i % width] += x.data[i];
    return each(out, (sum) => sum / n);
  },
  cut([signal], { size, together = false }) {
    const [channels, samples] = signal.shape, n = samples / size;
    return together
      ? exchange(signal, channels, n, size, [n, channels * size])
      : make([channels * n, size], signal.data);
  },
  regroup([x], { n_channels: channels }) {
    const [rows, width] = x.shape, n = rows / channels;
    return exchange(x, channels, n, width, [n, channels * width]);
  },
  log_power([waves, scale], { floor }) {
    const half = Math.floor(waves.shape[1] / 2), n = waves.shape[0];
    const power = make([n, half]);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < half; j++) {
        const at = i * waves.shape[1] + j;
        power.data[i * half + j] = waves.data[at] ** 2 + waves.data[at + half] ** 2;
      }
    }
    return combine(power, scale, (p, q) => Math.log10(p * 10 ** (2 * q) + floor));
  },
  hide([x, mask], { masked, instead = [] }) {
    const width = x.shape[1], out = make(x.shape, x.data.slice());
    masked.forEach((to, place) => {
      const from = instead.length ? instead[place] : -1;
      out.data.set(from < 0 ? mask.data : x.data.subarray(from * width, (from + 1) * width), to * width);
    });
    return out;
  },
  error([guess, truth, real], { kind = "mse" }) {
    const errors = each(combine(guess, truth, (p, q) => p - q), kind === "mse" ? (d) => d * d : huber);
    if (!real) return perLine(errors, meanOf);
    const kept = combine(errors, real, (p, q) => p * q);
    return combine(perLine(kept, sumOf), perLine(real, sumOf), (sum, n) => sum / Math.max(n, 1));
  },
  cross_entropy: ([scores, labels]) =>
    perLine(scores, (line, i) => logSum(line) - line[Math.trunc(labels.data[i])]),
  mean: ([x]) => make([1, 1], Float64Array.of(x.data.length ? meanOf(x.data) : 0)),
  weighted_sum: (parts, { weights }) =>
    parts.map((part, i) => each(part, (p) => weights[i] * p)).reduce((a, b) => combine(a, b, (p, q) => p + q)),
};

const sameSet = (a, b) => a.length === b.length && a.every((one) => b.includes(one));

/** The walk as a calculation: values by name, recomputed where the state changed. */
class Engine {
  constructor(page) {
    this.page = { fixed: [], fates: {}, ...page };
    this.start = { masked: page.masked, causal: page.causal };
    this.state = this.start;
    this.steps = new Map(page.steps.map((step) => [step.name, step]));
    this.values = Object.fromEntries(Object.entries(page.arrays).map(([name, packed]) => [name, decode(packed)]));
    this.run(page.steps);
  }

  /** Whether a step's options speak of the state in these words. */
  speaksOf(step, ...words) {
    return Object.values(step.options).some((value) => words.includes(value));
  }

  get canMask() {
    return this.page.steps.some((step) => this.speaksOf(step, "masked", "masked_among_content"));
  }

  get canLookBack() {
    return this.page.steps.some((step) => this.speaksOf(step, "causal"));
  }

  /** Reads the words that stand for the state. */
  resolve(value) {
    const { masked, causal } = this.state, { content } = this.page;
    if (value === "masked") return masked;
    if (value === "content") return content;
    if (value === "masked_among_content") return masked.map((i) => content.indexOf(i)).filter((i) => i >= 0);
    if (value === "cls") return [0];
    return value === "causal" ? causal : value;
  }

  options(step) {
    const options = Object.fromEntries(Object.entries(step.options).map(([key, value]) => [key, this.resolve(value)]));
    // What was put in the place of the first masked positions says nothing of others.
    if (step.operation === "hide" && this.state.masked !== this.start.masked) delete options.instead;
    return options;
  }

  run(steps) {
    for (const step of steps) {
      const inputs = step.inputs.map((name) => this.values[name]);
      this.values[step.name] = OPERATIONS[step.operation](inputs, this.options(step));
    }
  }

  /** Changes the state; returns the names of what was computed again: what speaks of the change, and what follows. */
  set(change) {
    const before = this.state, next = { ...before, ...change };
    const masked = [...new Set([...next.masked, ...this.page.fixed])];
    next.masked = sameSet(masked, this.start.masked) ? this.start.masked : masked.sort((a, b) => a - b);
    this.state = next;
    const started = performance.now();
    const words = [
      ...(next.causal === before.causal ? [] : ["causal"]),
      ...(sameSet(next.masked, before.masked) ? [] : ["masked", "masked_among_content"]),
    ];
    const changed = new Set();
    this.run(this.page.steps.filter((step) => {
      const touched = this.speaksOf(step, ...words) || step.inputs.some((name) => changed.has(name));
      if (touched) changed.add(step.name);
      return touched;
    }));
    this.slow = performance.now() - started > 150;
    return changed;
  }

  /** What became of a position: "" where it is not hidden, else masked, or as the walk began replaced or kept. */
  fate(position) {
    const { state, start, page } = this;
    if (!state.masked.includes(position)) return "";
    const fate = state.masked === start.masked && page.fates[position];
    return !fate ? "masked" : fate === "its own content" ? "kept" : "replaced";
  }

  /** Whether a number is a mean over nothing, or the sum of such alone. */
  overNothing(name) {
    const step = this.steps.get(name);
    if (step?.operation === "mean") return !this.values[step.inputs[0]].data.length;
    return step?.operation === "weighted_sum" && step.inputs.every((input) => this.overNothing(input));
  }

  /** Names of an array's rows; those of the masked positions follow the state. */
  rowNames(name) {
    const step = this.steps.get(name), given = this.page.rows[name], rows = dims(this.values[name])[1];
    let names = given;
    if (step?.operation === "rows" && this.speaksOf(step, "masked", "masked_among_content")) {
      const source = this.rowNames(step.inputs[0]) ?? this.page.positions;
      names = this.resolve(step.options.which).map((i) => source[i]);
    } else if (step && given && String(given) === String(this.page.rows[step.inputs[0]])) {
      names = this.rowNames(step.inputs[0]);
    }
    return names?.length === rows ? names : undefined;
  }

  columnNames(name) {
    const names = this.page.columns[name];
    return names?.length === dims(this.values[name])[2] ? names : undefined;
  }
}
