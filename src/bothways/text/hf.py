"""BERT's weights and config by transformers' names, to ours and back (BertModel and the classes built on it)."""

import json
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bothways.config import ModelConfig, validate
from bothways.errors import UserError

# Ours -> transformers'. Query, key and value are one matrix here and three there.
_NAMES = [
    (r"embedding\.word\.", "bert.embeddings.word_embeddings."),
    (r"embedding\.position\.", "bert.embeddings.position_embeddings."),
    (r"embedding\.segment\.", "bert.embeddings.token_type_embeddings."),
    (r"embedding\.norm\.", "bert.embeddings.LayerNorm."),
    (r"encoder\.layers\.(\d+)\.attention\.output\.", r"bert.encoder.layer.\1.attention.output.dense."),
    (r"encoder\.layers\.(\d+)\.norm_1\.", r"bert.encoder.layer.\1.attention.output.LayerNorm."),
    (r"encoder\.layers\.(\d+)\.feed_forward\.up\.", r"bert.encoder.layer.\1.intermediate.dense."),
    (r"encoder\.layers\.(\d+)\.feed_forward\.down\.", r"bert.encoder.layer.\1.output.dense."),
    (r"encoder\.layers\.(\d+)\.norm_2\.", r"bert.encoder.layer.\1.output.LayerNorm."),
    (r"pooler\.dense\.", "bert.pooler.dense."),
    (r"heads\.mlm\.dense\.", "cls.predictions.transform.dense."),
    (r"heads\.mlm\.norm\.", "cls.predictions.transform.LayerNorm."),
    (r"heads\.mlm\.bias$", "cls.predictions.bias"),
    (r"heads\.nsp\.linear\.", "cls.seq_relationship."),
    (r"heads\.(?:sequence|position)\.linear\.", "classifier."),
    (r"heads\.span\.linear\.", "qa_outputs."),
]
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Names of TensorFlow's days; only of layer norms, for other models have a gamma of their own."""
_QKV = re.compile(r"encoder\.layers\.(\d+)\.attention\.qkv\.(weight|bias)")

_HEADS = {"mlm": "cls.predictions.", "nsp": "cls.seq_relationship.", "span": "qa_outputs."}
PROMISED = {
    "BertForMaskedLM": ("mlm",),
    "BertForPreTraining": ("mlm", "nsp"),
    "BertForNextSentencePrediction": ("nsp",),
    "BertForSequenceClassification": ("sequence",),
    "BertForTokenClassification": ("position",),
    "BertForQuestionAnswering": ("span",),
}
"""transformers' class -> the heads that its checkpoints hold."""
_WANTED = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_ENCODER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_TEXT = ("vocab_size", "max_position_embeddings", "type_vocab_size")
_DEFAULTS = {
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
"""BertConfig's own, where a config does not name them."""


def to_transformers(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames our weights to those of transformers' BertForPreTraining or the class of another head.

    Raises:
        UserError: a weight has no counterpart in BERT, or two have the same one.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        qkv = _QKV.fullmatch(name)
        if qkv:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3)):
                renamed[f"bert.encoder.layer.{qkv[1]}.attention.self.{part}.{qkv[2]}"] = piece
            continue
        for ours, theirs in _NAMES:
            if re.match(ours, name):
                new = re.sub(ours, theirs, name, count=1)
                if new in renamed:
                    raise UserError(f"weight {name}: expected one {new}, got two; export one classifier at a time")
                renamed[new] = tensor
                break
        else:
            raise UserError(f"weight {name} has no counterpart in BERT; export only models of the bert form")
    return renamed


