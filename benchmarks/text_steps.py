"""Pretraining steps of BERT beside those of transformers' BertForPreTraining, of the same sizes on the same batch."""

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import Figure, Figures, paired_seconds
from torch import nn

from bothways.config import (
    TEXT_SIZES,
    EncoderConfig,
    HeadConfig,
    ModelConfig,
    TextConfig,
    TextPretrainConfig,
    validate,
)
from bothways.model import Model
from bothways.text import TokenEmbedding
from bothways.training import build_optimizer, keep_freed_memory

LENGTH, VOCAB = 128, 30522
CLS, SEP, MASK, FIRST_WORD = 101, 102, 103, 999
"""Ids of BERT's own vocabulary."""
N_MASKED = round(0.15 * (LENGTH - 3))
BATCH = {"mini": 32, "base": 16}
REPEATS = {"mini": 5, "base": 3}
AT_LEAST = {"mini": 3.0, "base": 1.4}


def transformers() -> Any:
    """Returns the library that is measured against."""
    try:
        import transformers
    except ImportError:
        sys.exit("expected transformers beside bothways, found none; run `make setup`")
    return transformers


def encoder_config(size: str, preset: str = "bert") -> EncoderConfig:
    """Returns the encoder that `bothways text pretrain` makes of these words."""
    return validate(TextPretrainConfig, {"encoder": {"size": size, "preset": preset}}).encoder


