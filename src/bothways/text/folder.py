"""A text model from a folder: a BERT that transformers saved, or a run of ours; its weights, config and tokenizer."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bothways.config import ModelConfig, validate
from bothways.errors import UserError
from bothways.files import beside, read_json
from bothways.model import LoadReport, Model, check_sizes, compare, load_weights, outline
from bothways.text.embedding import TokenEmbedding
from bothways.text.hf import from_transformers
from bothways.text.hf_config import PROBLEMS, PROMISED, config_from_transformers
from bothways.text.tf_names import TENSORFLOW, from_tensorflow
from bothways.text.tokenizer import Tokenizer, load_tokenizer
from bothways.weights import other_format, read_folder, read_header

CONFIG = "config.json"
MOST_CONFIG_BYTES, MOST_OWN_CONFIG_BYTES = 2**22, 2**16
"""transformers' config may name thousands of classes."""
_COUNTERS = ("embeddings.position_ids", "embeddings.token_type_ids")
"""Buffers of older versions of transformers: 0, 1, 2, ... and zeros."""
_BODY = ("embeddings.", "encoder.")
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


def load_folder(folder: Path, kind: type[Model] = Model) -> Loaded:
    """Loads a BERT in transformers' layout or a run of ours, with the tokenizer beside it.

    The heads are those in the weights: "mlm", "nsp", "position", "span", and of a classifier of whole texts by its
    `problem_type` "sequence", "several" or "number".

    Args:
        folder: the model.
        kind: the class of the model.

    Raises:
        UserError: a file is missing or damaged, the model is not a BERT encoder, or files do not belong together.
    """
    if not (folder / CONFIG).is_file():
        if found := other_format(folder):
            raise UserError(f"{folder}: expected a model, found only {found}")
        raise UserError(f"{folder}: expected a model (a folder with {CONFIG}), found none; check the path")
    values = _read_object(beside(folder, CONFIG), MOST_CONFIG_BYTES)
    ours = "model_type" not in values and "encoder" in values
    try:
        config = _fitting_config(folder, values, ours)
    except RecursionError:
        raise UserError(f"{folder / CONFIG}: expected a config, got JSON of absurd depth; restore the file") from None
    except UserError as problem:
        raise UserError(str(problem) if str(folder) in str(problem) else f"{folder}: {problem}") from None
    assert config.text is not None
    weights, of_tensorflow = read_folder(folder), False
    tokenizer = load_tokenizer(folder, config.text)
    model = kind(config, TokenEmbedding(config)).eval()
    if not ours:
        weights, of_tensorflow = from_tensorflow(weights, str(folder))
        weights = from_transformers(_without_copies(weights, str(folder)), model.state_dict())
    report = load_weights(model, weights)
    report.names = TENSORFLOW if of_tensorflow else ""
    promised = [head for name in values.get("architectures") or () for head in PROMISED.get(name, ())]
    there = {"sequence" if head in PROBLEMS else head for head in config.heads}
    report.missing += [f"heads.{head}" for head in promised if head not in there]
    return Loaded(model, tokenizer, report)


def _fitting_config(folder: Path, values: dict[str, Any], ours: bool) -> ModelConfig:
    """Reads the config and compares it with the sizes of the weights, before memory is taken for either."""
    source, sizes = str(folder / CONFIG), read_folder(folder, read_header)
    if ours:
        config = validate(ModelConfig, _read_object(folder / CONFIG, MOST_OWN_CONFIG_BYTES), source)
    else:
        sizes = _without_copies(from_tensorflow(sizes, str(folder))[0], str(folder))
        config = config_from_transformers(values, sizes, source)
    if config.text is None:
        raise UserError(f"{folder}: expected a text model, got one of EEG; give a folder of a BERT or of a run on text")
    if ours:
        report = check_sizes(config, TokenEmbedding, sizes, source)
    else:
        like = outline(config, TokenEmbedding, source)
        report = compare(like, from_transformers(sizes, like.state_dict()))
    inner = [name for name in report.unexpected if ours or name.removeprefix("bert.").startswith(_BODY)]
    if report.missing or report.reshaped or inner:
        raise UserError(f"{folder}: weights and config do not belong together: {report.line()}; restore the folder")
    return config


def _read_object(path: Path, most_bytes: int) -> dict[str, Any]:
    values = read_json(path, most_bytes)
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(values).__name__}; restore the file")
    return values


def _without_copies(weights: dict[str, Tensor], source: str) -> dict[str, Tensor]:
    """Leaves out counters and the MLM decoder's copies of other weights; of sizes alone equality is not asked.

    Raises:
        UserError: the decoder is not the word embedding, which ours always is.
    """
    kept = {name: tensor for name, tensor in weights.items() if not name.endswith(_COUNTERS)}
    for copy, original in _TIED.items():
        tensor = next((kept[name] for name in kept if name.endswith(original)), None)
        if tensor is not None and copy in kept:
            twin = kept.pop(copy)
            if twin.dtype != tensor.dtype or not (twin.is_meta or torch.equal(twin, tensor)):
                raise UserError(f"{source}: expected {copy} to equal {original}; only tied MLM decoders can be loaded")
    return kept
