"""Documents to sequences for pretraining: pairs or stretches, and hidden tokens, drawn anew in each epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from bothways.config import SequenceConfig, TextMaskingConfig
from bothways.draws import generator
from bothways.heads import IGNORED
from bothways.masking import Action, drawn_actions, random_positions, word_positions
from bothways.text.corpus import Corpus
from bothways.text.tokenizer import Tokenizer

IS_NEXT, RANDOM = 0, 1
"""NSP's labels, as in BERT."""


@dataclass(frozen=True)
class Example:
    """One sequence as it is trained on.

    Attributes:
        ids: what the model reads, [CLS] a [SEP] or [CLS] a [SEP] b [SEP], some tokens replaced.
        segments: 0 = up to the first [SEP], 1 = b and the last [SEP].
        truth: the ids before any was replaced.
        masked: True = to be predicted.
        next_label: `IS_NEXT`, `RANDOM`, or `heads.IGNORED` where there is no b.
    """

    ids: Int[np.ndarray, " L"]
    segments: Int[np.ndarray, " L"]
    truth: Int[np.ndarray, " L"]
    masked: Bool[np.ndarray, " L"]
    next_label: int


class SequenceSource:
    """Sequences of some documents; each is a function of (seed, epoch, its number), see `training.Source`.

    An epoch has about as many sequences as the documents have tokens for: each document is divided into places of
    equal length, and a sequence begins with a sentence near its place, another one in each epoch.

    With `next_sentence` (Devlin et al. 2019, section 3.1, and create_pretraining_data.py of google-research/bert) a
    sequence takes sentences as far as they fit and divides them in two; in half of the cases the second part is
    replaced by sentences of another document. A document of one sentence has no pair: it is trained on alone, without a
    label, and is drawn as another document's second part. Without it a sequence is one stretch of a document.

    Args:
        corpus: the store.
        documents: which of its documents; the other document of a pair is one of them, too.
        config: lengths.
        masking: what is hidden.
        next_sentence: make pairs; `can_pair` says whether there are any.
        seed: of all draws.
        purpose: so that two sources of the same seed draw other numbers.
    """

    def __init__(
        self,
        corpus: Corpus,
        documents: Int[np.ndarray, " n"],
        config: SequenceConfig,
        masking: TextMaskingConfig,
        *,
        next_sentence: bool,
        seed: int,
        purpose: str = "train",
    ) -> None:
        self.corpus, self.documents, self.config = corpus, documents, config
        self.masking, self.next_sentence, self.seed, self.purpose = masking, next_sentence, seed, purpose
        self.room = config.length - (3 if next_sentence else 2)  # for tokens beside [CLS] and [SEP]
        first, last = corpus.documents[documents], corpus.documents[documents + 1]
        self.n_tokens = corpus.sentences[last] - corpus.sentences[first]
        places = np.maximum(1, np.rint(self.n_tokens / self.room)).astype(np.int64)
        self.first_place = np.concatenate([[0], places.cumsum()])
        self.hideable = corpus.tokenizer.ordinary

    def __len__(self) -> int:
        """Number of sequences of an epoch."""
        return int(self.first_place[-1])

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns file and line of the documents."""
        which = np.searchsorted(self.first_place, ids, side="right") - 1
        return [self.corpus.name(int(self.documents[one])) for one in which]

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"]) -> dict[str, Tensor]:
        """Returns sequences as the model reads them, padded on the right to the longest.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, `mlm_labels` (`heads.IGNORED` = not hidden), each [B L],
            and with `next_sentence` `nsp_labels` [B].
        """
        examples = [self.example(int(one), int(epoch)) for one, epoch in zip(ids, epochs)]
        return collate(examples, self.corpus.tokenizer.pad_id, next_sentence=self.next_sentence)

    def example(self, number: int, epoch: int) -> Example:
        """Returns one sequence of an epoch."""
        rng = generator(f"sequence, {self.purpose}", self.seed, epoch, number)
        which = int(np.searchsorted(self.first_place, number, side="right")) - 1
        room = self.room if rng.random() >= self.config.short else int(rng.integers(2, self.room + 1))
        place, n_places = number - int(self.first_place[which]), int(np.diff(self.first_place[which : which + 2])[0])
        begin = int((place + rng.random()) * self.n_tokens[which] / n_places)
        begin = max(0, min(begin, int(self.n_tokens[which]) - room))
        parts, label = self._pair(which, begin, room, rng) if self.next_sentence else ([], IGNORED)
        if not parts:
            parts = [self._stretch(which, begin, room)]
        return hide(parts, label, self.corpus.tokenizer, self.hideable, self.masking, rng)

    def _stretch(self, which: int, begin: int, room: int) -> np.ndarray:
        """Returns up to `room` tokens of a document, from the sentence at `begin` on, or from inside a long one."""
        corpus = self.corpus
        start, end = corpus.tokens_of(int(self.documents[which]))
        sentence = int(np.searchsorted(corpus.sentences, start + begin, side="right")) - 1
        first, after = int(corpus.sentences[sentence]), int(corpus.sentences[sentence + 1])
        if after - first > room:
            first = min(start + begin, after - room)
        return corpus.ids[first : min(first + room, end)].astype(np.int64)

    def _pair(self, which: int, begin: int, room: int, rng: np.random.Generator) -> tuple[list[np.ndarray], int]:
        """Returns two parts of `room` tokens at most and their label; nothing where there is no pair to be had."""
        corpus, document = self.corpus, int(self.documents[which])
        first, last = (int(one) for one in corpus.documents[document : document + 2])
        if last - first < 2 or len(self.documents) < 2:
            return [], IGNORED
        start = int(corpus.sentences[first]) + begin
        sentence = min(int(np.searchsorted(corpus.sentences, start, side="right")) - 1, last - 2)
        stop = self._as_far(sentence, last, room, least=2)
        middle = int(rng.integers(sentence + 1, stop))
        a = self._tokens(sentence, middle)
        if rng.random() < 0.5:
            return _fitted(a, self._tokens(middle, stop), room, rng), IS_NEXT
        other = int(rng.integers(len(self.documents) - 1))
        other += other >= which
        first, last = (int(one) for one in corpus.documents[int(self.documents[other]) + np.array([0, 1])])
        sentence = int(rng.integers(first, last))
        b = self._tokens(sentence, self._as_far(sentence, last, max(room - len(a), 1), least=1))
        return _fitted(a, b, room, rng), RANDOM

    def _as_far(self, sentence: int, last: int, room: int, least: int) -> int:
        """Returns the end of the sentences from `sentence` on that fill the room, the last one perhaps beyond it."""
        starts = self.corpus.sentences[sentence : min(last, sentence + room) + 1]  # each has a token
        stop = sentence + int(np.searchsorted(starts, starts[0] + room, side="left"))
        return min(max(stop, sentence + least), last)

    def _tokens(self, sentence: int, stop: int) -> np.ndarray:
        begin, end = self.corpus.sentences[[sentence, stop]]
        return self.corpus.ids[begin:end].astype(np.int64)


def hide(
    parts: Sequence[np.ndarray],
    label: int,
    tokenizer: Tokenizer,
    hideable: Bool[np.ndarray, " V"],
    masking: TextMaskingConfig,
    rng: np.random.Generator,
) -> Example:
    """Puts [CLS] and [SEP] around one or two parts and hides some of their tokens.

    Args:
        parts: ids of text.
        label: of the pair.
        tokenizer: of the ids.
        hideable: which tokens may be hidden, `tokenizer.ordinary`.
        masking: how many, and what stands in their place: 80 % [MASK], 10 % any token, 10 % unchanged.
        rng: from `draws.generator`.
    """
    pieces = [np.array([tokenizer.cls_id])]
    for part in parts:
        pieces += [part, np.array([tokenizer.sep_id])]
    truth = np.concatenate(pieces)
    segments = np.zeros(len(truth), dtype=np.int64)
    segments[len(parts[0]) + 2 :] = 1
    available = hideable[truth]
    if masking.whole_words:
        words = (~tokenizer.continues[truth]).cumsum()
        masked = word_positions(available, words, masking.ratio, rng)
    else:
        masked = random_positions(available[None], masking.ratio, rng)[0]
    action = drawn_actions(masked, masking, rng)
    ids = np.where(action == Action.MASK, tokenizer.mask_id, truth)
    other = tokenizer.named_ids[rng.integers(len(tokenizer.named_ids), size=len(truth))]
    return Example(np.where(action == Action.RANDOM, other, ids), segments, truth, masked, label)


def collate(examples: Sequence[Example], pad_id: int, *, next_sentence: bool) -> dict[str, Tensor]:
    """Returns sequences as one batch; see `SequenceSource.batch`."""
    shape = len(examples), max(len(one.ids) for one in examples)
    arrays = {
        "input_ids": np.full(shape, pad_id, dtype=np.int64),
        "token_type_ids": np.zeros(shape, dtype=np.int64),
        "attention_mask": np.zeros(shape, dtype=np.int64),
        "mlm_labels": np.full(shape, IGNORED, dtype=np.int64),
    }
    for row, one in enumerate(examples):
        here = slice(None, len(one.ids))
        arrays["input_ids"][row, here] = one.ids
        arrays["token_type_ids"][row, here] = one.segments
        arrays["attention_mask"][row, here] = 1
        arrays["mlm_labels"][row, here] = np.where(one.masked, one.truth, IGNORED)
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if next_sentence:
        batch["nsp_labels"] = torch.tensor([one.next_label for one in examples])
    return batch


def _fitted(a: np.ndarray, b: np.ndarray, room: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Shortens a pair to `room` tokens, always the longer part, at its beginning or end at random."""
    n_a, n_b = len(a), len(b)
    if (over := n_a + n_b - room) > 0:
        longer = min(over, abs(n_a - n_b))
        rest = over - longer
        n_a, n_b = (n_a - longer, n_b) if n_a > n_b else (n_a, n_b - longer)
        n_a, n_b = n_a - (rest + 1) // 2, n_b - rest // 2
    parts = []
    for part, n in ((a, n_a), (b, n_b)):
        front = int(rng.binomial(len(part) - n, 0.5))
        parts.append(part[front : front + n])
    return parts


