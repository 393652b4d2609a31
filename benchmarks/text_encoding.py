"""Vectors of sentences of natural lengths, beside transformers' BertModel on batches padded to their longest."""

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from text_steps import encoder_config, transformers
from timing import Figure, Figures, paired_seconds
from torch import Tensor

from bothways.config import TEXT_SIZES, ModelConfig, TextConfig
from bothways.model import Model
from bothways.text import Documents, TokenEmbedding, from_transformers, split_sentences, train_wordpiece

DATA = Path(__file__).parent.parent / "examples/data/text_speeches/inaugural"
SIZE, N_SENTENCES, VOCAB, LONGEST = "mini", 2048, 8192, 512
THEIR_BATCH, OUR_BATCH_TOKENS = 32, 2048
AT_LEAST = {"random": 2.5, "sorted": 1.15}


def sentences() -> list[list[int]]:
    """Returns the token ids of all sentences of the speeches, with [CLS] and [SEP], in one random order."""
    speeches = Documents([DATA], separator="file")
    tokenizer, _ = train_wordpiece(speeches, VOCAB)
    texts = [sentence for speech in speeches for sentence in split_sentences(speech.text)]
    ids = [encoding.ids[:LONGEST] for encoding in tokenizer.encode_batch_fast(texts)]
    return [ids[i] for i in np.random.default_rng(0).permutation(len(ids))]


def padded(batch: list[list[int]]) -> dict[str, Tensor]:
    """Returns `input_ids` and `attention_mask` [B L], L being the longest of the batch."""
    ids = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)
    for row, one in zip(ids, batch):
        row[: len(one)] = torch.tensor(one)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def by_tokens(ids: list[list[int]]) -> Iterable[list[list[int]]]:
    """Yields sentences, the longest first, as many as hold OUR_BATCH_TOKENS together."""
    batch: list[list[int]] = []
    for one in sorted(ids, key=len, reverse=True):
        if batch and (len(batch) + 1) * len(batch[0]) > OUR_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(one)
    yield batch


def by_number(ids: list[list[int]]) -> Iterable[list[list[int]]]:
    """Yields sentences in their order, THEIR_BATCH together."""
    return (ids[i : i + THEIR_BATCH] for i in range(0, len(ids), THEIR_BATCH))


def encoders(ids: list[list[int]]) -> dict[str, Callable[[], Tensor]]:
    """Returns who -> a function that gives the [CLS] vectors [N D] of all sentences, of the same weights."""
    theirs = transformers().BertModel(transformers().BertConfig(vocab_size=VOCAB, **TEXT_SIZES[SIZE])).eval()
    config = ModelConfig(encoder=encoder_config(SIZE), text=TextConfig(vocab_size=VOCAB), pooler=True)
    ours = Model(config, TokenEmbedding(config)).eval()
    ours.load_state_dict(from_transformers(theirs.state_dict(), ours.state_dict()))

    @torch.inference_mode()
    def our_vectors() -> Tensor:
        return torch.cat([ours.features(padded(batch)) for batch in by_tokens(ids)])

    @torch.inference_mode()
    def their_vectors(ids: list[list[int]]) -> Tensor:
        return torch.cat([theirs(**padded(batch)).last_hidden_state[:, 0] for batch in by_number(ids)])

    return {
        "ours": our_vectors,
        "random": lambda: their_vectors(ids),
        "sorted": lambda: their_vectors(sorted(ids, key=len, reverse=True)),
    }


def run() -> Figures:
    ids = sentences()[:N_SENTENCES]
    calls = encoders(ids)
    torch.testing.assert_close(calls["ours"](), calls["sorted"](), rtol=0, atol=1e-4)
    figures = {"tokens of a sentence": Figure(statistics.mean(map(len, ids)), "")}
    for batches, least in AT_LEAST.items():
        ours_s, theirs_s = paired_seconds(calls["ours"], calls[batches], repeats=5, warmup=1)
        figures |= {
            f"transformers, {batches} batches": Figure(N_SENTENCES / statistics.median(theirs_s), "sentences/s"),
            f"ours / transformers, {batches} batches": Figure(
                statistics.median(t / o for t, o in zip(theirs_s, ours_s)), "", at_least=least
            ),
        }
    return figures | {"ours": Figure(N_SENTENCES / statistics.median(ours_s), "sentences/s")}
