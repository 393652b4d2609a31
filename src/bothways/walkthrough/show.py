"""Puts the steps of a tape on paper: each matrix, where it came from, and one of its numbers by hand."""

import math
from collections.abc import Callable, Iterable

from bothways.walkthrough.display import Paper
from bothways.walkthrough.tape import Array, Step, Tape


def show(paper: Paper, tape: Tape, steps: Iterable[Step] | None = None) -> None:
    """Shows steps in their order; all of the tape where none are named."""
    for step in tape.steps if steps is None else steps:
        paper.step(step.name, f"{step.about}." if step.about else "")
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
    label, name = int(labels[i]), f"{short(step.name)}[{i},0]"
    total = sum(math.exp(score) for score in scores[i].tolist())
    paper.line(
        f"label {label}: {name} = log(sum of exp(scores)) - score = {math.log(total):.6f} - {scores[i, label]:+.6f}"
    )
    paper.result(name, math.log(total) - scores[i, label], tape[step.name][i, 0])


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
}
# Other formulas than the tape's, where there are any: what is checked must not be its own witness.
_BY_HAND: dict[str, Callable[[float], float]] = {
    "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: x if x > 0 else 0.0,
    "silu": lambda x: x * (1 + math.tanh(x / 2)) / 2,
    "tanh": math.tanh,
    "sigmoid": lambda x: (1 + math.tanh(x / 2)) / 2,
}