def pretraining_batch(n: int) -> dict[str, torch.Tensor]:
    """Returns n pairs of LENGTH tokens, 15 % of them hidden, as BERT's recipe draws them; by the names of our model."""
    rng = np.random.default_rng(0)
    ids = rng.integers(FIRST_WORD, VOCAB, (n, LENGTH))
    ids[:, 0], ids[:, LENGTH // 2], ids[:, -1] = CLS, SEP, SEP
    words = np.setdiff1d(np.arange(LENGTH), [0, LENGTH // 2, LENGTH - 1])
    labels = np.full_like(ids, -100)
    for row, label in zip(ids, labels):
        hidden = rng.permutation(words)[:N_MASKED]
        label[hidden] = row[hidden]
        kind = rng.random(N_MASKED)
        row[hidden[kind < 0.8]] = MASK
        row[hidden[kind > 0.9]] = rng.integers(FIRST_WORD, VOCAB, int((kind > 0.9).sum()))
    batch = {
        "input_ids": ids,
        "token_type_ids": np.tile(np.arange(LENGTH) > LENGTH // 2, (n, 1)).astype(np.int64),
        "attention_mask": np.ones_like(ids),
        "mlm_labels": labels,
        "nsp_labels": rng.integers(0, 2, n),
    }
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def our_step(size: str, preset: str = "bert") -> Callable[[], None]:
    """Returns a function that does one step of `bothways text pretrain` with its default settings."""
    heads = {kind: HeadConfig(kind=kind) for kind in ("mlm", "nsp")}
    config = ModelConfig(encoder=encoder_config(size, preset), text=TextConfig(), pooler=True, heads=heads)
    model = Model(config, TokenEmbedding(config)).train()
    model.initialise(0)
    settings = TextPretrainConfig().training
    optimizer, batch = build_optimizer(model, settings), pretraining_batch(BATCH[size])

    def step() -> None:
        model.loss(model(batch).losses).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def their_step(size: str) -> Callable[[], None]:
    """Returns a function that does one step as transformers' examples do: labels of -100 where nothing is hidden."""
    config = transformers().BertConfig(vocab_size=VOCAB, **TEXT_SIZES[size])
    model = transformers().BertForPreTraining(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # the Trainer's default
    batch = pretraining_batch(BATCH[size])
    batch |= {"labels": batch.pop("mlm_labels"), "next_sentence_label": batch.pop("nsp_labels")}

    def step() -> None:
        model(**batch).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


class Apart:
    """A step of theirs, in a process of its own: what `train` does to ours (`keep_freed_memory`) is not done to it."""

    def __init__(self, size: str) -> None:
        command = [sys.executable, str(Path(__file__)), size, str(torch.get_num_threads())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> None:
        """Does a step there and waits for it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("step", file=self.process.stdin, flush=True)
        if self.process.stdout.readline().strip() != "done":
            sys.exit("the process with transformers ended; see what it said")

    def end(self) -> None:
        """Ends the process."""
        self.process.communicate()


def serve(size: str, threads: int) -> None:
    """Does a step for each line on standard input."""
    torch.set_num_threads(threads)
    step = their_step(size)
    for _ in sys.stdin:
        step()
        print("done", flush=True)


def products(size: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the shapes of the matrix products of one of our steps: forward, and twice that backward.

    The last block has those of the rows that are read, the hidden ones and [CLS], and of all keys and values; the
    decoder has those of the hidden rows.
    """
    config, n = encoder_config(size), BATCH[size]
    wide, inner, heads = config.hidden_size, config.intermediate_size, n * config.num_attention_heads
    head_size, all_rows, read, hidden = wide // config.num_attention_heads, n * LENGTH, n * (1 + N_MASKED), n * N_MASKED
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def linear(rows: int, n_in: int, n_out: int) -> None:
        shapes.extend([((rows, n_in), (n_in, n_out)), ((rows, n_out), (n_out, n_in)), ((n_in, rows), (rows, n_out))])

    def attention(asking: int) -> None:
        scores = ((heads, asking, head_size), (heads, head_size, LENGTH))
        values = ((heads, asking, LENGTH), (heads, LENGTH, head_size))
        back = ((heads, LENGTH, asking), (heads, asking, head_size))
        shapes.extend([scores, values, scores, values, back, back])

    for last in [False] * (config.num_hidden_layers - 1) + [True]:
        rows = read if last else all_rows
        linear(rows, wide, wide)  # queries
        linear(all_rows, wide, 2 * wide)  # keys, values
        attention(rows // n)
        linear(rows, wide, wide)
        linear(rows, wide, inner)
        linear(rows, inner, wide)
    linear(hidden, wide, wide)
    linear(hidden, wide, VOCAB)
    return shapes


def run() -> Figures:
    figures: dict[str, Figure] = {}
    transformers()
    keep_freed_memory()
    tokens = {size: n * LENGTH for size, n in BATCH.items()}
    for size in BATCH:
        ours, theirs = our_step(size), Apart(size)
        # Taken in turns, so that a busy moment of the machine touches both.
        ours_s, theirs_s = paired_seconds(ours, theirs, repeats=REPEATS[size], warmup=1)
        figures |= {
            f"{size}: ours": Figure(tokens[size] / statistics.median(ours_s), "tokens/s"),
            f"{size}: transformers": Figure(tokens[size] / statistics.median(theirs_s), "tokens/s"),
            f"{size}: ours / transformers": Figure(
                statistics.median(t / o for t, o in zip(theirs_s, ours_s)), "", at_least=AT_LEAST[size]
            ),
        }
        theirs.end()
        if size == "mini":
            fast_s, ours_s = paired_seconds(our_step(size, "fast"), ours, repeats=REPEATS[size], warmup=1)
            share = statistics.median(o / f for o, f in zip(ours_s, fast_s))
            figures[f"{size}: preset fast / preset bert"] = Figure(share, "")
    pairs = [(torch.randn(a), torch.randn(b)) for a, b in products("base")]

    def all_products() -> None:
        for a, b in pairs:
            a @ b

    products_s, ours_s = paired_seconds(all_products, ours, repeats=REPEATS["base"], warmup=1)
    share = statistics.median(p / o for p, o in zip(products_s, ours_s))
    figures["base: share of the products' rate"] = Figure(share, "", at_least=0.8)
    return figures


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
