"""Texts of many lengths in batches with next to no padding, and corpora in pools that are sorted by length."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from bothways.progress import progress
from bothways.text.documents import Document, Documents

POOL, POOL_CHARACTERS = 4096, 2**21
"""Documents that are sorted together, and their characters: memory is bounded by them, whatever the corpus."""
MOST_TOKENS = {"cpu": 1024}
"""Tokens of a batch, padding counted. More do not make a CPU faster, whose caches hold no more; a GPU they do."""
MOST_TOKENS_ELSEWHERE = 2**15
_MEGABYTE = 10**6


def by_length(lengths: Sequence[int] | Int[np.ndarray, " n"], most_tokens: int) -> Iterator[Int[np.ndarray, " b"]]:
    """Yields which sequences make which batch: those of like length together, the longest first.

    Args:
        lengths: tokens of each sequence.
        most_tokens: of a batch, padding counted; one sequence may be longer.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")  # the longest first: too little memory shows at once
    start = 0
    while start < len(order):
        stop = start + max(1, most_tokens // max(int(lengths[order[start]]), 1))
        yield order[start:stop]
        start = stop


def padded(
    sequences: Sequence[Sequence[int] | np.ndarray],
    pad_id: int,
    device: torch.device,
    n_first: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """Returns token ids as a batch, padded on the right.

    Args:
        sequences: ids with [CLS] and [SEP].
        pad_id: what fills them up; the mask hides it.
        device: where the batch goes.
        n_first: of pairs, how many tokens belong to the first segment.
    """
    lengths = torch.tensor([len(one) for one in sequences])
    ids = torch.full((len(sequences), int(lengths.max())), pad_id)
    for row, one in zip(ids, sequences):
        row[: len(one)] = torch.as_tensor(one)
    places = torch.arange(ids.shape[1])
    batch = {"input_ids": ids, "attention_mask": places < lengths[:, None]}
    if n_first is not None:
        batch["token_type_ids"] = (places >= torch.tensor(n_first)[:, None]).long()
    return {name: tensor.to(device) for name, tensor in batch.items()}


def most_tokens(device: torch.device) -> int:
    """Returns how many tokens a batch holds at most on a device."""
    return MOST_TOKENS.get(device.type, MOST_TOKENS_ELSEWHERE)


def pools(documents: Documents, title: str) -> Iterator[list[Document]]:
    """Yields a corpus in pools of documents, in order, and shows how far it is.

    Args:
        documents: the corpus.
        title: of the progress.
    """
    with progress(title, -(-documents.total_bytes // _MEGABYTE), "MB") as meter:
        for pool in _pools(documents):
            yield pool
            if (done := documents.bytes_read // _MEGABYTE) > meter.done:
                meter.advance(done - meter.done, pool[-1].file)
        meter.advance(meter.total - meter.done)


def _pools(documents: Iterable[Document]) -> Iterator[list[Document]]:
    pool: list[Document] = []
    characters = 0
    for document in documents:
        pool.append(document)
        characters += len(document.text)
        if len(pool) == POOL or characters > POOL_CHARACTERS:
            yield pool
            pool, characters = [], 0
    if pool:
        yield pool
