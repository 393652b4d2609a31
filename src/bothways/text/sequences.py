"""Documents to sequences for pretraining: pairs or stretches, and hidden tokens, drawn anew in each epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from bothways.config import SequenceConfig, TextMaskingConfig
from bothways.draws import generator
from bothways.errors import UserError
from bothways.heads import IGNORED
from bothways.masking import Action, drawn_actions, random_positions, word_positions
from bothways.text.corpus import Corpus
from bothways.text.tokenizer import Tokenizer

IS_NEXT, NOT_NEXT = 0, 1
"""NSP's labels, as in BERT."""
_TRIES = 4
"""Documents of which the one with whole sentences of the nearest length is taken."""
_REDRAWN = 64
"""Times that a document is drawn anew that equals the one at hand."""


@dataclass(frozen=True)
class Example:
    """One sequence as it is trained on.

    Attributes:
        ids: what the model reads, [CLS] a [SEP] or [CLS] a [SEP] b [SEP], some tokens replaced.
        segments: 0 = up to the first [SEP], 1 = b and the last [SEP].
        truth: the ids before any was replaced.
        masked: True = to be predicted.
        action: what was done to each token, `masking.Action`.
        next_label: `IS_NEXT`, `NOT_NEXT`, or `heads.IGNORED` where there is no b.
    """

    ids: Int[np.ndarray, " L"]
    segments: Int[np.ndarray, " L"]
    truth: Int[np.ndarray, " L"]
    masked: Bool[np.ndarray, " L"]
    action: UInt8[np.ndarray, " L"]
    next_label: int


