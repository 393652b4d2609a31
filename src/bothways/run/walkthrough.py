"""`bothways walkthrough`: shows how a model computes, and checks PyTorch against NumPy on the way."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways import eeg, text
from bothways import walkthrough as paper_room
from bothways.config import FinetuneConfig, MaskingConfig, PretrainConfig, SignalConfig, validate
from bothways.errors import UserError
from bothways.files import check_output, read_json, write_text
from bothways.inspection import Look, look
from bothways.masking import Action
from bothways.report import write_walkthrough
from bothways.run.common import Sources, calibration
from bothways.training import MANIFEST, load_config_of, load_recipe, load_run
from bothways.walkthrough import Paper, Sentence, Walk, Window

REFERENCES: dict[str, Callable[[Paper], Walk]] = {
    "eeg": paper_room.walk_eeg,
    "text": paper_room.walk_text,
    "classifier": paper_room.walk_classifier,
}
MOST_ON_A_PAGE = 8_000_000
"""Numbers of inputs and weights that a page may hold; of a larger model it shows one layer."""


def walkthrough(
    kind: str,
    *,
    model: str | Path | None = None,
    input: str | Path | None = None,
    pair: str | None = None,
    at_s: float | None = None,
    mask: Sequence[int] = (),
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
        mask: positions to hide, as they are numbered in the output; where not given, those that the run's recipe
            draws from `seed` (a pretrained EEG run), and none elsewhere.
        seed: of the hidden positions; 0 where not given.
        layer: of the encoder, shown in full; 0 where not given.
        head: of the attention, the only one shown; all where not given.
        row: shown in full and worked out by hand; 0 where not given.
        baseline: see `predict`.
        notch_hz: see `predict`.
        subject_from: see `check`.
        unit: see `check`.
        json_file: file to write the arrays to, by name; of a model all that it computes, without its weights.
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
    files = [Path(one) for one in (json_file, html) if one is not None]
    for one in files:
        if not (overwrite and one.is_file()):  # a file is replaced atomically when it is saved
            check_output(one)
    paper = Paper(width=width, colour=colour, row=row or 0, head=head, in_full=row is not None)
    notes: list[str] = []
    apart: dict[str, float] = {}
    if model is None:
        given = {
            "--input": input, "--pair": pair, "--at": at_s, "--mask": mask or None, "--seed": seed, "--layer": layer,
            "--head": head, "--row": row, "--baseline": baseline, "--notch-hz": notch_hz, "--unit": unit,
        }  # fmt: skip
        useless = [name for name, value in given.items() if value is not None]
        if useless:
            raise UserError(f"{', '.join(useless)}: expected --model with it; give a run, or leave it out")
        walk = REFERENCES[kind](paper)
    else:
        if input is None:
            raise UserError("--model: expected --input with it: a recording, or a text")
        if kind == "eeg":
            if pair is not None:
                raise UserError("--pair belongs to text; leave it out")
            walk, tensors = _eeg(
                Path(model), Path(input), at_s, mask, seed or 0, baseline, notch_hz, subject_from, unit, notes
            )
        elif kind == "text":
            given = {"--at": at_s, "--seed": seed, "--baseline": baseline, "--notch-hz": notch_hz, "--unit": unit}
            useless = [name for name, value in given.items() if value is not None]
            if useless:
                raise UserError(f"{', '.join(useless)}: belongs to EEG; leave it out")
            walk, tensors = _text(Path(model), str(input), pair, mask, notes)
        else:
            raise UserError("--model: the classifier walkthrough has its own model; use eeg or text")
        _check_choice("--layer", layer, len(walk.outputs["attention"]), "layers")
        _check_choice("--head", head, len(walk.tape[walk.outputs["attention"][0]]), "heads")
        _check_choice("--row", row, len(walk.tape.positions), "rows")
        apart = paper_room.differences(walk, tensors)
        paper_room.tell_model(paper, walk, apart, layer or 0)
    if json_file is not None:
        arrays = {name: array.tolist() for name, array in walk.arrays.items()}
        Path(json_file).absolute().parent.mkdir(parents=True, exist_ok=True)
        write_text(Path(json_file), json.dumps(arrays, allow_nan=False) + "\n")
    if html is not None:
        write_walkthrough(Path(html), paper_room.as_page(_fitting(walk, layer or 0, notes)))
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

    if size(walk) <= MOST_ON_A_PAGE:
        return walk
    alone = paper_room.layer_alone(walk, layer)
    if size(alone) > MOST_ON_A_PAGE:
        raise UserError(
            f"--html: a layer of {size(alone):,} numbers is too large for a page, {MOST_ON_A_PAGE:,} fit; leave it out"
        )
    notes.append(
        f"the page shows layer {layer} alone: all {size(walk):,} numbers of the model are more than the "
        f"{MOST_ON_A_PAGE:,} that fit; --layer chooses"
    )
    return alone


def weights_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Returns a module's weights as arrays."""
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def _double(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in batch.items()}


