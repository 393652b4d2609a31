"""A tape of NumPy operations: the value of each step, what it came from, and all that replaying it elsewhere needs.

The operations are written out from their definitions, in float64 for whatever comes in float64. Nothing else of this
project is imported: what checks the PyTorch model must not share code with it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[float])


def product(a: Array, b: Array, bias: Array | None = None) -> Array:
    """Returns a @ b, plus a bias in each row; stacks of matrices head by head."""
    return a @ b if bias is None else a @ b + bias


def product_transposed(a: Array, b: Array) -> Array:
    """Returns a @ bᵀ."""
    return a @ np.swapaxes(b, -1, -2)


def add(a: Array, b: Array) -> Array:
    """Returns a + b, element by element; a single row is added to each."""
    return a + b


def subtract(a: Array, b: Array) -> Array:
    """Returns a - b, element by element."""
    return a - b


def multiply(a: Array, b: Array) -> Array:
    """Returns a · b, element by element."""
    return a * b


def divide(a: Array, b: Array | None = None, by: float = 1.0) -> Array:
    """Returns a / b, element by element, or a divided by one number."""
    return a / (by if b is None else b)


def softmax(scores: Array, causal: bool = False) -> Array:
    """exp(s - max) / Σ exp(s - max) along each row; causal: what lies after the row's own place counts as -∞."""
    if causal:
        later = np.triu(np.ones(scores.shape[-2:], dtype=bool), 1)
        scores = np.where(later, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x - mean) / √(variance + eps) · weight + bias along each row (Ba et al. 2016; variance over n)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) * weight + bias


def activation(x: Array, kind: str) -> Array:
    """One of `ACTIVATIONS`, element by element."""
    return ACTIVATIONS[kind](x)


def split_heads(x: Array, n_heads: int) -> Array:
    """[L D] -> [H L d]: head h has columns h·d to (h+1)·d."""
    return x.reshape(len(x), n_heads, -1).swapaxes(0, 1)


def concat_heads(x: Array) -> Array:
    """[H L d] -> [L D]."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def prepend(row: Array, x: Array) -> Array:
    """Puts a row on top."""
    return np.concatenate([np.atleast_2d(row), x])


def rows(x: Array, which: Sequence[int]) -> Array:
    """Takes some rows."""
    return x[list(which)]


def columns(x: Array, start: int, stop: int) -> Array:
    """Takes the columns from `start` up to `stop`."""
    return x[:, start:stop]


def join(*parts: Array) -> Array:
    """Puts matrices side by side."""
    return np.concatenate(parts, axis=1)


def mean_rows(x: Array) -> Array:
    """The mean of all rows, as one row."""
    return x.mean(axis=0, keepdims=True)


def cut(signal: Array, size: int, together: bool = False) -> Array:
    """[C S] -> patches of `size` samples: [C·N P], channel by channel, or all channels of a patch in a row [N C·P]."""
    patches = signal.reshape(len(signal), -1, size)  # [C N P]
    return patches.swapaxes(0, 1).reshape(patches.shape[1], -1) if together else patches.reshape(-1, size)


def regroup(x: Array, n_channels: int) -> Array:
    """[C·N f] -> [N C·f]: all channels of a patch in a row."""
    return x.reshape(n_channels, -1, x.shape[1]).swapaxes(0, 1).reshape(len(x) // n_channels, -1)


def log_power(waves: Array, log_scale: Array, floor: float) -> Array:
    """log10((re² + im²) · 10^(2 · log_scale) + floor) from [re | im]; `log_scale` [T 1]."""
    half = waves.shape[1] // 2
    power = (waves[:, :half] ** 2 + waves[:, half:] ** 2) * 10 ** (2 * log_scale)
    return np.log10(power + floor)


def hide(x: Array, mask: Array, masked: Sequence[int], instead: Sequence[int] = ()) -> Array:
    """Puts the vector `mask` in the masked rows.

    Where `instead` is given it says for each masked row which row's own content stands there; -1 = the vector `mask`.
    """
    hidden = x.copy()
    for i, other in zip(masked, [*instead] or [-1] * len(masked)):
        hidden[i] = mask if other < 0 else x[other]
    return hidden


def error(guess: Array, truth: Array, real: Array | None = None, *, kind: str = "mse") -> Array:
    """The mean error of each row [R 1]; `real` = 1 where a number counts, 0 where not.

    mse: d². smooth_l1: d²/2 below 1, |d| - 1/2 from there on (Huber 1964).
    """
    d = guess - truth
    each = d**2 if kind == "mse" else np.where(np.abs(d) < 1, d**2 / 2, np.abs(d) - 0.5)
    if real is None:
        return each.mean(axis=1, keepdims=True)
    return (each * real).sum(axis=1, keepdims=True) / np.maximum(real.sum(axis=1, keepdims=True), 1)


def cross_entropy(scores: Array, labels: Array) -> Array:
    """-log softmax(scores)[label] of each row [R 1]."""
    top = scores.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + top
    return log_sum - np.take_along_axis(scores, labels.astype(int)[:, None], axis=1)


def mean(x: Array) -> Array:
    """The mean of all numbers [1 1]; 0 where there are none."""
    return np.array([[x.mean() if x.size else 0.0]])


def weighted_sum(*parts: Array, weights: Sequence[float]) -> Array:
    """Σ weight · part."""
    return np.sum([weight * part for weight, part in zip(weights, parts)], axis=0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
OPERATIONS: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (
        product, product_transposed, add, subtract, multiply, divide, softmax, layer_norm, activation, split_heads,
        concat_heads, prepend, rows, columns, join, mean_rows, cut, regroup, log_power, hide, error, cross_entropy,
        mean, weighted_sum,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One operation of a tape; its value is `tape.arrays[step.name]`."""

    name: str
    operation: str
    inputs: tuple[str, ...]
    options: dict[str, Any]
    section: str
    layer: int | None
    """Of the encoder; None = before or after it."""
    about: str
    """One sentence: what it is for."""


