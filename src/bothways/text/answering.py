"""Questions with their contexts to windows of tokens, and the scores of starts and ends to answers in the contexts."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bothways.errors import UserError
from bothways.heads import IGNORED
from bothways.model import Model
from bothways.text.batching import POOL, by_length, most_tokens, padded
from bothways.text.graphemes import whole_graphemes
from bothways.text.squad import Question, Squad
from bothways.text.tokenizer import Tokenizer

_SPECIAL = 3
"""[CLS] question [SEP] context [SEP]."""
_ENCODED = 1024
"""Texts that are tokenised together."""
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Pieces:
    """Tokens of many texts, one text after the other.

    Attributes:
        ids: of all tokens.
        spans: first character of each token in its text, and one past its last.
        seen: whether a token stands for something that can be seen, and not for white space or nothing.
        first: where each text's tokens begin, and the end of all.
    """

    ids: Int[np.ndarray, " T"]
    spans: Int[np.ndarray, "T 2"]
    seen: Bool[np.ndarray, " T"]
    first: Int[np.ndarray, " n"]

    def of(self, text: int) -> slice:
        """Returns which tokens are a text's."""
        return slice(int(self.first[text]), int(self.first[text + 1]))


class AnswerSource:
    """Windows of questions and their contexts, see `training.Source`: [CLS] question [SEP] part of the context [SEP].

    Of a context that does not fit the windows begin `stride` tokens apart (the `doc_stride` of run_squad.py of
    google-research/bert), so that they share all but `stride` of the tokens there is room for; the last one ends with
    the context.

    Args:
        squad: the questions; each context is tokenised once.
        tokenizer: the model's.
        length: tokens of a window.
        stride: tokens of the context from one window's beginning to the next one's.
        max_question: a longer question loses its end.
        training: leave out what cannot be trained on: questions whose answer is not told, not found or without a token.

    Attributes:
        questions: those of `squad`.
        windows: question, first token of its context and one past the last, in the questions' order.
        labels: tokens of the window where the first gold answer that lies in it whole begins and ends; both 0, [CLS],
            where none does; both `heads.IGNORED` where it is not known.
        lengths: tokens of each window.
        counts: a word for programs -> how many; of `notes` and of what there is.
        notes: a word for programs -> what was cut, left out or looks wrong.

    Raises:
        UserError: lengths that do not fit each other or the model.
    """

    def __init__(
        self,
        squad: Squad,
        tokenizer: Tokenizer,
        *,
        length: int = 384,
        stride: int = 128,
        max_question: int = 64,
        training: bool = False,
    ) -> None:
        check_windows(tokenizer, length, stride, max_question)
        self.questions: list[Question] = squad.questions
        self.tokenizer, self.length, self.stride, self.training = tokenizer, length, stride, training
        asked = sorted({one.context for one in squad.questions})
        self.contexts = [squad.contexts[number] for number in asked]
        places = {number: place for place, number in enumerate(asked)}
        self.context_of = np.array([places[one.context] for one in squad.questions], dtype=np.int64)
        self._context = _pieces(tokenizer, self.contexts)
        asking = _ids(tokenizer, [one.text for one in squad.questions])
        self._question = [ids[:max_question] for ids in asking]
        counts = Counter(questions_cut=sum(len(ids) > max_question for ids in asking))
        made = [self._windows(number, counts) for number in range(len(self.questions))]
        both = np.concatenate([np.zeros((0, 5), dtype=np.int64), *made])
        if training:
            both = both[both[:, 3] != IGNORED]
        self.windows, self.labels = both[:, :3], both[:, 3:]
        asked_tokens = np.array([len(ids) for ids in self._question], dtype=np.int64)
        self.lengths = asked_tokens[self.windows[:, 0]] + self.windows[:, 2] - self.windows[:, 1] + _SPECIAL
        self.notes = {
            code: [message.format(f"{counts[code]:,}", max_question)]
            for code, message in _MESSAGES.items()
            if counts[code] and (training or code not in _OF_TRAINING)
        }
        self.counts = {"windows": len(self), **{code: counts[code] for code in self.notes}}

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows)

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"]) -> dict[str, Tensor]:
        """Returns windows, the same in each epoch: `input_ids`, `attention_mask`, `token_type_ids`, `span_labels`."""
        pieces = [self.sequence(int(one)) for one in ids]
        batch = padded(pieces, self.tokenizer.pad_id, torch.device("cpu"), [self.n_first(int(one)) for one in ids])
        return {**batch, "span_labels": torch.from_numpy(self.labels[ids])}

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns the questions' ids and which tokens of their contexts the windows hold."""
        return [f"{self.questions[q].id} (tokens {a} to {b} of its context)" for q, a, b in self.windows[ids].tolist()]

    def sequence(self, window: int) -> Int[np.ndarray, " L"]:
        """Returns a window's ids."""
        question, start, stop = self.windows[window]
        first = self._context.first[self.context_of[question]]
        sep = [self.tokenizer.sep_id]
        part = self._context.ids[first + start : first + stop]
        return np.concatenate([[self.tokenizer.cls_id], self._question[question], sep, part, sep])

    def n_first(self, window: int) -> int:
        """Returns how many tokens lie before a window's part of the context."""
        return len(self._question[self.windows[window, 0]]) + 2

    def answer(self, question: int, first: int, last: int) -> tuple[int, int]:
        """Returns where an answer stands in its context: its first character and one past its last.

        Args:
            question: which.
            first: token of the context that it begins with.
            last: token that it ends with.
        """
        place = int(self.context_of[question])
        context, spans = self.contexts[place], self._context.spans[self._context.of(place)]
        start, stop = int(spans[first, 0]), int(spans[last, 1])
        inner = context[start:stop]
        start, stop = start + len(inner) - len(inner.lstrip()), stop - len(inner) + len(inner.rstrip())
        return whole_graphemes(context, start, stop)

    def counted(self, window: int) -> Bool[np.ndarray, "2 n"]:
        """Says of a window's tokens of the context whether an answer may begin, and whether it may end with them.

        It begins in the window alone in which that token has the most context, counted as run_squad.py does: on the
        side where there is less of it, and of equal windows the first. About half of what windows share follows the
        token there, so with a `stride` near the whole window longer answers are cut.
        """
        question, start, stop = self.windows[window].tolist()
        first = self._context.first[self.context_of[question]]
        seen = self._context.seen[first + start : first + stop]
        near = (self.length - self.n_first(window) - 1) // self.stride  # so many on each side overlap it
        begin = max(0, window - near)
        others = self.windows[begin : window + near + 1]
        mine = np.flatnonzero(others[:, 0] == question)
        begin, others = begin + int(mine[0]), others[mine]
        tokens, starts, stops = np.arange(start, stop), others[:, 1:2], others[:, 2:]
        context = np.minimum(tokens - starts, stops - 1 - tokens) + 0.01 * (stops - starts)
        context[(tokens < starts) | (tokens >= stops)] = -np.inf
        return np.stack([seen & (context.argmax(0) == window - begin), seen])

    def _windows(self, number: int, counts: Counter[str]) -> Int[np.ndarray, "W 5"]:
        """Returns a question's windows and their labels; counts what is wrong with them."""
        question, place = self.questions[number], int(self.context_of[number])
        n_first = len(self._question[number]) + 2
        n_tokens, room = int(np.diff(self._context.first[place : place + 2])[0]), self.length - n_first - 1
        starts = np.arange(1 + max(0, -(-(n_tokens - room) // self.stride))) * self.stride
        stops = np.minimum(starts + room, n_tokens)
        made = np.stack([np.full(len(starts), number), starts, stops, *np.zeros((2, len(starts)), int)], axis=1)
        counts["not_told"] += question.answers is None
        counts["not_found"] += question.answers is not None and not question.trainable
        told = [(one.start, one.start + len(one.text)) for one in question.answers or () if one.start is not None]
        found = [tokens for start, stop in told if (tokens := self._tokens(place, start, stop)) is not None]
        if not question.trainable or (told and not found):
            counts["without_token"] += bool(told)
            made[:, 3:] = IGNORED
            return made
        for first, last in reversed(found):  # the first one is written last
            whole = (starts <= first) & (last < stops)
            made[whole, 3:] = np.array([first, last]) - starts[whole, None] + n_first
        counts["in_no_window"] += bool(found) and not made[:, 3:].any()
        return made

    def _tokens(self, place: int, start: int, stop: int) -> tuple[int, int] | None:
        """Returns the first and last token that can be seen and share a character with a stretch of a context."""
        here = self._context.of(place)
        spans, seen = self._context.spans[here], self._context.seen[here]
        shared = np.flatnonzero(seen & (spans[:, 1] > start) & (spans[:, 0] < stop))
        return (int(shared[0]), int(shared[-1])) if len(shared) else None


def check_windows(tokenizer: Tokenizer, length: int, stride: int, max_question: int) -> None:
    """Checks that windows fit the model and the longest question, and leave nothing out.

    Raises:
        UserError: they do not.
    """
    if tokenizer.n_segments == 1:
        raise UserError("expected a model that tells a question from its context, got one of one segment; use a BERT")
    if not 1 <= length <= tokenizer.max_length:
        raise UserError(
            f"length: expected at most {tokenizer.max_length} tokens, as many as the model has positions, got {length}"
        )
    if max_question < 1:
        raise UserError(f"max_question: expected 1 token or more, got {max_question}")
    room = length - max_question - _SPECIAL
    if not 1 <= stride < room:
        raise UserError(
            f"stride: expected 1 to {room - 1} tokens, below the {max(room, 0)} that a window of {length} leaves a "
            f"context beside a question of {max_question}, got {stride}; lower stride or max_question"
            if room > 1
            else f"length: expected more than {max_question + _SPECIAL + 1} tokens, for a question of {max_question} "
            f"and a part of its context, got {length}; raise length or lower max_question"
        )


@torch.inference_mode()
def predict_answers(
    model: Model,
    source: AnswerSource,
    *,
    n_best: int = 20,
    max_answer_tokens: int = 30,
    threshold: float | None = 0.0,
    advance: Advance = lambda n: None,
) -> list[dict[str, Any]]:
    """Answers questions with parts of their contexts, as run_squad.py of google-research/bert chooses them.

    All spans compete, not those of the best starts and ends alone.

    Args:
        model: with a `span` head, in eval mode, wherever it is.
        source: the questions, not made for training.
        n_best: how many different answers are told.
        max_answer_tokens: tokens of an answer at most.
        threshold: how much the null score may be above the best answer's before the answer is ""; None = it never is.
        advance: told the number of questions that are done.

    Returns:
        For each question `id`, `text`, `start` and `stop` (characters of the context, one past the last; None where
        the text is ""), `score` (start + end of the best span, also where the text is ""; None where there is none),
        `null_score` ([CLS] as start and end, the lowest of the windows), `no_answer_score` (null score minus score)
        and `n_best`: `text`, `start`, `stop` and `score` of each, the best first.

    Raises:
        UserError: the model has no span head, or a number below 1.
    """
    for name, value in (("n_best", n_best), ("max_answer_tokens", max_answer_tokens)):
        if value < 1:
            raise UserError(f"{name}: expected 1 or more, got {value}")
    if "span" not in model.heads:
        raise UserError("expected a model that was fine-tuned to answer, got one without a span head; fine-tune it")
    if source.training:
        raise ValueError("a source for training leaves questions out; make one without `training`")
    answers = []
    for pool in _pools(source):
        spans, null = _scores(model, source, pool, n_best, max_answer_tokens)
        owner = source.windows[pool, 0]
        for question in np.unique(owner).tolist():
            here = owner == question
            best = _different(source, question, np.concatenate([spans[i] for i in np.flatnonzero(here)]), n_best)
            answers.append(_chosen(source.questions[question].id, best, float(null[here].min()), threshold))
        advance(len(np.unique(owner)))
    return answers


def _pools(source: AnswerSource) -> Iterator[Int[np.ndarray, " w"]]:
    """Yields windows of whole questions, in order, about as many at a time."""
    ends = np.append(np.flatnonzero(np.diff(source.windows[:, 0])) + 1, len(source))
    start = 0
    while start < len(source):
        stop = int(ends[min(int(np.searchsorted(ends, start + POOL)), len(ends) - 1)])
        yield np.arange(start, stop)
        start = stop


def _scores(
    model: Model, source: AnswerSource, pool: Int[np.ndarray, " w"], n_best: int, max_answer_tokens: int
) -> tuple[list[Float[np.ndarray, "k 3"]], Float[np.ndarray, " w"]]:
    """Returns of each window the best spans (score, first and last token of the context), and the null scores."""
    device = next(model.parameters()).device
    spans: list[np.ndarray] = [np.empty((0, 3))] * len(pool)
    null = np.empty(len(pool))
    for chosen in by_length(source.lengths[pool], most_tokens(device)):
        windows = pool[chosen]
        n_first = [source.n_first(window) for window in windows.tolist()]
        sequences = [source.sequence(window) for window in windows.tolist()]
        batch = padded(sequences, source.tokenizer.pad_id, device, n_first)
        scores = model(batch, with_losses=False).predictions["span"].float()  # [B 2 L]
        null[chosen] = scores[:, :, 0].sum(1).double().cpu().numpy()
        allowed = np.zeros(scores.shape, dtype=bool)
        for row, window, begin in zip(allowed, windows.tolist(), n_first):
            counted = source.counted(window)
            row[:, begin : begin + counted.shape[1]] = counted
        found, first, last = _best_spans(scores, torch.from_numpy(allowed).to(device), n_best**2, max_answer_tokens)
        moved = source.windows[windows, 1] - n_first
        for i, place in enumerate(chosen.tolist()):
            there = np.isfinite(found[i])
            spans[place] = np.stack([found[i], first[i] + moved[i], last[i] + moved[i]], axis=1)[there]
    return spans, null


def _best_spans(
    scores: Float[Tensor, "B 2 L"], allowed: Bool[Tensor, "B 2 L"], n: int, max_tokens: int
) -> tuple[Float[np.ndarray, "B k"], Int[np.ndarray, "B k"], Int[np.ndarray, "B k"]]:
    """Returns the best spans of each window: start + end, and its first and last position; minus infinity is none."""
    width = min(max_tokens, scores.shape[2])
    start, end = scores.masked_fill(~allowed, -torch.inf).unbind(1)
    ends = torch.nn.functional.pad(end, (0, width - 1), value=-torch.inf).unfold(1, width, 1)  # [B L width]
    sums = (start[:, :, None] + ends).flatten(1)
    best = sums.topk(min(n, sums.shape[1]))
    first = best.indices // width
    return (
        best.values.double().cpu().numpy(),
        first.cpu().numpy(),
        (first + best.indices % width).cpu().numpy(),
    )


def _different(
    source: AnswerSource, question: int, spans: Float[np.ndarray, "k 3"], n_best: int
) -> list[dict[str, Any]]:
    """Returns the best of spans whose texts differ; of equal scores the one that stands first."""
    context = source.contexts[int(source.context_of[question])]
    best: dict[str, dict[str, Any]] = {}
    for place in np.lexsort((spans[:, 2], spans[:, 1], -spans[:, 0])):
        score, first, last = spans[place].tolist()
        start, stop = source.answer(question, int(first), int(last))
        text = context[start:stop]
        best.setdefault(text, {"text": text, "start": start, "stop": stop, "score": score})
        if len(best) == n_best:
            break
    return list(best.values())


def _chosen(name: str, best: list[dict[str, Any]], null_score: float, threshold: float | None) -> dict[str, Any]:
    score = best[0]["score"] if best else None
    gap = None if score is None else null_score - score
    answered = gap is not None and (threshold is None or gap <= threshold)
    place = (
        {name: best[0][name] for name in ("text", "start", "stop")}
        if answered
        else {"text": "", "start": None, "stop": None}
    )
    scores = {"score": score, "null_score": null_score, "no_answer_score": gap}
    return {"id": name, **place, **scores, "n_best": best}


def _ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Int[np.ndarray, " n"]]:
    parts = (texts[start : start + _ENCODED] for start in range(0, len(texts), _ENCODED))
    return [np.array(one.ids, dtype=np.int64) for part in parts for one in tokenizer.pieces(part)]


def _pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> Pieces:
    """Tokenises texts, some at a time: what the tokenizer gives takes many times the room of what is kept."""
    ids, spans, seen = [np.zeros(0, np.int32)], [np.zeros((0, 2), np.int32)], [np.zeros(0, bool)]
    for start in range(0, len(texts), _ENCODED):
        part = texts[start : start + _ENCODED]
        for text, one in zip(part, tokenizer.pieces(part, offsets=True)):
            offsets = one.offsets  # made anew at each look
            ids.append(np.array(one.ids, dtype=np.int32))
            spans.append(np.array(offsets, dtype=np.int32).reshape(-1, 2))
            seen.append(np.array([bool(text[a:b].strip()) for a, b in offsets], dtype=bool))
    first = np.concatenate([[0], np.cumsum([len(one) for one in ids[1:]], dtype=np.int64)])
    return Pieces(np.concatenate(ids), np.concatenate(spans), np.concatenate(seen), first)


_OF_TRAINING = ("not_told", "not_found", "without_token", "in_no_window")
_MESSAGES = {
    "questions_cut": "{} questions are longer than {} tokens and lost their ends",
    "not_told": "{} questions have no gold answer, and are not trained on",
    "not_found": "{} questions have an answer that is not found in the context, and are not trained on",
    "without_token": "{} questions have an answer that no token stands for, and are not trained on",
    "in_no_window": "{} questions have an answer that no window holds whole, and are trained as if they had none",
}
