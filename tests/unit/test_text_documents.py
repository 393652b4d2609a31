"""Documents of files and folders: where one ends, which encoding, what is said, what is skipped."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.errors import UserError
from bothways.text import Documents, split_sentences, tables


def written(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, **settings: Any) -> tuple[list[str], Documents]:
    corpus = Documents([path], **settings)
    return [document.text for document in corpus], corpus


def test_a_blank_line_ends_a_document(tmp_path: Path) -> None:
    text = "\ufeffOne.\r\nTwo.\r\n\r\n \t\r\n\r\nThree.\r\n   \r\n"
    corpus = Documents([written(tmp_path / "a.txt", text)])
    assert [(one.text, one.line) for one in corpus] == [("One.\nTwo.", 1), ("Three.", 6)]
    (one,) = corpus.files
    assert (one.encoding, one.documents, one.empty) == ("utf-8-sig", 2, 0)
    assert corpus.bytes_read == corpus.total_bytes == len(text.encode())


def test_a_file_is_a_document(tmp_path: Path) -> None:
    written(tmp_path / "b" / "two.txt", "\n  One.\rTwo.\r\rThree.\n\n")
    written(tmp_path / "b" / "one.txt", "Zero.")
    corpus = Documents([tmp_path], separator="file")
    assert list(corpus) == [("Zero.", "b/one.txt", 1), ("One.\nTwo.\n\nThree.", "b/two.txt", 2)]
    assert list(corpus) == list(corpus)  # each time anew
    assert corpus.summary()["documents"] == 2


@pytest.mark.parametrize(
    ("encoding", "found"),
    [
        ("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-16-be", "utf-16-be"),
        ("utf-16-le", "utf-16-le"), ("utf-32", "utf-32"), ("cp1252", "cp1252"), ("latin-1", "cp1252"),
    ],
)  # fmt: skip
def test_encodings(tmp_path: Path, encoding: str, found: str) -> None:
    text = "Ein Über-Café in Zürich.\nZwei.\n\nDrei."
    texts, corpus = read(written(tmp_path / "a.txt", text.encode(encoding)))
    assert texts == ["Ein Über-Café in Zürich.\nZwei.", "Drei."]
    assert corpus.files[0].encoding == found
    assert corpus.notes.keys() == ({"encoding_guessed"} if found == "cp1252" else set())


def test_a_byte_that_windows_lacks_is_latin_1(tmp_path: Path) -> None:
    texts, corpus = read(written(tmp_path / "a.txt", b"caf\xe9 \x81 noir"))
    assert corpus.files[0].encoding == "latin-1"
    assert texts == ["café   noir"]
    assert corpus.notes["control_characters"] == [f"{tmp_path}/a.txt: 1 control characters became spaces"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Über ähnliche Größen".encode()[:-1] + b"\xff", "the rest of the file is UTF-8"),
        ("naïve".encode() * 2**18 + "ï".encode()[:1], "may be damaged or cut"),
        ("текст на русском языке".encode("koi8-r"), "--encoding NAME"),
        ("日本語の文章です。".encode("shift-jis"), "--encoding NAME"),
        (bytes(range(256)) * 8, "got bytes that are none"),
        ("whole".encode("utf-16") + b"a", "expected utf-16"),
    ],
)
def test_what_cannot_be_read_is_skipped(tmp_path: Path, content: bytes, reason: str) -> None:
    written(tmp_path / "bad.txt", content)
    written(tmp_path / "good.txt", "Fine.")
    texts, corpus = read(tmp_path)
    assert texts == ["Fine."]
    (skipped,) = corpus.skipped
    assert skipped["file"] == "bad.txt"
    assert reason in skipped["reason"]
    assert [one.file for one in corpus.files] == ["good.txt"]


def test_the_place_of_a_bad_byte_is_said(tmp_path: Path) -> None:
    content = b"a" * 2**20 + "é".encode() * 9 + b"\xff!"
    _, corpus = read(written(tmp_path / "a.txt", content))
    assert f"byte {2**20 + 18:,} is none" in corpus.skipped[0]["reason"]


def test_an_encoding_may_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "текст".encode("koi8-r"))
    texts, corpus = read(path, encoding="koi8-r")
    assert (texts, corpus.notes) == (["текст"], {})
    assert "expected ascii" in read(path, encoding="ascii")[1].skipped[0]["reason"]
    for name in ("utf-99", "base64"):
        with pytest.raises(UserError, match=f"such as utf-8, utf-16 or cp1252, got '{name}'"):
            Documents([path], encoding=name)


LINE = st.text(st.characters(exclude_categories=["C", "Z"]) | st.just(" "), min_size=1, max_size=9)


@given(
    documents=st.lists(st.lists(LINE.map(str.strip).filter(bool), min_size=1, max_size=3), max_size=4),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    blank=st.sampled_from(["", " ", "\t", "\x00"]),
)
def test_what_is_written_is_read(documents: list[list[str]], encoding: str, end: str, blank: str) -> None:
    with TemporaryDirectory() as folder:
        text = f"{end}{blank}{end}".join(end.join(lines) for lines in documents)
        corpus = Documents([written(Path(folder) / "a.txt", text.encode(encoding))])
        assert [one.text.split("\n") for one in corpus] == documents
        assert corpus.skipped == []


def test_control_characters_and_lost_ones(tmp_path: Path) -> None:
    texts, corpus = read(written(tmp_path / "a.txt", "one\x0ctwo\x07three\u2028four\n\x00\x1a\nlost \ufffd"))
    assert texts == ["one two three four", "lost \ufffd"]  # a line of control characters is blank
    assert list(corpus.notes) == ["control_characters", "replacement_characters"]
    assert "5 control characters" in corpus.notes["control_characters"][0]


def test_empty_files_are_counted(tmp_path: Path) -> None:
    written(tmp_path / "a.txt", "")
    written(tmp_path / "b.txt", "\n \r\n")
    written(tmp_path / "c.csv", 'text,label\n"",1\nyes,2\n" ",1\n')
    texts, corpus = read(tmp_path)
    assert texts == ["yes"]
    assert corpus.summary()["empty_documents"] == 4
    assert corpus.summary()["documents"] == 1


def test_a_long_document_is_cut_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bothways.text import documents

    monkeypatch.setattr(documents, "MOST_CHARACTERS", 20)
    texts, corpus = read(written(tmp_path / "a.txt", "0123456789\n" * 5))
    assert [text.count("\n") + 1 for text in texts] == [2, 2, 1]
    assert corpus.notes["long_document"][0].endswith("was cut, 2 times")


# Tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "a.csv",
            '\ufefftext,label\r\n"good, ""very""\r\n\r\nfilm",good\r\nbad,bad\r\n',
            ['good, "very"\n\nfilm', "bad"],
        ),
        ("a.csv", "id;Text\n1;eins, zwei\n\n2;drei\n", ["eins, zwei", "drei"]),
        ("a.csv", "utterance\nalone\n", ["alone"]),
        ("a.csv", "review,id\nyes,1\n", ["yes"]),
        ("a.tsv", 'text\tn\n"quoted\ttab"\t1\n', ["quoted\ttab"]),
        ("a.tsv", 'text\tn\n"Hi" he said\t1\n"open\t2\n', ['"Hi" he said', '"open']),
        ("a.jsonl", '{"id": "1", "text": "eins\\u00e9"}\n\n{"text": null}\n{"text": "zwei"}\n', ["einsé", "zwei"]),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str, expected: list[str]) -> None:
    texts, corpus = read(written(tmp_path / name, content))
    assert texts == expected
    assert corpus.skipped == []


def test_rows_count_from_one(tmp_path: Path) -> None:
    corpus = Documents([written(tmp_path / "a.csv", "text,n\na,1\n,2\nc,3\n")])
    assert [(one.text, one.line) for one in corpus] == [("a", 1), ("c", 3)]


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3], "body": pa.array(["eins", None, "drei"]).dictionary_encode()})
    pq.write_table(table, tmp_path / "a.parquet")
    texts, corpus = read(tmp_path)
    assert texts == ["eins", "drei"]
    (one,) = corpus.files
    assert (one.encoding, one.column, one.documents, one.empty) == (None, "body", 2, 1)
    assert corpus.bytes_read == corpus.total_bytes


def test_a_name_of_an_encoding_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"no mark of UTF-16")
    corpus = Documents([tmp_path / "a.txt"], encoding="utf-16")
    assert list(corpus) == []
    assert "expected utf-16, but byte 0 is none" in corpus.skipped[0]["reason"]
    for name in ("undefined", "", "a\0b", "base64"):
        with pytest.raises(UserError, match="encoding: expected a name"):
            Documents([tmp_path / "a.txt"], encoding=name)


def test_a_header_of_absurd_width(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a" * 200_000 + ",b\nx,y\n")
    (tmp_path / "b.csv").write_text(",".join(f"c{i}" for i in range(30_000)) + "\n")
    (tmp_path / "c.txt").write_text("fine")
    corpus = Documents([tmp_path])
    assert [one.text for one in corpus] == ["fine"]
    assert all(len(one["reason"]) < 2000 for one in corpus.skipped)
    assert "and 29980 more" in corpus.skipped[1]["reason"]


def test_a_table_without_names_of_columns_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("I like this film. It is good.\nI hate it.\n")
    corpus = Documents([tmp_path / "a.csv"])
    assert [one.text for one in corpus] == ["I hate it."]
    assert "reads like text: 'I like this film. It is good.'" in corpus.notes["no_header"][0]
    (tmp_path / "b.csv").write_text("text,no.\nI hate it.,1\n")
    corpus = Documents([tmp_path / "b.csv"])
    assert len(list(corpus)) == 1
    assert not corpus.notes


def test_bad_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = ['{"text": "good"}', '{"text": 3}', '{"other": "x"}', "not json", '["text"]', '{"text": "\\ud800"}', "{" * 9]
    texts, corpus = read(written(tmp_path / "a.jsonl", "\n".join(rows)))
    assert texts == ["good"]
    assert "6 rows were left out" in corpus.notes["bad_rows"][0]
    texts, corpus = read(written(tmp_path / "b.csv", "text,n\nfine,1\nun,quoted,2\nshort\n"))
    assert texts == ["fine"]
    assert "2 rows were left out" in corpus.notes["bad_rows"][0]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "first,second\na,b\n", "expected one column of text, got the columns first, second; name it"),
        ("a.csv", "body,review\na,b\n", "got the columns body, review"),
        ("a.csv", 'text,n\n"never closed,1\nb,2\n', "mend its quotes"),
        ("a.csv", "", "got the columns none"),
        ("a.jsonl", "[1]\n", "expected a JSON object in each line"),
        ("a.parquet", "no", "expected Parquet"),
    ],
)
def test_tables_that_are_skipped(tmp_path: Path, name: str, content: str, reason: str) -> None:
    texts, corpus = read(written(tmp_path / name, content))
    assert texts == []
    assert reason in corpus.skipped[0]["reason"]
    assert str(tmp_path) not in corpus.skipped[0]["reason"]


def test_a_column_may_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "first,second\na,b\n")
    assert read(path, column="second")[0] == ["b"]
    assert "expected one column 'third'" in read(path, column="third")[1].skipped[0]["reason"]


# Folders ---------------------------------------------------------------------------------------------------------


def test_what_a_folder_holds(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.TXT", ".hidden.txt", ".git/x.txt", "read.me"):
        written(tmp_path / name, name)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "again.txt").symlink_to(tmp_path / "b.txt")
    texts, corpus = read(tmp_path)
    assert texts == ["b.txt", "a/z.TXT"]
    assert [one["file"] for one in corpus.left_out] == ["link", "read.me"]
    assert [one.text for one in Documents([tmp_path / "read.me", tmp_path, tmp_path / "b.txt"])] == ["read.me", *texts]


def test_names_that_are_no_unicode(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"na\xff.txt")).write_text("text")
    (tmp_path / os.fsdecode(b"na\xfe.md")).write_text("text")
    _, corpus = read(tmp_path)
    assert [one.file for one in corpus.files] == ["na\\xff.txt"]
    assert [one["file"] for one in corpus.left_out] == ["na\\xfe.md"]


@pytest.mark.parametrize(("settings", "message"), [({}, "no text found"), ({"separator": "page"}, "got 'page'")])
def test_refusals(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Documents([tmp_path], **settings)
    with pytest.raises(UserError, match="found none"):
        Documents([tmp_path / "nowhere"])


def test_a_table_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_CHARACTERS", 64)
    texts, corpus = read(
        written(tmp_path / "a.jsonl", "\n".join(json.dumps({"text": one}) for one in ("x", "y" * 199, "z")))
    )
    assert texts == ["x", "z"]
    assert "1 rows were left out" in corpus.notes["bad_rows"][0]
    assert [one.line for one in Documents([tmp_path / "a.jsonl"])] == [1, 3]


# The cases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "documents", "sentences", "pairs"),
    [
        ("b50_blank_after_every_sentence.txt", 6, 6, 0),
        ("b51_one_sentence_documents.txt", 5, 6, 1),
        ("b56_very_short.txt", 4, 4, 0),
        ("b70_corpus_bom_crlf.txt", 2, 4, 2),
        ("b70_excel_bom_crlf.csv", 2, 2, 0),
    ],
)
def test_cases(shared: Path, name: str, documents: int, sentences: int, pairs: int) -> None:
    texts, corpus = read(shared / "cases" / "text" / name)
    split = [split_sentences(text) for text in texts]
    assert (len(texts), sum(map(len, split)), sum(len(one) - 1 for one in split)) == (documents, sentences, pairs)
    assert all(all(one) for one in split)
    assert corpus.summary()["empty_documents"] == 0
    assert not any("\ufeff" in text or "\r" in text for text in texts)
