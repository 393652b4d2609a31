"""A run's folder: weights as safetensors, everything else as JSON, TOML or JSON lines; written atomically."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from bothways.config import ModelConfig, S, Settings, load_config, to_toml, validate
from bothways.errors import UserError
from bothways.files import read_json, sha256_file, write_bytes, write_json, write_text
from bothways.model import Model, load_weights

WEIGHTS, CONFIG, MANIFEST, RECIPE, METRICS = (
    "model.safetensors",
    "config.json",
    "manifest.json",
    "recipe.toml",
    "metrics.jsonl",
)


def save_run(folder: Path, model: Model, settings: Settings, manifest: Mapping[str, Any]) -> None:
    """Fills a run's folder (made by `files.new_folder`): weights, model config, resolved recipe, manifest."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_bytes(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))
    write_json(folder / CONFIG, model.config.model_dump(mode="json"))
    write_text(folder / RECIPE, to_toml(settings))
    write_json(folder / MANIFEST, {**manifest, "recipe_sha256": sha256_file(folder / RECIPE)})


def load_config_of(folder: Path) -> ModelConfig:
    """Reads what a run's model is made of.

    Raises:
        UserError: the folder or its config is missing or damaged.
    """
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: expected a run (a folder with {CONFIG}), found none; check the path")
    values = read_json(folder / CONFIG)
    if not isinstance(values, dict):
        raise UserError(f"{folder / CONFIG}: expected a JSON object; the run is damaged")
    if "model_type" in values and "encoder" not in values:
        raise UserError(
            f"{folder}: expected a run of ours, got a folder that transformers saved ({values['model_type']}); "
            "`bothways walkthrough text` opens a BERT"
        )
    return validate(ModelConfig, values, source=str(folder / CONFIG))


def load_recipe(folder: Path, kind: type[S]) -> S:
    """Reads the resolved settings that a run was made with.

    Raises:
        UserError: they are not those that the run was saved with.
    """
    manifest = read_json(folder / MANIFEST)
    if not (folder / RECIPE).is_file() or manifest.get("recipe_sha256") != sha256_file(folder / RECIPE):
        raise UserError(f"{folder / RECIPE}: missing, or not the one that the run was saved with; restore it")
    return load_config(kind, folder / RECIPE)


def load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Reads a run's weights; nothing is executed, whatever the file holds.

    Raises:
        UserError: missing, cut or otherwise damaged.
    """
    path = folder / WEIGHTS
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: expected weights here, found none; the run is incomplete") from None
    except (SafetensorError, OSError, ValueError) as problem:
        raise UserError(f"{path}: expected safetensors, but the file is damaged ({problem})") from None


def load_run(folder: Path, build_embedding: Callable[[ModelConfig], nn.Module]) -> Model:
    """Builds a finished run's model, all weights filled, in eval mode.

    Raises:
        UserError: something is missing or damaged, or the weights do not fit the config.
    """
    config = load_config_of(folder)
    model = Model(config, build_embedding(config))
    report = load_weights(model, load_tensors(folder))
    if report.missing or report.unexpected or report.reshaped:
        raise UserError(f"{folder}: weights and config do not belong together: {report.line()}")
    return model.eval()