@dataclass
class Tape:
    """Arrays by name, and the steps that made those that are not given.

    Positions are rows. `masked` are the hidden ones, and `content` those that carry content (not [CLS], not [SEP]).
    An option that is a word ("masked", "content", "masked_among_content", "cls", "causal") stands for what the tape
    says of it, so that a replay elsewhere can hide other positions or look to one side only.
    """

    positions: tuple[str, ...] = ()
    masked: tuple[int, ...] = ()
    content: tuple[int, ...] = ()
    causal: bool = False
    arrays: dict[str, Array] = field(default_factory=dict)
    row_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    column_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    section: str = ""
    layer: int | None = None

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def give(
        self, name: str, array: Array, rows: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> str:
        """Keeps an input or a weight; returns its name."""
        assert name not in self.arrays, name
        self.arrays[name] = np.asarray(array)
        self._name_lines(name, rows, columns)
        return name

    def do(
        self,
        operation: str,
        name: str,
        *inputs: str | None,
        about: str = "",
        rows: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> str:
        """Computes one step from arrays by name and keeps it; returns its name.

        Row names are those of the first input where nothing else is said. An input None is left out.
        """
        assert name not in self.arrays, name
        names = tuple(one for one in inputs if one is not None)
        resolved = {key: self._resolve(value) for key, value in options.items()}
        value = OPERATIONS[operation](*(self.arrays[one] for one in names), **resolved)
        self.arrays[name] = value
        first = self.row_names.get(names[0])
        if rows is None and first is not None and value.ndim > 1 and len(first) == value.shape[-2]:
            rows = first
        if columns is None and operation == "product_transposed":
            columns = self.row_names.get(names[1])
        elif columns is None and operation in ("divide", "softmax"):
            columns = self.column_names.get(names[0])
        self._name_lines(name, rows, columns)
        self.steps.append(Step(name, operation, names, options, self.section, self.layer, about))
        return name

    def _resolve(self, value: Any) -> Any:
        """Reads the words that stand for the state of the tape."""
        state = {
            "masked": self.masked,
            "content": self.content,
            "masked_among_content": tuple(self.content.index(one) for one in self.masked if one in self.content),
            "cls": (0,),
            "causal": self.causal,
        }
        return state[value] if isinstance(value, str) and value in state else value

    def _name_lines(self, name: str, rows: Sequence[str] | None, columns: Sequence[str] | None) -> None:
        if rows is not None:
            self.row_names[name] = tuple(rows)
        if columns is not None:
            self.column_names[name] = tuple(columns)
