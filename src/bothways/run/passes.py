"""A model's pass on one input, in PyTorch and in NumPy: what `walkthrough` shows and compares."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways import eeg, text
from bothways import walkthrough as paper_room
from bothways.config import FinetuneConfig, MaskingConfig, ModelConfig, PretrainConfig
from bothways.errors import UserError
from bothways.heads import real_moments
from bothways.inspection import Look, look
from bothways.masking import Action
from bothways.run.common import Sources, calibration, check_baseline, with_mains
from bothways.training import check_config, load_config_of, load_manifest, load_recipe, load_run
from bothways.walkthrough import Sentence, Walk, Window

MOST_SCORES = 500_000_000
"""Numbers of attention, of all layers and heads, that a walk may hold: 4 GB."""


def weights_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Returns a module's weights as arrays."""
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def _double(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in batch.items()}


def eeg_pass(
    run: Path,
    file: Path,
    notes: list[str],
    *,
    at_s: float | None = None,
    mask: Sequence[int | str] = (),
    seed: int | None = None,
    baseline: str | Path | None = None,
    notch_hz: float | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
) -> tuple[Walk, dict[str, np.ndarray]]:
    """Runs a model of EEG on one window of a recording.

    Args:
        run: pretrained or fine-tuned.
        file: the recording.
        notes: what is to be said of it is added here.
        at_s: see `walkthrough`, as all that follow.
        mask: positions to hide.
        seed: of the hidden positions.
        baseline: CSV of the calibration stretches.
        notch_hz: mains frequency.
        subject_from: whose the recording is.
        unit: of the recording.

    Returns:
        The walk, and the model's tensors by the names of its steps.

    Raises:
        UserError: the run, the recording and the options do not go together.
    """
    config = load_config_of(run)
    model = load_run(run, eeg.build_embedding).double()
    assert config.signal is not None
    assert config.patches is not None
    masking: MaskingConfig | None = None
    if load_manifest(run).get("kind") == "pretrain":
        recipe = load_recipe(run, PretrainConfig)
        masking, window_s = recipe.masking, recipe.windows.window_s
    else:
        window_s = load_recipe(run, FinetuneConfig).windows.window_s
        if seed is not None:
            raise UserError(f"--seed: {run} hides nothing, for it was fine-tuned; leave it out")
    check_baseline(run, config.patches, baseline)
    signal = with_mains(run, config.signal, notch_hz, "walkthrough")
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
        source = sources.of(windows, masking=None if mask else masking, seed=seed or 0)
        batch = source.batch(np.array([0]))
        recording = store.recordings[index]
    notes += [f"{note.code}: {note.message}" for note in recording.notes]
    notes += [f"left out: {name} ({why})" for name, why in recording.left_out.items()]
    real = batch["patch_mask"][0]
    if not bool(real.any()):
        raise UserError(f"{file}: the window holds no usable patch; choose another --at")
    names = config.patches.ch_names or recording.ch_names
    together = config.patches.tokens == "all_channels"
    tokens = real.any(0, keepdim=True) if together else real
    _check_size(config, int(tokens.sum()) + 1)
    if mask:
        called = paper_room.token_names(tokens.numpy(), None if together else names)
        batch |= _hide(tokens, _chosen(mask, ["[CLS]", *called], range(1, len(called) + 1)))
    del batch["labels"]
    batch = _double(batch)
    arrays = {name: tensor[0].numpy() for name, tensor in batch.items()}
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
    longest_s = max(one.stop - one.start for one in recording.segments) / sfreq_hz
    if longest_s < window_s:
        raise UserError(
            f"{recording.file}: the model was trained on windows of {window_s:g} s, the recording has {longest_s:g} s "
            "without a gap; take a longer one"
        )
    raise UserError(
        f"{recording.file}: expected a window of {window_s:g} s inside the recording ({stretches}), "
        f"--at {at_s:g} gives none; choose another"
    )


