"""Windows of questions, their labels, and answers from scores: equal to plain loops over run_squad.py's rules."""

import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import BertForQuestionAnswering, BertTokenizerFast

from bothways.config import TextConfig, TrainingConfig
from bothways.errors import UserError
from bothways.evaluation import answer_metrics
from bothways.heads import IGNORED
from bothways.model import Model
from bothways.text import AnswerSource, Squad, Tokenizer, load_folder, predict_answers, read_squad
from bothways.text.graphemes import whole_graphemes
from bothways.text.tokenizer import SPECIAL
from bothways.training import Source, train
from corpora import write_tokenizer
from questions import answering_model, asked, in_bytes, letters
from texts import save_bert

LETTERS, BYTES = letters(), in_bytes()
ODD = st.sampled_from(
    ["a", "bc", "cat", ".", "?", " ", "  ", "\t", "\r\n", "\n", "🙂", "👩\u200d💻", "👍🏽", "🇩🇪", "e\u0301", "É", "猫",
     "İ", "\u00a0", "\u200b", "[SEP]", "\x00", "ﬁ", "각", "a\u0300\u0323", "\ufeff", "-"]
)  # fmt: skip
CONTEXTS = st.lists(ODD, max_size=30).map("".join)
TOKENIZERS = st.sampled_from([LETTERS, BYTES])


def source(squad: Squad, tokenizer: Tokenizer = LETTERS, **settings: Any) -> AnswerSource:
    return AnswerSource(squad, tokenizer, **{"length": 24, "stride": 6, "max_question": 8} | settings)


def read_back(made: AnswerSource, window: int) -> str | None:
    """The text that a window's label stands for."""
    question, start, _ = made.windows[window].tolist()
    if not made.labels[window].any():
        return None
    first, last = (made.labels[window] - made.n_first(window) + start).tolist()
    begin, end = made.answer(question, first, last)
    return made.contexts[made.context_of[question]][begin:end]


# Windows --------------------------------------------------------------------------------------------------------------


def test_a_window_is_cls_question_sep_context_sep() -> None:
    made = source(asked(("ab?", "cd. e", ["d."])))
    assert [LETTERS.token(i) for i in made.sequence(0).tolist()] == [
        "[CLS]", "a", "##b", "?", "[SEP]", "c", "##d", ".", "e", "[SEP]"
    ]  # fmt: skip
    batch = made.batch(np.array([0]), np.array([0]))
    assert batch["token_type_ids"].tolist() == [[0] * 5 + [1] * 5]
    assert batch["span_labels"].tolist() == [[6, 7]]
    assert isinstance(made, Source)


def test_windows_begin_a_stride_apart_and_end_with_the_context() -> None:
    """Room for 24 - 2 - 3 = 19 tokens of a context of 32, 6 apart."""
    made = source(asked(("aa", "a" * 32, None)))
    assert made.windows.tolist() == [[0, 0, 19], [0, 6, 25], [0, 12, 31], [0, 18, 32]]
    assert made.lengths.tolist() == [24, 24, 24, 19]
    assert [len(made.sequence(i)) for i in range(4)] == [24, 24, 24, 19]
    assert made.names(np.array([1])) == ["q0 (tokens 6 to 25 of its context)"]


def test_labels_of_each_window() -> None:
    context = "aa bb cc dd ee ff gg hh ii jj kk ll"  # 24 tokens, 12 words
    made = source(asked(("a", context, ["ff gg"]), ("a", context, []), ("a", context, None)), length=16, stride=4)
    # Room for 12 tokens: 0-12, 4-16, 8-20, 12-24; the answer is 10-14.
    assert made.windows[:4].tolist() == [[0, 0, 12], [0, 4, 16], [0, 8, 20], [0, 12, 24]]
    assert made.labels.tolist() == [[0, 0], [9, 12], [5, 8], [0, 0], *[[0, 0]] * 4, *[[IGNORED] * 2] * 4]


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [(["ll", "bb", "cc"], ["bb", "cc", None, "ll"]), (["ll", "cc", "bb"], ["cc", "cc", None, "ll"])],
)
def test_the_first_gold_answer_in_a_window_counts(answers: list[str], wanted: list[str | None]) -> None:
    """The windows hold aa to ff, cc to hh, ee to jj, gg to ll."""
    made = source(asked(("a", "aa bb cc dd ee ff gg hh ii jj kk ll", answers)), length=16, stride=4)
    assert [read_back(made, i) for i in range(4)] == wanted


