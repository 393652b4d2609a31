"""`bothways export onnx`."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from bothways import __version__, eeg, text
from bothways.config import FinetuneConfig, PretrainConfig
from bothways.errors import UserError
from bothways.files import check_output, make_folder, sha256_file, write_bytes
from bothways.model import Model
from bothways.padded import Padded, input_names, own_outputs
from bothways.progress import progress
from bothways.run.onnx_graph import (
    OPSET,
    TOLERANCE,
    InPlace,
    Session,
    check_libraries,
    difference,
    input_shapes,
    quantise,
    to_bytes,
    trace,
)
from bothways.run.onnx_inputs import decided, draw, example_size, sizes
from bothways.run.onnx_measure import FIGURES, OfEEG, OfText, figures, labelled_data
from bothways.run.pretrained import load_pretrained
from bothways.run.text_model import TextModel, length_of, opened_model, settings_of
from bothways.training import MANIFEST, RECIPE, load_manifest, load_recipe, run_at

SUFFIX = ".onnx"
FACTS = "bothways"
"""Key of the metadata: what the file needs and says, as JSON."""
TOKENIZER = "tokenizer.json"
VECTORS = "vectors"
TASKS = {
    "sequence": ("classes", "classes"),
    "several": ("several", "several"),
    "number": ("number", "number"),
    "position": ("moments", "tags"),
    "span": ("events", "answers"),
    "mlm": ("", "hidden_tokens"),
    "nsp": ("", "next_sentence"),
    VECTORS: (VECTORS, VECTORS),
}
"""Head -> what is told, of EEG and of text."""
_DRAWN = 8
"""Batches of drawn inputs on which int8 is compared where there are no data."""
_MEANS = {
    "input_ids": "ids of tokens, [CLS] first",
    "attention_mask": "1 = a token, 0 = padding, which lies on the right",
    "token_type_ids": "0 = the first text, 1 = the second",
    "signals": "(uV - the channel's median) / its robust SD, clipped at ±15; samples = patches × patch_samples",
    "log_scale_uv": "log10 of that robust SD in uV",
    "positions": "anode and cathode; head radius = 1, x right, y front, z up; NaN = not known, or no cathode",
    "patch_mask": "true = real and good",
    "baseline": "the person's mean spectrum at rest, log10 of uV²/Hz",
    "logits": "scores, of places without a token or signal NaN",
    "probabilities": "of each class",
    "standardised": "the number, in SD from the mean of the training labels",
    "value": "the number, in the unit of its labels",
    "start_logits": "score of each moment to be the first; [CLS] = none; padding has minus infinity",
    "end_logits": "score of each moment to be the last",
    "start_probabilities": "of each moment to be the first",
    "end_probabilities": "of each moment to be the last",
    "next_sentence_logits": "scores: is next, is another",
    "cls": "vector of [CLS]",
    "mean": "mean of the positions' vectors: of text all tokens', of EEG all but [CLS]",
}


def export_onnx(
    run: str | Path,
    out: str | Path,
    *,
    int8: bool = False,
    data: str | Path | Sequence[str | Path] = (),
    vectors: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes what a model computes as one ONNX file, for onnxruntime and others: no Python and no code of ours.

    The file takes batches of any number and length, with padding. It is compared with the model on drawn inputs of
    other sizes, and on `data`; where it differs by more than 1e-4 nothing is written. What it needs stands in its
    metadata, under `bothways`, as JSON; beside that of a model of text lies `NAME.tokenizer.json`.

    Args:
        run: a run, or a checkpoint of one, on EEG or text; or a BERT that transformers saved. What its head for labels
            says is told; without one what BERT's heads say; without any its vectors.
        out: `NAME.onnx`.
        int8: write `NAME-int8.onnx`, too, with weights in int8 (onnxruntime, dynamic quantisation).
        data: measure the files on it: tables of labelled texts, as of `text_evaluate`; of EEG the run's store, of which
            the tested people's windows are taken.
        vectors: tell the encoder's vectors, whatever heads there are.
        overwrite: replace the files.

    Returns:
        `run`, `out`, `tokenizer` (file; None of EEG), `bytes`, `facts` (the metadata), `largest_difference`,
        `tolerance`, `compared` (sizes of the drawn inputs), `int8` (None, or `out`, `bytes`, `largest_difference` to
        the float file and `agreement`, the share of equal decisions, None of numbers and vectors, on drawn inputs),
        `data` (None, or `figures`: name -> `float`, and with int8 `int8` and `difference`; `largest_difference` of the
        float file and the model; `metrics`: `float` and `int8`, whole), `notes`, `load_report`.

    Raises:
        UserError: the `onnx` extra is missing, there is no such run, it is not finished, is larger than a file holds,
            has several heads for labels, or none to measure; a file is there; or the file differs from the model.
    """
    out, data = Path(out), [data] if isinstance(data, str | Path) else list(data)
    tokens_file, small_file = out.with_suffix(f".{TOKENIZER}"), out.with_name(f"{out.stem}-int8{SUFFIX}")
    if out.suffix != SUFFIX:
        raise UserError(f"{out}: expected a name that ends in {SUFFIX}; choose one")
    _check_files([out, *([small_file] if int8 else [])], [run, *data], overwrite)
    check_libraries()
    folder = run_at(Path(run))
    model = load_pretrained(folder)
    assert model.load_report is not None
    opened = None
    if model.tokenizer is not None:
        opened = opened_model(folder, text.Loaded(model, model.tokenizer, model.load_report))
        _check_files([tokens_file], [run, *data], overwrite)
    try:
        padded = Padded(model, vectors=vectors)
    except UserError as problem:
        raise UserError(f"{folder}: {problem}") from None
    kind = model.config.heads[padded.heads[0]].kind if padded.heads else VECTORS
    notes = [] if padded.heads or vectors else [f"{folder}: no head says what a file could tell: it tells vectors"]
    if data and kind not in FIGURES:
        raise UserError(
            f"{folder}: --data measures labels, but the file tells {TASKS[kind][opened is not None]}; leave it out"
        )
    labelled = labelled_data(folder, data, opened) if data else None

    example = draw(model, example_size(model), 0)
    facts = _facts(folder, model, kind, padded.outputs(example))
    tokens = b""
    if opened is not None:
        tokens = text.tokenizer_files(opened.tokenizer, folder)[TOKENIZER].encode()
        facts |= {"tokenizer": _of_tokenizer(opened, kind, tokens_file.name, tokens)}
    compared = sizes(model, _n_patches(facts))
    with progress("export", 2 + int8, "steps") as meter:
        graph = trace(padded, example)
        content = to_bytes(graph, {FACTS: _json(facts)})
        session = Session(content)
        meter.advance(note="traced")
        largest = 0.0
        for number, size in enumerate(compared, 1):
            batch = draw(model, size, number)
            largest = max(largest, difference(session(batch), own_outputs(model, batch, vectors=vectors), model))
        _check_difference(largest, "drawn inputs")
        meter.advance(note="compared")
        if int8:
            small_content = to_bytes(quantise(graph, model.config), {FACTS: _json(facts | {"int8": True})})
            small = Session(small_content)
            batches = [draw(model, compared[1], number) for number in range(100, 100 + _DRAWN)]
            apart = _apart(session, small, batches, model, kind)
            meter.advance(note="int8")
    if int8 and labelled is None:
        notes.append("what int8 costs was not measured, for which --data is needed")
    measured = None
    if labelled is not None:
        measured = _measured(labelled, model, session, small if int8 else None, kind)
        _check_difference(measured["largest_difference"], "the data")
        notes += labelled.notes

    make_folder(out.absolute().parent)
    if opened is not None:
        write_bytes(tokens_file, tokens)
    if int8:
        write_bytes(small_file, small_content)
    elif small_file.exists():
        notes.append(f"{small_file} is of an earlier export")
    write_bytes(out, content)
    return {
        "run": str(folder), "out": str(out), "tokenizer": None if opened is None else str(tokens_file),
        "bytes": len(content), "facts": facts, "largest_difference": largest, "tolerance": TOLERANCE,
        "compared": [list(size) for size in compared],
        "int8": {"out": str(small_file), "bytes": len(small_content), **apart} if int8 else None,
        "data": measured, "notes": notes, "load_report": model.load_report.as_dict(),
    }  # fmt: skip


