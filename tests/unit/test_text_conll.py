"""Tagged sentences from files of many kinds: what is a word, where a sentence ends, what is said, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.errors import UserError
from bothways.text import Sentence, SentenceFile, read_sentences, words_of

TWO = [["He", "lives", "in", "Paris", "."], ["-", "#1", "Ann", "ran"]]
THEIR_TAGS = [["O", "O", "O", "B-LOC", "O"], ["O", "O", "B-PER", "O"]]


def read(folder: Path, content: bytes | str, name: str = "a.conll", **settings: Any) -> SentenceFile:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_sentences(folder / name, **settings)


def words(found: SentenceFile) -> list[list[str]]:
    return [one.words for one in found.sentences]


def tags(found: SentenceFile) -> list[list[str] | None]:
    return [one.tags for one in found.sentences]


@pytest.mark.parametrize(
    "kind", ["docstart_4_columns", "docstart_crlf", "docstart_glued_many_spaces", "tabs_no_final_newline"]
)
def test_the_same_two_sentences(shared: Path, kind: str) -> None:
    found = read_sentences(shared / "cases" / "text" / f"b63_{kind}.conll")
    assert (words(found), tags(found)) == (TWO, THEIR_TAGS)
    assert ("docstart" in found.notes) == kind.startswith("docstart")


@pytest.mark.parametrize(("part", "n"), [("train", 3394), ("dev", 1009), ("test", 1287)])
def test_sentences_of_wnut(shared: Path, part: str, n: int) -> None:
    found = read_sentences(shared / "data" / "text_wnut17_ner" / f"{part}.conll")
    assert (len(found.sentences), found.notes, found.columns) == (n, {}, (1, 2))


def test_a_sentence_knows_its_place(tmp_path: Path) -> None:
    content = "\ufeff\r\n \t\r\nNew\tB-LOC\r\nYork \tI-LOC\r\n\u00a0\r\nHi\tO"
    found = read(tmp_path, content)
    first, second = found.sentences
    wanted = Sentence(["New", "York"], ["B-LOC", "I-LOC"], "a.conll", 3, "New York", [(0, 3), (4, 8)])
    assert (first, second.words, second.line) == (wanted, ["Hi"], 6)
    assert (found.form, found.encoding, found.columns) == ("conll", "utf-8-sig", (1, 2))


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("a\u00a0b O\n\u200b O\nc\u2028d O\n\x85 O\n", [["a\u00a0b", "\u200b", "c\u2028d", "\x85"]]),
        ("New York\tB-LOC\nSt.  Gall\tB-LOC\n", [["New York", "St.  Gall"]]),
        ("a x\tO\nb y O\n", [["a", "b"]]),  # not every line has a tab
        ("a\t\tO\nb\tNN\tO\n", [["a", "b"]]),
        ("a O\r\rb O\r", [["a"], ["b"]]),
        ("-DOCSTART- -X- O\na\tO\n-DOCSTART-\nb\tO\n", [["a"], ["b"]]),
        ("# O\n#1 O\n\na O\n# O\n", [["#", "#1"], ["a", "#"]]),
        ("# sent_id = 1\n# text = a b\na O\nb O\n\n# newdoc\n#x = y z\nc O\n", [["a", "b"], ["c"]]),
        ("# sent_id = 1\n1 a x O\n2 b x O\n\n# sent_id = 2\n1 c x O\n", [["a", "b"], ["c"]]),
        ("1-2\tam\t_\tO\n1\tan\tx\tO\n2\tdem\tx\tO\n2.1\tx\tx\tO\n", [["an", "dem"]]),
        ("# text = Vitamin O\na x y z O\n# = x y O\n", [["a", "#"]]),
        ("1 x O\n2 x O\n4 x O\n", [["1", "2", "4"]]),
        ("1 O\n2 O\n", [["1", "2"]]),
    ],
)  # fmt: skip
def test_what_is_a_word(tmp_path: Path, content: str, wanted: list[list[str]]) -> None:
    assert words(read(tmp_path, content)) == wanted


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    found = read(tmp_path, "# id = 1\n-DOCSTART-\n\n1-2 xy _ O\n1 x_ _ O\n2 y\ufffd _ O\n")
    assert found.notes == {
        "numbered_words": ["a.conll: the first column counts the words, which are in the second"],
        "comments": ["a.conll: 1 comments (# …) are no words"],
        "docstart": ["a.conll: 1 lines of -DOCSTART- are no words"],
        "replacement_characters": ["a.conll: 1 characters were lost before (U+FFFD stands in the file)"],
        "unwritten_words": ["a.conll: 1 lines of ranges and of words that are not written were left out (1-2, 1.1)"],
    }


def test_columns_may_be_named(tmp_path: Path) -> None:
    content = "0\ta\tB-x\tO\tmore\n0\tb\tO\tB-y\n"
    assert tags(read(tmp_path, content, tag_column=3)) == [["B-x", "O"]]
    assert tags(read(tmp_path, content, tag_column=4)) == [["O", "B-y"]]
    assert words(read(tmp_path, content, word_column=2, tag_column=3)) == [["a", "b"]]
    for wrong in ({"word_column": 0}, {"tag_column": 6}, {"tag_column": 1}, {"word_column": 9}):
        with pytest.raises(UserError, match="column"):
            read(tmp_path, "a O\nb O\n", **wrong)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb\nc O\n", "line 2: expected 2 columns as in the other lines, got 1"),
        ("a O\n\nNew York B-LOC\nc O\n", "line 3: expected 2 columns as in the other lines, got 3"),
        ("a O\n#tag\nb O\n", "line 2: expected 2 columns"),
        ("a O\n# text = x\nb O\n", "line 2: expected 2 columns"),
        ("a\tO\n\tO\nb\tO\n", "line 2: expected 2 columns"),
        ("x\t\tO\nx\ta\tO\n", None),
        ("a B_PER\n", "line 1: expected a tag such as O, B-PER"),
        ("a O\nb I-\n", r"line 2: expected a tag .* 'I-'"),
        ("a B-PER\n\nc O\nb B\n", "sentence of line 3: expected a type behind 'B'"),
        ("a\nb\n", "a word and its tag in two columns, got 1"),
        (" \n\t\n", "expected sentences, found none"),
        ("", "expected sentences, found none"),
        ("-DOCSTART- -X- O\n\n", "expected sentences, found none"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, content: str, message: str | None) -> None:
    if message is None:
        assert words(read(tmp_path, content)) == [["x", "x"]]
        return
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "a.conll"))
    assert "\n" not in str(caught.value)


def test_a_word_that_is_lacking(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 2: expected a word, got none"):
        read(tmp_path, "1\ta\tO\n2\t\tO\n", word_column=2)


ROWS = [{"words": ["New", "York"], "tags": ["B-x", "I-x"]}, {"words": ["Hi"], "tags": ["O"]}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "\n".join(json.dumps(row) for row in ROWS)),
        ("a.json", "\ufeff" + json.dumps(ROWS)),
        ("a.json", "\n\n".join(json.dumps(row) for row in ROWS)),
        ("a.json", json.dumps({"tokens": [["New", "York"], ["Hi"]], "ner_tags": [["B-x", "I-x"], ["O"]]})),
        ("a.ndjson", '{"tokens": ["New", "York"], "labels": ["B-x", "I-x"]}\n{"words": ["Hi"], "tags": ["O"]}\n'),
    ],
)
def test_json(tmp_path: Path, name: str, content: str) -> None:
    found = read(tmp_path, content, name)
    assert (words(found), tags(found), found.form) == ([["New", "York"], ["Hi"]], [["B-x", "I-x"], ["O"]], "json")
    assert found.sentences[0].text == "New York"


def test_rows_without_words_or_tags(tmp_path: Path) -> None:
    rows = [{"words": ["a"], "tags": None}, {"words": []}, {"words": ["-DOCSTART-"], "tags": ["O"]}, *ROWS]
    found = read(tmp_path, json.dumps(rows), "a.json")
    assert [one.line for one in found.sentences] == [4, 5]
    assert found.notes["untagged"] == ["a.json: 2 sentences without tags were left out"]
    assert [len(read(tmp_path, json.dumps(rows), "a.json", tagged=False).sentences)] == [3]
    for row, message in (
        ([{"words": ["a"]}], "those of it have no tags"),
        ([{"words": ["a", "b"], "tags": ["O"]}], "row 1: expected a tag for each of 2 words, got 1"),
        ([{"words": ["a"], "ner_tags": [3]}], "row 1: expected tags as text, such as B-PER, got 3"),
        ([{"words": ["a"], "tags": ["PER"]}], "row 1: expected a tag such as O"),
        ([{"words": "a b", "tags": "O"}], "row 1: expected an object with words or tokens"),
        ([{"words": ["\ud800"], "tags": ["O"]}], "row 1: expected an object with words or tokens"),
        ([3], "row 1: expected an object"),
        ([], "expected sentences, found none"),
    ):
        with pytest.raises(UserError, match=message):
            read(tmp_path, json.dumps(row), "a.json")
    for name in ("a.jsonl", "a.json"):
        with pytest.raises(UserError, match=r"line 2: expected JSON"):
            read(tmp_path, '{"words": ["a"], "tags": ["O"]}\nnone\n', name)
    with pytest.raises(UserError, match=r"a.json: expected JSON.*line 3 column 1"):
        read(tmp_path, '[\n{"words": ["a"], "tags": ["O"]}\n', "a.json")


def test_what_is_to_be_tagged(tmp_path: Path) -> None:
    text = "Dr. O'Neil  met 李小龙🙂!\n\n \n#1\tsaid:\u00a0\n"
    found = read(tmp_path, text, "a.txt", tagged=False)
    first, second = found.sentences
    assert first.words == ["Dr", ".", "O", "'", "Neil", "met", "李", "小", "龙", "🙂", "!"]
    assert [first.text[start:stop] for start, stop in first.offsets] == first.words
    assert (first.tags, first.text, second.words, second.line) == (
        None,
        text.split("\n")[0],
        ["#", "1", "said", ":"],
        4,
    )
    assert found.form == "text"
    assert words(read(tmp_path, '{"text": "a, b"}\n', "a.jsonl", tagged=False)) == [["a", ",", "b"]]
    assert words(read(tmp_path, "New\nYork\n\n# id = 1\nHi\n", tagged=False)) == [["New", "York"], ["Hi"]]
    columns = read(tmp_path, "a B-x\nb O\n", "a.txt", tagged=False)
    assert (words(columns), tags(columns), columns.form) == ([["a", "b"]], [None], "conll")
    with pytest.raises(UserError, match="form: expected conll or json"):
        read_sentences(tmp_path / "a.txt", form="text")
    with pytest.raises(UserError, match="expected a file here"):
        read_sentences(tmp_path / "none.conll")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    found = read(tmp_path, "Zürich B-LOC\nist O\nda O\n".encode(encoding))
    assert (words(found), found.encoding) == ([["Zürich", "ist", "da"]], encoding)
    assert ("encoding_guessed" in found.notes) == (encoding == "cp1252")
    assert words(read_sentences(tmp_path / "a.conll", encoding=encoding)) == [["Zürich", "ist", "da"]]
    with pytest.raises(UserError, match="encoding: expected a name"):
        read_sentences(tmp_path / "a.conll", encoding="none")


PARTS = st.sampled_from([*'a#O1 \t\n\r[]{}:",\0é', "-DOCSTART-", "B-x", '"words"', '"tags"', '["a"]', '["O"]'])


@given(
    st.one_of(st.binary(max_size=40), st.lists(PARTS, max_size=30).map(lambda parts: "".join(parts).encode())),
    st.sampled_from(["b.conll", "b.txt", "b.json", "b.jsonl"]),
    st.booleans(),
)
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str, tagged: bool
) -> None:
    try:
        found = read(tmp_path_factory.getbasetemp(), content, name, tagged=tagged)
    except UserError:
        return
    for one in found.sentences:
        assert 0 < len(one.words) == len(one.offsets) == len(one.tags or one.words)
        assert [one.text[start:stop] for start, stop in one.offsets] == one.words
        assert (one.tags is not None) == tagged


@given(st.text())
def test_words_are_the_text(text: str) -> None:
    found, offsets = words_of(text)
    assert found == [text[start:stop] for start, stop in offsets]
    assert len("".join(found)) == sum(not one.isspace() or one in "\x1c\x1d\x1e\x1f" for one in text)


WORD = st.text(st.characters(exclude_characters=" \t\r\n", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
SENTENCES = st.lists(
    st.lists(st.tuples(WORD, st.sampled_from(["O", "B-x", "I-x"])), min_size=1, max_size=5), min_size=1, max_size=4
)


@given(SENTENCES, st.sampled_from(["\t", " ", "  "]), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_words_come_back(tmp_path_factory: pytest.TempPathFactory, made: Any, gap: str, end: str) -> None:
    body = (end + end).join("".join(f"{word}{gap}{tag}{end}" for word, tag in one) for one in made)
    found = read(tmp_path_factory.getbasetemp(), body, "any.conll", encoding="utf-8")
    assert words(found) == [[word for word, _ in one] for one in made]
    assert tags(found) == [[tag for _, tag in one] for one in made]