def _eeg(
    run: Path, file: Path, at_s: float | None, mask: Sequence[int], seed: int, baseline: str | Path | None,
    notch_hz: float | None, subject_from: str | Path, unit: str | None, notes: list[str],
) -> tuple[Walk, dict[str, np.ndarray]]:  # fmt: skip
    config = load_config_of(run)
    model = load_run(run, eeg.build_embedding).double()
    assert config.signal is not None
    assert config.patches is not None
    masking: MaskingConfig | None = None
    if read_json(run / MANIFEST).get("kind") == "pretrain":
        recipe = load_recipe(run, PretrainConfig)
        masking, window_s = recipe.masking, recipe.windows.window_s
    else:
        window_s = load_recipe(run, FinetuneConfig).windows.window_s
    if config.patches.baseline and baseline is None:
        raise UserError(
            f"{run}: the model subtracts each person's baseline; give --baseline FILE.csv with the columns "
            "file,onset_s,duration_s and a stretch of rest for each person"
        )
    if baseline is not None and not config.patches.baseline:
        raise UserError(f"{run}: the model uses no baseline; leave --baseline out")
    signal = config.signal
    if notch_hz is not None:
        signal = validate(SignalConfig, signal.model_dump() | {"notch_hz": notch_hz}, "walkthrough")
    wanted = eeg.scan([file], subject_from)
    if len(wanted) != 1:
        raise UserError(f"{file}: expected one recording, found {len(wanted)}; name a file")
    extra, rows = ([], []) if baseline is None else calibration(Path(baseline), [file], wanted, subject_from)
    with tempfile.TemporaryDirectory() as scratch:
        store = eeg.prepare(
            [file, *extra], Path(scratch) / "store", signal, subject_from=subject_from, unit=unit, baseline=rows
        )
        sources = Sources(store, config.patches)
        index = next((i for i, one in enumerate(store.recordings) if one.file == wanted[0].file), None)
        if index is None:
            why = {entry["file"]: entry["reason"] for entry in store.head["skipped"]}
            raise UserError(f"{file}: cannot be used: {why.get(wanted[0].file, 'nothing of it is left')}")
        windows = _window_at(store, index, at_s, window_s)
        source = sources.of(windows, masking=None if mask else masking, seed=seed)
        batch = source.batch(np.array([0]))
        recording = store.recordings[index]
    notes += [f"{note.code}: {note.message}" for note in recording.notes]
    notes += [f"left out: {name} ({why})" for name, why in recording.left_out.items()]
    real = batch["patch_mask"][0]
    if not bool(real.any()):
        raise UserError(f"{file}: the window holds no usable patch; choose another --at")
    if mask:
        batch |= _hide(real.any(0, keepdim=True) if config.patches.tokens == "all_channels" else real, mask)
    del batch["labels"]
    batch = _double(batch)
    arrays = {name: tensor[0].numpy() for name, tensor in batch.items()}
    names = config.patches.ch_names or recording.ch_names
    start_s = eeg.true_time_s(windows.start[0] / signal.sfreq_hz, recording.segments, signal.sfreq_hz)
    window = Window(
        file.name, float(start_s), signal.sfreq_hz, list(names), arrays["signals"], arrays["log_scale_uv"],
        arrays["positions"], arrays["patch_mask"], arrays.get("baseline"), arrays.get("masked"),
        arrays.get("action"), arrays.get("replacement"),
    )  # fmt: skip
    walk = paper_room.walk_eeg_model(config.model_dump(), weights_of(model), window)
    return walk, tensors_of(look(model, batch), walk)


def _window_at(store: eeg.Store, index: int, at_s: float | None, window_s: float) -> eeg.Windows:
    """Returns the one window that begins at a true time of a recording.

    Raises:
        UserError: it does not lie wholly in one stretch of the recording.
    """
    recording, sfreq_hz = store.recordings[index], store.signal.sfreq_hz
    length = round(window_s * sfreq_hz)
    at_s = recording.segments[0].onset_s if at_s is None else at_s
    for segment in recording.segments:
        start = segment.start + round((at_s - segment.onset_s) * sfreq_hz)
        if segment.start <= start and start + length <= segment.stop:
            one = np.array([start], dtype=np.int64)
            return eeg.Windows(np.array([index]), one, np.array([-1]), np.array([recording.subject]), one, one, length)
    stretches = ", ".join(
        f"{one.onset_s:g}-{one.onset_s + (one.stop - one.start) / sfreq_hz:g} s" for one in recording.segments
    )
    raise UserError(
        f"{recording.file}: expected a window of {window_s:g} s inside the recording ({stretches}), "
        f"--at {at_s:g} gives none; choose another"
    )


