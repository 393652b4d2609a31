"""`bothways text finetune --task answer`, and what follows: questions about contexts, as a user types them."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bothways import run
from bothways.errors import UserError
from bothways.text import read_squad
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
Call = Callable[..., tuple[int, str, str]]
LEARN = ["task=answer", "training.steps=250", "training.learning_rate=2e-3", "training.batch_size=8"]
FEW = ["task=answer", "training.steps=2", "training.evaluations=1"]
CASES = Path(__file__).parents[2] / ".." / "shared" / "cases" / "text"
LONG = "a b c d e f g h i j k l m n o p q r s t u v w x y z the cat sat ."


def squad(path: Path, *rows: tuple[str, str, str | None], title: str = "") -> Path:
    """Writes questions: question, context, answer (None: it has none)."""
    articles = [
        {
            "title": title or f"article {i}",
            "paragraphs": [
                {
                    "context": context,
                    "qas": [
                        {
                            "id": str(i),
                            "question": question,
                            "is_impossible": answer is None,
                            "answers": []
                            if answer is None
                            else [{"text": answer, "answer_start": context.index(answer)}],
                        }
                    ],
                }
            ],
        }
        for i, (question, context, answer) in enumerate(rows)
    ]
    path.write_text(json.dumps({"version": "2.0", "data": articles}, ensure_ascii=False), encoding="utf-8")
    return path


ROWS = [
    ("a cat", "the cat sat on !", "cat sat"),
    ("a cat", "on the mat , cat sat", "cat sat"),
    ("a mat", "the cat on the mat .", "mat"),
    ("a mat", "a mat , the cat", "mat"),
    ("a cat", "on the mat !", None),
    ("a mat", "the cat sat", None),
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, transformers.BertForPreTraining)
    return folder


@pytest.fixture(scope="module")
def answering(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """A run that answers, its data, and what was told of it; treat it as read-only."""
    folder = tmp_path_factory.mktemp("answers")
    data = squad(folder / "train.json", *ROWS)
    return folder / "run", data, run.text_finetune(bert, data, folder / "run", validation=data, changes=LEARN)


def test_answers_are_found_and_told_from_none(answering: tuple[Path, Path, dict[str, Any]]) -> None:
    out, data, result = answering
    assert (result["task"], result["labels"], result["classes"], result["length"]) == ("answer", "answers", [], 20)
    assert result["texts"]["train"] == {"answer": 4, "no answer": 2}
    assert any("6 articles are trained on and measured on" in note for note in result["notes"])
    assert result["validation"]["best"]["f1"] == 1.0
    measured = run.text_evaluate(out, data)["metrics"]
    assert measured["threshold"] == 0.0
    tuned = measured["tuned"]["f1"]
    assert tuned["threshold"] == result["validation"]["best"]["f1_threshold"]
    assert (tuned["exact"], tuned["f1"], tuned["no_answer"]["exact"]) == (1.0, 1.0, 1.0)
    found = run.text_predict(out, data)
    assert found["threshold"] == tuned["threshold"]
    assert [one["text"] for one in found["predictions"]] == ["cat sat", "cat sat", "mat", "mat", "", ""]
    assert found["counts"] == {"answer": 4, "no answer": 2}
    for one, (_, context, answer) in zip(found["predictions"], ROWS):
        if answer is not None:
            assert context[one["start"] : one["stop"]] == one["text"]
    never, always = (run.text_predict(out, data, threshold=at)["counts"] for at in (1e9, -1e9))
    assert (never, always) == ({"answer": 6, "no answer": 0}, {"answer": 0, "no answer": 6})
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "- where in its context the answer to a question begins and ends\n" in card
    assert "- train: 4 `answer`, 2 `no answer`" in card
    assert "- texts kept out: exact " in card


def test_transformers_scores_the_same_starts_and_ends(answering: tuple[Path, Path, dict[str, Any]]) -> None:
    out = answering[0]
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    question, context, _ = ROWS[1]
    with torch.no_grad():
        scores = theirs(**tokenizer(question, context, return_tensors="pt"))
    start, end = scores.start_logits[0], scores.end_logits[0]
    lines = [json.dumps({"question": question, "context": context})]
    (ours,) = run.text_predict(out, texts=lines)["predictions"]
    np.testing.assert_allclose(ours["null_score"], float(start[0] + end[0]), atol=1e-4)
    first, last = 8, 9  # [CLS] a cat [SEP] on the mat , cat sat
    np.testing.assert_allclose(ours["score"], float(start[first] + end[last]), atol=1e-4)
    assert ours["text"] == "cat sat"
    assert ours["question"] == "a cat"


def test_a_model_of_transformers_answers_and_is_measured(tmp_path: Path) -> None:
    save_bert(tmp_path / "bert", transformers.BertForQuestionAnswering)
    data = squad(tmp_path / "data.json", *ROWS)
    found = run.text_predict(tmp_path / "bert", data)
    assert (found["threshold"], found["counts"]) == (None, {"answer": 6, "no answer": 0})
    result = run.text_evaluate(tmp_path / "bert", data)
    measured = result["metrics"]
    assert result["seen"] is None
    assert measured["no_answer"]["n"] == 2
    assert "tuned" not in measured


def test_where_each_question_has_an_answer_there_is_no_threshold(bert: Path, tmp_path: Path) -> None:
    data = squad(tmp_path / "data.json", *ROWS[:4])
    result = run.text_finetune(bert, data, tmp_path / "run", validation=data, changes=FEW)
    assert "threshold" not in result["validation"]
    found = run.text_predict(tmp_path / "run", squad(tmp_path / "new.json", *ROWS[4:]))
    assert (found["threshold"], found["counts"]["no answer"]) == (None, 0)


def test_articles_are_kept_out_whole_and_long_contexts_read_in_windows(bert: Path, tmp_path: Path) -> None:
    rows = [("cat", LONG, "cat sat"), ("the", LONG, "cat")]
    data = [squad(tmp_path / f"{name}.json", *rows, title=name) for name in "abc"]
    for path in data[1:]:  # ids of different files must differ
        path.write_text(path.read_text().replace('"id": "', f'"id": "{path.stem}'))
    changes = [*FEW, "validation_fraction=0.34"]
    result = run.text_finetune(bert, data, tmp_path / "run", changes=changes)
    assert [sum(part.values()) for part in result["texts"].values()] == [4, 2]
    assert result["too_long"] == {"train": 12, "validation": 6}  # 30 tokens; 16 beside "cat", a window each 6
    assert any("train: 12 windows more than questions" in note for note in result["notes"])
    recipe = (tmp_path / "run" / "recipe.toml").read_text()
    assert "stride = 6" in recipe
    assert "max_question = 5" in recipe
    one = run.text_finetune(bert, data[:1], tmp_path / "alone", changes=FEW)
    assert (one["validation"], list(one["texts"])) == (None, ["train"])
    assert any("nothing is kept out" in note for note in one["notes"])


def test_by_the_command_from_tables_and_lines(
    bothways: Call,
    answering: tuple[Path, Path, dict[str, Any]],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, data, _ = answering
    with (tmp_path / "train.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("question", "context", "answer"), *ROWS[:4]])
    command = ("text", "finetune", "--from", bert, "--task", "answer", "--data", tmp_path / "train.csv")
    code, said, err = bothways(*command, "--out", tmp_path / "run", *(f"--set={one}" for one in FEW[1:]))
    assert code == 0, err
    assert "train: 3 answer, 0 no answer\nvalidation: 1 answer, 0 no answer\nanswers: exact match " in said
    code, said, err = bothways("text", "predict", out, data, "--out", tmp_path / "p.csv")
    assert (code, said.splitlines()[0]) == (0, "6 questions: 4 answer, 2 no answer")
    rows = list(csv.DictReader((tmp_path / "p.csv").open(encoding="utf-8")))
    assert list(rows[0]) == ["file", "id", "text", "start", "stop", "score", "no_answer_score"]
    assert [(row["text"], row["start"], row["stop"]) for row in rows[3:5]] == [("mat", "2", "5"), ("", "", "")]
    code, said, err = bothways("text", "predict", out, data, "--out", tmp_path / "p.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert (code, lines[0]["n_best"][0]["text"]) == (0, "cat sat")
    code, said, err = bothways("text", "evaluate", out, data)
    assert code == 0, err
    assert "at the run's own threshold " in said
    assert ": exact match 1.000, F1 1.000; at best F1 1.000 (at " in said
    line = json.dumps({"question": ROWS[2][0], "context": ROWS[2][1]})
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n{line}\n"))
    code, said, err = bothways("text", "predict", out)
    assert (code, said.splitlines()[1:]) == (0, ["question 1  a mat  mat", "1 question: 1 answer, 0 no answer"])


def test_what_does_not_fit_is_said(
    fails: Callable[..., str],
    answering: tuple[Path, Path, dict[str, Any]],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, data, _ = answering
    command = ("text", "finetune", "--from", bert, "--out", tmp_path / "x", "--task", "answer", "--data")
    assert "frozen = true belongs to" in fails(*command, data, "--frozen")
    assert "task" in fails(*command[:-2], "anwser", "--data", data)
    assert "stride: expected 1 to 11 tokens" in fails(*command, data, "--set", "answers.stride=12")
    assert "expected questions with an answer" in fails(*command, squad(tmp_path / "none.json", *ROWS[4:]))
    (tmp_path / "bad.json").write_text('{"data": [{"title": "t"}]}')
    assert "bad.json" in fails(*command, tmp_path / "bad.json")
    monkeypatch.setattr("sys.stdin", io.StringIO("who?\n"))
    assert "line 1: expected JSON" in fails("text", "predict", out)
    assert "--encoding belongs to plain text" in fails("text", "predict", out, data, "--encoding", "latin-1")
    (tmp_path / "asked.jsonl").write_text('{"question": "who", "context": "a cat"}\n')
    with pytest.raises(UserError, match="expected questions with answers to measure"):
        run.text_evaluate(out, tmp_path / "asked.jsonl")


def test_reported_files(answering: tuple[Path, Path, dict[str, Any]]) -> None:
    if not CASES.is_dir():
        pytest.skip(f"{CASES} is absent")
    out = answering[0]
    offsets, none = CASES / "b66_squad_offsets.json", CASES / "b68_squad_unanswerable.json"
    measured = run.text_evaluate(out, offsets)
    assert measured["data"]["counts"]["moved"] == 1
    assert measured["data"]["counts"]["not_trainable"] == 1
    context = read_squad([offsets]).contexts[0]
    for one in run.text_predict(out, offsets, threshold=1e9)["predictions"]:
        assert context[one["start"] : one["stop"]] == one["text"] != ""
    found = run.text_predict(out, none)["predictions"]
    assert (found[3]["id"], found[3]["text"], found[3]["score"]) == ("empty_context", "", None)
    assert run.text_evaluate(out, none)["metrics"]["no_answer"]["n"] == 3
