"""transformers' BertConfig to our config and back, and what of ours BERT has not."""

import json
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bothways.config import HeadConfig, ModelConfig, validate
from bothways.errors import UserError

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
PROBLEMS = {
    "sequence": "single_label_classification",
    "several": "multi_label_classification",
    "number": "regression",
}
"""Heads for whole texts -> `problem_type` of BertForSequenceClassification."""
_CLASS_OF = (
    {heads[0]: name for name, heads in PROMISED.items() if len(heads) == 1}
    | dict.fromkeys(PROBLEMS, "BertForSequenceClassification")
    | {"": "BertModel"}
)
_LABELLED = {*PROBLEMS, "position"}
"""Heads with classes of a user's."""
_ONE_OF = ("sequence", "position")
"""Heads that tell one of several classes."""
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
_THEIRS = {"gelu_tanh": "gelu_pytorch_tanh"}
"""Our activations that transformers calls otherwise."""
OURS = "bothways"
"""A table in the config of what BertConfig has no word for: how much a head weighs in the loss, and its classes."""
_ENCODER = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_TEXT = ("vocab_size", "max_position_embeddings", "type_vocab_size")
_DEFAULTS = {
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
}
"""BertConfig's own, where a config does not name them."""


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
    heads = {kind: {**_told(values, kind, head), **head} for kind, head in heads.items()}
    pooler = any(name.removeprefix("bert.") == "pooler.dense.weight" for name in weights)
    if "mlm" in heads and values.get("tie_word_embeddings") is False:
        raise UserError(
            f"{source}: tie_word_embeddings: expected true, got false; only tied MLM decoders can be loaded"
        )
    pooled = [kind for kind in ("nsp", *PROBLEMS) if kind in heads]
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
    layers = {int(found[1]) for name in shapes if (found := re.match(r"encoder\.layer\.(\d{1,9})\.", name))}
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
    (kind,) = kinds
    if kind == "sequence":
        problem = values.get("problem_type") or PROBLEMS["number" if n_classes == 1 else "sequence"]
        found = [name for name, one in PROBLEMS.items() if one == problem]
        if not found or ((n_classes < 2) != (problem == PROBLEMS["number"]) and problem != PROBLEMS["several"]):
            raise UserError(
                f"{source}: expected single_label_classification of several classes, multi_label_classification, or "
                f"regression of one number, got {json.dumps(problem)} with {n_classes}; only such can be loaded"
            )
        (kind,) = found
    elif n_classes < 2:
        raise UserError(f"{source}: expected two or more classes of words, got {n_classes}; only such can be loaded")
    names = values.get("id2label") or {str(i): f"LABEL_{i}" for i in range(n_classes)}  # transformers' own default
    if not isinstance(names, dict) or names.keys() != {str(i) for i in range(n_classes)}:
        raise UserError(
            f"{source}: id2label: expected names for 0 to {n_classes - 1}, got {json.dumps(names)}; name each"
        )
    dropout = values.get("classifier_dropout")
    if dropout is None:
        dropout = values.get("hidden_dropout_prob", _DEFAULTS["hidden_dropout_prob"])
    return {kind: {"kind": kind, "classes": [str(names[str(i)]) for i in range(n_classes)], "dropout": dropout}}


def _told(values: Mapping[str, Any], kind: str, head: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what our own table says of a head; nothing where it was given other classes since."""
    table: Any = values
    for key in (OURS, "heads", kind):
        table = table.get(key) if isinstance(table, Mapping) else None
    same = isinstance(table, dict) and table.get("classes", []) == head.get("classes", [])
    return table if same else {}


def unlike_bert(config: ModelConfig) -> str:
    """Says what of a model transformers' BERT has not, as settings and their values; "" = nothing."""
    encoder, text, heads = config.encoder, config.text, config.heads
    if text is None:
        return "a model of EEG"
    odd = {
        f'encoder.norm "{encoder.norm}"': encoder.norm != "post",
        "encoder.gated true": encoder.gated,
        "encoder.qkv_bias false": not encoder.qkv_bias,
        "encoder.linear_bias false": not encoder.linear_bias,
        f"encoder.mixed_layers {encoder.mixed_layers}": encoder.mixed_layers > 1,
        "text.type_vocab_size 0": text.type_vocab_size == 0,
        "text.norm false": not text.norm,
        f"text.pad_token_id {text.pad_token_id}": not 0 <= (text.pad_token_id or 0) < text.vocab_size,
    }
    for name, head in heads.items():
        odd |= {
            f'heads.{name}.kind "{head.kind}"': name != head.kind or head.kind not in _CLASS_OF,
            f'heads.{name}.pool "{head.pool}"': head.kind in PROBLEMS and head.pool != "cls",
            f"heads.{name} of {len(head.classes)} classes": head.kind in _ONE_OF and len(head.classes) < 2,
            f"heads.{name} without a pooler": head.kind in ("nsp", *PROBLEMS) and not config.pooler,
        }
    kinds = {head.kind for head in heads.values()}
    odd[f"heads {' and '.join(heads)} in one model"] = len(kinds) > 1 and kinds != {"mlm", "nsp"}
    return ", ".join(what for what, is_odd in odd.items() if is_odd)


def config_to_transformers(config: ModelConfig) -> dict[str, Any]:
    """Returns transformers' BertConfig, as its `config.json`.

    The class (`architectures`) is that of the heads. What BertConfig has no word for (a head's weight in the loss, its
    classes' weights) is in a table of our name, where it is not the default; transformers keeps and ignores it.

    Raises:
        UserError: BERT has no such model; the settings are named.
    """
    if odd := unlike_bert(config):
        raise UserError(f"expected a model of BERT's form, got {odd}; transformers has no class for it")
    encoder, text, heads = config.encoder, config.text, config.heads
    assert text is not None
    name = "BertForPreTraining" if {"mlm", "nsp"} <= heads.keys() else _CLASS_OF[next(iter(heads), "")]
    values: dict[str, Any] = {"architectures": [name], "model_type": "bert"}
    values |= {key: getattr(encoder, key) for key in (*_ENCODER, *_DEFAULTS)}
    values |= {key: getattr(text, key) for key in (*_TEXT, "pad_token_id")}
    values |= {"hidden_act": _THEIRS.get(encoder.hidden_act, encoder.hidden_act), "tie_word_embeddings": True}
    for kind in _LABELLED & heads.keys():
        classes = heads[kind].classes
        values |= {
            "id2label": {str(i): label for i, label in enumerate(classes)},
            "label2id": {label: i for i, label in enumerate(classes)},
            "classifier_dropout": heads[kind].dropout,
        }
        if kind in PROBLEMS:
            values["problem_type"] = PROBLEMS[kind]
    if own := {kind: told for kind, head in heads.items() if (told := _untold(head))}:
        values[OURS] = {"heads": own}
    return values


def _untold(head: HeadConfig) -> dict[str, Any]:
    """Returns what BertConfig cannot say of a head, and of which classes it holds."""
    told = head.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
    if head.kind in _LABELLED:
        told.pop("dropout", None)
    return told if told.keys() - {"classes"} else {}