def _hide(real: Tensor, mask: Sequence[int]) -> dict[str, Tensor]:
    """Returns the tensors that hide the given positions: 1 is the first real token."""
    places = real.flatten().nonzero().squeeze(1)
    _check_mask(mask, range(1, len(places) + 1))
    masked = torch.zeros(real.numel(), dtype=torch.bool)
    masked[places[torch.tensor(sorted(set(mask))) - 1]] = True
    masked = masked.view(1, *real.shape)
    own = torch.arange(real.numel()).view(1, *real.shape)
    return {"masked": masked, "action": masked * int(Action.MASK), "replacement": own}


def _check_mask(mask: Sequence[int], may: Sequence[int]) -> None:
    wrong = [one for one in mask if one not in may]
    if wrong:
        raise UserError(
            f"--mask {wrong[0]}: expected positions with content, {min(may)} to {max(may)}; [CLS] and [SEP] stay"
        )


def _text(
    folder: Path, written: str, pair: str | None, mask: Sequence[int], notes: list[str]
) -> tuple[Walk, dict[str, np.ndarray]]:
    model, tokenizer, report = text.load_folder(folder)
    if report.missing or report.unexpected or report.reshaped:
        notes.append(report.line())
    model = model.double()
    assert model.config.text is not None
    found = tokenizer.encode(written, pair)
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id}
    content = [i for i, one in enumerate(found.ids) if one not in special]
    if not content:
        raise UserError("--input: expected a text with at least one word, got an empty one")
    _check_mask(mask, content)
    masked = sorted({*mask, *(i for i, one in enumerate(found.ids) if one == tokenizer.mask_id)})
    ids = np.array(found.ids)
    vocabulary = [_word(tokenizer, i) for i in range(model.config.text.vocab_size)]
    sentence = Sentence(found.tokens, ids, np.array(found.type_ids), content, masked, tokenizer.mask_id, vocabulary)
    walk = paper_room.walk_text_model(model.config.model_dump(), weights_of(model), sentence)
    hidden = ids.copy()
    hidden[masked] = tokenizer.mask_id
    batch = {"input_ids": torch.from_numpy(hidden)[None], "token_type_ids": torch.tensor([found.type_ids])}
    if masked:
        labels = np.full_like(ids, -100)
        labels[masked] = ids[masked]
        batch["mlm_labels"] = torch.from_numpy(labels)[None]
    return walk, tensors_of(look(model, batch), walk)


def _word(tokenizer: text.Tokenizer, token_id: int) -> str:
    """Returns how a token is written; nothing for a row that only pads the table."""
    try:
        return tokenizer.token(token_id)
    except UserError:
        return ""


def tensors_of(seen: Look, walk: Walk) -> dict[str, np.ndarray]:
    """Returns the model's tensors by the names of the walk's steps, without padding and without the batch's axis."""
    shape = seen.embedded.hidden.shape[:2]
    mask = seen.embedded.attention_mask
    real = np.ones(shape[1], dtype=bool) if mask is None else mask[0].numpy()
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in seen.taps.items():
        array = tensor.numpy()
        if array.ndim == 4:  # [1 H L L] or [1 H L d]
            array = array[0][:, real]
            tensors[name] = array if name.endswith("head_outputs") else array[:, :, real]
        elif array.ndim == 3:  # [1 L D], or [1 T F] without [CLS]
            tensors[name] = array[0][real if array.shape[1] == len(real) else real[1:]]
        else:  # [T D]
            tensors[name] = array
    if seen.embedded.place is not None:
        tensors["embedding.place"] = seen.embedded.place[0].detach().numpy()[real]
    tensors[walk.outputs["H"]] = seen.rows.values.numpy()
    if "pooler" in walk.tape.arrays:
        tensors["pooler"] = seen.pooled.numpy()
    for name, prediction in seen.predictions.items():
        array, at = prediction.numpy(), f"heads.{name}"
        if f"{at}.masked" in walk.tape.arrays:
            at = f"{at}.masked"
        elif array.ndim == 3:  # the span's [1 2 L]
            array = array[0].T[real]
        if len(walk.tape[at]):  # a head for hidden words alone says nothing where there is none
            tensors[at] = array
    for name, loss in seen.losses.items():
        if f"heads.{name}.loss" in walk.tape.arrays:
            tensors[f"heads.{name}.loss"] = loss.numpy().reshape(1, 1)
    return tensors
