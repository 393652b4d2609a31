"""Texts with labels as a source for training, and what a model says of them; long ones in windows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, UInt32
from torch import Tensor

from bothways.draws import generator
from bothways.heads import Batch
from bothways.model import Model
from bothways.text.batching import POOL, by_length, most_tokens, padded
from bothways.text.tokenizer import Tokenizer
from bothways.text.vectors import cuts


@dataclass(frozen=True)
class Tokenised:
    """Texts as the model reads them, with [CLS] and [SEP], in one array.

    Attributes:
        ids: of all windows, one after the other.
        starts: where each window begins, and the end, [W+1].
        n_first: of pairs, how many tokens of a window belong to the first text; else 0, [W].
        first_window: of each text, and W, [n+1].
        n_too_long: texts that are longer than a window, or pairs that lost their ends.
        tokens: of each text, without [CLS] and [SEP], before anything was cut, [n].
    """

    ids: UInt32[np.ndarray, " T"]
    starts: Int[np.ndarray, " W1"]
    n_first: Int[np.ndarray, " W"]
    first_window: Int[np.ndarray, " n1"]
    n_too_long: int
    tokens: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.first_window) - 1

    def batch(self, windows: Int[np.ndarray, " B"], pad_id: int, device: torch.device) -> dict[str, Tensor]:
        """Returns windows as the model reads them, padded on the right."""
        ids = [self.ids[self.starts[w] : self.starts[w + 1]].astype(np.int64) for w in windows]
        n_first = self.n_first[windows].tolist()
        return padded(ids, pad_id, device, n_first if any(n_first) else None)


def tokenise(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, *, length: int, too_long: str
) -> Tokenised:
    """Splits texts, or pairs of texts, into the windows that a model reads.

    Args:
        tokenizer: the model's.
        texts: any number.
        pairs: the second text of each; none where there is one alone.
        length: tokens of a window, [CLS] and [SEP] among them.
        too_long: a longer text is cut into `windows` of like length, or `cut`: it loses its end, as the longer one of
            a pair always does.

    Raises:
        UserError: one is no Unicode text.
    """
    windows: list[np.ndarray] = []
    n_first, n_windows, tokens = [], [], []
    n_too_long = 0
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    room = length - (2 if pairs is None else 3)
    for start in range(0, len(texts), POOL):
        chunk = [one.ids for one in tokenizer.pieces(texts[start : start + POOL])]
        seconds = None if pairs is None else [one.ids for one in tokenizer.pieces(pairs[start : start + POOL])]
        for place, ids in enumerate(chunk):
            if seconds is None:
                bounds = list(cuts(len(ids), room, too_long))
                windows += [np.array([cls_id, *ids[a:b], sep_id], np.uint32) for a, b in bounds]
                n_first += [0] * len(bounds)
                tokens.append(len(ids))
            else:
                second = seconds[place]
                a, b = _fitted(len(ids), len(second), room)
                windows.append(np.array([cls_id, *ids[:a], sep_id, *second[:b], sep_id], np.uint32))
                n_first.append(a + 2)
                bounds = [(0, a)]
                tokens.append(len(ids) + len(second))
            n_windows.append(len(bounds))
            n_too_long += tokens[-1] > room
    lengths = np.fromiter(map(len, windows), np.int64, len(windows))
    return Tokenised(
        ids=np.concatenate(windows) if windows else np.zeros(0, np.uint32),
        starts=np.concatenate([[0], lengths.cumsum()]),
        n_first=np.array(n_first, np.int64),
        first_window=np.concatenate([[0], np.cumsum(n_windows, dtype=np.int64)]),
        n_too_long=n_too_long,
        tokens=np.array(tokens, np.int64),
    )


def _fitted(a: int, b: int, room: int) -> tuple[int, int]:
    """Returns how many tokens of two texts are read: the longer one gives up its end first."""
    if (over := a + b - room) > 0:
        longer = min(over, abs(a - b))
        a, b = (a - longer, b) if a > b else (a, b - longer)
        rest = over - longer
        a, b = a - (rest + 1) // 2, b - rest // 2
    return a, b


class TextSource:
    """Labelled texts for training, see `training.Source`; of a text in windows one is drawn each time.

    Args:
        texts: as tokenised.
        labels: what the head learns of each: a class [n], or targets [n k], standardised numbers or 0 and 1.
        pad_id: of the tokenizer.
        seed: of the draws of windows.
        names: where each is from, for messages.
    """

    def __init__(
        self,
        texts: Tokenised,
        labels: Int[np.ndarray, " n"] | Float[np.ndarray, "n k"],
        pad_id: int,
        *,
        seed: int,
        names: Sequence[str],
    ) -> None:
        self.texts, self.pad_id, self.seed, self._names = texts, pad_id, seed, names
        self.labels = torch.from_numpy(labels if labels.ndim == 1 else labels.astype(np.float32))

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.texts)

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns where the texts are from."""
        return [self._names[one] for one in ids]

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"]) -> dict[str, Tensor]:
        """Returns texts with `labels` [B], or `targets` [B k]."""
        windows = np.array([self._window(int(one), int(epoch)) for one, epoch in zip(ids, epochs)])
        batch = self.texts.batch(windows, self.pad_id, torch.device("cpu"))
        return {**batch, "labels" if self.labels.ndim == 1 else "targets": self.labels[ids]}

    def _window(self, number: int, epoch: int) -> int:
        first, last = (int(one) for one in self.texts.first_window[number : number + 2])
        if last - first == 1:
            return first
        return first + int(generator("window", self.seed, epoch, number).integers(last - first))


@torch.inference_mode()
def told(
    model: Model,
    texts: Tokenised,
    pad_id: int,
    read: Callable[[Model, Batch], Tensor],
    advance: Callable[[int], None] = lambda n: None,
) -> Float[np.ndarray, "n k"]:
    """Returns what a model says of each text, in order; those of like length are computed together.

    Args:
        model: in eval mode, wherever it is.
        texts: of several windows the mean is taken.
        pad_id: of the tokenizer.
        read: what is wanted of a batch, [B k] or [B], e.g. `training.class_probabilities`.
        advance: told the number of finished windows.
    """
    device = next(model.parameters()).device
    lengths, of = np.diff(texts.starts), np.repeat(np.arange(len(texts)), np.diff(texts.first_window))
    found: np.ndarray | None = None
    for chosen in by_length(lengths, most_tokens(device)):
        some = read(model, texts.batch(chosen, pad_id, device)).double().cpu().numpy().reshape(len(chosen), -1)
        found = np.zeros((len(texts), some.shape[1])) if found is None else found
        np.add.at(found, of[chosen], some)
        advance(len(chosen))
    if found is None:
        return np.zeros((0, 0))
    return found / np.diff(texts.first_window)[:, None]
