"""BERT's weights by transformers' names, to ours and back (BertModel and the classes built on it)."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

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
    (r"heads\.(?:sequence|several|number|position)\.linear\.", "classifier."),
    (r"heads\.span\.linear\.", "qa_outputs."),
]
_OLD = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Names of TensorFlow's days; only of layer norms, for other models have a gamma of their own."""
_QKV = re.compile(r"encoder\.layers\.(\d+)\.attention\.qkv\.(weight|bias)")


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
