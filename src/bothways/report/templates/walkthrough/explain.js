// How one number of a result came about: which rows and columns it came from, and its calculation in full.

const el = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value != null) node.setAttribute(key, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
};

/** Writes a number for reading. */
function write(value, digits = 4) {
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  if (!Number.isFinite(value)) return String(value).replace("-", "−").replace("Infinity", "∞");
  const size = Math.abs(value), whole = Math.max(0, Math.floor(Math.log10(size)));
  const tiny = size < 0.05 * 10 ** -digits || size >= 1e5, more = size < 10 ** -digits ? 1 : 0;
  const text = tiny ? value.toExponential(digits > 2 ? 2 : 0) : value.toFixed(Math.max(0, digits + more - whole));
  return text.replace("e+", "e").replaceAll("-", "−");
}

const SHOWN = { first: 8, last: 4 };

const inWords = (value, nothing, digits) => (nothing ? "–" : write(value, digits));
const inBrackets = (value) => (value < 0 ? `(${write(value)})` : write(value));
const term = (text, value, kind = "") =>
  el("span", { class: `term ${kind} ${value < 0 ? "negative" : "positive"}` }, el("span", {}, text), el("b", {}, write(value)));
const line = (...parts) => el("p", { class: "line" }, parts);
const big = (value) => el("strong", { class: "result" }, write(value, 6));

/** Terms with plus signs between, the middle of a long row as one. */
function terms(n, text, value) {
  const whole = n <= SHOWN.first + SHOWN.last + 1, nodes = [];
  let middle = 0;
  for (let k = 0; k < n; k++) {
    if (whole || k < SHOWN.first || k >= n - SHOWN.last) nodes.push(term(text(k), value(k)));
    else {
      middle += value(k);
      if (k === n - SHOWN.last - 1) nodes.push(term(`… ${n - SHOWN.first - SHOWN.last} more …`, middle, "more"));
    }
  }
  return nodes.flatMap((node, i) => (i ? [el("i", {}, "+"), node] : [node]));
}

/** The number at [stack, row, column] of any array; lines of length 1 are repeated. */
function numberAt(x, h, i, j) {
  const [a, b, c] = dims(x);
  return x.data[((a === 1 ? 0 : h) * b + (b === 1 ? 0 : i)) * c + (c === 1 ? 0 : j)];
}
const lineAt = (x, h, i) => {
  const [a, b, c] = dims(x), from = ((a === 1 ? 0 : h) * b + i) * c;
  return x.data.subarray(from, from + c);
};

/** A lit part of an input: rows and columns from, to. */
const part = (input, head, rows, columns) => ({ input, head, rows, columns });
const wholeRow = (input, x, h, i) => part(input, h, dims(x)[1] === 1 ? [0, 1] : [i, i + 1], [0, dims(x)[2]]);
const wholeColumn = (input, x, h, j) => part(input, h, [0, dims(x)[1]], dims(x)[2] === 1 ? [0, 1] : [j, j + 1]);
const oneCell = (input, x, h, i, j) => {
  const [, rows, columns] = dims(x), a = rows === 1 ? 0 : i, b = columns === 1 ? 0 : j;
  return part(input, h, [a, a + 1], [b, b + 1]);
};

const pair = (sign) => ([a, b], options, h, i, j, value) => ({
  lit: [oneCell(0, a, h, i, j), oneCell(1, b, h, i, j)],
  body: [line(write(numberAt(a, h, i, j)), ` ${sign} `, inBrackets(numberAt(b, h, i, j)), " = ", big(value))],
});
/** A number that was only moved. */
const moved = (input, x, h, i, j, value) => ({
  lit: [oneCell(input, x, h, i, j)],
  body: [line("taken over unchanged: ", big(value))],
});