def test_what_cannot_be_trained_on_is_left_out_of_training_and_counted() -> None:
    squad = asked(
        ("a", "cat sat", ["cat"]), ("b", "cat sat", ["dog"]), ("c", "cat sat", None), ("d", "\x00 a", ["\x00"]),
        ("e", "a" * 40, ["a" * 40]), ("f" * 9, "cat sat", []),
    )  # fmt: skip
    made = source(squad, training=True)
    assert sorted(set(made.windows[:, 0].tolist())) == [0, 4, 5]
    assert made.counts == {
        "windows": len(made), "questions_cut": 1, "not_told": 1, "not_found": 1, "without_token": 1, "in_no_window": 1,
    }  # fmt: skip
    assert made.notes["questions_cut"] == ["1 questions are longer than 8 tokens and lost their ends"]
    assert list(source(squad).notes) == ["questions_cut"]
    assert sorted(set(source(squad).windows[:, 0].tolist())) == [0, 1, 2, 3, 4, 5]
    assert not (made.labels == IGNORED).any()


def test_contexts_are_tokenised_once_each_and_only_those_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    pieces = Tokenizer.pieces

    def counting(self: Tokenizer, texts: list[str], **options: Any) -> Any:
        seen.update(texts)
        return pieces(self, texts, **options)

    monkeypatch.setattr(Tokenizer, "pieces", counting)
    squad = asked(("a", "cat", ["cat"]), ("b", "cat", []), ("c", "mat", []))
    made = source(squad.select([0, 1]))
    assert seen == {"a": 1, "b": 1, "cat": 1}
    assert pickle.loads(pickle.dumps(made)).sequence(1).tolist() == made.sequence(1).tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 65}, "length: expected at most 64 tokens, as many as the model has positions, got 65"),
        ({"stride": 13}, "stride: expected 1 to 12 tokens, below the 13 that a window of 24 leaves"),
        ({"stride": 0}, "stride: expected 1 to 12 tokens"),
        ({"length": 12}, "length: expected more than 12 tokens, for a question of 8"),
        ({"length": 0}, "length: expected at most 64"),
        ({"max_question": 0}, "max_question: expected 1 token or more, got 0"),
    ],
)
def test_lengths_that_do_not_fit(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        source(asked(("a", "b", [])), **settings)


def test_a_model_of_one_segment_is_refused() -> None:
    one = Tokenizer(LETTERS._tokenizer, SPECIAL, TextConfig(vocab_size=LETTERS.vocab_size, type_vocab_size=1))
    with pytest.raises(UserError, match="one segment"):
        source(asked(("a", "b", [])), one)


@given(CONTEXTS, st.integers(0, 12), st.integers(14, 40), st.integers(1, 4), TOKENIZERS)
def test_windows_cover_every_token(context: str, n_asked: int, length: int, stride: int, tokenizer: Tokenizer) -> None:
    made = AnswerSource(asked(("a" * n_asked, context, None)), tokenizer, length=length, stride=stride, max_question=6)
    n = len(tokenizer.pieces([context])[0].ids)
    starts, stops = made.windows[:, 1].tolist(), made.windows[:, 2].tolist()
    assert (starts[0], stops[-1]) == (0, n)
    assert all(later - earlier == stride for earlier, later in pairwise(starts))
    room = length - min(n_asked, 6) - 3
    assert all(stop - start == room for start, stop in zip(starts[:-1], stops[:-1]))
    assert stops[-1] - starts[-1] <= room
    assert all(stop < n for stop in stops[:-1])
    owners: Counter[int] = Counter()
    for window, (start, stop) in enumerate(zip(starts, stops)):
        begins, ends = made.counted(window)
        assert len(begins) == stop - start
        assert (ends == made._context.seen[start:stop]).all()
        owners.update((np.flatnonzero(begins) + start).tolist())
        for token in np.flatnonzero(ends) + start:  # run_squad.py, _check_is_max_context
            context_of = [
                min(token - a, b - 1 - token) + 0.01 * (b - a) if a <= token < b else -1.0
                for a, b in zip(starts, stops)
            ]
            assert begins[token - start] == (context_of.index(max(context_of)) == window)
    assert owners == dict.fromkeys(np.flatnonzero(made._context.seen).tolist(), 1)


def test_windows_are_those_of_transformers(tmp_path: Path) -> None:
    """Its `stride` is what two windows share, ours how far they are apart."""
    tokenizer = BertTokenizerFast.from_pretrained(str(write_tokenizer(tmp_path)))
    squad = asked(("who?", "a" * 90, None), ("where is it", "bb " * 40, None), ("a", "c d e", None))
    for stride in (4, 7, 11):
        made = source(squad, stride=stride)
        for number, question in enumerate(squad.questions):
            mine = np.flatnonzero(made.windows[:, 0] == number).tolist()
            room = 24 - made.n_first(mine[0]) - 1
            text = tokenizer.decode(made._question[number]), squad.contexts[question.context]
            theirs = tokenizer(
                *text, truncation="only_second", max_length=24, stride=room - stride, return_overflowing_tokens=True
            )
            assert [made.sequence(w).tolist() for w in mine] == theirs["input_ids"]
            for w, segments in zip(mine, theirs["token_type_ids"]):
                batch = made.batch(np.array([w]), np.array([0]))
                assert batch["token_type_ids"].tolist() == [segments]


# Characters -----------------------------------------------------------------------------------------------------------


def test_white_space_in_tokens_is_no_part_of_an_answer() -> None:
    """Tokens: `x`, ` a`, ` `, `y`, ` `."""
    made = source(asked(("q", "x a y ", [" a", " y "])), BYTES)
    assert made.labels.tolist() == [[4, 4]]
    assert read_back(made, 0) == "a"
    assert made._tokens(0, 3, 6) == (3, 3)
    assert made.answer(0, 1, 3) == (2, 5)
    assert made.counted(0).tolist() == [[True, True, False, True, False]] * 2


def test_a_longer_window_counts_more() -> None:
    """Token 185 is 64 from the end of a window of 250, and 65 from that of one of 131: 66.5 is above 66.31."""
    made = source(asked(("aa", "a " * 251, None)), letters(512), length=255, stride=120)
    assert made.windows.tolist() == [[0, 0, 250], [0, 120, 251]]
    assert [np.flatnonzero(made.counted(window)[0]).tolist() for window in (0, 1)] == [list(range(250)), [130]]


@given(CONTEXTS, st.data(), TOKENIZERS)
def test_a_gold_answer_is_found_back(context: str, data: st.DataObject, tokenizer: Tokenizer) -> None:
    """Whole where it begins and ends with tokens, else the smallest that cover it; graphemes stay whole."""
    tokens = tokenizer.pieces([context], offsets=True)[0].offsets
    spans = [(a, b) for a, b in tokens if context[a:b].strip()]
    start = data.draw(st.integers(0, len(context)))
    stop = data.draw(st.integers(start, len(context)))
    if spans and data.draw(st.booleans()):
        start, stop = data.draw(st.sampled_from(spans))[0], data.draw(st.sampled_from(spans))[1]
    text = context[start:stop]
    if not text.strip():
        return
    squad = asked(("a", context, [text]))
    squad.questions[0] = squad.questions[0]._replace(
        answers=(squad.questions[0].answers[0]._replace(start=start),)  # type: ignore[index]
    )
    made = AnswerSource(squad, tokenizer, length=64, stride=20, max_question=4)
    inside = [i for i, (a, b) in enumerate(tokens) if b > start and a < stop and context[a:b].strip()]
    whole = [w for w, (_, a, b) in enumerate(made.windows.tolist()) if inside and a <= inside[0] and inside[-1] < b]
    for window in range(len(made)):
        label = made.labels[window].tolist()
        assert label == ([IGNORED] * 2 if not inside else label if window in whole else [0, 0])
        if window in whole:
            first, last = (np.array(label) - made.n_first(window) + made.windows[window, 1]).tolist()
            assert (first, last) == (inside[0], inside[-1])
            begin, end = made.answer(0, first, last)
            a, b = tokens[first][0], tokens[last][1]
            covered = context[a:b]
            a, b = a + len(covered) - len(covered.lstrip()), a + len(covered.rstrip())
            assert (begin, end) == whole_graphemes(context, a, b)
            edges = {edge.span()[0] for edge in regex.finditer(r"\X", context)} | {len(context)}
            if (start, stop) == (a, b) and {a, b} <= edges:
                assert context[begin:end] == text


@pytest.mark.parametrize(
    ("context", "start", "stop", "wanted"),
    [
        ("a cafe\u0301!", 2, 6, "cafe\u0301"),
        ("e\u0301a", 1, 3, "e\u0301a"),
        ("a\r\nb", 0, 2, "a\r\n"),
        ("👩\u200d💻 x", 0, 1, "👩\u200d💻"),
        ("👩\u200d💻 x", 2, 3, "👩\u200d💻"),
        ("👍🏽", 0, 1, "👍🏽"),
        ("🇩🇪🇫🇷", 2, 3, "🇫🇷"),
        ("🇩🇪🇫🇷", 1, 2, "🇩🇪"),
        ("❤\ufe0f", 0, 1, "❤\ufe0f"),
        ("\u1100\u1161\u11a8", 0, 1, "\u1100\u1161\u11a8"),
        ("\u0301a", 1, 2, "a"),
        ("e\u200da", 2, 3, "a"),
        ("ab", 1, 1, ""),
    ],
)
def test_graphemes(context: str, start: int, stop: int, wanted: str) -> None:
    start, stop = whole_graphemes(context, start, stop)
    assert context[start:stop] == wanted


@given(CONTEXTS, st.data())
def test_graphemes_as_unicode_has_them(context: str, data: st.DataObject) -> None:
    edges = sorted({edge.span()[0] for edge in regex.finditer(r"\X", context)} | {0, len(context)})
    start = data.draw(st.integers(0, len(context)))
    stop = data.draw(st.integers(start, len(context)))
    wanted = max(edge for edge in edges if edge <= start), min(edge for edge in edges if edge >= stop)
    assert whole_graphemes(context, start, stop) == wanted


# Answers --------------------------------------------------------------------------------------------------------------


def scores_of(model: Model, made: AnswerSource, window: int) -> Tensor:
    batch = made.batch(np.array([window]), np.array([0]))
    with torch.no_grad():
        return model(batch, with_losses=False).predictions["span"][0].double()


def plain_answers(model: Model, made: AnswerSource, question: int, most: int) -> tuple[list[tuple[float, str]], float]:
    """run_squad.py's rules in loops: all spans of a question with their scores, and the null score."""
    found, null = [], []
    windows = [w for w in range(len(made)) if made.windows[w, 0] == question]
    bounds = [made.windows[w, 1:].tolist() for w in windows]
    context = made.contexts[made.context_of[question]]
    for window, (start, stop) in zip(windows, bounds):
        scores, n_first = scores_of(model, made, window), made.n_first(window)
        null.append(float(scores[0, 0] + scores[1, 0]))
        for first in range(start, stop):
            room = [min(first - a, b - 1 - first) + 0.01 * (b - a) if a <= first < b else -1.0 for a, b in bounds]
            if bounds[room.index(max(room))] != [start, stop]:
                continue
            for last in range(first, min(first + most, stop)):
                a, b = made.answer(question, first, last)
                score = scores[0, first - start + n_first] + scores[1, last - start + n_first]
                found.append((float(score), context[a:b]))
    return sorted(found, reverse=True), min(null)


@pytest.fixture(scope="module")
def many() -> AnswerSource:
    contexts = [" ".join("abcdefgh"[i % 8] * (1 + (i * k) % 3) for i in range(4 + 3 * k)) for k in range(1, 7)]
    rows = [("ab" * (1 + k % 4), context, None) for k, context in enumerate(contexts * 2)]
    return source(asked(*rows, ("a", "", None)))


@pytest.mark.parametrize("most", [1, 4, 99])
def test_answers_equal_plain_loops(many: AnswerSource, most: int) -> None:
    model = answering_model(LETTERS, sd=0.4)
    found = predict_answers(model, many, n_best=5, max_answer_tokens=most, threshold=None)
    assert [one["id"] for one in found] == [one.id for one in many.questions]
    for question, one in enumerate(found[:-1]):
        wanted, null = plain_answers(model, many, question, most)
        best: dict[str, float] = {}
        for score, text in wanted:
            best.setdefault(text, score)
        assert [entry["text"] for entry in one["n_best"]] == list(best)[:5]
        assert [entry["score"] for entry in one["n_best"]] == pytest.approx(list(best.values())[:5], abs=1e-4)
        assert one["null_score"] == pytest.approx(null, abs=1e-4)
        assert one["no_answer_score"] == pytest.approx(null - wanted[0][0], abs=1e-4)
        context = many.contexts[many.context_of[question]]
        assert context[one["start"] : one["stop"]] == one["text"] == wanted[0][1]


def test_a_model_of_transformers_answers(tmp_path: Path) -> None:
    theirs = save_bert(tmp_path, BertForQuestionAnswering, max_position_embeddings=64)
    loaded = load_folder(tmp_path)
    context = "The cat sat on Über mat!"
    (found,) = predict_answers(
        loaded.model, source(asked(("the cat?", context, None)), loaded.tokenizer, length=64), threshold=None
    )
    encoded = loaded.tokenizer.encode("the cat?", context)
    with torch.no_grad():
        output = theirs(torch.tensor([encoded.ids]), token_type_ids=torch.tensor([encoded.type_ids]))
    start, end = output.start_logits[0], output.end_logits[0]
    spans = {
        (i, j): float(start[i] + end[j]) for i in range(len(start) - 1) for j in range(i, len(start) - 1)
        if encoded.type_ids[i] and encoded.ids[i] != loaded.tokenizer.sep_id
    }  # fmt: skip
    first, last = max(spans, key=spans.__getitem__)
    assert found["text"] == context[encoded.offsets[first][0] : encoded.offsets[last][1]]
    assert found["score"] == pytest.approx(spans[first, last], rel=1e-5)
    assert found["null_score"] == pytest.approx(float(start[0] + end[0]), rel=1e-5)


def test_an_empty_context_has_no_answer(many: AnswerSource) -> None:
    last = predict_answers(answering_model(LETTERS), many, threshold=None)[-1]
    null = last.pop("null_score")
    assert np.isfinite(null)
    assert last == {
        "id": "q12", "text": "", "start": None, "stop": None, "score": None, "no_answer_score": None, "n_best": [],
    }  # fmt: skip


def test_the_threshold(many: AnswerSource) -> None:
    model = answering_model(LETTERS, sd=0.4)
    every = predict_answers(model, many, threshold=None)[:-1]
    gaps = sorted(one["no_answer_score"] for one in every)
    some = predict_answers(model, many, threshold=gaps[5])[:-1]
    assert [bool(one["text"]) for one in some] == [one["no_answer_score"] <= gaps[5] for one in every]
    assert [one["n_best"] for one in some] == [one["n_best"] for one in every]
    assert all(one["start"] is None for one in some if not one["text"])
    assert all(len(one["n_best"]) == 1 for one in predict_answers(model, many, n_best=1)[:-1])


def test_pools_and_batches_change_nothing(many: AnswerSource, monkeypatch: pytest.MonkeyPatch) -> None:
    model, done = answering_model(LETTERS, sd=0.4), []
    whole = predict_answers(model, many)
    monkeypatch.setattr("bothways.text.answering.POOL", 2)
    monkeypatch.setattr("bothways.text.answering.most_tokens", lambda device: 1)
    alone = predict_answers(model, many, advance=done.append)
    assert sum(done) == len(many.questions)
    assert len(done) > 4
    for one, other in zip(whole, alone):
        assert (one["text"], one["start"]) == (other["text"], other["start"])
        assert one["null_score"] == pytest.approx(other["null_score"], abs=1e-5)


@given(st.lists(CONTEXTS, min_size=1, max_size=3, unique=True), st.integers(0, 99), TOKENIZERS)
def test_answers_are_parts_of_the_context(contexts: list[str], seed: int, tokenizer: Tokenizer) -> None:
    made = source(asked(*(("a?", context, None) for context in contexts)), tokenizer)
    for one, context in zip(predict_answers(answering_model(tokenizer, seed), made, n_best=3), contexts):
        assert bool(one["n_best"]) == any(made._context.seen[made._context.of(made.contexts.index(context))])
        texts = [entry["text"] for entry in one["n_best"]]
        assert len(set(texts)) == len(texts)
        edges = {edge.span()[0] for edge in regex.finditer(r"\X", context)} | {len(context)}
        for entry in one["n_best"]:
            assert entry["text"].strip()
            assert context[entry["start"] : entry["stop"]] == entry["text"]
            assert {entry["start"], entry["stop"]} <= edges


def test_what_is_refused(many: AnswerSource) -> None:
    model = answering_model(LETTERS)
    for name in ("n_best", "max_answer_tokens"):
        with pytest.raises(UserError, match=f"{name}: expected 1 or more, got 0"):
            predict_answers(model, many, **{name: 0})
    del model.heads["span"]
    with pytest.raises(UserError, match="without a span head"):
        predict_answers(model, many)
    with pytest.raises(ValueError, match="for training"):
        predict_answers(answering_model(LETTERS), source(asked(("a", "b", [])), training=True))


# Learning -------------------------------------------------------------------------------------------------------------

STORY = "  Ann  sat 🙂 here. Bob's caf\u00e9 e\u0301tait\r\nnear\tthe sea."
TAUGHT = asked(
    ("who?", STORY, ["Ann"]), ("where?", STORY, ["near\tthe sea"]), ("if?", STORY, ["Bob's caf\u00e9"]),
    ("why?", STORY, []), ("mood?", STORY, ["🙂"]), ("who", "", []),
)  # fmt: skip


def test_a_small_model_learns_its_questions_to_the_letter() -> None:
    """Each from one window of two; emoji, accents, CR LF and tabs stay."""
    model, windows = answering_model(LETTERS, hidden_size=32), {"length": 40, "stride": 16}
    settings = TrainingConfig(steps=150, batch_size=11, learning_rate=4e-3, weight_decay=0.0)
    learned = source(TAUGHT, training=True, **windows)
    assert (np.count_nonzero(learned.labels.any(1)), len(learned)) == (4, 11)
    train(model, learned, settings, title="test")
    found = predict_answers(model, source(TAUGHT, **windows))
    gold = [one or [] for one in TAUGHT.gold()]
    assert [one["text"] for one in found] == [answers[0] if answers else "" for answers in gold]
    assert (found[0]["start"], found[0]["stop"]) == (2, 5)
    measured = answer_metrics([one["n_best"][0]["text"] if one["n_best"] else "" for one in found], gold,
                              [one["no_answer_score"] for one in found])  # fmt: skip
    assert (measured["exact"], measured["f1"], measured["best"]["exact"]) == (1, 1, 1)


def test_every_parameter_learns() -> None:
    made = source(TAUGHT, training=True)
    model = answering_model(LETTERS).train()
    output = model(made.batch(np.arange(len(made)), np.zeros(len(made), dtype=np.int64)))
    model.loss(output.losses).backward()
    assert output.losses["span"].count == len(made)
    still = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.abs().sum() > 0]
    assert still == [name for name in still if name.endswith("key.bias")]  # a softmax does not see it