class SequenceSource:
    """Sequences of some documents; each is a function of (seed, epoch, its number), see `training.Source`.

    An epoch has about as many sequences as the documents have tokens for: each document is divided into places of
    equal length, and a sequence lies around a token of its place, another one in each epoch.

    With `next_sentence` (Devlin et al. 2019, section 3.1) a sequence is the text before the beginning of a sentence and
    the text after it, both as long as they fit; in half of the cases the second part is replaced by one of another
    document. create_pretraining_data.py of google-research/bert draws the parts' lengths from the documents; here they
    are drawn first, and a replacement has the length and the kind of end of what it replaces, or these would tell the
    label. A document of one sentence, and the inside of one longer than the sequence, have no pair: they are trained on
    alone, without a label. Without it a sequence is one stretch of a document.

    Args:
        corpus: the store.
        documents: which of its documents; the other document of a pair is one of them, too.
        config: lengths.
        masking: what is hidden.
        next_sentence: make pairs; `can_pair` says whether there are any.
        seed: of all draws.
        purpose: so that two sources of the same seed draw other numbers.

    Raises:
        UserError: whole words are to be hidden, and the tokenizer does not say which pieces go on a word.
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
        if masking.whole_words and not corpus.tokenizer.prefix:
            raise UserError(
                f"{corpus.path}: masking.whole_words needs WordPiece, which marks the pieces that go on a word; its "
                "tokenizer is another; set it to false"
            )
        self.room = config.length - (3 if next_sentence else 2)  # for tokens beside [CLS] and [SEP]
        self.n_tokens = corpus.n_tokens(documents)
        places = np.maximum(1, np.rint(self.n_tokens / self.room)).astype(np.int64)
        self.first_place = np.concatenate([[0], places.cumsum()])
        self.hideable = corpus.tokenizer.ordinary
        self.digests = corpus.digests[documents]
        first = corpus.documents[documents]
        n_after = self.n_tokens - (corpus.sentences[first + 1] - corpus.sentences[first])
        if len(np.unique(self.digests[n_after > 0])) < 2:
            n_after = self.n_tokens
        self.n_second = n_after
        """Tokens that a second part may be of: those after the first sentence, for none that is the next begins a
        document; all, where no two documents have a second sentence."""
        able = np.flatnonzero(n_after > 0)
        self.by_length = able[np.argsort(n_after[able], kind="stable")]
        self.lengths = n_after[self.by_length]
        self.rank = np.full(len(documents), len(able))
        self.rank[self.by_length] = np.arange(len(able))
        self.places_before = np.concatenate([[0], places[self.by_length].cumsum()])
        unlike = self.digests[self.by_length] != self.digests[self.by_length[-1]]
        self.longest = [self.by_length[-1], *self.by_length[np.flatnonzero(unlike)[-1:]]]
        """The document with the longest second part, and the one of those that do not equal it."""

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
        centre = int((place + rng.random()) * self.n_tokens[which] / n_places)
        parts, label = self._pair(which, centre, room, rng) if self.next_sentence else ([], IGNORED)
        if not parts:
            parts = [self._stretch(which, centre, room)]
        return hide(parts, label, self.corpus.tokenizer, self.hideable, self.masking, rng)

    def _stretch(self, which: int, centre: int, room: int) -> np.ndarray:
        """Returns up to `room` tokens around one: from a sentence's beginning on, inside a long one, or to the end."""
        start, end = self.corpus.tokens_of(int(self.documents[which]))
        begin = max(start, min(start + centre - room // 2, end - room))
        if begin + room < end:
            sentence = int(np.searchsorted(self.corpus.sentences, begin, side="right")) - 1
            first, after = (int(one) for one in self.corpus.sentences[sentence : sentence + 2])
            begin = first if after - first <= room else begin
        return self.corpus.tokens(begin, min(begin + room, end))

    def _pair(self, which: int, centre: int, room: int, rng: np.random.Generator) -> tuple[list[np.ndarray], int]:
        """Returns two parts of `room` tokens at most and their label; nothing where there is no pair to be had."""
        corpus, document = self.corpus, int(self.documents[which])
        start, end = corpus.tokens_of(document)
        middle = self._beginning(document, start + centre)
        others = [one for one in self.longest if self.digests[one] != self.digests[which]]
        if middle == start or abs(middle - start - centre) > self.room or not others:
            return [], IGNORED
        n_b = min(end - middle, int(self.n_second[others[0]]))
        b = min(room - min(int(rng.integers(1, room)), middle - start), n_b)
        begin, label = middle, IS_NEXT
        if rng.random() >= 0.5:
            label = NOT_NEXT
            if middle + b == end:
                ends = [self._end(self._other(which, 1, int(others[0]), rng), b) for _ in range(_TRIES)]
                begin, stop = min(ends, key=lambda one: abs(one[1] - one[0] - b))
                b = min(stop - begin, room - 1)
            else:
                other = self._other(which, b, int(others[0]), rng)
                first, stop = corpus.tokens_of(other)
                begin = self._beginning(other, int(rng.integers(first, stop)))
                if begin + b > stop:
                    begin = self._beginning(other, stop - b, after=False)
        a = min(room - b, middle - start)
        return [corpus.tokens(middle - a, middle), corpus.tokens(begin, begin + b)], label

    def _other(self, which: int, wanted: int, longest: int, rng: np.random.Generator) -> int:
        """Draws a document, by its share of the sequences, for a second part of as many tokens as wanted."""
        shorter, rank = int(np.searchsorted(self.lengths, wanted)), int(self.rank[which])
        first, last = (int(self.places_before[one]) for one in (shorter, -1))
        own, after_own = (int(one) for one in self.places_before[[rank, min(rank + 1, len(self.by_length))]])
        size = after_own - own if rank >= shorter else 0  # its own places are stepped over
        for _ in range(_REDRAWN if last - first > size else 0):
            place = int(rng.integers(first, last - size))
            place += size if place >= own else 0
            other = int(self.by_length[np.searchsorted(self.places_before, place, side="right") - 1])
            if self.digests[other] != self.digests[which]:
                return int(self.documents[other])
        return int(self.documents[longest])  # nearly all others equal it

    def _starts(self, document: int) -> np.ndarray:
        """Returns where each sentence of a document begins, and its end."""
        first, last = self.corpus.documents[document : document + 2]
        return self.corpus.sentences[first : last + 1]

    def _beginning(self, document: int, place: int, *, after: bool = True) -> int:
        """Returns where the sentence after the one at a place begins, at most the last; or where that one begins."""
        starts = self._starts(document)
        return int(starts[min(int(np.searchsorted(starts, place, side="right")) - (not after), len(starts) - 2)])

    def _end(self, document: int, wanted: int) -> tuple[int, int]:
        """Returns from where on a document's last sentences have about as many tokens as wanted, and its end."""
        starts = self._starts(document)
        begins = starts[min(1, len(starts) - 2) : -1]  # none but a single sentence is a document's first
        return int(begins[np.abs(begins - (starts[-1] - wanted)).argmin()]), int(starts[-1])


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
    return Example(np.where(action == Action.RANDOM, other, ids), segments, truth, masked, action, label)


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


def can_pair(corpus: Corpus, documents: Int[np.ndarray, " n"]) -> str:
    """Says why documents give no pairs of sentences for NSP; nothing where they do."""
    if len(np.unique(corpus.digests[documents])) < 2:
        which = "there is one document" if len(documents) == 1 else "all documents are equal"
        return (
            f"{which}, and the sentence that is not the next comes from another; give more, or --documents line where "
            "each line is one"
        )
    n_sentences = corpus.documents[documents + 1] - corpus.documents[documents]
    if int(n_sentences.max()) < 2:
        return (
            "each document is one sentence, so no sentence has a next one; give longer ones, or --documents file where "
            "blank lines part the sentences of a text"
        )
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
