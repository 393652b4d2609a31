"""What the page says of a number: what it lights, and a calculation that is done again from what is displayed."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from bothways.walkthrough.tape import ACTIVATIONS, OPERATIONS, Step, Tape
from browser import Opened, number

READ = """() => [...document.querySelectorAll(".made td[data-cell]")].map((cell) => {
  cell.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  const card = cell.closest("[data-step]"), place = ({dataset}) => dataset.cell.split(",").map(Number);
  const text = (node) => node.className?.startsWith("term") ? `(${node.lastChild.textContent})` : node.textContent;
  return {
    step: card.dataset.step,
    cell: place(cell),
    shown: cell.textContent,
    captions: [...card.querySelectorAll("figcaption")].map((caption) => caption.textContent),
    lit: [...card.querySelectorAll(".matrix")].map((matrix) => [...matrix.querySelectorAll("td.lit")].map(place)),
    lines: [...document.querySelectorAll("#dock .line")].map((line) => [...line.childNodes].map(text).join("")),
    terms: [...document.querySelectorAll("#dock .term")].map((term) => [...term.children].map(text)),
  };
})"""
MOVED = {"split_heads", "concat_heads", "prepend", "rows", "columns", "join", "cut", "regroup", "hide"}
SIGNS = {"−": "-", "·": "*", "²": "**2", "^": "**", "√": "sqrt", "log₁₀": "log10"}
FUNCTIONS = {
    "exp": math.exp,
    "log10": math.log10,
    "sqrt": math.sqrt,
    "h": lambda d: d * d / 2 if abs(d) < 1 else abs(d) - 0.5,
    **{name: lambda x, f=f: f(np.array([x])).item() for name, f in ACTIVATIONS.items()},
}


@dataclass
class Explained:
    """One number of a step's result, and all that stands there while it is pointed at."""

    step: str
    cell: tuple[int, int]
    shown: str
    captions: list[str]
    lit: list[list[tuple[int, int]]]
    lines: list[str]
    terms: list[tuple[str, str]]

    def value(self, tape: Tape) -> float:
        """The number itself."""
        return float(self._numbers(tape, self.step, -1, [self.cell])[0])

    def lit_numbers(self, tape: Tape, step: Step) -> list[np.ndarray]:
        """The numbers that are lit in each input."""
        return [self._numbers(tape, name, k, self.lit[k]) for k, name in enumerate(step.inputs)]

    def _numbers(self, tape: Tape, name: str, which: int, cells: list[Any]) -> np.ndarray:
        array, caption = tape[name], self.captions[which]
        stack = array.reshape((1,) * (3 - array.ndim) + array.shape)
        head = int(found[1]) if (found := re.search(r"head (\d+)", caption)) else 0
        turn = -1 if "ᵀ" in caption else 1  # shown with rows and columns exchanged
        return np.array([stack[(head, *cell[::turn])] for cell in cells])


def explanations(opened: Opened) -> list[Explained]:
    """Points at each number of each table in turn."""
    return [Explained(**one) for one in opened.page.evaluate(READ)]


def calculate(text: str, **names: float) -> float:
    """Does a displayed calculation."""
    for sign, python in SIGNS.items():
        text = text.replace(sign, python)
    return float(eval(text, FUNCTIONS | names))


def from_lit(step: Step, column: int, lit: list[np.ndarray]) -> float:
    """Computes a number from nothing but what is lit."""
    if step.operation in MOVED:
        return np.concatenate(lit).item()
    if step.operation.startswith("product"):
        a, b, *bias = lit
        return float(a @ b + sum(one.item() for one in bias))
    if step.operation == "softmax":
        return float(OPERATIONS["softmax"](lit[0])[column]) if column < len(lit[0]) else 0.0
    if step.operation == "layer_norm":
        x, weight, bias = lit
        return float(OPERATIONS["layer_norm"](x, weight, bias, **step.options)[column])
    options = {key: value for key, value in step.options.items() if key != "causal"}
    rows = [one[None] for one in lit]
    if step.operation == "cross_entropy":
        return OPERATIONS["cross_entropy"](rows[0], lit[1]).item()
    if step.operation == "mean_rows":
        return float(lit[0].mean())
    return OPERATIONS[step.operation](*rows, **options).item()


def displayed(one: Explained, step: Step, lit: list[np.ndarray]) -> list[float]:
    """Returns what each side of the displayed equation comes to; the terms and what they are made of are compared."""
    for text, value in one.terms:
        if not re.fullmatch(r"bias|row \d+|\d+\.|… \d+ more …", text):
            np.testing.assert_allclose(calculate(text), number(value), rtol=2e-3, atol=1e-3, err_msg=text)
    names = {}
    if step.operation == "layer_norm":
        found = re.findall(r"= ([^,]+)", one.lines[0])
        mean, spread, names["ε"] = (number(text) for text in found)
        np.testing.assert_allclose([mean, spread], [lit[0].mean(), lit[0].var()], atol=1e-4)
        assert names["ε"] == step.options["eps"]
    if step.operation == "softmax" and len(one.lines) > 1:
        terms, total = one.lines[0].split(": ")[1].split("=")
        np.testing.assert_allclose(calculate(terms), number(total), atol=1e-3)
    sides = one.lines[-1].split(": ")[-1].split("=")
    if step.operation == "cross_entropy":
        label = re.search(r"s\[(\d+)\]", sides.pop(0))
        assert label
        assert int(label[1]) == lit[1].item()
    return [calculate(side.strip(), **names) for side in sides]