/** Operation -> (inputs, options, stack, row, column, value) -> what is lit, and the calculation. */
const EXPLAIN = {
  product([a, b, bias], options, h, i, j, value) {
    const upright = b.shape.length === 1, n = dims(a)[2];
    const factor = (k) => (upright ? b.data[k] : numberAt(b, h, k, j));
    const lit = [wholeRow(0, a, h, i), upright ? wholeRow(1, b, 0, 0) : wholeColumn(1, b, h, j)];
    const nodes = terms(n, (k) => `${write(numberAt(a, h, i, k))} · ${inBrackets(factor(k))}`,
      (k) => numberAt(a, h, i, k) * factor(k));
    if (bias) {
      lit.push(oneCell(2, bias, h, i, j));
      nodes.push(el("i", {}, "+"), term("bias", numberAt(bias, h, i, j), "bias"));
    }
    return { lit, body: [line(nodes, el("i", {}, "="), big(value))], said: `sum of ${n} products` };
  },
  product_transposed([a, b], options, h, i, j, value) {
    const n = dims(a)[2];
    const nodes = terms(n, (k) => `${write(numberAt(a, h, i, k))} · ${inBrackets(numberAt(b, h, j, k))}`,
      (k) => numberAt(a, h, i, k) * numberAt(b, h, j, k));
    return {
      lit: [wholeRow(0, a, h, i), wholeRow(1, b, h, j)],
      body: [line(nodes, el("i", {}, "="), big(value))],
      said: `sum of ${n} products`,
    };
  },
  add: pair("+"),
  subtract: pair("−"),
  multiply: pair("·"),
  divide(inputs, options, h, i, j, value) {
    if (inputs.length > 1) return pair("/")(inputs, options, h, i, j, value);
    const x = numberAt(inputs[0], h, i, j);
    return {
      lit: [oneCell(0, inputs[0], h, i, j)],
      body: [line(`${write(x)} / ${write(options.by ?? 1)} = `, big(value))],
    };
  },
  softmax([scores], { causal }, h, i, j, value) {
    const seen = lineAt(scores, h, i).subarray(0, causal ? i + 1 : undefined), top = largest(seen);
    const lit = [{ ...wholeRow(0, scores, h, i), columns: [0, seen.length] }];
    if (j >= seen.length) return { lit, body: [line("lies after the row's own place, counts as −∞: ", big(value))] };
    const power = (k) => Math.exp(seen[k] - top);
    let sum = 0;
    for (let k = 0; k < seen.length; k++) sum += power(k);
    return {
      lit,
      body: [
        line(`exp(s − max) of the row, max = ${write(top)}: `, terms(seen.length, (k) => `exp(${write(seen[k] - top)})`, power),
          el("i", {}, "="), el("b", {}, write(sum))),
        line(`exp(${write(seen[j])} − ${inBrackets(top)}) / ${write(sum)} = ${write(power(j))} / ${write(sum)} = `, big(value)),
      ],
    };
  },
  layer_norm([x, weight, bias], { eps }, h, i, j, value) {
    const row = lineAt(x, h, i), mean = meanOf(row), spread = variance(row, mean);
    const [w, b] = [numberAt(weight, h, i, j), numberAt(bias, h, i, j)];
    return {
      lit: [wholeRow(0, x, h, i), oneCell(1, weight, h, i, j), oneCell(2, bias, h, i, j)],
      body: [
        line(`the row's mean = ${write(mean)}, variance = ${write(spread)}, ε = ${write(eps)}`),
        line(`(${write(row[j])} − ${inBrackets(mean)}) / √(${write(spread)} + ε) · ${inBrackets(w)} + ${inBrackets(b)} = `, big(value)),
      ],
    };
  },
  activation: ([x], { kind }, h, i, j, value) => ({
    lit: [oneCell(0, x, h, i, j)],
    body: [line(`${kind}(${write(numberAt(x, h, i, j))}) = `, big(value))],
  }),
  split_heads: ([x], options, h, i, j, value, [, , width]) => moved(0, x, 0, i, h * width + j, value),
  concat_heads([x], options, h, i, j, value) {
    const width = dims(x)[2], head = Math.floor(j / width);
    return { ...moved(0, x, head, i, j % width, value), said: `from head ${head}` };
  },
  prepend([row, x], options, h, i, j, value) {
    const on_top = dims(row)[1];
    return i < on_top ? moved(0, row, 0, i, j, value) : moved(1, x, 0, i - on_top, j, value);
  },
  rows([x], { which }, h, i, j, value) {
    const stacked = x.shape.length > 1, from = which[stacked ? i : j], at = from < 0 ? from + x.shape[0] : from;
    return stacked ? moved(0, x, h, at, j, value) : moved(0, x, 0, 0, at, value);
  },
  columns: ([x], { start }, h, i, j, value) => moved(0, x, 0, i, (start < 0 ? start + dims(x)[2] : start) + j, value),
  join(parts, options, h, i, j, value) {
    let from = 0;
    const input = parts.findIndex(({ shape }) => j < (from += shape[1]));
    return moved(input, parts[input], 0, i, j - from + parts[input].shape[1], value);
  },
  mean_rows([x], options, h, i, j, value) {
    const n = dims(x)[1], number = (k) => numberAt(x, 0, k, j);
    return {
      lit: [wholeColumn(0, x, 0, j)],
      body: [line("(", terms(n, (k) => `row ${k}`, number), `) / ${n} = `, big(value))],
    };
  },
  cut([signal], { size, together }, h, i, j, value) {
    const n = dims(signal)[2] / size;
    const [channel, patch] = together ? [Math.floor(j / size), i] : [Math.floor(i / n), i % n];
    return moved(0, signal, 0, channel, patch * size + (j % size), value);
  },
  regroup([x], { n_channels: channels }, h, i, j, value) {
    const [, rows, width] = dims(x);
    return moved(0, x, 0, Math.floor(j / width) * (rows / channels) + i, j % width, value);
  },
  log_power([waves, scale], { floor }, h, i, j, value) {
    const half = Math.floor(dims(waves)[2] / 2), s = numberAt(scale, 0, i, 0);
    const [re, im] = [numberAt(waves, 0, i, j), numberAt(waves, 0, i, j + half)];
    return {
      lit: [oneCell(0, waves, 0, i, j), oneCell(0, waves, 0, i, j + half), oneCell(1, scale, 0, i, 0)],
      body: [line(`log₁₀((${inBrackets(re)}² + ${inBrackets(im)}²) · 10^(2 · ${inBrackets(s)}) + ${write(floor)}) = `, big(value))],
    };
  },
  hide([x, mask], { masked, instead = [] }, h, i, j, value) {
    const place = masked.indexOf(i);
    if (place < 0) return moved(0, x, 0, i, j, value);
    const other = instead[place] ?? -1;
    if (other >= 0) return { ...moved(0, x, 0, other, j, value), said: `row ${other} stands here instead` };
    return { ...moved(1, mask, 0, 0, j, value), said: "hidden: the mask vector stands here" };
  },
  error([guess, truth, real], { kind = "mse" }, h, i, j, value) {
    const n = dims(guess)[2], squared = kind === "mse", f = squared ? (d) => d * d : huber;
    const counts = (k) => (real ? numberAt(real, 0, i, k) : 1);
    const d = (k) => numberAt(guess, 0, i, k) - numberAt(truth, 0, i, k);
    const total = real ? Math.max(sumOf(Array.from({ length: n }, (_, k) => counts(k))), 1) : n;
    return {
      lit: [guess, truth, ...(real ? [real] : [])].map((x, input) => wholeRow(input, x, 0, i)),
      body: [line(squared ? "(" : "h = Huber: (",
        terms(n, (k) => (squared ? `${inBrackets(d(k))}²` : `h(${write(d(k))})`) + (real ? ` · ${counts(k)}` : ""), (k) => f(d(k)) * counts(k)),
        `) / ${write(total)} = `, big(value))],
    };
  },
  cross_entropy([scores, labels], options, h, i, j, value) {
    const row = lineAt(scores, 0, i), label = Math.trunc(labels.data[i]), all = logSum(row);
    return {
      lit: [wholeRow(0, scores, 0, i), part(1, 0, [0, 1], [i, i + 1])],
      body: [line(`log Σ exp(s) − s[${label}] = ${write(all)} − ${inBrackets(row[label])} = `, big(value))],
    };
  },
  mean([x], options, h, i, j, value) {
    const n = x.data.length;
    return {
      lit: [part(0, 0, [0, dims(x)[1]], [0, dims(x)[2]])],
      body: [line("(", terms(n, (k) => `${k + 1}.`, (k) => x.data[k]), `) / ${n} = `, big(value))],
    };
  },
  weighted_sum: (parts, { weights }, h, i, j, value) => ({
    lit: parts.map((x, input) => oneCell(input, x, h, i, j)),
    body: [line(terms(parts.length, (k) => `${write(weights[k])} · ${inBrackets(numberAt(parts[k], h, i, j))}`,
      (k) => weights[k] * numberAt(parts[k], h, i, j)), el("i", {}, "="), big(value))],
  }),
};

