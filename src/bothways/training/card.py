"""A run's README.md: what the model saw, what it wants, how well it does, how it is loaded."""

from collections.abc import Mapping
from typing import Any

from bothways.config import HeadConfig
from bothways.model import Model

MOST_ROWS = 10
"""Recordings that are named; the manifest has all."""
_AIMS = {
    "reconstruction": "the content of hidden patches, from their own output",
    "cls_reconstruction": "the content of hidden patches, from [CLS] and their place",
    "mlm": "the hidden tokens",
    "nsp": "whether the second sentence follows the first",
    "sequence": "the class of the whole",
    "number": "the number of the whole",
    "several": "each class of the whole, there or not",
    "position": "the class of each position",
    "span": "start and end of a stretch",
}


def model_card(
    model: Model, settings: Mapping[str, Any], manifest: Mapping[str, Any], metrics: Mapping[str, Any]
) -> str:
    """Writes a model card as the Hugging Face hub shows it; no licence, for that is the owner's to choose.

    Args:
        model: the finished model.
        settings: what it was made with.
        manifest: what the run records of its data and itself; its `result`, where it is finished.
        metrics: the last line of the log, where it is not.
    """
    kind, modality = manifest.get("kind", "imported"), "eeg" if model.config.patches else "text"
    front = ["---", "library_name: bothways", "tags:", "- bothways", f"- {modality}", "- bert", f"- {kind}", "---"]
    parts = {
        f"Encoder of {modality}, {kind}": _what(model, kind),
        "Data": _data(manifest),
        "Input contract": _contract(model),
        "Objective": _objective(model, settings, manifest),
        "Results": _results(manifest, metrics),
        "How to load": _how(kind, modality),
        "Made with": [f"- {name} {number}" for name, number in manifest.get("versions", {}).items()],
    }
    text = [
        f"{'##' if i else '#'} {title}\n\n" + "\n".join(lines)
        for i, (title, lines) in enumerate(parts.items())
        if lines
    ]
    return "\n".join(front) + "\n\n" + "\n\n".join(text) + "\n"


def _what(model: Model, kind: str) -> list[str]:
    encoder = model.config.encoder
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    heads = ", ".join(f"`{name}`" for name in model.config.heads) or "none"
    return [
        f"A bidirectional encoder (BERT) of {encoder.num_hidden_layers} layers, hidden size {encoder.hidden_size}, "
        f"{encoder.num_attention_heads} attention heads; {n_parameters:,} parameters with its heads ({heads})."
    ]


def _data(manifest: Mapping[str, Any]) -> list[str]:
    data = manifest.get("data", {})
    if "tokens" in data:
        return _text(data, manifest)
    if "texts" in manifest:
        return _labelled(data, manifest)
    recordings = data.get("recordings", [])
    if "source" in manifest:
        return [
            f"That of {_code(manifest['source']['folder'])}, which this is a copy of: what is said there of data and "
            "licence holds here, too."
        ]
    if not recordings:
        return ["Not recorded."]
    hours = f", {data['hours']:.2f} hours" if "hours" in data else ""
    lines = [f"- {len(data['subjects'])} subjects, {len(recordings)} recordings{hours}"]
    lines.append(f"- subjects: {', '.join(map(_code, data['subjects']))}")
    lines += [f"- {n} recordings with {_code(montage)}" for montage, n in data.get("montages", {}).items()]
    if manifest.get("validation_subjects"):
        held_out = manifest["validation_subjects"]
        lines.append(f"- {len(held_out)} more subjects for validation: {', '.join(map(_code, held_out))}")
    if "split" in manifest:
        split = manifest["split"]
        lines.append(f"- held out: {len(split['validation'])} subjects for validation, {len(split['test'])} for test")
    earlier = manifest.get("pretraining") or {}
    if "data" in earlier:
        seen = earlier["data"].get("subjects", [])
        lines.append(f"- before, in {_code(manifest['from'])}: {len(seen)} subjects, {', '.join(map(_code, seen))}")
    elif manifest.get("from", "scratch") != "scratch":
        lines.append(f"- before, in {_code(manifest['from'])}: it does not say whom it has seen")
    lines += ["", "| recording | subject | SHA-256 of the signal |", "| --- | --- | --- |"]
    lines += [f"| {_code(r['file'])} | {_code(r['subject'])} | {r['sha256'][:12]} |" for r in recordings[:MOST_ROWS]]
    if len(recordings) > MOST_ROWS:
        lines += ["", f"and {len(recordings) - MOST_ROWS} more in `manifest.json`."]
    return lines


