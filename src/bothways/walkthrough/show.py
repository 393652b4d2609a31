"""Puts the steps of a tape on paper: each matrix, where it came from, and one of its numbers by hand."""

import math
from collections.abc import Callable, Iterable

from bothways.walkthrough.display import Paper
from bothways.walkthrough.tape import Array, Step, Tape


def show(paper: Paper, tape: Tape, steps: Iterable[Step] | None = None) -> None:
    """Shows steps in their order; all of the tape where none are named."""
    for step in tape.steps if steps is None else steps:
        paper.step(step.name, f"{step.about}." if step.about else "")
        if tape[step.name].size == 0:
            paper.text("Nothing is hidden, so there is no row here.")
            continue
        _SHOWN.get(step.operation, _matrix)(paper, tape, step)


def short(name: str) -> str:
    """Returns a name without the room it belongs to: encoder.layers.0.attention.Q_heads -> Q."""
    parts = name.removesuffix("_heads").replace("layers.", "layer_").split(".")
    whole = parts[-1] in ("output", "weight", "bias")  # these say nothing alone
    return ".".join(parts[-2:]) if whole else parts[-1]


def _each(paper: Paper, tape: Tape, name: str) -> list[tuple[str, Array]]:
    """Returns a matrix with its short name, or those of the heads that are shown."""
    array = tape[name]
    if array.ndim < 3:
        return [(short(name), array)]
    return [(f"{short(name)}[{h}]", one) for h, one in enumerate(array) if paper.head in (None, h)]


def _row(paper: Paper, array: Array) -> int:
    """Returns the row that is worked out by hand."""
    return min(paper.row, len(array) - 1)


def _matrix(paper: Paper, tape: Tape, step: Step, decimals: int | None = None, signed: bool = True) -> None:
    rows, columns = tape.row_names.get(step.name), tape.column_names.get(step.name)
    for name, array in _each(paper, tape, step.name):
        paper.matrix(name, array, rows, columns, decimals, signed)


def _product(paper: Paper, tape: Tape, step: Step) -> None:
    left, right, *bias = step.inputs
    transposed = step.operation == "product_transposed"
    sides = (_each(paper, tape, name) for name in (left, right, step.name))
    for a, (b, matrix), result in zip(*sides):
        paper.product(
            a,
            (f"{b}^T", matrix.T) if transposed else (b, matrix),
            result,
            rows=tape.row_names.get(left),
            inner=None if transposed else tape.row_names.get(right),
            columns=tape.column_names.get(step.name),
            worked=(_row(paper, a[1]), 0),
            bias=tape[bias[0]] if bias else None,
            known=paper.brief and left in {one.name for one in tape.steps} and not left.endswith("_heads"),
        )


def _elementwise(paper: Paper, tape: Tape, step: Step) -> None:
    sign = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}[step.operation]
    first, second = step.inputs
    rows = tape.row_names.get(step.name) or [str(r) for r in range(len(tape[step.name]))]
    paper.elementwise(
        (short(first), tape[first]), (short(second), tape[second]), (short(step.name), tape[step.name]), rows, sign
    )


def _divide(paper: Paper, tape: Tape, step: Step) -> None:
    _matrix(paper, tape, step)
    if len(step.inputs) > 1:
        return _elementwise(paper, tape, step)
    by = step.options["by"]
    for (name, array), (_, source) in zip(_each(paper, tape, step.name), _each(paper, tape, step.inputs[0])):
        i = _row(paper, array)
        paper.line(f"{name}[{i},0] = {source[i, 0]:+.6f} / {by:.6f}")
        paper.result(f"{name}[{i},0]", source[i, 0] / by, array[i, 0])


def _softmax(paper: Paper, tape: Tape, step: Step) -> None:
    rows, columns = tape.row_names.get(step.name), tape.column_names.get(step.name)
    for (name, array), (_, scores) in zip(_each(paper, tape, step.name), _each(paper, tape, step.inputs[0])):
        paper.matrix(name, array, rows, columns, decimals=4, signed=False)
        paper.vector("sum of each row", array.sum(axis=-1))
        paper.vector("weights above 0 in each row", (array > 0).sum(axis=-1))
        i = _row(paper, array)
        seen = scores[i, : i + 1] if tape.causal and "causal" in step.options else scores[i]
        powers = [math.exp(score - max(seen)) for score in seen.tolist()]
        paper.line(
            f"{name}[{i},0] = exp({seen[0]:+.6f} - {max(seen):+.6f}) / sum = {powers[0]:.6f} / {sum(powers):.6f}"
        )
        paper.result(f"{name}[{i},0]", powers[0] / sum(powers), array[i, 0])
        for r, total in enumerate(array.sum(axis=-1)):
            paper.check(f"sum of row {r} of {name}", 1.0, total)


def _layer_norm(paper: Paper, tape: Tape, step: Step) -> None:
    _matrix(paper, tape, step)
    x, scale, shift = (tape[name] for name in step.inputs)
    i = _row(paper, x)
    row, name = x[i].tolist(), f"{short(step.name)}[{i},0]"
    mean = sum(row) / len(row)
    variance = sum((value - mean) ** 2 for value in row) / len(row)
    eps = step.options["eps"]
    paper.line(
        f"row {i} of {short(step.inputs[0])}: mean {mean:+.6f}, variance {variance:.6f}",
        f"{name} = ({row[0]:+.6f} - {mean:+.6f}) / sqrt({variance:.6f} + {eps:g}) * {scale[0]:.6f} {shift[0]:+.6f}",
    )
    paper.result(name, (row[0] - mean) / math.sqrt(variance + eps) * scale[0] + shift[0], tape[step.name][i, 0])