def test_the_shared_cases_are_trained_and_predicted(shared: Path) -> None:
    squad = read_squad([shared / "cases/text/b68_squad_unanswerable.json"])
    made = source(squad, length=40, training=True)
    assert [read_back(made, i) for i in range(len(made))] == ["on the mat", None, None, None]
    assert made.labels[1:].tolist() == [[0, 0]] * 3
    model = answering_model(LETTERS, hidden_size=32)
    train(model, made, TrainingConfig(steps=80, batch_size=4, learning_rate=4e-3), title="test")
    found = predict_answers(model, source(squad, length=40))
    assert {one["id"]: one["text"] for one in found} == {
        "yes": "on the mat", "no": "", "no_flag": "", "empty_context": "",
    }  # fmt: skip
    gold = [one or [] for one in squad.gold()]
    assert answer_metrics([one["text"] for one in found], gold)["exact"] == 1
    kept = source(read_squad([shared / "cases/text/b66_squad_offsets.json"]), length=64, training=True)
    assert [read_back(kept, i) for i in range(len(kept))] == ["Ann", "lives in the north", "The wind"]


def test_xquad_is_found_back_to_the_letter(shared: Path) -> None:
    """But for one that ends inside a number."""
    squad = read_squad([shared / "data/text_xquad_en/xquad.en.json"])
    made = source(squad, letters(512), length=384, stride=128, max_question=128, training=True)
    wrong = set()
    for window in np.flatnonzero(made.labels.any(1)).tolist():
        gold = squad.questions[made.windows[window, 0]].answers or ()
        if read_back(made, window) != gold[0].text:
            wrong.add(gold[0].text)
    assert wrong == {"7,000,000 square kilometres (2,70"}
