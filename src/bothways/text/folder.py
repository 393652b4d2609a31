"""A text model from a folder: a BERT that transformers saved, or a run of ours; its weights, config and tokenizer."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bothways.config import ModelConfig, validate
from bothways.errors import UserError
from bothways.files import read_json
from bothways.model import LoadReport, Model, load_weights
from bothways.text.embedding import TokenEmbedding
from bothways.text.hf import PROMISED, config_from_transformers, from_transformers
from bothways.text.tokenizer import Tokenizer, load_tokenizer

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Buffers of older versions of transformers: 0, 1, 2, ... and zeros."""
_TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Stored twice by some: the MLM decoder is the word embedding, and its bias has two names."""


class Loaded(NamedTuple):
    """A text model in eval mode, ready to use."""

    model: Model
    tokenizer: Tokenizer
    report: LoadReport
    """`unexpected`: weights that nothing here reads; `missing`: heads that the config names and the weights do not
    hold, which the model is without."""


def load_folder(folder: Path) -> Loaded:
    """Loads a BERT in transformers' layout or a run of ours, with the tokenizer beside it.

    The heads are those in the weights: "mlm", "nsp", "sequence", "position" and "span".

    Raises:
        UserError: a file is missing or damaged, the model is not a BERT encoder, or files do not belong together.
    """
    source = str(folder / CONFIG)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: expected a model (a folder with {CONFIG}), found none; check the path")
    values = _read_object(folder / CONFIG)
    weights = _read_weights(folder)
    ours = "model_type" not in values and "encoder" in values
    if ours:
        config = validate(ModelConfig, values, source)
    else:
        weights = _without_copies(weights, str(folder))
        config = config_from_transformers(values, weights, source)
    if config.text is None:
        raise UserError(f"{folder}: expected a text model, got one of EEG; give a folder of a BERT or of a run on text")
    tokenizer = load_tokenizer(folder, config.text)
    model = Model(config, TokenEmbedding(config)).eval()
    own = model.state_dict()
    found = weights if ours else from_transformers(weights, own)
    packed = [name for name in own if name in found and found[name].dtype not in _FLOATS]
    if packed:
        kind = str(found[packed[0]].dtype).removeprefix("torch.")
        raise UserError(f"{folder}: expected floating-point weights, {packed[0]} is {kind}; give the unquantised model")
    try:
        report = load_weights(model, found)
    except UserError as problem:
        raise UserError(f"{folder}: {problem}") from None
    if report.missing or report.reshaped or (ours and report.unexpected):
        raise UserError(f"{folder}: weights and config do not belong together: {report.line()}; restore the folder")
    promised = [head for name in values.get("architectures") or () for head in PROMISED.get(name, ())]
    report.missing += [f"heads.{head}" for head in promised if head not in config.heads]
    return Loaded(model, tokenizer, report)


def _read_object(path: Path) -> dict[str, Any]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(values).__name__}; restore the file")
    return values


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Reads `model.safetensors`, or the pieces that its index names."""
    if (folder / WEIGHTS).is_file():
        return _read_tensors(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        if any(folder.glob("pytorch_model*.bin")):
            raise UserError(
                f"{folder}: expected {WEIGHTS}, found only pytorch_model.bin, a pickle that can run code; load it "
                "with transformers where you trust it, and save_pretrained writes safetensors"
            )
        raise UserError(f"{folder}: expected weights in {WEIGHTS}, found none; check the path")
    places = _read_object(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(f"{folder / INDEX}: expected a weight_map of names to files, found none; restore the file")
    weights: dict[str, Tensor] = {}
    for file in sorted(set(map(str, places.values()))):
        # An index comes with a download: it may name files beside it and no others.
        if file in ("", ".", "..") or any(mark in file for mark in "/\\:\0"):
            raise UserError(
                f"{folder / INDEX}: expected names of files beside it, got {file!r}; do not trust this folder"
            )
        weights |= _read_tensors(folder / file)
    lacking = sorted(places.keys() - weights.keys())
    if lacking:
        raise UserError(f"{folder}: {INDEX} names {len(lacking)} weights that no file holds (first: {lacking[0]})")
    return weights


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: expected weights here, found none; the folder is incomplete") from None
    except (SafetensorError, OSError, ValueError) as problem:
        raise UserError(f"{path}: expected safetensors, but the file is damaged ({problem})") from None


def _without_copies(weights: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Leaves out counters and the MLM decoder's copies of other weights.

    Raises:
        UserError: the decoder is not the word embedding, which ours always is.
    """
    kept = {name: tensor for name, tensor in weights.items() if not name.endswith(_COUNTERS)}
    for copy, original in _TIED.items():
        tensor = next((kept[name] for name in kept if name.endswith(original)), None)
        if tensor is not None and copy in kept:
            twin = kept.pop(copy)
            if twin.dtype != tensor.dtype or not torch.equal(twin, tensor):
                raise UserError(f"{source}: expected {copy} to equal {original}; only tied MLM decoders can be loaded")
    return kept
