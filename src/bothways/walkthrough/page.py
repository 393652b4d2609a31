"""A walk as plain data: all that a page needs to show it and to compute it again."""

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bothways.walkthrough.tape import Array, Tape


@dataclass
class Walk:
    """One walk through a model: its tape, and how its ends are called."""

    kind: str
    """eeg, text or classifier."""
    title: str
    lead: str
    """What is shown, in a sentence or two."""
    tape: Tape
    arrays: dict[str, Array]
    """Name -> array: what `--json` writes."""
    picture: dict[str, Any]
    """The input as it is drawn.

    A signal: `kind` "signal", `signal` [C S], `unit`, `sfreq_hz`, `start_s`, `ch_names`, `patch_samples`, and
    `tokens`: for each position of `tape.content` its [channel or None, patch]. A sentence: `kind` "sentence",
    `tokens`, `segments`."""
    outputs: dict[str, Any] = field(default_factory=dict)
    """Names of steps: `loss`, `reconstruction` (samples, a row for each position of `content`), `probability` (with
    `probability_of`, where it is a single number), `predictions` (a row for each masked position), `attention` (one
    for each layer), `H`."""
    fixed: tuple[int, ...] = ()
    """Positions whose true content is not known: hidden whatever is chosen."""

    @property
    def fates(self) -> dict[int, str]:
        """What stands in a hidden position's place where that is not [MASK]."""
        tape = self.tape
        instead: list[int] = next((step.options["instead"] for step in tape.steps if "instead" in step.options), [])
        found = {}
        for place, other in zip(tape.masked, instead):
            if other >= 0:
                found[place] = "its own content" if other == place else f"another's content: {tape.positions[other]}"
        return found


def encode(array: Array) -> dict[str, Any]:
    """Writes an array as text without losing a bit: float64, or float32 where that holds the same numbers."""
    array = np.asarray(array, dtype=np.float64)
    short = array.astype(np.float32)
    exact = np.array_equal(short.astype(np.float64), array, equal_nan=True)
    kept = short.astype("<f4") if exact else array.astype("<f8")
    data = base64.b64encode(kept.tobytes()).decode("ascii")
    return {"shape": list(array.shape), "dtype": "f4" if exact else "f8", "data": data}


def made(tape: Tape) -> dict[str, Array]:
    """Returns the arrays that steps make."""
    return {step.name: tape[step.name] for step in tape.steps}


def given(tape: Tape) -> dict[str, Array]:
    """Returns the arrays that no step makes: inputs and weights."""
    steps = made(tape)
    return {name: array for name, array in tape.arrays.items() if name not in steps}


def as_page(walk: Walk) -> dict[str, Any]:
    """Returns a walk as plain dicts and lists; what its steps make is left out, for a page computes it again."""
    tape = walk.tape
    picture = dict(walk.picture)
    if "signal" in picture:
        picture["signal"] = encode(picture["signal"])
    return {
        "kind": walk.kind,
        "title": walk.title,
        "lead": walk.lead,
        "positions": list(tape.positions),
        "masked": list(tape.masked),
        "content": list(tape.content),
        "fixed": list(walk.fixed),
        "fates": {str(place): fate for place, fate in walk.fates.items()},
        "causal": tape.causal,
        "arrays": {name: encode(array) for name, array in given(tape).items()},
        "rows": {name: list(names) for name, names in tape.row_names.items() if name in tape.arrays},
        "columns": {name: list(names) for name, names in tape.column_names.items() if name in tape.arrays},
        "steps": [
            {
                "name": step.name,
                "operation": step.operation,
                "inputs": list(step.inputs),
                "options": step.options,
                "section": step.section,
                "layer": step.layer,
                "about": step.about,
            }
            for step in tape.steps
        ],
        "picture": picture,
        "outputs": walk.outputs,
    }


def layer_alone(walk: Walk, layer: int) -> Walk:
    """Returns the part of a walk that lies in one layer of the encoder, with its input given: for large models."""
    tape = walk.tape
    steps = [step for step in tape.steps if step.layer == layer]
    needed = {name for step in steps for name in (step.name, *step.inputs)}
    kept = {name: array for name, array in tape.arrays.items() if name in needed}
    alone = Tape(
        tape.positions, tape.masked, (), tape.causal, kept, tape.row_names, tape.column_names, steps, layer=layer
    )
    lead = f"{walk.lead} The model is large: layer {layer} alone is computed here, from the input that it got."
    outputs = {"attention": [f"encoder.layers.{layer}.attention.attention"], "H": steps[-1].name}
    return Walk(walk.kind, walk.title, lead, alone, walk.arrays, walk.picture, outputs)
