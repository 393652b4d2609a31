"""Questions from files: SQuAD 1.1 and 2.0, flat ones, what is mended and counted, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from bothways.errors import UserError
from bothways.text import GoldAnswer, read_squad

CONTEXT = "  Ann 🙂 sat.\r\nBob  sat\ttoo."


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def flat(path: Path, **values: Any) -> Path:
    return write(path, {"data": [{"id": "q", "question": "Who?", "context": CONTEXT} | values]})


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows), encoding="utf-8-sig")
    return path


def test_offsets_that_are_wrong(shared: Path) -> None:
    found = read_squad([shared / "cases/text/b66_squad_offsets.json"])
    (context,) = found.contexts
    assert context == "   Ann  lives in the north. The wind blew."
    spans = {
        one.id: None if answer.start is None else [answer.start, answer.start + len(answer.text)]
        for one in found.questions
        for answer in one.answers or ()
    }
    assert spans == {"lead": [3, 6], "two_spaces": [8, 26], "wrong_start": [28, 36], "not_there": None}
    assert [one.trainable for one in found.questions] == [True, True, True, False]
    assert {code: found.counts[code] for code in found.notes} == {"moved": 1, "not_found": 1, "not_trainable": 1}
    assert "(first: wrong_start)" in found.notes["moved"][0]
    assert found.gold()[3] == ["on the mat"]


def test_questions_without_an_answer(shared: Path) -> None:
    found = read_squad([shared / "cases/text/b68_squad_unanswerable.json"])
    assert [one.answers for one in found.questions] == [(GoldAnswer("on the mat", 12),), (), (), ()]
    assert found.gold() == [["on the mat"], [], [], []]
    assert all(one.trainable for one in found.questions)
    assert found.contexts == ["The cat sat on the mat.", ""]
    assert not found.notes


def test_xquad(shared: Path) -> None:
    found = read_squad([shared / "data/text_xquad_en/xquad.en.json"])
    assert found.counts == {
        "questions": 1190, "contexts": 240, "titles": 48, "with_answer": 1190, "without_answer": 0, "not_told": 0,
    }  # fmt: skip
    for one in found.questions:
        (answer,) = one.answers or ()
        assert answer.start is not None
        assert found.contexts[one.context].startswith(answer.text, answer.start)
    titles = sorted({one.title for one in found.questions})
    some = found.select([i for i, one in enumerate(found.questions) if one.title == titles[0]])
    assert {one.title for one in some.questions} == {titles[0]}


def test_starts_are_code_points_and_contexts_stay(tmp_path: Path) -> None:
    start = CONTEXT.index("Bob")
    answers = [{"text": "Bob  sat\ttoo", "answer_start": start}]
    found = read_squad([flat(tmp_path / "a.json", answers=answers)])
    assert found.contexts == [CONTEXT]
    assert found.questions[0].answers == (GoldAnswer("Bob  sat\ttoo", start),)
    assert not found.notes


@pytest.mark.parametrize("start", [99, -3, None, "6", True, 2.5, 0])
def test_a_start_that_is_wrong_is_mended_where_the_text_stands_once(tmp_path: Path, start: Any) -> None:
    answers = [{"text": "Ann", "answer_start": start}, {"text": "sat", "answer_start": start}]
    found = read_squad([flat(tmp_path / "a.json", answers=answers)])
    assert found.questions[0].answers == (GoldAnswer("Ann", 2), GoldAnswer("sat", None))  # sat stands there twice
    assert (found.counts["moved"], found.counts["not_found"]) == (1, 1)
    assert "not_trainable" not in found.counts


def test_a_start_is_not_counted_from_the_end(tmp_path: Path) -> None:
    found = read_squad([flat(tmp_path / "a.json", answers=[{"text": "too.", "answer_start": -4}])])
    assert found.questions[0].answers == (GoldAnswer("too.", len(CONTEXT) - 4),)
    assert found.counts["moved"] == 1


def test_overlapping_places_are_two(tmp_path: Path) -> None:
    found = read_squad([flat(tmp_path / "a.json", context="xanana", answers=["ana"])])
    assert found.questions[0].answers == (GoldAnswer("ana", None),)


@pytest.mark.parametrize(
    ("values", "wanted", "count"),
    [
        ({}, None, None),
        ({"answers": None}, None, None),
        ({"answers": None, "is_impossible": False}, None, None),
        ({"is_impossible": True}, (), None),
        ({"answers": [], "is_impossible": False}, (), None),
        ({"answers": [{"text": "Ann", "answer_start": 2}], "is_impossible": True}, (), "answers_of_impossible"),
        ({"answers": [{"text": " ", "answer_start": 0}]}, (), "empty_answers"),
        ({"answers": {"text": [], "answer_start": []}}, (), None),
        ({"answers": {"text": ["Ann"], "answer_start": [2]}}, (GoldAnswer("Ann", 2),), None),
        ({"plausible_answers": [{"text": "Ann", "answer_start": 2}]}, None, None),
    ],
)
def test_ways_to_say_what_the_answer_is(tmp_path: Path, values: dict, wanted: tuple | None, count: str | None) -> None:
    found = read_squad([flat(tmp_path / "a.json", **values)])
    assert found.questions[0].answers == wanted
    assert list(found.notes) == [count] * bool(count)
    assert found.counts["not_told"] == (wanted is None)
    assert found.questions[0].trainable == (wanted is not None)


def test_json_lines(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        {"question": "Who?", "context": CONTEXT, "answers": {"text": ["Ann"], "answer_start": [2]}},
        {"id": "question 1", "question": "Where?", "context": "", "title": "t"},
        {"id": 7, "question": "Who sat?", "context": CONTEXT},
    )
    found = read_squad([path])
    assert [one.id for one in found.questions] == ["question 2", "question 1", "7"]  # 1 is taken
    assert found.contexts == [CONTEXT, ""]
    assert [one.context for one in found.questions] == [0, 1, 0]
    assert [one.title for one in found.questions] == [CONTEXT, "t", CONTEXT]
    assert found.counts["ids_made"] == 1
    assert found.notes["ids_made"] == [f"1 questions had no id and got one (first: {path}: line 1)"]
    assert found.gold() == [["Ann"], None, None]


def test_json_lines_that_are_called_json(tmp_path: Path) -> None:
    rows = [{"id": str(i), "question": "Who?", "context": CONTEXT} for i in range(3)]
    assert len(read_squad([lines(tmp_path / "a.json", *rows)]).questions) == 3
    assert len(read_squad([lines(tmp_path / "b.json", rows[0])]).questions) == 1
    pretty = tmp_path / "c.json"
    pretty.write_text(json.dumps({"data": rows}, indent=1))
    assert len(read_squad([pretty]).questions) == 3


def test_several_files_and_articles_without_a_title(tmp_path: Path) -> None:
    article = {"paragraphs": [{"context": "c", "qas": [{"id": "1", "question": "?"}]}]}
    first = write(tmp_path / "a.json", {"version": "2.0", "data": [article]})
    second = flat(tmp_path / "b.json", context="c")
    found = read_squad([first, second])
    assert found.contexts == ["c"]
    assert [one.title for one in found.questions] == ["c", "c"]
    with pytest.raises(UserError, match=r"a\.json: data\[0\]\.paragraphs\[0\]\.qas\[0\]: id '1': another"):
        read_squad([first, first])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected questions, found none"),
        ({"data": []}, "expected questions, found none"),
        ({"a": 1, "b": 2}, "expected questions, got JSON with the keys 'a', 'b'"),
        (3, "expected questions, got JSON with int"),
        ({"data": [3]}, r"data\[0\]: expected an object, got int"),
        ({"data": [{"title": "t"}]}, r"data\[0\]: expected an article or a question, got the keys 'title'"),
        ({"data": [{"paragraphs": {}}]}, r"paragraphs: expected a list, got dict"),
        ({"data": [{"paragraphs": [{"context": 3, "qas": []}]}]}, r"paragraphs\[0\]: context: expected text, got int"),
        ({"data": [{"paragraphs": [{"context": "c"}]}]}, r"paragraphs\[0\]: qas: expected a list, got NoneType"),
        ({"data": [{"paragraphs": [{"context": "c", "qas": [{}]}]}]}, r"qas\[0\]: question: expected text, got none"),
        ([{"question": "\ud83d", "context": "c"}], "question: expected text, got half a character"),
        ([{"question": "q", "context": "c", "id": [1]}], "id: expected text, got list"),
        ([{"question": "q", "context": "c", "is_impossible": "yes"}], "is_impossible: expected true or false"),
        ([{"question": "q", "context": "c", "answers": [3]}], "expected an object, got int"),
        ([{"question": "q", "context": "c", "answers": [{}]}], "text: expected text, got none"),
        ([{"question": "q", "context": "c", "answers": "c"}], "answers: expected a list, got str"),
        (
            [{"question": "q", "context": "c", "answers": {"text": ["c"], "answer_start": []}}],
            "answers: 1 texts, 0 starts",
        ),
    ],
)
def test_what_is_no_squad(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_squad([write(tmp_path / "a.json", value)])
    assert "\n" not in str(caught.value)


def test_files_that_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content, message in (
        (b'{"data": [', "expected JSON, but it cannot be read"),
        (b'["\xe9"]', "expected JSON in UTF-8, but byte 2 is none"),
        (b"[" * 100_000, "expected JSON, but it cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_squad([path])
    (tmp_path / "a.jsonl").write_text('{"question": "q", "context": "c"}\n\nno\n')
    with pytest.raises(UserError, match=r"a\.jsonl: line 3: expected JSON"):
        read_squad([tmp_path / "a.jsonl"])
    with pytest.raises(UserError, match="expected a file here, found none"):
        read_squad([tmp_path / "gone.json"])
