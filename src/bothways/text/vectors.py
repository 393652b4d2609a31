"""A vector for each text, of the encoder's output."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from bothways.errors import BothwaysWarning, UserError
from bothways.heads import Batch
from bothways.model import Model
from bothways.text.batching import POOL, by_length, most_tokens, padded
from bothways.text.tokenizer import Tokenizer

POOLS, RULES = ("mean", "cls"), ("windows", "cut")


class Vectors(NamedTuple):
    """Of some texts, in order."""

    values: Float32[np.ndarray, "n D"]
    tokens: Int[np.ndarray, " n"]
    """Of the whole text, [CLS] and [SEP] not counted."""
    n_too_long: int
    """Texts longer than a window."""


def embed(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pool: str = "mean",
    normalise: bool = False,
    too_long: str = "windows",
    length: int | None = None,
) -> Float32[np.ndarray, "n D"]:
    """Returns a vector for each text, in order; texts of like length are computed together.

    Warns once, with their number, of texts that are longer than a window.

    Args:
        model: in eval mode, wherever it is.
        tokenizer: the model's.
        texts: any number; one without a word has the vector of [CLS] [SEP].
        pool: `mean` = of all tokens, [CLS] and [SEP] among them, as sentence-transformers has it; `cls` = [CLS].
        normalise: scale each vector to length 1.
        too_long: what is longer than a window is cut into `windows` of like length, whose vectors are averaged,
            weighted by their tokens; or `cut`: the first window counts alone.
        length: tokens of a window, [CLS] and [SEP] among them; if none, as many as the model has positions.

    Raises:
        UserError: a setting that is none, or no Unicode text.
    """
    if isinstance(texts, str):
        raise UserError("texts: expected a list of texts, got one; put it in a list")
    chunks = [texts[start : start + POOL] for start in range(0, len(texts), POOL)]
    found = [text_vectors(model, tokenizer, chunk, pool, too_long, length) for chunk in chunks]
    values = [one.values for one in found]
    joined = np.concatenate(values) if values else np.empty((0, model.config.encoder.hidden_size), np.float32)
    if n_too_long := sum(one.n_too_long for one in found):
        warnings.warn(said_too_long(n_too_long, len(texts), too_long), BothwaysWarning, stacklevel=2)
    return normalised(joined) if normalise else joined


def said_too_long(n_too_long: int, n: int, too_long: str) -> str:
    """Returns what is said of texts that are longer than a window."""
    rule = "the mean of their windows was taken" if too_long == "windows" else "only their beginnings were read"
    return f"{n_too_long:,} of {n:,} texts are longer than the model's window; {rule}"


def normalised(values: Float32[np.ndarray, "n D"]) -> Float32[np.ndarray, "n D"]:
    """Returns vectors of length 1; what is 0 stays so."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(lengths == 0, 1, lengths)


def check_settings(model: Model, pool: str, too_long: str, length: int | None) -> int:
    """Returns the tokens of a window.

    Raises:
        UserError: a setting that is none, or a window that the model cannot read.
    """
    if pool not in POOLS:
        raise UserError(f"pool: expected mean or cls, got {pool!r}; choose one")
    if too_long not in RULES:
        raise UserError(f"too-long: expected windows or cut, got {too_long!r}; choose one")
    return window_length(model, length)


def window_length(model: Model, length: int | None) -> int:
    """Returns the tokens of a window: `length`, or as many as the model has positions.

    Raises:
        UserError: it is longer than that, or has no room between [CLS] and [SEP].
    """
    assert model.config.text is not None
    most = model.config.text.max_position_embeddings
    length = most if length is None else length
    if not 3 <= length <= most:
        raise UserError(f"length: expected 3 to {most} tokens, as many as the model has positions, got {length}")
    return length


def text_vectors(
    model: Model, tokenizer: Tokenizer, texts: Sequence[str], pool: str, too_long: str, length: int | None = None
) -> Vectors:
    """Returns the vectors of texts that are held in memory together; for the arguments see `embed`."""
    room = check_settings(model, pool, too_long, length) - 2
    pieces = [one.ids for one in tokenizer.pieces(texts)]
    tokens = np.array([len(ids) for ids in pieces], dtype=np.int64)
    windows, of, weights = [], [], []
    for index, ids in enumerate(pieces):
        for start, stop in cuts(len(ids), room, too_long):
            windows.append([tokenizer.cls_id, *ids[start:stop], tokenizer.sep_id])
            of.append(index)
            weights.append((stop - start) / len(ids) if len(ids) > room and too_long == "windows" else 1.0)
    values = np.zeros((len(texts), model.config.encoder.hidden_size), np.float32)
    of_window, weight = np.array(of), np.array(weights, np.float32)
    device = next(model.parameters()).device
    for chosen in by_length([len(one) for one in windows], most_tokens(device)):
        batch = padded([windows[i] for i in chosen], tokenizer.pad_id, device)
        with torch.inference_mode():
            found = _read(model, batch, pool).float().cpu().numpy()
        np.add.at(values, of_window[chosen], weight[chosen, None] * found)
    return Vectors(values, tokens, int((tokens > room).sum()))


def cuts(n: int, room: int, too_long: str) -> Iterator[tuple[int, int]]:
    """Yields where windows of n tokens begin and end: as few as there must be, as equal as they can be."""
    n_windows = max(1, -(-n // room)) if too_long == "windows" else 1
    bounds = [i * n // n_windows for i in range(n_windows + 1)] if too_long == "windows" else [0, min(n, room)]
    yield from pairwise(bounds)


def _read(model: Model, batch: Batch, pool: str) -> Float[Tensor, "B D"]:
    if pool == "cls":
        return model.features(batch)
    embedded = model.embedding(batch)
    values = model.encoder(embedded.hidden, embedded.attention_mask).values  # [T D], no padding
    real = batch["attention_mask"]
    sums = values.new_zeros(len(real), values.shape[1]).index_add(0, real.nonzero()[:, 0], values)
    return sums / real.sum(1, keepdim=True)
