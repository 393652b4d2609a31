"""A run's folder: weights as safetensors, everything else as JSON, TOML or JSON lines; written atomically."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bothways.config import HeadConfig, ModelConfig, S, Settings, load_config, to_toml, validate
from bothways.errors import UserError
from bothways.files import beside, read_bytes, read_json, sha256_file, write_json, write_text
from bothways.model import Model, check_sizes, load_weights
from bothways.training.card import model_card
from bothways.training.memory import check_fits
from bothways.weights import (
    WEIGHTS,
    has_checksums,
    read_folder,
    read_header,
    sha256_of_header,
    weight_files,
    write_weights,
)

CONFIG, MANIFEST, RECIPE, METRICS, CARD = "config.json", "manifest.json", "recipe.toml", "metrics.jsonl", "README.md"
BEGUN, CHECKPOINTS, LATEST, BEST = "training.json", "checkpoints", "latest", "best"
"""Of a run that is trained; see `training.folder`."""
CONFIG_SUM, RECIPE_SUM, SUMS = "config_sha256", "recipe_sha256", "sha256"
"""In a manifest: checksums of config and recipe; a checkpoint's also of what training needs to go on."""
MOST_CONFIG_BYTES, MOST_RECIPE_BYTES, MOST_MANIFEST_BYTES = 2**16, 2**16, 2**28
"""More makes no sense, and would take long to be refused."""
MOST_THEIR_CONFIG_BYTES = 2**22
"""Of transformers' layout, which names each class twice."""
SaveModel = Callable[[Path, Model, Mapping[str, torch.Tensor] | None], None]
"""Writes weights (None = the model's) and config into a folder, as `save_model` does in our layout."""


def save_model(folder: Path, model: Model, weights: Mapping[str, torch.Tensor] | None = None) -> None:
    """Writes weights (by default the model's) and config: what `load_run` needs."""
    write_weights(folder / WEIGHTS, model.state_dict() if weights is None else weights)
    write_json(folder / CONFIG, model.config.model_dump(mode="json"))


def save_run(
    folder: Path,
    model: Model,
    settings: Settings,
    manifest: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor] | None = None,
    others: Iterable[str] = (),
    side_files: Mapping[str, str] = {},
    save: SaveModel = save_model,
) -> None:
    """Fills a run's folder: weights (by default the model's), model config, resolved recipe, card, manifest last.

    What ties the files together is in the manifest; `others` names files that lie there already and belong to it too.
    `side_files` (name -> text) are written beside them; `save` writes weights and config.
    """
    save(folder, model, weights)
    for name, text in side_files.items():
        write_text(folder / name, text)
    write_text(folder / RECIPE, to_toml(settings))
    write_text(folder / CARD, model_card(model, settings.model_dump(mode="json"), manifest, last_metrics(folder)))
    sums: dict[str, Any] = {RECIPE_SUM: sha256_file(folder / RECIPE), CONFIG_SUM: sha256_file(folder / CONFIG)}
    if others:
        sums[SUMS] = sums_of(folder, (WEIGHTS, *others))
    write_json(folder / MANIFEST, {**manifest, **sums})


def sums_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Returns a SHA-256 that changes with the content of each file; that of weights takes no time."""
    return {name: (sha256_of_header if name.endswith(".safetensors") else sha256_file)(folder / name) for name in names}


def check_float32(weights: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Refuses weights of another precision.

    Raises:
        UserError: the first of them is named.
    """
    for name, tensor in weights.items():
        if tensor.dtype != torch.float32:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(
                f"{folder}: weight {name}: expected float32, got {kind}; save the model in float32 (`model.float()`)"
            )


def last_metrics(folder: Path) -> dict[str, Any]:
    """Returns the last line of a run's metrics; nothing where it has none."""
    if not (folder / METRICS).is_file():
        return {}
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    return json.loads(lines[-1]) if lines else {}


def run_at(path: Path) -> Path:
    """Returns a run's folder: for `checkpoints`, and for `latest` and `best` in it, the checkpoint that is meant."""
    pointer = path / LATEST if path.name == CHECKPOINTS else path
    if pointer.name in (LATEST, BEST) and pointer.parent.name == CHECKPOINTS and pointer.is_file():
        name = read_bytes(pointer, 100).decode("utf-8", "replace").strip()
        if re.fullmatch(r"step-\d+", name):
            return pointer.with_name(name)
    return path


def check_finished(folder: Path) -> None:
    """Refuses a run that is still trained, or was stopped.

    Raises:
        UserError: it is not finished; its newest checkpoint is named.
    """
    if (folder / BEGUN).is_file() and not (folder / MANIFEST).is_file():
        newest = run_at(folder / CHECKPOINTS)
        instead = f", or take its newest checkpoint, {newest}" if newest.name != CHECKPOINTS else ""
        if not instead and (folder / WEIGHTS).is_file() and (folder / CONFIG).is_file():
            raise UserError(f"{folder}: {MANIFEST} is missing, without which the run is not finished; restore it")
        raise UserError(f"{folder}: the run is not finished; give the command that began it again{instead}")


def load_config_of(folder: Path) -> ModelConfig:
    """Reads what a run's model is made of.

    Raises:
        UserError: the folder or its config is missing or damaged, it is not the one that the run was saved with, or the
            run is not finished.
    """
    check_finished(folder)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: expected a run (a folder with {CONFIG}), found none; check the path")
    values = read_json(beside(folder, CONFIG), MOST_CONFIG_BYTES)
    if not isinstance(values, dict):
        raise UserError(f"{folder / CONFIG}: expected a JSON object; the run is damaged")
    if "model_type" in values and "encoder" not in values:
        whose = "a run on text" if (folder / MANIFEST).is_file() else "a folder that transformers saved"
        raise UserError(
            f"{folder}: expected a run on EEG, got {whose} ({values['model_type']}); `bothways text` and `bothways "
            "walkthrough text` open it"
        )
    check_config(folder)
    try:
        return validate(ModelConfig, values, source=str(folder / CONFIG))
    except RecursionError:
        raise UserError(f"{folder / CONFIG}: expected a model's config, got JSON of absurd depth; restore it") from None


