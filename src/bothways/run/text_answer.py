"""The task of questions about contexts: where in its context the answer to each stands."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bothways import text
from bothways.config import AnswerConfig, HeadConfig, TextFinetuneConfig
from bothways.errors import UserError
from bothways.evaluation import answer_metrics
from bothways.model import Model
from bothways.progress import progress
from bothways.run.text_data import Labelled
from bothways.run.text_model import TextModel
from bothways.training import MANIFEST, load_manifest

STRIDE, MAX_QUESTION = 128, 64
"""Of run_squad.py of google-research/bert; less where windows are short."""
HAS_ANSWER, NO_ANSWER = "answer", "no answer"
"""What is counted of questions."""


@dataclass(frozen=True)
class Questions(Labelled[text.Question]):
    """Questions with what is known of their files: `rows`, `files` (`file`), `counts`, `notes`; and their contexts."""

    contexts: list[str]

    @classmethod
    def of(cls, squad: text.Squad, paths: Sequence[str | Path] = ()) -> "Questions":
        """Returns questions with what was found in their files."""
        told = {"rows": len(squad.questions), "files": [{"file": str(path)} for path in paths]}
        return cls(squad.questions, {**told, "counts": squad.counts, "notes": squad.notes}, squad.contexts)

    @property
    def squad(self) -> text.Squad:
        """The same as the rooms of text take it."""
        return text.Squad(self.contexts, self.rows)

    def labelled(self) -> "Questions":
        """Returns the questions of which it is told what the answer is, or that there is none."""
        return replace(self, rows=[row for row in self.rows if row.answers is not None])

    def identity(self) -> str:
        """Returns a hash of questions, contexts and answers, whatever the files are called."""
        digest = hashlib.sha256()
        for row in self.rows:
            said = (row.id, row.text, self.contexts[row.context], row.answers)
            digest.update(repr(said).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def keys(self) -> list[str]:
        """Returns of each question what must not be on both sides of a split: its article."""
        return [row.title for row in self.rows]


def read_questions(paths: Sequence[str | Path]) -> Questions:
    """Reads questions; see `text.read_squad`.

    Raises:
        UserError: a file holds none.
    """
    return Questions.of(text.read_squad(paths), paths)


def given_questions(lines: Iterable[str], first: int = 1) -> Questions:
    """Reads questions of lines of JSON, each with `question` and `context`; see `text.squad_of_lines`.

    Raises:
        UserError: a line is none.
    """
    return Questions.of(text.squad_of_lines(lines, first))


def with_windows(settings: TextFinetuneConfig, length: int) -> TextFinetuneConfig:
    """Returns settings in which it is said how windows lie, also where that follows from their length."""
    asked = settings.answers
    most = asked.max_question or min(MAX_QUESTION, length // 4)
    stride = asked.stride or min(STRIDE, max(1, (length - most - 3) // 2))
    return settings.model_copy(
        update={"answers": asked.model_copy(update={"max_question": most, "stride": stride}), "length": length}
    )


@dataclass(frozen=True)
class Answer:
    """What is learned of each question.

    Attributes:
        no_answer: whether some have none, so that "" is an answer.
        asked: how many answers are told, and how long they are.
        thresholds: of validation questions, see `evaluation.best_thresholds`; none where there were none.
    """

    no_answer: bool
    asked: AnswerConfig
    thresholds: dict[str, float] | None = None
    classes: tuple[str, ...] = ()
    kind = "answers"

    @classmethod
    def of(cls, training: Questions, settings: TextFinetuneConfig) -> "Answer":
        """Returns what the training questions ask for.

        Raises:
            UserError: none can be trained on.
        """
        if not any(row.trainable and row.answers for row in training.rows):
            raise UserError("answers: expected questions with an answer that stands in its context, found none")
        return cls(any(not row.answers for row in training.rows), settings.answers)

    @classmethod
    def from_run(cls, opened: TextModel, settings: TextFinetuneConfig) -> "Answer":
        """Returns what a trained model tells; of a model from elsewhere, that each question has an answer."""
        if not (opened.folder / MANIFEST).is_file():
            return cls(False, settings.answers)
        manifest = load_manifest(opened.folder)
        no_answer = bool(manifest.get("texts", {}).get("train", {}).get(NO_ANSWER))
        measured = (manifest.get("result") or {}).get("validation") or {}
        return cls(no_answer, settings.answers, measured.get("best"))

    @property
    def threshold(self) -> float | None:
        """How much the null score may be above the best answer's before the answer is ""; None = it never is."""
        if not self.no_answer:
            return None
        return 0.0 if self.thresholds is None else self.thresholds["f1_threshold"]

    def head(self, settings: TextFinetuneConfig) -> HeadConfig:
        """Returns the head that tells it."""
        return HeadConfig(kind="span")

    def prepare(
        self,
        data: Questions,
        tokenizer: text.Tokenizer,
        length: int,
        settings: TextFinetuneConfig,
        *,
        training: bool = False,
    ) -> text.AnswerSource:
        """Returns questions as a model reads them; `training` ones are those that can be trained on."""
        answers = with_windows(settings, length).answers
        assert answers.stride is not None
        assert answers.max_question is not None
        return text.AnswerSource(
            data.squad, tokenizer, length=length, stride=answers.stride, max_question=answers.max_question,
            training=training,
        )  # fmt: skip

    def source(self, made: text.AnswerSource, data: Questions, pad_id: int, seed: int) -> text.AnswerSource:
        """Returns what is trained on.

        Raises:
            UserError: no window is left to train on.
        """
        if not len(made):
            raise UserError("answers: expected questions whose answer stands in the context, found none; see the notes")
        return made

    def notes(self, made: text.AnswerSource, part: str, length: int, settings: TextFinetuneConfig) -> list[str]:
        """Says what is cut, left out or read in windows."""
        found = [f"{part}: {message}" for said in made.notes.values() for message in said]
        if n := self.n_too_long(made):
            found.append(f"{part}: {n:,} windows more than questions: contexts longer than {length} tokens are parted")
        return found

    def n_too_long(self, made: text.AnswerSource) -> int:
        """Returns how many windows there are beyond the first of each question."""
        return len(made) - len(set(made.windows[:, 0].tolist()))

    def known(self, data: Questions, notes: list[str]) -> Questions:
        """Returns all."""
        return data

    def counted(self, data: Questions) -> dict[str, int]:
        """Returns how many questions have an answer, and how many none."""
        n = sum(bool(row.answers) for row in data.rows)
        return {HAS_ANSWER: n, NO_ANSWER: len(data) - n}

    def answers(
        self, model: Model, made: text.AnswerSource, title: str, threshold: float | None
    ) -> list[dict[str, Any]]:
        """Returns what a model answers; see `text.predict_answers`."""
        with progress(title, len(made.questions), "questions") as meter:
            return text.predict_answers(
                model, made, n_best=self.asked.n_best, max_answer_tokens=self.asked.max_answer_tokens,
                threshold=threshold, advance=meter.advance,
            )  # fmt: skip

    def evaluate(
        self, model: Model, made: text.AnswerSource, data: Questions, pad_id: int, title: str, **_: Any
    ) -> dict[str, Any]:
        """Returns `evaluation.answer_metrics`: with thresholds where a question may have no answer."""
        found = self.answers(model, made, title, None)
        texts = [one["n_best"][0]["text"] if one["n_best"] else "" for one in found]
        gold = [[answer.text for answer in row.answers or ()] for row in data.rows]
        if not self.no_answer and all(gold):
            return answer_metrics(texts, gold)
        return answer_metrics(texts, gold, [one["no_answer_score"] for one in found], tuned=self.thresholds)

    def score(self, measured: dict[str, Any]) -> float:
        """Returns how good a model is: its F1, at the best threshold where there is one."""
        return float(measured.get("best", measured)["f1"])
