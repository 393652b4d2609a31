"""Tagging words: sentences to batches with a label on each word's first piece, and predictions back to words."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from bothways.errors import UserError
from bothways.heads import IGNORED, Batch
from bothways.model import Model
from bothways.tags import entities_of
from bothways.text.batching import by_length, most_tokens, padded
from bothways.text.conll import Sentence
from bothways.text.tokenizer import Tokenizer

_MOST_NAMED = 5


class TagSource:
    """Sentences as they are trained on and predicted, see `training.Source`.

    The label of a word stands on its first piece (Devlin et al. 2019, section 5.3); its other pieces, [CLS], [SEP] and
    padding are IGNORED. A sentence longer than `length` is read in windows of whole words that overlap; a word counts
    in one of them alone, where it has most context: the larger the smaller of both sides (`run_squad.py` of
    google-research/bert); the last window is as full as the others, and one in which no word counts is left out.

    Args:
        sentences: with tags, or to be tagged.
        tokenizer: the model's; it gets each word by itself.
        classes: tags by their number. A tag that is none of them is not trained on.
        length: tokens of a window, [CLS] and [SEP] among them; see `window_length`.
        stride: tokens from a window's beginning to that of the next, or less, where a word would be cut; if none, half
            of what a window holds.

    Attributes:
        sentences: as given.
        classes: as given.
        lengths: tokens of each window, [W].
        notes: a word for programs -> what was cut, left out or replaced, with its number.

    Raises:
        UserError: a length or stride that leaves no room or leaves out words, or classes that are none.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        tokenizer: Tokenizer,
        classes: Sequence[str],
        length: int,
        stride: int | None = None,
    ) -> None:
        room = length - 2
        if room < 1:
            raise UserError(f"length: expected 3 tokens or more, [CLS] and [SEP] among them, got {length}")
        if not 1 <= (stride := max(1, room // 2) if stride is None else stride) <= room:
            raise UserError(f"stride: expected 1 to {room} tokens, what a window holds, got {stride}")
        if not classes or len(set(classes)) < len(classes):
            raise UserError(f"expected tags that differ as classes, got {', '.join(classes) or 'none'}")
        self.sentences, self.classes, counts = sentences, tuple(classes), Counter[str]()
        self._cls_id, self._sep_id, self._pad_id = tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id
        self._bounds = np.cumsum([0, *(len(one.words) for one in sentences)])
        """First word of each sentence, and the end."""
        self._ids, self._first = _pieces([word for one in sentences for word in one.words], tokenizer, room, counts)
        """Of all words; and of each its first token, and the end."""
        number = {tag: i for i, tag in enumerate(self.classes)}
        tags = [tag for one in sentences for tag in one.tags or [""] * len(one.words)]
        self._labels = np.array([number.get(tag, IGNORED) for tag in tags], dtype=np.int64)
        windows = [
            (sentence, *(a + place for place in window))
            for sentence, (a, b) in enumerate(zip(self._bounds[:-1].tolist(), self._bounds[1:].tolist()))
            for window in _windows(self._first[a : b + 1], room, stride)
        ]
        self._windows = np.array(windows, dtype=np.int64).reshape(-1, 5)
        """Sentence, first word and end, first word that counts here and end."""
        self.lengths = self._first[self._windows[:, 2]] - self._first[self._windows[:, 1]] + 2
        unknown = Counter(tag for tag in tags if tag and tag not in number)
        self.notes = _notes(counts, unknown, length)
        n_long = int((np.bincount(self._windows[:, 0], minlength=1) > 1).sum())
        if n_long:
            message = f"{n_long:,} of {len(sentences):,} sentences are longer than {length} tokens; they are read in"
            self.notes["long_sentences"] = [f"{message} windows that overlap"]

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._windows)

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"]) -> dict[str, Tensor]:
        """Returns windows, the same in every epoch: `input_ids`, `attention_mask`, `position_labels` [B L]."""
        made = padded([self._framed(i) for i in ids.tolist()], self._pad_id, torch.device("cpu"))
        labels = np.full(made["input_ids"].shape, IGNORED)
        for row, i in zip(labels, ids.tolist()):
            places, words = self.places(i)
            row[places] = self._labels[words]
        return {**made, "position_labels": torch.from_numpy(labels)}

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns file and line of the windows' sentences."""
        found = (self.sentences[i] for i in self._windows[ids, 0])
        return [f"{one.file}:{one.line}" for one in found]

    def places(self, window: int) -> tuple[Int[np.ndarray, " w"], Int[np.ndarray, " w"]]:
        """Returns where the words that count in a window have their first pieces, [CLS] being 0, and which words.

        Words are numbered over all sentences.
        """
        _, start, _, first, stop = self._windows[window]
        return self._first[first:stop] - self._first[start] + 1, np.arange(first, stop)

    def by_sentence(self, values: Float[np.ndarray, "n k"]) -> list[Float[np.ndarray, "_ k"]]:
        """Returns what belongs to all words by their sentences."""
        return [values[a:b] for a, b in zip(self._bounds[:-1], self._bounds[1:])]

    def _framed(self, window: int) -> np.ndarray:
        _, start, stop, _, _ = self._windows[window]
        return np.array([self._cls_id, *self._ids[self._first[start] : self._first[stop]], self._sep_id])


def word_probabilities(
    model: Model, source: TagSource, advance: Callable[[int], None] = lambda n: None
) -> list[Float32[np.ndarray, "_ k"]]:
    """Returns of each sentence the probability of each class at each word.

    Args:
        model: in eval mode, wherever it is, with a head "position" for the source's classes.
        source: the sentences.
        advance: told the number of finished windows.
    """

    def read(model: Model, batch: Batch) -> Tensor:
        return model(batch, with_losses=False).predictions["position"].float().softmax(1)

    return source.by_sentence(of_words(model, source, len(source.classes), read, advance))


def word_vectors(
    model: Model, source: TagSource, advance: Callable[[int], None] = lambda n: None
) -> Float32[np.ndarray, "n D"]:
    """Returns what the encoder gives at each word's first piece, of all sentences' words in order.

    Args:
        model: in eval mode, wherever it is; `encoder.mixed_layers` says of how many layers it is the mean.
        source: the sentences.
        advance: told the number of finished windows.
    """

    def read(model: Model, batch: Batch) -> Tensor:
        embedded = model.embedding(batch)
        return model.encoder(embedded.hidden, embedded.attention_mask).values

    return of_words(model, source, model.config.encoder.hidden_size, read, advance)


@torch.inference_mode()
def of_words(
    model: Model,
    source: TagSource,
    width: int,
    read: Callable[[Model, Batch], Tensor],
    advance: Callable[[int], None] = lambda n: None,
) -> Float32[np.ndarray, "n k"]:
    """Returns what a model says at each word's first piece; windows of like length are computed together.

    Args:
        model: in eval mode, wherever it is.
        source: the sentences.
        width: k.
        read: what is wanted of a batch, a row for each real token, [R k].
        advance: told the number of finished windows.
    """
    device = next(model.parameters()).device
    found = np.zeros((sum(len(one.words) for one in source.sentences), width), np.float32)
    for chosen in by_length(source.lengths, most_tokens(device)):
        said = read(model, {name: one.to(device) for name, one in source.batch(chosen, np.zeros_like(chosen)).items()})
        places, words = zip(*(source.places(i) for i in chosen.tolist()))
        ends = np.cumsum(source.lengths[chosen])
        rows = np.concatenate([place + end - n for place, end, n in zip(places, ends, source.lengths[chosen])])
        found[np.concatenate(words)] = said[torch.from_numpy(rows).to(device)].float().cpu().numpy()
        advance(len(chosen))
    return found


def best_tags(probabilities: Sequence[Float[np.ndarray, "_ k"]], classes: Sequence[str]) -> list[list[str]]:
    """Returns of each sentence the most probable tag of each word."""
    return [[classes[i] for i in one.argmax(1)] for one in probabilities]


def tag_classes(sentences: Iterable[Sentence]) -> list[str]:
    """Returns the tags of sentences, O first and the others in the order of their types."""
    found = {tag for one in sentences for tag in one.tags or ()}
    return sorted(found, key=lambda tag: (tag != "O", tag[2:], tag))


def spans(tags: Sequence[str], sentence: Sentence) -> list[dict[str, Any]]:
    """Returns the entities that tags mark in a sentence, by conlleval's rule, which reads every scheme.

    Returns:
        Of each `type`, `text`, `start` and `stop` (characters of the sentence's text: `text[start:stop]`), `words`,
        `first_word` and `stop_word` (one past the last).

    Raises:
        UserError: a tag of no scheme.
        ValueError: not as many tags as words.
    """
    if len(tags) != len(sentence.words):
        raise ValueError(f"expected {len(sentence.words)} tags, got {len(tags)}")
    found = []
    for kind, first, stop in entities_of(tags):
        start, end = sentence.offsets[first][0], sentence.offsets[stop - 1][1]
        found.append(
            {
                "type": kind,
                "text": sentence.text[start:end],
                "start": start,
                "stop": end,
                "words": sentence.words[first:stop],
                "first_word": first,
                "stop_word": stop,
            }
        )
    return found


def _pieces(
    words: Sequence[str], tokenizer: Tokenizer, room: int, counts: Counter[str]
) -> tuple[Int[np.ndarray, " T"], Int[np.ndarray, " bounds"]]:
    """Returns the ids of all words' pieces, and where each word begins among them; each word is tokenised once."""
    number = {word: i for i, word in enumerate(dict.fromkeys(words))}
    which = np.array([number[word] for word in words], dtype=np.int64)
    found = [one.ids for one in tokenizer.pieces(list(number))]
    sizes = np.array([len(ids) for ids in found], dtype=np.int64)
    counts["words_without_pieces"] += int((sizes[which] == 0).sum())
    counts["cut_words"] += int((sizes[which] > room).sum())
    ids = [i for one in found for i in one[:room] or [tokenizer.unk_id]]
    sizes = sizes.clip(1, room)
    first = np.concatenate([[0], np.cumsum(sizes[which])])
    begins = np.cumsum(sizes) - sizes
    places = np.arange(first[-1]) + np.repeat(begins[which] - first[:-1], sizes[which])
    return np.array(ids, dtype=np.int64)[places], first


def _windows(first: Int[np.ndarray, " bounds"], room: int, stride: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields the windows of a sentence: first word and end, first word that counts in it and end.

    Args:
        first: token at which each word begins, and the end.
        room: tokens of a window; no word has more.
        stride: tokens from one to the next.
    """
    n, spans, start = len(first) - 1, [], 0
    while n and first[n] - first[start] > room:
        stop = int(np.searchsorted(first, first[start] + room, side="right")) - 1
        spans.append((start, stop))
        start = max(start + 1, int(np.searchsorted(first, first[start] + stride, side="right")) - 1)
    if n:
        spans.append((int(np.searchsorted(first, first[n] - room)), n))
    best, owner = np.full(n, -1), np.zeros(n, dtype=np.int64)
    for k, (a, b) in enumerate(spans):
        context = np.minimum(first[a:b] - first[a], first[b] - first[a + 1 : b + 1])
        better = context > best[a:b]
        best[a:b][better], owner[a:b][better] = context[better], k
    for k, (a, b) in enumerate(spans):
        mine = np.searchsorted(owner, [k, k + 1])  # a later window's context grows and an earlier one's shrinks
        if mine[0] < mine[1]:
            yield a, b, int(mine[0]), int(mine[1])


def _notes(counts: Counter[str], unknown: Counter[str], length: int) -> dict[str, list[str]]:
    named = ", ".join(f"{tag}: {n:,}" for tag, n in unknown.most_common(_MOST_NAMED))
    rest = ", …" if len(unknown) > _MOST_NAMED else ""
    empty, cut = counts["words_without_pieces"], counts["cut_words"]
    messages = {
        "unknown_tags": f"{unknown.total():,} words have a tag that is no class ({named}{rest}); none is trained on",
        "words_without_pieces": f"{empty:,} words are nothing to the tokenizer; they are [UNK]",
        "cut_words": f"{cut:,} words have more pieces than a window of {length} tokens; their ends are cut",
    }
    numbers = counts | Counter(unknown_tags=unknown.total())
    return {code: [message] for code, message in messages.items() if numbers[code]}