def _check_files(files: Sequence[Path], inputs: Sequence[str | Path], overwrite: bool) -> None:
    """Refuses, before any work, names that cannot be written; only plain files are ever replaced."""
    for file in files:
        if file.is_dir():
            raise UserError(f"{file}: expected a file to write, got a folder; choose another --out")
        if not (overwrite and file.is_file()):
            check_output(file, inputs=inputs)


def _check_difference(largest: float, where: str) -> None:
    if not largest <= TOLERANCE:
        raise UserError(
            f"the exported graph differs from the model by {largest:.1e} on {where}, at most {TOLERANCE:.0e} is "
            "expected; nothing is written: use the versions of torch, onnx and onnxruntime in constraints.txt"
        )


def _window_s(folder: Path) -> float | None:
    """Returns how long a run's windows are; None where it does not say."""
    if not (folder / RECIPE).is_file():
        return None
    kinds: dict[str, type[FinetuneConfig] | type[PretrainConfig]] = {
        "finetune": FinetuneConfig, "pretrain": PretrainConfig,
    }  # fmt: skip
    kind = kinds.get(load_manifest(folder).get("kind", ""))
    return None if kind is None else load_recipe(folder, kind).windows.window_s


def _facts(folder: Path, model: Model, kind: str, outputs: Iterable[str]) -> dict[str, Any]:
    """Returns what a file says of itself: what is computed, of what, and where it is from."""
    config, shapes, manifest = model.config, input_shapes(model.config), folder / MANIFEST
    head = next((one for one in config.heads.values() if one.kind == kind), None)
    facts = {
        "format": 1,
        "modality": "eeg" if config.text is None else "text",
        "task": TASKS[kind][config.text is not None],
        "classes": [] if head is None else list(head.classes),
        "number": {"mean": head.mean, "sd": head.sd} if head is not None and kind == "number" else None,
        "inputs": {name: {"axes": list(shapes[name]), "what": _MEANS[name]} for name in input_names(config)},
        "outputs": {name: {"what": _MEANS[name]} for name in outputs},
        "int8": False,
        "versions": {"bothways": __version__, "opset": OPSET},
        "manifest_sha256": sha256_file(manifest) if manifest.is_file() else None,
    }
    if config.text is not None:
        return facts
    assert config.signal is not None
    assert config.patches is not None
    assert isinstance(model.embedding, eeg.PatchEmbedding)
    return facts | {
        "signal": config.signal.model_dump(mode="json"),
        "patches": {**config.patches.model_dump(mode="json"), "patch_samples": model.embedding.patch_samples},
        "window_s": _window_s(folder),
    }


