"""The task of a tag for each word of a sentence: entities and their like."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bothways import text
from bothways.config import HeadConfig, TextFinetuneConfig
from bothways.errors import UserError
from bothways.evaluation import entity_metrics, recognise_scheme
from bothways.heads import IGNORED
from bothways.model import Model
from bothways.progress import progress
from bothways.run.text_data import Labelled


@dataclass(frozen=True)
class Sentences(Labelled[text.Sentence]):
    """Sentences with what is known of their files: `rows`, `files` (`file`, `form`, `encoding`, `columns`), `notes`."""

    def labelled(self) -> "Sentences":
        """Returns the sentences that have tags."""
        return replace(self, rows=[row for row in self.rows if row.tags is not None])

    def identity(self) -> str:
        """Returns a hash of words and tags, whatever the files are called."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(repr((row.words, row.tags)).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def keys(self) -> list[str]:
        """Returns of each sentence what must not be on both sides of a split."""
        return [" ".join(row.words).casefold() for row in self.rows]


def read_tagged(paths: Sequence[str | Path], *, tagged: bool = True, encoding: str | None = None) -> Sentences:
    """Reads tagged sentences, or those to be tagged; see `text.read_sentences`.

    Raises:
        UserError: a file has none, or a line that is none.
    """
    files = [text.read_sentences(Path(path), tagged=tagged, encoding=encoding, name=str(path)) for path in paths]
    notes: dict[str, list[str]] = {}
    for file in files:
        for code, said in file.notes.items():
            notes.setdefault(code, []).extend(said)
    told = [
        {"file": f.file, "form": f.form, "encoding": f.encoding, "columns": f.columns, "sentences": len(f.sentences)}
        for f in files
    ]
    rows = [sentence for file in files for sentence in file.sentences]
    return Sentences(rows, {"rows": len(rows), "files": told, "notes": notes})


@dataclass(frozen=True)
class Tag:
    """What is learned of each word.

    Attributes:
        classes: the tags.
        weights: of each in the loss.
    """

    classes: tuple[str, ...]
    weights: tuple[float, ...] = ()
    kind = "tags"

    @classmethod
    def of(cls, training: Sentences, settings: TextFinetuneConfig) -> "Tag":
        """Returns what the training sentences ask for.

        Raises:
            UserError: their words all have the same tag.
        """
        classes = tuple(text.tag_classes(training.rows))
        if len(classes) < 2:
            raise UserError(f"tags: expected two or more to learn, got {', '.join(classes) or 'none'}; tag some words")
        if settings.class_weights == "none":
            return cls(classes)
        counts = Counter(tag for row in training.rows for tag in row.tags or ())
        n = sum(counts.values())
        return cls(classes, tuple(n / (len(classes) * counts[tag]) for tag in classes))

    @classmethod
    def from_head(cls, head: HeadConfig) -> "Tag":
        """Returns what a trained head tells."""
        return cls(head.classes, head.class_weights)

    def head(self, settings: TextFinetuneConfig) -> HeadConfig:
        """Returns the head that tells it."""
        return HeadConfig(
            kind="position", classes=self.classes, class_weights=self.weights, dropout=settings.head_dropout
        )

    def targets(self, data: Sentences) -> Int[np.ndarray, " n"]:
        """Returns the class of each word, of all sentences in order; IGNORED where a tag is none of them."""
        number = {tag: i for i, tag in enumerate(self.classes)}
        return np.array([number.get(tag, IGNORED) for row in data.rows for tag in row.tags or ()], np.int64)

    def prepare(
        self,
        data: Sentences,
        tokenizer: text.Tokenizer,
        length: int,
        settings: TextFinetuneConfig,
        *,
        training: bool = False,
    ) -> text.TagSource:
        """Returns sentences as a model reads them."""
        return text.TagSource(data.rows, tokenizer, self.classes, length)

    def source(self, made: text.TagSource, data: Sentences, pad_id: int, seed: int) -> text.TagSource:
        """Returns what is trained on."""
        return made

    def notes(self, made: text.TagSource, part: str, length: int, settings: TextFinetuneConfig) -> list[str]:
        """Says what is cut or left out."""
        return [f"{part}: {message}" for said in made.notes.values() for message in said]

    def n_too_long(self, made: text.TagSource) -> int:
        """Returns how many sentences are read in windows."""
        return len(made) - len(made.sentences)

    def known(self, data: Sentences, notes: list[str]) -> Sentences:
        """Returns all: an entity of a type that was never trained on is one that is missed."""
        unknown = Counter(tag for row in data.rows for tag in row.tags or () if tag not in self.classes)
        if unknown:
            named = ", ".join(f"{tag} ({n})" for tag, n in unknown.items())
            notes.append(f"no training word has the tag {named}; such entities are missed")
        return data

    def counted(self, data: Sentences) -> dict[str, int]:
        """Returns how many words have each tag."""
        counts = Counter(tag for row in data.rows for tag in row.tags or ())
        return {tag: counts[tag] for tag in self.classes}

    def evaluate(
        self, model: Model, made: text.TagSource, data: Sentences, pad_id: int, title: str, **_: Any
    ) -> dict[str, Any]:
        """Returns `evaluation.entity_metrics` by conlleval's rule, and `strict` the micro F1 of strict reading."""
        truth = [row.tags or [] for row in data.rows]
        predicted = self.tags(model, made, title)[0]
        found = entity_metrics(truth, predicted)
        strict = entity_metrics(truth, predicted, rule="strict", scheme=recognise_scheme(truth).name)
        return found | {"n": len(data), "strict": {"scheme": strict["scheme"], **strict["micro"]}}

    def tags(self, model: Model, made: text.TagSource, title: str) -> tuple[list[list[str]], list[np.ndarray]]:
        """Returns of each sentence the most probable tags, and how probable each is."""
        with progress(title, len(made), "windows") as meter:
            probabilities = text.word_probabilities(model, made, meter.advance)
        return text.best_tags(probabilities, self.classes), [one.max(1, initial=0) for one in probabilities]

    def score(self, measured: dict[str, Any]) -> float:
        """Returns how good a model is: micro F1, and among equals the accuracy of words."""
        return float(measured["micro"]["f1"] + 1e-6 * measured["word_accuracy"])