def can_pair(corpus: Corpus, documents: Int[np.ndarray, " n"]) -> str:
    """Says why documents give no pairs of sentences for NSP; nothing where they do."""
    if len(documents) < 2:
        return "there is one document, and the sentence that is not the next comes from another"
    n_sentences = corpus.documents[documents + 1] - corpus.documents[documents]
    if int(n_sentences.max()) < 2:
        return "each document is one sentence, so no sentence has a next one"
    return ""


def divide(
    corpus: Corpus, fraction: float, seed: int, *, pairs: bool
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " m"]]:
    """Returns the documents to train on and those to keep out; equal ones are on one side.

    Args:
        corpus: the store.
        fraction: of the documents to keep out: one at least, of `pairs` two, as long as as many are left. Nobody where
            no pair would be left to train on.
        seed: of the draw.
        pairs: pairs of sentences will be made, which takes two documents.
    """
    _, group = np.unique(corpus.digests, return_inverse=True)
    n, least = int(group.max()) + 1, 2 if pairs else 1
    wanted = 0 if fraction == 0 else max(0, min(max(least, round(fraction * n)), n - least))
    kept_out = np.isin(group, generator("validation", seed).permutation(n)[:wanted])
    trained_on = np.flatnonzero(~kept_out)
    if pairs and can_pair(corpus, trained_on):
        return np.arange(len(corpus)), np.zeros(0, dtype=np.int64)
    return trained_on, np.flatnonzero(kept_out)
