"""Tables of texts with labels: columns found or named, labels as they are written, rows without one."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from bothways.config import ColumnConfig
from bothways.errors import UserError
from bothways.text import LabelledTexts, classes_of, like_empty


def labels(path: Path, kind: str = "classes") -> list[object]:
    return [row.label for row in LabelledTexts([path], kind=kind)]  # type: ignore[arg-type]


def written(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.0", "2.0", "3"], ["1", "2", "3"]),
        (["-1", "1", "1.0"], ["-1", "1", "1"]),
        (["1.5", "2"], ["1.5", "2"]),
        (["good", " bad ", ""], ["good", "bad", None]),
        (["nan", "NaN", "NA"], [None, None, "NA"]),
        (["null", "None", "01"], ["null", "None", "01"]),
    ],
)
def test_labels_as_they_are_written(tmp_path: Path, cells: list[str], expected: list[object]) -> None:
    rows = "".join(f"text {i},{cell}\n" for i, cell in enumerate(cells))
    assert labels(written(tmp_path / "a.csv", f"text,label\n{rows}")) == expected


def test_texts_that_look_empty_are_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,label\nNA,a\nnull,b\n,c\n")
    reader = LabelledTexts([path])
    assert [row.text for row in reader] == ["NA", "null"]
    assert (reader.summary()["rows"], reader.summary()["empty_rows"]) == (2, 1)
    assert "1 rows have no text and are left out" in reader.notes["empty_texts"][0]


def test_json_and_parquet(tmp_path: Path) -> None:
    values = [1, 2.0, True, None, "x"]
    lines = [json.dumps({"text": "t", "label": value}) for value in values] + [json.dumps({"text": "t"})]
    path = written(tmp_path / "a.jsonl", "\n".join(lines))
    assert labels(path) == ["1", "2", "true", None, "x", None]
    assert LabelledTexts([path]).notes == {}
    table = pyarrow.table({"text": ["a", "b", "c"], "label": [1.0, None, float("nan")]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert labels(tmp_path / "a.parquet") == ["1", None, None]
    several = [["b", "a"], [], None, "c;d", ";"]
    path = written(tmp_path / "s.jsonl", "\n".join(json.dumps({"text": "t", "label": one}) for one in several))
    assert labels(path, "several") == [("a", "b"), (), None, ("c", "d"), ()]
    with pytest.raises(UserError, match=r"row 1: expected one label, got \['b', 'a'\]"):
        labels(path)


def test_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "text,score\na,1\nb,-2.5e0\nc,\n")
    assert labels(path, "number") == [1.0, -2.5, None]
    path = written(tmp_path / "b.csv", "text,score\na,1\nb,high\n")
    with pytest.raises(UserError, match="row 2: expected a number, got 'high'"):
        labels(path, "number")
    with pytest.raises(UserError, match="expected a number, got 'inf'"):
        labels(written(tmp_path / "c.csv", "text,score\na,inf\n"), "number")


def test_columns_are_found_or_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "sentence,sentiment\nfine,1\n")
    assert labels(path) == ["1"]
    path = written(tmp_path / "b.csv", "id,premise,hypothesis,gold,author\n7,a,b,yes,ann\n")
    columns = ColumnConfig(text="premise", pair="hypothesis", label="gold", group="author")
    (row,) = LabelledTexts([path], columns)
    assert (row.text, row.pair, row.label, row.group, row.row) == ("a", "b", "yes", "ann", 1)
    with pytest.raises(UserError, match="columns id, premise, hypothesis, gold, author; name it: --column NAME"):
        list(LabelledTexts([path]))
    with pytest.raises(UserError, match="expected one column of labels"):
        list(LabelledTexts([path], ColumnConfig(text="premise")))
    with pytest.raises(UserError, match="expected one column 'nobody'"):
        list(LabelledTexts([path], ColumnConfig(text="premise", label="gold", group="nobody")))


def test_classes_in_order() -> None:
    assert classes_of(["10", "9", "-1", None]) == ["-1", "9", "10"]
    assert classes_of(["b", "a", "10"]) == ["10", "a", "b"]
    assert classes_of([("b", "a"), ()]) == ["a", "b"]
    assert like_empty(["NA", "good", "n/a"]) == ["NA", "n/a"]