def from_transformers(weights: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames transformers' BERT weights, to the names in `like`.

    Both spellings are taken: with and without the `bert.` prefix, weight and bias or gamma and beta of a layer norm,
    the MLM bias as the predictions' or as the decoder's.

    Args:
        weights: by transformers' names.
        like: our model's `state_dict()`, which says what names are wanted.

    Returns:
        What was found under our names; all others under their own, so that a load report shows them as unexpected.
    """
    for old, new in _OLD.items():
        weights = {f"{name.removesuffix(old)}{new}" if name.endswith(old) else name: t for name, t in weights.items()}
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, tensor in like.items():
        try:
            theirs = list(to_transformers({name: tensor}))
        except UserError:
            continue
        if theirs[0] not in weights:
            theirs = [
                other.removeprefix("bert.").replace("predictions.bias", "predictions.decoder.bias") for other in theirs
            ]
        if all(other in weights for other in theirs):
            found[name] = torch.cat([weights[other] for other in theirs])
            used.update(theirs)
    return found | {name: tensor for name, tensor in weights.items() if name not in used}


def config_from_transformers(values: Mapping[str, Any], weights: Mapping[str, Tensor], source: str) -> ModelConfig:
    """Reads transformers' BertConfig; the model gets the pooler and those heads that the weights hold.

    Args:
        values: the config's JSON.
        weights: by transformers' names.
        source: the config's file, for messages.

    Raises:
        UserError: not a BERT encoder, or a setting that ours has not; a classifier whose kind is not said; a pooler
            that a head needs is not in the weights.
    """
    for key, wanted in _WANTED.items():
        if values.get(key, wanted) != wanted:
            raise UserError(
                f"{source}: expected {key} {json.dumps(wanted)}, got {json.dumps(values[key])}; "
                "only BERT encoders can be loaded"
            )
    architectures = values.get("architectures") or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise UserError(
            f"{source}: architectures: expected a list of names, got {json.dumps(architectures)}; restore it"
        )
    lacking = [key for key in (*_ENCODER, *_TEXT, "hidden_act") if key not in values]
    if lacking:
        raise UserError(f"{source}: expected BERT's settings, found no {', '.join(lacking)}; restore the file")
    activation = _ACTIVATIONS.get(str(values["hidden_act"]))
    if activation is None:
        raise UserError(
            f"{source}: hidden_act: expected one of {', '.join(_ACTIVATIONS)}, got {values['hidden_act']!r}"
        )
    heads: dict[str, dict[str, Any]] = {
        kind: {"kind": kind} for kind, prefix in _HEADS.items() if any(name.startswith(prefix) for name in weights)
    }
    if "classifier.weight" in weights:
        heads |= _classifier(values, len(weights["classifier.weight"]), source)
    pooler = any(name.removeprefix("bert.") == "pooler.dense.weight" for name in weights)
    if "mlm" in heads and values.get("tie_word_embeddings") is False:
        raise UserError(
            f"{source}: tie_word_embeddings: expected true, got false; only tied MLM decoders can be loaded"
        )
    pooled = [kind for kind in ("nsp", "sequence") if kind in heads]
    if pooled and not pooler:
        raise UserError(f"{source}: the {pooled[0]} head reads the pooler, which the weights lack; restore them")
    encoder = {key: values[key] for key in _ENCODER} | {key: values.get(key, own) for key, own in _DEFAULTS.items()}
    encoder |= {"hidden_act": activation, "norm": "post", "final_norm": False}
    text = {key: values[key] for key in _TEXT} | {"pad_token_id": values.get("pad_token_id", 0)}
    config = validate(ModelConfig, {"encoder": encoder, "text": text, "pooler": pooler, "heads": heads}, source)
    assert config.text is not None
    _check_sizes(config, weights, source)
    pad = config.text.pad_token_id
    if pad is not None and not 0 <= pad < config.text.vocab_size:
        raise UserError(f"{source}: pad_token_id: expected one below vocab_size {config.text.vocab_size}, got {pad}")
    return config


def _check_sizes(config: ModelConfig, weights: Mapping[str, Tensor], source: str) -> None:
    """Compares the sizes that would be allocated with those that the weights have: a damaged config states any."""
    text, encoder = config.text, config.encoder
    assert text is not None
    shapes = {name.removeprefix("bert."): tuple(tensor.shape) for name, tensor in weights.items()}
    layers = {int(found[1]) for name in shapes if (found := re.match(r"encoder\.layer\.(\d+)\.", name))}
    wanted = {
        "embeddings.word_embeddings.weight": ("vocab_size", text.vocab_size),
        "embeddings.position_embeddings.weight": ("max_position_embeddings", text.max_position_embeddings),
        "embeddings.token_type_embeddings.weight": ("type_vocab_size", text.type_vocab_size),
        "encoder.layer.0.intermediate.dense.weight": ("intermediate_size", encoder.intermediate_size),
    }
    found_sizes = {key: (stated, shapes[name][0]) for name, (key, stated) in wanted.items() if shapes.get(name)}
    if word := shapes.get("embeddings.word_embeddings.weight"):
        found_sizes["hidden_size"] = (encoder.hidden_size, word[-1])
    if encoder.num_hidden_layers > (len(layers) or len(weights)):  # other names are told by the load report
        found_sizes["num_hidden_layers"] = (encoder.num_hidden_layers, len(layers))
    for key, (stated, there) in found_sizes.items():
        if stated != there:
            raise UserError(f"{source}: {key}: expected {there} as in the weights, got {stated}; restore the folder")


def _classifier(values: Mapping[str, Any], n_classes: int, source: str) -> dict[str, dict[str, Any]]:
    """Returns the head of `classifier.weight`: its name says neither what it reads nor what it predicts."""
    promised = {head for architecture in values.get("architectures") or () for head in PROMISED.get(architecture, ())}
    kinds = promised & {"sequence", "position"}
    if len(kinds) != 1:
        raise UserError(
            f"{source}: the weights hold a classifier; expected architectures to name BertForSequenceClassification or "
            f"BertForTokenClassification, got {json.dumps(values.get('architectures'))}; name one of them"
        )
    problem = values.get("problem_type") or "single_label_classification"
    if problem != "single_label_classification" or n_classes < 2:
        raise UserError(
            f"{source}: expected a classifier of two or more classes of which one is true, got {problem} with "
            f"{n_classes}; only such can be loaded"
        )
    names = values.get("id2label") or {str(i): f"LABEL_{i}" for i in range(n_classes)}  # transformers' own default
    if not isinstance(names, dict) or names.keys() != {str(i) for i in range(n_classes)}:
        raise UserError(
            f"{source}: id2label: expected names for 0 to {n_classes - 1}, got {json.dumps(names)}; name each"
        )
    (kind,) = kinds
    dropout = values.get("classifier_dropout")
    if dropout is None:
        dropout = values.get("hidden_dropout_prob", _DEFAULTS["hidden_dropout_prob"])
    return {kind: {"kind": kind, "classes": [str(names[str(i)]) for i in range(n_classes)], "dropout": dropout}}