def _text(data: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {data['documents']:,} documents, {data['sentences']:,} sentences, {data['tokens']:,} tokens, of which "
        f"{data['unknown_share']:.2%} [UNK]"
    ]
    held_out = manifest.get("held_out", {}).get("documents", 0)
    lines += [f"- {held_out:,} more documents kept out for validation"] * (held_out > 0)
    files = data["files"]
    lines += ["", "| file | documents | encoding |", "| --- | --- | --- |"]
    lines += [f"| {_code(f['file'])} | {f['documents']} | {f['encoding'] or 'Parquet'} |" for f in files[:MOST_ROWS]]
    more = [f"and {len(files) - MOST_ROWS} more in `manifest.json`."] if len(files) > MOST_ROWS else []
    return [*lines, *(["", *more] if more else [])]


def _labelled(data: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    lines = [
        f"- {part}: " + ", ".join(f"{n:,} {_code(name)}" for name, n in counts.items())
        for part, counts in manifest["texts"].items()
    ]
    lines += [f"- from {_code(file['file'])}" for file in data["files"][:MOST_ROWS]]
    return lines + [f"- {_code(note)}" for note in manifest.get("notes", [])]


def _contract(model: Model) -> list[str]:
    signal, patches, text = model.config.signal, model.config.patches, model.config.text
    if text is not None:
        return [f"Token ids of a vocabulary of {text.vocab_size}, at most {text.max_position_embeddings} in a row."]
    if signal is None or patches is None:
        return []
    notch = "left in" if signal.notch_hz is None else f"{signal.notch_hz:g} Hz and harmonics taken out"
    return [
        f"- {signal.sfreq_hz:g} Hz, band {signal.band_hz[0]:g}-{signal.band_hz[1]:g} Hz, mains {notch}",
        f"- unit {signal.unit}, reference {signal.reference}, scaling {signal.normaliser}",
        f"- patches of {patches.patch_s:g} s, a token for "
        + (
            f"{len(patches.ch_names)} channels: {_code(', '.join(patches.ch_names))}"
            if patches.ch_names
            else "each channel, any montage"
        ),
        f"- features: {', '.join(patches.features)}"
        + ("; each subject's baseline is subtracted" if patches.baseline else ""),
    ]


def _objective(model: Model, settings: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    kind, heads = manifest.get("kind"), model.config.heads
    lines: list[str] = []
    if kind == "pretrain" and "masking" in settings:
        masking = settings["masking"]
        of_text = model.config.text is not None
        unit, how = (
            ("tokens", "whole words" if masking.get("whole_words") else "single ones")
            if of_text
            else ("patches", masking["kind"])
        )
        lines = [f"- {masking['ratio']:.0%} of the {unit} hidden ({how}) and rebuilt; no labels"]
        if of_text and "sequences" in settings:
            lines.append(f"- sequences of {settings['sequences']['length']} tokens at most")
    if kind == "finetune" and heads:
        head = next(iter(heads.values()))
        thing, part = ("window", "moment") if model.config.text is None else ("text", "word")
        whole = f"a class for each {thing}, read from {head.pool}"
        what = {
            "position": f"a class for each {part}",
            "span": "onset and end of one event in a window"
            if model.config.text is None
            else "where in its context the answer to a question begins and ends",
            "several": f"for each {thing} and class whether it is there, read from {head.pool}",
            "number": f"a number for each {thing}, read from {head.pool}; {head.mean:.4g} ± {head.sd:.3g} in training",
        }
        named = f": {', '.join(map(_code, head.classes))}" if head.classes else ""
        lines = [
            f"- {what.get(head.kind, whole)}{named}",
            f"- started from {'scratch' if manifest.get('from') == 'scratch' else _code(manifest.get('from', '?'))}",
        ]
    if lines and "windows" in settings:
        lines.append(f"- windows of {settings['windows']['window_s']:g} s")
    if lines and "training" in settings:
        training = settings["training"]
        steps = manifest.get("result", {}).get("steps", manifest.get("step", training["steps"]))
        best = manifest.get("result", {}).get("best_step")
        chosen = f", the weights after step {best}, the best by training.patience" if training.get("patience") else ""
        lines.append(f"- {steps} steps of {training['batch_size']}, seed {training['seed']}{chosen}")
    for one in manifest.get("forced", []):
        lines.append(f"- from step {one['step']} on with --force: {_code('; '.join(map(str, one['changed'])))}")
    return [*lines, *map(_loss, heads, heads.values())]


def _loss(name: str, head: HeadConfig) -> str:
    weights = {**head.feature_weights, **dict(zip(map(_code, head.classes), head.class_weights))}
    weighted = f" ({', '.join(f'{of} {weight:.3g}' for of, weight in weights.items())})" if weights else ""
    by_error = head.kind.endswith("reconstruction") or head.kind == "number"
    loss = head.loss if by_error else "binary cross-entropy" if head.kind == "several" else "cross-entropy"
    return f"- `{name}`, weight {head.weight:g} in the loss: {loss} of {_AIMS[head.kind]}{weighted}"


def _results(manifest: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    told = manifest.get("result") or metrics
    lines = [f"- last training loss {_number(told['loss'])}"] if told.get("loss") is not None else []
    found = told.get("evaluation") or told.get("validation") or told
    if "reconstruction" in found:
        whose = "validation" if manifest.get("validation_subjects") else "training"
        for feature, bands in found["reconstruction"].items():
            errors = [
                f"{band} {_number(one.get('model'))} (zero {_number(one.get('zero'))}, interpolation "
                f"{_number(one.get('interpolation'))})"
                for band, one in bands.items()
            ]
            lines.append(f"- error on hidden patches of the {whose} subjects, {feature}: {', '.join(errors)}")
    if "mlm" in (told.get("validation") or {}):
        for name, of_head in told["validation"].items():
            if not of_head["n"]:
                continue
            accuracy = f", accuracy {_number(of_head['accuracy'])}" if "accuracy" in of_head else ""
            lines.append(f"- validation, `{name}`: loss {_number(of_head['loss'])}{accuracy} of {of_head['n']:,}")
        return lines
    shown = (
        "balanced_accuracy",
        "accuracy",
        "macro_f1",
        "auroc",
        "mae",
        "r2",
        "exact_match",
        "word_accuracy",
        "exact",
        "f1",
    )
    scores = [f"{name.replace('_', ' ')} {_number(found[name])}" for name in shown if found.get(name) is not None]
    scores += [f"entities' F1 {_number(found['micro']['f1'])}"] if "word_accuracy" in found else []
    whose = "texts kept out" if "texts" in manifest else "validation subjects"
    return [*lines, f"- {whose}: {', '.join(scores)}"] if scores else lines


def _how(kind: str, modality: str) -> list[str]:
    lines = ["```python", "import bothways", "", 'model = bothways.load("PATH")  # this folder', "```"]
    if modality == "text" and kind in ("pretrain", "imported"):
        lines += ["", "```", 'bothways text fill-mask PATH "the [MASK] of the union"', "```"]
    if modality == "text" and kind == "finetune":
        lines += ["", "```", "bothways text predict PATH new.csv --out predictions.csv", "```"]
    if modality == "eeg":
        use = (
            ["bothways eeg predict PATH new.edf --out predictions"]
            if kind == "finetune"
            else ["bothways eeg finetune --from PATH --data store --labels labels.csv --out finetuned"]
        )
        lines += ["", "```", *use, "```"]
    return lines


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _code(text: str) -> str:
    """Text of a user's as code: no mark in it means anything, in a table neither."""
    plain = " ".join(str(text).replace("`", "'").split())
    return "`" + plain.replace("|", "¦") + "`"