def check_config(folder: Path) -> None:
    """Compares a run's config with its manifest: a byte of it makes another function of the same weights.

    Raises:
        UserError: it is not the one that the run was saved with; a manifest without its checksum says nothing.
    """
    manifest = read_json(folder / MANIFEST, MOST_MANIFEST_BYTES) if (folder / MANIFEST).exists() else None
    expected = manifest.get(CONFIG_SUM) if isinstance(manifest, dict) else None
    if expected is None:
        return
    if hashlib.sha256(read_bytes(folder / CONFIG, MOST_THEIR_CONFIG_BYTES)).hexdigest() != expected:
        raise UserError(f"{folder / CONFIG}: not the one that the run was saved with; restore it")


def load_manifest(folder: Path) -> dict[str, Any]:
    """Reads what a run was made of.

    Raises:
        UserError: missing or damaged.
    """
    manifest = read_json(folder / MANIFEST, MOST_MANIFEST_BYTES)
    if not isinstance(manifest, dict):
        raise UserError(f"{folder / MANIFEST}: expected a JSON object; the run is damaged")
    return manifest


def load_recipe(folder: Path, kind: type[S]) -> S:
    """Reads the resolved settings that a run was made with.

    Raises:
        UserError: they are not those that the run was saved with.
    """
    path, expected = folder / RECIPE, load_manifest(folder).get(RECIPE_SUM)
    if not path.is_file() or hashlib.sha256(read_bytes(path, MOST_RECIPE_BYTES)).hexdigest() != expected:
        raise UserError(f"{path}: missing, or not the one that the run was saved with; restore it")
    try:
        return load_config(kind, path)
    except RecursionError:
        raise UserError(f"{path}: expected a recipe, got TOML of absurd depth; restore it") from None


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Reads a run's weights; nothing is executed, whatever the file holds.

    Raises:
        UserError: missing, cut or otherwise damaged.
    """
    return read_folder(folder)


def content_of_run(folder: Path) -> str:
    """Returns a hash of what a training that starts from a run takes from it: its config and its weights.

    They may be of any size: `check_run` goes before.
    """
    digest = hashlib.sha256()
    for file in (folder / CONFIG, *weight_files(folder)):
        digest.update(sha256_file(file).encode())
    return digest.hexdigest()


def check_run(
    folder: Path,
    build_embedding: Callable[[ModelConfig], nn.Module],
    *,
    any_heads: bool = False,
    partial: bool = False,
) -> ModelConfig:
    """Verifies a finished run by its config and the headers of its weights, before anything of their size is read.

    Args:
        folder: the run.
        build_embedding: makes the front end.
        any_heads: the weights need not hold the heads, which the returned config is without then.
        partial: the weights need not fit, but the model has to fit in memory.

    Raises:
        UserError: something is missing or damaged, or the weights do not fit the config.
    """
    config, weights, source = load_config_of(folder), read_folder(folder, read_header), str(folder / CONFIG)
    check_float32(weights, folder)
    if any_heads:
        held = {name.split(".")[1] for name in weights if name.startswith("heads.")}
        heads = {name: head for name, head in config.heads.items() if name in held}
        config = config.model_copy(update={"heads": heads})
    if partial:
        check_fits(config, build_embedding, source)
    try:
        report = check_sizes(config, build_embedding, weights, source, partial=partial)
    except UserError as problem:
        raise UserError(str(problem) if str(folder) in str(problem) else f"{folder}: {problem}") from None
    if (report.missing or report.unexpected or report.reshaped) and not partial:
        raise UserError(f"{folder}: weights and config do not belong together: {report.line()}")
    bare = [file for file in weight_files(folder) if not has_checksums(file)]  # another program's, if it is no run
    if bare and (folder / MANIFEST).is_file() and CONFIG_SUM in load_manifest(folder):
        raise UserError(
            f"{bare[0]}: expected the checksums that it was saved with, found none; restore it, or save changed "
            "weights with save_pretrained"
        )
    return config


def load_run(
    folder: Path,
    build_embedding: Callable[[ModelConfig], nn.Module],
    kind: type[Model] = Model,
    *,
    heads: Mapping[str, HeadConfig] | None = None,
    seed: int = 0,
    partial: bool = False,
) -> Model:
    """Builds a finished run's model in eval mode; its `load_report` says what was filled, by default all.

    Args:
        folder: the run.
        build_embedding: makes the front end.
        kind: the class of the model.
        heads: what the model gets instead of its own heads; one of the same name, kind and classes keeps its weights.
        seed: of what is drawn anew.
        partial: take what of the weights fits and draw the rest, the encoder's too.

    Raises:
        UserError: something is missing or damaged, or the weights do not fit the config.
    """
    config = check_run(folder, build_embedding, any_heads=heads is not None, partial=partial)
    anew = []
    if heads is not None:
        # A head of as many other classes would fit, and be wrong.
        told = {name: (head.kind, head.classes) for name, head in config.heads.items()}
        anew = [name for name, head in heads.items() if told.get(name) not in (None, (head.kind, head.classes))]
        config = config.model_copy(update={"heads": dict(heads)})
    model = kind(config, build_embedding(config))
    if heads is not None or partial:
        model.initialise(seed)
    load_weights(model, read_folder(folder), partial=partial, anew=anew)
    return model.eval()
