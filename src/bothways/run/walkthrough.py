"""`bothways walkthrough`: shows how a model computes, and checks PyTorch against NumPy on the way."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways import walkthrough as paper_room
from bothways.errors import UserError
from bothways.files import write_text
from bothways.report import write_walkthrough
from bothways.run.passes import eeg_pass, text_pass
from bothways.training import run_at
from bothways.walkthrough import Paper, Walk

REFERENCES: dict[str, Callable[[Paper], Walk]] = {
    "eeg": paper_room.walk_eeg,
    "text": paper_room.walk_text,
    "classifier": paper_room.walk_classifier,
}
MOST_ON_A_PAGE = 8_000_000
"""Numbers of inputs and weights that a page may hold; of a larger model it shows one layer."""
MOST_IN_A_PAGE = 60_000_000
"""Numbers that it may compute from them in a browser."""


def walkthrough(
    kind: str,
    *,
    model: str | Path | None = None,
    input: str | Path | None = None,
    pair: str | None = None,
    at_s: float | None = None,
    mask: Sequence[int | str] = (),
    seed: int | None = None,
    layer: int | None = None,
    head: int | None = None,
    row: int | None = None,
    baseline: str | Path | None = None,
    notch_hz: float | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    json_file: str | Path | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
    width: int = 120,
    colour: bool = False,
) -> dict[str, Any]:
    """Walks through an encoder, every matrix shown and every hand computation checked.

    Without a model it is the walkthrough of small encoders with drawn weights; with one, a pass of that model on the
    given input, each step computed again in NumPy and compared with the model's tensor of the same name.

    Args:
        kind: `eeg`, `text` or `classifier` (which has no model but its own).
        model: a run of ours, or for text also a folder that transformers saved a BERT in.
        input: a recording, or the text; `[MASK]` in it is a hidden word.
        pair: a second text.
        at_s: where the window begins in the recording, in seconds since its start; its start where not given.
        mask: positions to hide, by number (0 is [CLS]) or by name (`p3`, `Fp1 p3`), as the output has them; where not
            given, those that the run's recipe draws from `seed` (a pretrained EEG run), and none elsewhere.
        seed: of the hidden positions; 0 where not given.
        layer: of the encoder, shown in full; 0 where not given.
        head: of the attention, the only one shown; all where not given.
        row: shown in full and worked out by hand; 0 where not given.
        baseline: see `predict`.
        notch_hz: see `predict`.
        subject_from: see `check`.
        unit: see `check`.
        json_file: file to write the arrays to, by name; of a model all that it computes, without its weights, and the
            names of its `positions`, with the `masked_positions`.
        html: file to write the page to.
        overwrite: replace these files.
        width: of the text, in characters.
        colour: with ANSI colours.

    Returns:
        `title`, `text`, `checks` (`total`, `failed`: hand computations that do not match), `differences` (name ->
        largest difference to the model's tensor), `first_difference` (name, or None where all are equal), `files`,
        `notes`.

    Raises:
        UserError: options that do not go together, no such layer, head or row, or an input that cannot be used.
    """
    if kind not in REFERENCES:
        raise UserError(f"expected one of {', '.join(REFERENCES)}, got {kind!r}")
    files = [Path(one).absolute() for one in (json_file, html) if one is not None]
    if len(set(files)) < len(files):
        raise UserError(f"--json and --html: both would write {files[0]}; name two files")
    for option, one in (("--json", json_file), ("--html", html)):
        if one is not None:
            _check_file(option, Path(one), overwrite)
    if seed is not None and not 0 <= seed < 2**31:
        raise UserError(f"--seed {seed}: expected a whole number from 0 to {2**31 - 1}")
    if at_s is not None and not math.isfinite(at_s):
        raise UserError(f"--at {at_s}: expected seconds since the recording's start")
    if seed is not None and mask:
        raise UserError("--seed draws the hidden positions and --mask names them; leave one out")
    paper = Paper(width=width, colour=colour, row=row or 0, head=head, in_full=row is not None)
    notes: list[str] = []
    apart: dict[str, float] = {}
    of_eeg = {
        "--at": at_s, "--seed": seed, "--baseline": baseline, "--notch-hz": notch_hz, "--unit": unit,
        "--subject-from": None if subject_from == "path" else subject_from,
    }  # fmt: skip
    of_models = {
        "--input": input, "--pair": pair, "--mask": mask or None, "--layer": layer, "--head": head, "--row": row,
        **of_eeg,
    }  # fmt: skip
    if model is None:
        _refuse(of_models, "expected --model with it; give a run, or leave it out")
        walk = REFERENCES[kind](paper)
    else:
        if input is None:
            raise UserError("--model: expected --input with it: a recording, or a text")
        if kind == "eeg":
            _refuse({"--pair": pair}, "belongs to text; leave it out")
            walk, tensors = eeg_pass(
                run_at(Path(model)), Path(input), notes, at_s=at_s, mask=mask, seed=seed, baseline=baseline,
                notch_hz=notch_hz, subject_from=subject_from, unit=unit,
            )  # fmt: skip
        elif kind == "text":
            _refuse(of_eeg, "belongs to EEG; leave it out")
            walk, tensors = text_pass(run_at(Path(model)), str(input), notes, pair=pair, mask=mask)
        else:
            raise UserError("--model: the classifier walkthrough has its own model; use eeg or text")
        _check_choice("--layer", layer, len(walk.outputs["attention"]), "layers")
        _check_choice("--head", head, len(walk.tape[walk.outputs["attention"][0]]), "heads")
        _check_choice("--row", row, len(walk.tape.positions), "rows")
        apart = paper_room.differences(walk, tensors)
        paper_room.tell_model(paper, walk, apart, layer or 0)
    shown = None if html is None else _fitting(walk, layer or 0, notes)
    if json_file is not None:
        names = {} if model is None else {
            "positions": list(walk.tape.positions), "masked_positions": list(walk.tape.masked)
        }  # fmt: skip
        values = {**names, **{name: array.tolist() for name, array in walk.arrays.items()}}
        Path(json_file).absolute().parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(json_file), json.dumps(values, allow_nan=False) + "\n")
    if shown is not None:
        write_walkthrough(Path(html or ""), paper_room.as_page(shown))
    wrong = [name for name, gap in apart.items() if not gap <= paper_room.TOLERANCE]
    failed = [check.name for check in paper.checks if not check.match]
    return {
        "kind": kind,
        "title": walk.title,
        "text": paper.report(),
        "checks": {"total": len(paper.checks), "failed": failed},
        "differences": apart,
        "first_difference": wrong[0] if wrong else None,
        "files": [str(one) for one in files],
        "notes": notes,
    }


def _refuse(options: Mapping[str, object], why: str) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UserError(f"{', '.join(given)}: {why}")


def _check_file(option: str, path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise UserError(f"{option} {path}: expected a file to write, this is a folder; give a file's name")
    if path.exists() and not overwrite:
        raise UserError(f"{option} {path}: already exists; choose another name, or pass --overwrite to replace it")
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{option} {path}: {parent} is no folder that can be written; choose another")


def _check_choice(name: str, value: int | None, total: int, what: str) -> None:
    if value is not None and not 0 <= value < total:
        raise UserError(f"{name} {value}: expected 0 to {total - 1}, the model has {total} {what} here")


def _fitting(walk: Walk, layer: int, notes: list[str]) -> Walk:
    """Returns what fits on a page: all of a walk, or one layer of it.

    Raises:
        UserError: not even that.
    """

    def size(one: Walk) -> int:
        return sum(array.size for array in paper_room.given(one.tape).values())

    def fits(one: Walk) -> bool:
        values = sum(array.size for array in one.tape.arrays.values())
        return size(one) <= MOST_ON_A_PAGE and values <= MOST_IN_A_PAGE

    if fits(walk):
        return walk
    alone = paper_room.layer_alone(walk, layer)
    if not fits(alone):
        raise UserError(
            f"--html: layer {layer} with its {len(walk.tape.positions)} positions is too large for a page; leave it out"
        )
    notes.append(
        f"the page shows layer {layer} alone: the model with its weights is too large for one; --layer chooses"
    )
    return alone
