"""How well a model knows a text: hidden tokens, each token hidden alone, and whether a sentence is the next one."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bothways.heads import IGNORED, Batch
from bothways.model import Model
from bothways.text.batching import by_length, most_tokens, padded
from bothways.text.sentences import Splitter
from bothways.text.sequences import Example
from bothways.text.tokenizer import Tokenizer


class Scored(NamedTuple):
    """What a model gave the hidden tokens, in the order of the sequences and of their tokens."""

    loss: Float[np.ndarray, " R"]
    """Minus the logarithm of the probability of what is hidden."""
    right: Bool[np.ndarray, " R"]
    """Whether that is the most probable token."""
    label: Int[np.ndarray, " R"]
    sequence: Int[np.ndarray, " R"]


class Stretch(NamedTuple):
    """Sentences that follow each other in a document."""

    document: bytes
    """A hash of the document: equal ones are the same."""
    parts: list[list[int]]
    """The ids of each sentence."""


class Pairs(NamedTuple):
    """Pairs of stretches A and B, each the ids of sentences that follow each other."""

    a: list[list[int]]
    b: list[list[int]]
    labels: Int[np.ndarray, " n"]
    """0 = B is next, 1 = it is from another document."""


def mlm_scores(model: Model, batch: Batch, masked: Bool[Tensor, "B L"]) -> Float[Tensor, "R V"]:
    """Scores all tokens at the masked positions, row-major; of the last block only these rows are computed."""
    labels = batch["input_ids"].masked_fill(~masked, IGNORED)
    return model({**batch, "mlm_labels": labels}, with_losses=False).predictions["mlm"]


def sentence_tokens(tokenizer: Tokenizer, documents: Sequence[str], split: Splitter) -> list[list[list[int]]]:
    """Returns the ids of each document's sentences, without [CLS] and [SEP]; those without any are left out."""
    parts = [split(document) for document in documents]
    encoded = iter(tokenizer.pieces([one for part in parts for one in part]))
    made = [[next(encoded).ids for _ in part] for part in parts]
    return [[ids for ids in document if ids] for document in made]


def packed(document: Sequence[list[int]], room: int) -> Iterator[list[list[int]]]:
    """Yields as many sentences together as fit in `room` tokens; one that does not fit alone is cut into pieces."""
    held: list[list[int]] = []
    size = 0
    for sentence in document:
        for start in range(0, len(sentence), room):
            ids = sentence[start : start + room]
            if held and size + len(ids) > room:
                yield held
                held, size = [], 0
            held.append(ids)
            size += len(ids)
    if held:
        yield held


@torch.inference_mode()
def score(model: Model, tokenizer: Tokenizer, sequences: Sequence[Example]) -> Scored:
    """Predicts the hidden tokens of sequences, those of like length together; ids without a token are never found."""
    device = next(model.parameters()).device
    counts = [int(one.masked.sum()) for one in sequences]
    starts = np.cumsum([0, *counts])
    loss, right = np.zeros(starts[-1]), np.zeros(starts[-1], dtype=bool)
    for chosen in by_length([len(one.ids) for one in sequences], most_tokens(device)):
        batch = padded([sequences[i].ids for i in chosen], tokenizer.pad_id, device)
        real = torch.from_numpy(np.concatenate([sequences[i].truth[sequences[i].masked] for i in chosen])).to(device)
        masked = torch.zeros_like(batch["attention_mask"])
        for row, i in zip(masked, chosen):
            row[: len(sequences[i].masked)] = torch.from_numpy(sequences[i].masked)
        scores = tokenizer.named(mlm_scores(model, batch, masked))
        places = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in chosen])
        loss[places] = F.cross_entropy(scores, real, reduction="none").double().cpu().numpy()
        right[places] = (scores.argmax(1) == real).cpu().numpy()
    label = np.concatenate([one.truth[one.masked] for one in sequences] or [np.zeros(0, int)])
    return Scored(loss, right, label, np.repeat(np.arange(len(sequences)), counts))