def _hide(real: Tensor, mask: Sequence[int]) -> dict[str, Tensor]:
    """Returns the tensors that hide the given positions of the real tokens [G N]: 1 is the first."""
    places = real.flatten().nonzero().squeeze(1)
    masked = torch.zeros(real.numel(), dtype=torch.bool)
    masked[places[torch.tensor(mask) - 1]] = True
    masked = masked.view(1, *real.shape)
    own = torch.arange(real.numel()).view(1, *real.shape)
    return {"masked": masked, "action": masked * int(Action.MASK), "replacement": own}


def _chosen(mask: Sequence[int | str], names: Sequence[str], content: Sequence[int]) -> list[int]:
    """Returns the numbers of the positions that are to be hidden.

    Raises:
        UserError: one is no position, or carries no content.
    """
    found = []
    for one in mask:
        fits = [i for i, name in enumerate(names) if name == one] if isinstance(one, str) else [one]
        if isinstance(one, str) and not fits and one.isascii() and one.isdigit():
            fits = [int(one)]
        if len(fits) > 1:
            raise UserError(f"--mask {one}: positions {', '.join(map(str, fits))} are called so; give a number")
        if not fits or fits[0] not in content:
            raise UserError(
                f"--mask {one}: expected a position with content: a number from {min(content)} to {max(content)}, or a "
                f"name such as {names[content[0]]!r}; [CLS] and [SEP] cannot be hidden"
            )
        found.append(fits[0])
    return sorted(set(found))


def _check_size(config: ModelConfig, length: int) -> None:
    encoder = config.encoder
    scores = 3 * encoder.num_hidden_layers * encoder.num_attention_heads * length**2
    if scores > MOST_SCORES:
        raise UserError(
            f"{length} positions give {scores:,} scores and weights in all layers, at most {MOST_SCORES:,} can be "
            "shown; take a recording with fewer channels, or a run with shorter windows"
        )


def text_pass(
    folder: Path, written: str, notes: list[str], *, pair: str | None = None, mask: Sequence[int | str] = ()
) -> tuple[Walk, dict[str, np.ndarray]]:
    """Runs a model of text on one text or pair.

    Args:
        folder: a run of ours or a BERT that transformers saved.
        written: the text.
        notes: what is to be said of it is added here.
        pair: the second text.
        mask: positions to hide.

    Returns:
        The walk, and the model's tensors by the names of its steps.

    Raises:
        UserError: the folder cannot be loaded, or the text has no words or too many.
    """
    check_config(folder)
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
    unknown = [i for i, one in enumerate(found.ids) if one == tokenizer.mask_id]
    masked = sorted({*_chosen(mask, found.tokens, content), *unknown})
    if len(unknown) < len(masked) and unknown:
        notes.append("no loss: the text has a [MASK] of its own, whose true word is not known")
    _check_size(model.config, len(found.ids))
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
    length = seen.embedded.hidden.shape[1]
    mask = seen.embedded.attention_mask
    real: Any = slice(None) if mask is None else mask[0].numpy()
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in seen.taps.items():
        known = walk.tape.arrays.get(name)
        if known is None and ("norm" in name.split(".")[-2] or name.startswith("heads.")):
            continue  # what a norm gives has a tap's name already; some of a head's layers are its prediction
        if known is not None and not known.size:
            continue  # a head for hidden words says nothing where none is hidden
        array = tensor.numpy()
        if array.ndim == 4:  # [1 H L L] or [1 H L d]
            array = array[0][:, real]
            tensors[name] = array if name.endswith("head_outputs") else array[:, :, real]
        elif array.ndim == 3:  # [1 L D], or [1 T F] without [CLS]
            content = real if mask is None or array.shape[1] == length else real[1:]
            tensors[name] = array[0][content]
        else:  # [T D]
            tensors[name] = array
    if "embedding.Z" in walk.tape.arrays:  # what the encoder gets, after the norm where the embedding has one
        tensors["embedding.Z"] = seen.embedded.hidden.detach()[0].numpy()[real]
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
            array = array[0].T[real_moments(seen.embedded)[0].numpy()]
        if walk.tape[at].size:
            tensors[at] = array
    for name, loss in seen.losses.items():
        if f"heads.{name}.loss" in walk.tape.arrays:
            tensors[f"heads.{name}.loss"] = loss.numpy().reshape(1, 1)
    return tensors