def _activation(paper: Paper, tape: Tape, step: Step) -> None:
    _matrix(paper, tape, step)
    x, kind = tape[step.inputs[0]], step.options["kind"]
    i = _row(paper, x)
    name = f"{short(step.name)}[{i},0]"
    paper.line(f"{name} = {kind}({x[i, 0]:+.6f})")
    paper.result(name, _BY_HAND[kind](float(x[i, 0])), tape[step.name][i, 0])


def _heads(paper: Paper, tape: Tape, step: Step) -> None:
    n_heads, _, size = tape[step.name].shape
    spans = ", ".join(f"{h * size}-{(h + 1) * size - 1}" for h in range(n_heads))
    paper.text(f"{short(step.inputs[0])} in {n_heads} heads: columns {spans}. Each head is shown where it is used.")


def _rows(paper: Paper, tape: Tape, step: Step) -> None:
    which = step.options["which"]
    said = which if isinstance(which, str) else ", ".join(map(str, which))
    paper.text(f"{short(step.name)} = rows {said} of {short(step.inputs[0])}")
    _matrix(paper, tape, step)


def _cross_entropy(paper: Paper, tape: Tape, step: Step) -> None:
    scores, labels = (tape[name] for name in step.inputs)
    _matrix(paper, tape, step, decimals=6)
    i = _row(paper, scores)
    label, name, top = int(labels[i]), f"{short(step.name)}[{i},0]", float(scores[i].max())
    log_total = top + math.log(sum(math.exp(score - top) for score in scores[i].tolist()))
    paper.line(f"label {label}: {name} = log(sum of exp(scores)) - score = {log_total:.6f} - ({scores[i, label]:+.6f})")
    paper.result(name, log_total - scores[i, label], tape[step.name][i, 0])


def _error(paper: Paper, tape: Tape, step: Step) -> None:
    _matrix(paper, tape, step, decimals=6)
    guess, truth, *counts = (tape[name] for name in step.inputs)
    i, squared = _row(paper, guess), step.options["kind"] == "mse"
    pairs = [(x, y) for k, (x, y) in enumerate(zip(guess[i], truth[i])) if not counts or counts[0][i, k]]
    formula = "d^2" if squared else "d^2 / 2 below |d| = 1, |d| - 1/2 from there on"
    paper.text(
        f"{formula}, with d = guess - truth, averaged over the {len(pairs)} numbers of the row that were recorded."
    )
    each = [(x - y) ** 2 if squared else min(abs(x - y), 1) * (abs(x - y) - min(abs(x - y), 1) / 2) for x, y in pairs]
    for (x, y), one in list(zip(pairs, each))[:3]:
        paper.line(f"  {x:+.6f} - ({y:+.6f}) = {x - y:+.6f} -> {one:.6f}")
    total = float(sum(each))
    paper.line(f"  all together {total:.6f} / {len(pairs)}")
    paper.result(f"{short(step.name)}[{i},0]", total / max(len(pairs), 1), tape[step.name][i, 0])


def _mean(paper: Paper, tape: Tape, step: Step) -> None:
    values = tape[step.inputs[0]].ravel().tolist()
    if not values:
        return paper.text("Nothing is hidden, so there is no loss.")
    paper.line(f"{short(step.name)} = {sum(values):.6f} / {len(values)}")
    paper.result(short(step.name), sum(values) / len(values), tape[step.name][0, 0])


def _weighted_sum(paper: Paper, tape: Tape, step: Step) -> None:
    if not tape.masked:
        return paper.text("Nothing is hidden, so there is no loss.")
    parts = [(weight, float(tape[name][0, 0]), name) for weight, name in zip(step.options["weights"], step.inputs)]
    paper.line(f"{step.name} = {' + '.join(f'{weight:g} * {value:.6f} ({name})' for weight, value, name in parts)}")
    paper.result(step.name, sum(weight * value for weight, value, _ in parts), tape[step.name][0, 0])


def _log_power(paper: Paper, tape: Tape, step: Step) -> None:
    _matrix(paper, tape, step)
    waves, log_scale = (tape[name] for name in step.inputs)
    i, half, floor = _row(paper, waves), waves.shape[1] // 2, step.options["floor"]
    re, im, scale_uv = float(waves[i, 0]), float(waves[i, half]), 10 ** float(log_scale[i, 0])
    name = f"{short(step.name)}[{i},0]"
    paper.line(
        f"{name} = log10(({re:+.6f}^2 + ({im:+.6f})^2) * {scale_uv:.6f}^2 + {floor:g}), 1 SD is {scale_uv:.3f} uV"
    )
    paper.result(name, math.log10((re * re + im * im) * scale_uv * scale_uv + floor), tape[step.name][i, 0])


_SHOWN: dict[str, Callable[[Paper, Tape, Step], None]] = {
    "product": _product,
    "product_transposed": _product,
    "add": _elementwise,
    "subtract": _elementwise,
    "multiply": _elementwise,
    "divide": _divide,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "activation": _activation,
    "split_heads": _heads,
    "rows": _rows,
    "cross_entropy": _cross_entropy,
    "error": _error,
    "mean": _mean,
    "weighted_sum": _weighted_sum,
    "log_power": _log_power,
}
# Other formulas than the tape's, where there are any: what is checked must not be its own witness.
_BY_HAND: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(x * math.sqrt(2 / math.pi) * (1 + 0.044715 * x * x))) / 2,
    "relu": lambda x: x if x > 0 else 0.0,
    "silu": lambda x: x * (1 + math.tanh(x / 2)) / 2,
    "tanh": math.tanh,
    "sigmoid": lambda x: (1 + math.tanh(x / 2)) / 2,
}
