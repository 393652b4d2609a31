"""Drawn inputs of any size, which a graph is traced with and compared on; and what it says of them."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from bothways import eeg
from bothways.draws import generator
from bothways.model import Model
from bothways.padded import input_names
from bothways.run.pretrained import Pretrained
from bothways.text import Tokenizer

Size = tuple[int, ...]
"""Sequences and tokens; of EEG windows, channels and patches."""
MOST_TOKENS = 512
"""Of a drawn text: a table of positions may be longer than any text."""


def example_size(model: Model) -> Size:
    """Returns a small size of which no axis is 1, for such an axis would be taken for a fixed one."""
    if model.config.text is not None:
        return 2, min(6, model.config.text.max_position_embeddings)
    return 2, _channels(model, 3), min(4, _most_patches(model))


def sizes(model: Model, n_patches: int) -> list[Size]:
    """Returns sizes to compare at: one sequence, the shortest, the longest; `n_patches` is that of a whole window."""
    if model.config.text is not None:
        most = min(model.config.text.max_position_embeddings, MOST_TOKENS)
        return [(1, min(2, most)), (5, max(most // 3, 1)), (2, most)]
    most = _most_patches(model)
    return [
        (1, _channels(model, 1), 1),
        (5, _channels(model, 2), min(n_patches + 1, most)),
        (3, _channels(model, 19), min(n_patches, most)),
    ]


def _channels(model: Model, n: int) -> int:
    assert model.config.patches is not None
    return len(model.config.patches.ch_names) or n


def _most_patches(model: Model) -> int:
    patches = model.config.patches
    assert patches is not None
    return patches.max_patches if patches.positions == "learned" else 2**31


def draw(model: Pretrained, size: Size, number: int) -> dict[str, Tensor]:
    """Returns a batch of which the first sequence has no padding and the others some.

    Args:
        model: whose inputs they are.
        size: how many, and how long.
        number: of the draw.
    """
    rng = generator("onnx", 0, sample_id=number)
    batch = _eeg(model, size, rng) if model.tokenizer is None else _text(model.tokenizer, size, rng)
    return {name: torch.from_numpy(batch[name]) for name in input_names(model.config)}


def _text(tokenizer: Tokenizer, size: Size, rng: np.random.Generator) -> dict[str, np.ndarray]:
    n, length = size
    lengths = rng.integers(min(2, length), length + 1, n)
    lengths[0] = length
    place = np.arange(length)
    real = place < lengths[:, None]
    ids = rng.choice(np.flatnonzero(tokenizer.ordinary), size)
    ids[:, 0] = tokenizer.cls_id
    ids[place == lengths[:, None] - 1] = tokenizer.sep_id
    second = real & (place > rng.integers(0, length, n)[:, None])
    return {
        "input_ids": np.where(real, ids, tokenizer.pad_id),
        "attention_mask": real.astype(np.int64),
        "token_type_ids": second.astype(np.int64),
    }


def _eeg(model: Model, size: Size, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns windows with missing channels and patches, channels at unknown places, and bipolar ones."""
    embedding = model.embedding
    assert isinstance(embedding, eeg.PatchEmbedding)
    n, n_channels, n_patches = size
    positions = rng.normal(size=(n, n_channels, 2, 3))
    positions /= np.linalg.norm(positions, axis=3, keepdims=True)
    positions[:, :, 1][rng.random((n, n_channels)) < 0.8] = np.nan
    positions[:, :, 0][rng.random((n, n_channels)) < 0.1] = np.nan
    real = (rng.random(size) < 0.9) & (rng.random((n, n_channels, 1)) < 0.8)
    real[0] = True
    found = {
        "signals": rng.normal(size=(n, n_channels, n_patches * embedding.patch_samples)).clip(-eeg.CLIP, eeg.CLIP),
        "log_scale_uv": rng.normal(1, 0.3, (n, n_channels)),
        "positions": positions,
    }
    if embedding.spectrum is not None:
        bins = embedding.spectrum_mean.numpy()
        found["baseline"] = rng.normal(0, 0.3, (n, n_channels, len(bins)))
    return {name: one.astype(np.float32) for name, one in found.items()} | {"patch_mask": real}


def decided(outputs: Mapping[str, Tensor], kind: str) -> Tensor | None:
    """Returns what a graph decides on, as integers; None of numbers and vectors, which are no decisions.

    Args:
        outputs: see `padded.named_outputs`.
        kind: of the head that says it, "vectors" without one.
    """
    if kind == "several":
        return (outputs["probabilities"] >= 0.5).flatten()
    if kind == "span":
        return torch.cat([outputs["start_logits"].argmax(1), outputs["end_logits"].argmax(1)])
    if "logits" in outputs:
        logits = outputs["logits"].flatten(0, -2)
        return logits[~logits.isnan().any(1)].argmax(1)
    if "next_sentence_logits" in outputs:
        return outputs["next_sentence_logits"].argmax(1)
    return None