def _of_tokenizer(opened: TextModel, kind: str, name: str, content: bytes) -> dict[str, Any]:
    """Returns what there is to know of a tokenizer beside its file, and of how texts become sequences."""
    tokenizer, config = opened.tokenizer, opened.model.config.text
    assert config is not None
    settings = settings_of(opened) if kind in FIGURES else None
    return {
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "tokens": len(tokenizer),
        "ids": {one: getattr(tokenizer, f"{one}_id") for one in ("pad", "unk", "cls", "sep", "mask")},
        "most_tokens": config.max_position_embeddings,
        "length": opened.length if settings is None else length_of(opened, settings),
        "too_long": None if settings is None else settings.too_long,
    }


def _n_patches(facts: Mapping[str, Any]) -> int:
    """Returns how many patches a run's windows have; of text, and where it is not known, some number."""
    return round(facts["window_s"] / facts["patches"]["patch_s"]) if facts.get("window_s") else 4


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, ensure_ascii=False)


def _apart(
    session: Session, small: Session, batches: Sequence[dict[str, Tensor]], model: Model, kind: str
) -> dict[str, Any]:
    """Returns how int8 differs from float on drawn inputs."""
    largest, same, n = 0.0, 0, 0
    for batch in batches:
        wanted, found = session(batch), small(batch)
        largest = max(largest, difference(found, wanted, model))
        one, other = decided(wanted, kind), decided(found, kind)
        if one is not None and other is not None:
            same, n = same + int((one == other).sum()), n + len(one)
    return {"largest_difference": largest, "agreement": same / n if n else None, "decisions": n}


def _measured(
    labelled: OfEEG | OfText, model: Model, session: Session, small: Session | None, kind: str
) -> dict[str, Any]:
    whole = InPlace(model, session, compare=True)
    metrics = {"float": labelled.evaluate(whole)}
    if small is not None:
        metrics["int8"] = labelled.evaluate(InPlace(model, small))
    each = {name: figures(kind, one) for name, one in metrics.items()}
    told: dict[str, dict[str, float | None]] = {name: {"float": value} for name, value in each["float"].items()}
    for name, one in told.items():
        if "int8" in each:
            before, after = one["float"], each["int8"][name]
            one |= {"int8": after, "difference": None if before is None or after is None else after - before}
    return {"figures": told, "largest_difference": whole.largest_difference, "metrics": metrics}
