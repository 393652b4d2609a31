"""What the walkthrough of a trained model says: its steps, and how far NumPy and the model are apart."""

from collections.abc import Mapping

import numpy as np

from bothways.walkthrough.display import FIRST, LAST, MOST, Paper
from bothways.walkthrough.page import Walk
from bothways.walkthrough.show import show
from bothways.walkthrough.tape import OPERATIONS, Array, Tape

TOLERANCE = 1e-9
"""Between NumPy and the model, in float64, as a share of the tensor's largest number (of 1 where that is smaller)."""


def differences(walk: Walk, tensors: Mapping[str, Array]) -> dict[str, float]:
    """Returns by how much a walk differs from the model's own tensors, as a share of their size.

    Args:
        walk: steps by the names of the model's taps.
        tensors: the model's, without padding; one that the walk lacks differs infinitely.

    Returns:
        Name -> difference, in the order of computation.
    """
    found: dict[str, float] = {}
    order = list(walk.tape.arrays)
    for name in [*(one for one in order if one in tensors), *(one for one in tensors if one not in order)]:
        ours, theirs = walk.tape.arrays.get(name), tensors[name]
        if ours is None or ours.shape != theirs.shape:
            found[name] = float("inf")
        else:
            size = max(1.0, float(np.abs(theirs).max(initial=0.0)))
            gap = float(np.abs(ours - theirs).max(initial=0.0)) / size
            found[name] = gap if np.isfinite(gap) else float("inf")
    return found


def tell_model(paper: Paper, walk: Walk, apart: Mapping[str, float], layer: int) -> None:
    """Writes a pass: its result first, then all steps outside the encoder and those of one of its layers.

    Args:
        paper: takes it; its row and head are shown.
        walk: the pass.
        apart: what `differences` gave.
        layer: of the encoder.
    """
    tape = walk.tape
    paper.brief = True
    paper.banner(walk.title, walk.lead)
    _input(paper, walk)
    paper.step("Result")
    _losses(paper, walk)
    _classes(paper, walk)
    _predictions(paper, walk)
    _agreement(paper, walk, apart)
    paper.banner(
        "Step by step",
        f"A matrix of more than {MOST} rows or columns is abbreviated: the first {FIRST}, the last {LAST} and the one "
        f"asked for are shown. Row {paper.row} of each matrix (the last of a shorter one) is worked out by hand. Layer "
        f"{layer} of the encoder is shown; --layer, --head and --row choose.",
    )
    layers = sorted({step.layer for step in tape.steps if step.layer is not None})
    first = min(i for i, step in enumerate(tape.steps) if step.layer is not None)
    last = max(i for i, step in enumerate(tape.steps) if step.layer is not None)
    show(paper, tape, tape.steps[:first])
    for one in layers:
        steps = [step for step in tape.steps if step.layer == one]
        paper.banner(f"Encoder, layer {one}", _compared(apart, [step.name for step in steps]))
        if one == layer:
            show(paper, tape, steps)
    paper.banner("After the encoder")
    show(paper, tape, tape.steps[last + 1 :])
    _comparison(paper, apart)


def _input(paper: Paper, walk: Walk) -> None:
    tape, fates = walk.tape, walk.fates
    paper.step("Input")
    hidden = {i: fates.get(i, "[MASK]") for i in tape.masked}
    if walk.kind == "text":
        segments = walk.picture["segments"]
        rows = [(str(i), name, str(segments[i]), hidden.get(i, "-")) for i, name in enumerate(tape.positions)]
        paper.table(("position", "token", "segment", "hidden by"), rows)
        return
    paper.line(f"{len(walk.picture['ch_names'])} channels: {', '.join(walk.picture['ch_names'])}")
    paper.text(f"{len(tape.positions)} positions: " + ", ".join(f"{i} {name}" for i, name in enumerate(tape.positions)))
    paper.text(f"{len(hidden)} hidden: " + (", ".join(tape.positions[i] for i in hidden) or "-"))
    others = [f"{tape.positions[i]} ({fate})" for i, fate in hidden.items() if fate != "[MASK]"]
    if others:
        paper.text(f"{len(others)} of them are not [MASK] but hold something else: {', '.join(others)}")


def _losses(paper: Paper, walk: Walk) -> None:
    """The error on hidden patches beside that of a guess that needs no model."""
    tape = walk.tape
    if "loss" not in walk.outputs or not tape.masked:
        if any(name.endswith(".loss") for name in tape.arrays):
            paper.text("Nothing is hidden, so there is no loss.")
        return
    rows = []
    for step in tape.steps:
        if step.operation == "error":
            guess, truth, *counts = (tape[name] for name in step.inputs)
            zero = OPERATIONS["error"](np.zeros_like(guess), truth, *counts, **step.options).mean()
            rows.append((step.name.removesuffix(".error"), f"{tape[step.name].mean():.6f}", f"{zero:.6f}"))
    if rows:
        note = "0 is the median signal and the mean spectrum."
        paper.table(("error on what is hidden", "this model", "guessing 0"), rows, note)
    paper.line(f"loss = {tape[walk.outputs['loss']][0, 0]:.6f}, what training lowers")


def _classes(paper: Paper, walk: Walk) -> None:
    """The classes of the whole, with their probabilities."""
    name = walk.outputs.get("probability")
    if name is not None:
        classes = walk.tape.column_names[name]
        paper.line(", ".join(f"P({one}) = {p:.6f}" for one, p in zip(classes, walk.tape[name][0])))


def _agreement(paper: Paper, walk: Walk, apart: Mapping[str, float]) -> None:
    others = [step.name for step in walk.tape.steps if step.name not in apart]
    wrong = [name for name, gap in apart.items() if not gap <= TOLERANCE]
    if wrong:
        paper.text(f"{len(wrong)} of {len(apart)} tensors differ by more than {TOLERANCE:g}, the first is {wrong[0]}.")
    else:
        worst = max(apart.values(), default=0.0)
        paper.text(f"All {len(apart)} tensors are equal within {TOLERANCE:g}; the largest difference is {worst:.1e}.")
    if others:
        paper.text(
            f"{len(others)} steps have no tensor of their own in the model; what is made of them is compared: "
            f"{', '.join(dict.fromkeys(name.split('.')[-1] for name in others))}."
        )


def _compared(apart: Mapping[str, float], names: list[str]) -> str:
    seen = [apart[name] for name in names if name in apart]
    if not seen:
        return ""
    return f"{len(seen)} tensors compared with the model, largest difference {max(seen):.1e}"


def _predictions(paper: Paper, walk: Walk, most: int = 5) -> None:
    """Lists the likeliest words of each hidden position."""
    name = walk.outputs.get("predictions")
    if name is None:
        return
    tape: Tape = walk.tape
    if not tape.masked:
        paper.text("No word is predicted: write [MASK] in the text, or hide positions with --mask.")
        return
    words = tape.column_names[name]
    rows = []
    for place, chances in zip(tape.masked, tape[name]):
        best = [i for i in np.argsort(-chances, kind="stable") if words[i]][:most]
        rows.append((str(place), tape.positions[place], ", ".join(f"{words[i]} {chances[i]:.3f}" for i in best)))
    paper.table(("position", "token", "what it may be"), rows)


def _comparison(paper: Paper, apart: Mapping[str, float]) -> None:
    paper.banner("NumPy beside the model", "Each was computed again from the weights, in float64.")
    paper.table(("tensor", "difference"), [(name, f"{gap:.1e}") for name, gap in apart.items()])
    for name, gap in apart.items():
        paper.check(name, gap, 0.0, TOLERANCE)