@torch.inference_mode()
def pseudo_log_likelihoods(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[Sequence[int] | np.ndarray],
    advance: Callable[[int], None] = lambda n: None,
) -> list[float]:
    """Returns of each text the sum of ln p(token | all others), each token being hidden alone (Salazar et al. 2020).

    Special tokens that stand in it, [UNK] among them, are not scored.

    Args:
        model: in eval mode, with a head for hidden tokens.
        tokenizer: the model's.
        texts: ids without [CLS] and [SEP], each short enough for the model.
        advance: told the number of finished tokens.
    """
    device = next(model.parameters()).device
    ordinary = tokenizer.ordinary
    framed = [np.array([tokenizer.cls_id, *ids, tokenizer.sep_id]) for ids in texts]
    jobs = [(text, place) for text, ids in enumerate(framed) for place in np.flatnonzero(ordinary[ids]).tolist()]
    sums = np.zeros(len(texts))
    for chosen in by_length([len(framed[text]) for text, _ in jobs], most_tokens(device)):
        some = [jobs[i] for i in chosen]
        batch = padded([framed[text] for text, _ in some], tokenizer.pad_id, device)
        rows, places = torch.arange(len(some), device=device), torch.tensor([place for _, place in some], device=device)
        real = batch["input_ids"][rows, places]
        batch["input_ids"][rows, places] = tokenizer.mask_id
        masked = torch.zeros_like(batch["attention_mask"])
        masked[rows, places] = True
        scores = tokenizer.named(mlm_scores(model, batch, masked))
        loss = F.cross_entropy(scores, real, reduction="none").double().cpu().numpy()
        np.add.at(sums, [text for text, _ in some], -loss)
        advance(len(some))
    return sums.tolist()


def draw_pairs(
    stretches: Sequence[Stretch], others: Sequence[Stretch], room: int, rng: np.random.Generator
) -> Pairs | None:
    """Draws pairs, half of which follow each other; none where no second part is of another document.

    Args:
        stretches: of two or more sentences, which are parted at a sentence's end.
        others: the same or more of them, of one sentence too. A second part that is not the next is the end of one of
            these, about as long as what it replaces, so that length does not tell it.
        room: tokens of A and B together; what is longer loses its end.
        rng: from `draws.generator`.
    """
    ends = [(document, parts[k:]) for document, parts in others for k in range(len(parts))]
    of, n = np.array([document for document, _ in ends]), np.array([sum(map(len, end)) for _, end in ends])
    if len(set(of.tolist())) < 2 or not stretches:
        return None
    labels = rng.permutation(np.arange(len(stretches)) % 2)
    a, b = [], []
    for (document, parts), label in zip(stretches, labels):
        at = int(rng.integers(1, len(parts)))
        one, two = _joined(parts[:at]), _joined(parts[at:])
        if label:
            difference = np.where(of == document, np.inf, np.abs(n - len(two)))
            two = _joined(ends[int(rng.choice(np.flatnonzero(difference == difference.min())))][1])
        while len(one) + len(two) > room:
            one, two = (one[:-1], two) if len(one) > len(two) else (one, two[:-1])
        a.append(one)
        b.append(two)
    return Pairs(a, b, labels)


def _joined(parts: Sequence[list[int]]) -> list[int]:
    return [i for part in parts for i in part]


@torch.inference_mode()
def next_sentence(model: Model, tokenizer: Tokenizer, drawn: Pairs) -> Bool[np.ndarray, " n"]:
    """Says of each pair whether the model is right about it."""
    device = next(model.parameters()).device
    framed = [[tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id] for a, b in zip(drawn.a, drawn.b)]
    right = np.zeros(len(framed), dtype=bool)
    for chosen in by_length([len(one) for one in framed], most_tokens(device)):
        n_first = [len(drawn.a[i]) + 2 for i in chosen]
        batch = padded([framed[i] for i in chosen], tokenizer.pad_id, device, n_first)
        batch["mlm_labels"] = torch.full_like(batch["input_ids"], IGNORED)  # nothing is hidden, and none is decoded
        found = model(batch, with_losses=False).predictions["nsp"].argmax(1).cpu().numpy()
        right[chosen] = found == drawn.labels[chosen]
    return right