/** Operation -> how it is written; `a`, `b`, `c` are nodes with the names of the inputs. */
const FORMULA = {
  product: (o, a, b, c) => [a, " · ", b, ...(c ? [" + ", c] : [])],
  product_transposed: (o, a, b) => [a, " · ", b, "ᵀ"],
  add: (o, a, b) => [a, " + ", b],
  subtract: (o, a, b) => [a, " − ", b],
  multiply: (o, a, b) => [a, " ⊙ ", b],
  divide: (o, a, b) => [a, " / ", b ?? write(o.by ?? 1)],
  softmax: (o, a) => ["softmax(", a, ")"],
  layer_norm: (o, a, b, c) => ["layer norm(", a, ") · ", b, " + ", c],
  activation: (o, a) => [`${o.kind}(`, a, ")"],
  split_heads: (o, a) => [a, ` cut into ${o.n_heads} heads`],
  concat_heads: (o, a) => ["heads of ", a, " side by side"],
  prepend: (o, a, b) => [a, " on top of ", b],
  rows: (o, a) => ["rows of ", a],
  columns: (o, a) => ["columns ", `${o.start} to ${o.stop - 1} of `, a],
  join: (o, ...all) => all.flatMap((name, i) => (i ? [" beside ", name] : [name])),
  mean_rows: (o, a) => ["mean of the rows of ", a],
  cut: (o, a) => [a, ` cut into pieces of ${o.size}`],
  regroup: (o, a) => [a, " by patch"],
  log_power: (o, a, b) => ["log₁₀((re² + im²) of ", a, " · 10^(2 · ", b, `) + ${write(o.floor)})`],
  hide: (o, a, b) => [a, " with ", b, " in the masked rows"],
  error: (o, a, b, c) => [o.kind === "smooth_l1" ? "mean Huber(" : "mean (", a, " − ", b, o.kind === "smooth_l1" ? ")" : ")²", ...(c ? [" where ", c] : [])],
  cross_entropy: (o, a, b) => ["−log softmax(", a, ")[", b, "]"],
  mean: (o, a) => ["mean of ", a],
  weighted_sum: (o, ...all) => all.flatMap((name, i) => [i ? " + " : "", `${write(o.weights[i])} · `, name]),
};

/** Operation -> its rule in words, where the formula does not say it all. */
const RULES = {
  product: "row times column: each number is a sum of products",
  product_transposed: "row times row: each number is a sum of products",
  softmax: "exp(s − max) / Σ exp(s − max) along each row; under the causal mask, what lies after the row's own place counts as −∞",
  layer_norm: "(x − mean) / √(variance + ε) along each row, then scaled and shifted",
  cut: "each patch becomes a row",
  error: "one number for each row",
};
