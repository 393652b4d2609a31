"""A text model to a folder: in transformers' layout where it is a BERT, else in ours."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from bothways.config import ModelConfig
from bothways.files import write_json
from bothways.model import Model
from bothways.text.folder import CONFIG
from bothways.text.hf import to_transformers
from bothways.text.hf_config import OURS, config_to_transformers, unlike_bert
from bothways.weights import WEIGHTS, write_weights


def save_folder(folder: Path, model: Model, weights: Mapping[str, Tensor] | None = None, *, bare: bool = False) -> None:
    """Writes `config.json` and `model.safetensors`, which `load_folder` takes.

    A model of BERT's form is written as transformers writes it: its names, its config, the tied decoder not again. It
    has no word for a number's mean and spread in training, which become part of the head's weights.

    Args:
        folder: where to; it must exist.
        model: what is written.
        weights: by our names; by default the model's.
        bare: nothing in the config that transformers does not know.

    Raises:
        UserError: `bare`, and transformers has no such model.
    """
    weights = model.state_dict() if weights is None else weights
    if unlike_bert(model.config) and not bare:
        values = model.config.model_dump(mode="json")
    else:
        config, weights = _in_own_unit(model.config, weights)
        values, weights = config_to_transformers(config), to_transformers(weights)
        values["dtype"] = str(next(iter(weights.values())).dtype).removeprefix("torch.")
        if bare:
            values.pop(OURS, None)
        if not model.config.heads:  # a BertModel has no part of this name
            weights = {name.removeprefix("bert."): tensor for name, tensor in weights.items()}
    write_weights(folder / WEIGHTS, weights)
    write_json(folder / CONFIG, values)


def _in_own_unit(config: ModelConfig, weights: Mapping[str, Tensor]) -> tuple[ModelConfig, Mapping[str, Tensor]]:
    """Returns a model whose head of numbers tells them in their own unit, not standardised."""
    for name, head in config.heads.items():
        if head.kind == "number":
            weight, bias = (f"heads.{name}.linear.{part}" for part in ("weight", "bias"))
            weights = {**weights, weight: weights[weight] * head.sd, bias: weights[bias] * head.sd + head.mean}
            plain = head.model_copy(update={"mean": 0.0, "sd": 1.0})
            config = config.model_copy(update={"heads": {**config.heads, name: plain}})
    return config, weights
