"""`bothways text evaluate`."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bothways import text
from bothways.config import TextMaskingConfig
from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation import wilson
from bothways.heads import IGNORED
from bothways.progress import progress
from bothways.run.text_measure import text_measure
from bothways.run.text_model import TextModel, answers, label_heads, needs_mlm, open_model, tag_head
from bothways.run.text_show import corpus_of

T = TypeVar("T")
Pool = tuple[list[list[list[int]]], list[str]]
"""Documents as the ids of their sentences, and the file of each."""
_POOL = 256
"""Kept out documents that are scored together; a text's pools go by its characters."""


class _Sample(Generic[T]):
    """Draws `most` of a stream whose length is not known, each as likely as any other (Vitter 1985, algorithm R)."""

    def __init__(self, most: int, rng: np.random.Generator) -> None:
        self.most, self.rng, self.seen = most, rng, 0
        self.drawn: list[T] = []

    def add(self, one: T) -> None:
        self.seen += 1
        if len(self.drawn) < self.most:
            self.drawn.append(one)
        elif (place := int(self.rng.integers(self.seen))) < self.most:
            self.drawn[place] = one


def text_evaluate(
    model: str | Path,
    paths: str | Path | Sequence[str | Path] = (),
    *,
    corpus: str | Path | None = None,
    ratio: float = 0.15,
    n: int = 200,
    seed: int = 0,
    length: int | None = None,
    documents: str = "blank",
    column: str | None = None,
    encoding: str | None = None,
) -> dict[str, Any]:
    """Measures how well a model knows texts, beside what two guesses reach.

    Documents are cut at sentences' ends into sequences as long as the model takes. Of each the share `ratio` is hidden,
    of single tokens, and replaced as BERT's pretraining does (80 % [MASK], 10 % any token, 10 % none), whatever the
    model's own was, and predicted. Special tokens, [UNK] among them, are never hidden or scored; their share is told.
    Numbers of models with other vocabularies cannot be compared, but for the pseudo-perplexity per word.

    A run of `text_finetune` is measured on labelled texts instead; then `paths` are its tables, see `text_measure`.

    Args:
        model: a run pretrained on text, or a BERT that transformers saved, with its head for hidden tokens.
        paths: files and folders; see `text.Documents`. If none, the documents that a run has kept out of its training.
        corpus: where these are now, if the run's corpus was moved.
        ratio: share of the tokens that is hidden, at least one of a sequence.
        n: sentences of which each token is hidden alone, and pairs of stretches, drawn from all; fewer if there are.
        seed: of these draws and of what is hidden.
        length: tokens of a sequence; if none, those that the model was trained on.
        documents: what ends a document in plain text: a `blank` line, the `file`'s end, or each `line`'s.
        column: of tables, the text's name.
        encoding: of all text files; if none, that of each is found.

    Returns:
        `model`, `settings`, `sequences`, `tokens`, `unknown_share` ([UNK] among these), `mlm` (`hidden` tokens, `loss`
        = mean of -ln p, `perplexity`, `accuracy`), `controls` (of the same hidden tokens: `most_frequent` `token` and
        its `accuracy`; `unigram` `loss` and `perplexity`, by how often the evaluated texts have each token, plus one),
        `pseudo_perplexity` (Salazar et al. 2020, exp of the mean of -ln p: `sentences` of how many (`of`), `cut` ones
        longer than the model, `tokens`, `words`, `per_token`, `per_word`; the last is None of a tokenizer that is no
        WordPiece), `next_sentence` (`accuracy` with `value`, `low`, `high` of the 95 % interval and `n`, and how many
        are `next`; None without that head or where there is no
        pair), `by_file` (`file`, `hidden`, `loss`, `accuracy`), `load_report`, and of the files what
        `text_tokenizer` returns of them. A perplexity too large for a number is None.

    Raises:
        UserError: no such model, one without the head, no text, nothing that can be hidden, or a setting that is none.
    """
    if not 0 < ratio < 1:
        raise UserError(f"ratio: expected between 0 and 1, got {ratio}")
    if n < 1:
        raise UserError(f"n: expected 1 or more, got {n}")
    if seed < 0:
        raise UserError(f"seed: expected 0 or more, got {seed}")
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    opened = open_model(model)
    if label_heads(opened) or tag_head(opened) is not None or answers(opened):
        if not paths:
            raise UserError(f"{opened.folder}: give tables of labelled texts to measure it on")
        of_texts = {"corpus": corpus, "length": length, "column": column, "encoding": encoding}
        if odd := [f"--{name}" for name, value in of_texts.items() if value is not None]:
            raise UserError(f"{' and '.join(odd)} belong to models of hidden tokens; leave them out")
        return text_measure(model, paths)
    needs_mlm(opened)
    asked = {"documents": documents, "column": column, "encoding": encoding}
    given: text.Documents | _KeptOut
    if paths:
        if corpus is not None:
            raise UserError("--corpus says where a run's own documents are; leave it out, or the other texts")
        given = text.Documents(paths, documents, column, encoding)
    else:
        if odd := [f"--{name}" for name, value in asked.items() if value not in (None, "blank")]:
            raise UserError(f"{' and '.join(odd)} belong to texts, and none are given; leave them out")
        given = _KeptOut(opened, corpus)
    room = text.window_length(opened.model, opened.length if length is None else length) - 2
    tally = _Tally(opened, ratio, room, seed, n)
    for tokens, files in _pools(given, opened.tokenizer) if isinstance(given, text.Documents) else given:
        tally.add(tokens, files)
    if not tally.hidden.sum():
        why = given.first_reason() if isinstance(given, text.Documents) else ""
        raise UserError(
            f"{', '.join(map(str, paths)) or opened.folder}: expected documents with words that the model has tokens "
            f"for, found none{why}; check the corpus and that it is the model's language"
        )
    settings = {"ratio": ratio, "n": n, "seed": seed, "length": room + 2, **asked}
    found = given.summary()
    result = {"model": str(opened.folder), "settings": settings, **tally.summary(found["notes"])}
    return result | found | {"load_report": opened.report.as_dict()}


def _pools(documents: text.Documents, tokenizer: text.Tokenizer) -> Iterator[Pool]:
    for pool in text.pools(documents, "evaluate"):
        yield text.sentence_tokens(tokenizer, [one.text for one in pool], text.split_sentences), [o.file for o in pool]


class _KeptOut:
    """The documents that a run has kept out of its training."""

    def __init__(self, opened: TextModel, corpus: str | Path | None) -> None:
        self.corpus, settings, pairs = corpus_of(opened.folder, corpus)
        _, self.documents = text.divide(self.corpus, settings.validation_fraction, settings.training.seed, pairs=pairs)
        if not len(self.documents):
            raise UserError(f"{opened.folder}: kept no document out of its training; give texts to evaluate on")

    def __iter__(self) -> Iterator[Pool]:
        with progress("evaluate", len(self.documents), "documents") as meter:
            for start in range(0, len(self.documents), _POOL):
                pool = self.documents[start : start + _POOL].tolist()
                yield [self.corpus.sentences_of(one) for one in pool], [self._file(one) for one in pool]
                meter.advance(len(pool))

    def _file(self, document: int) -> str:
        return self.corpus.name(document).rpartition(":")[0]

    def summary(self) -> dict[str, Any]:
        files = [{"file": name} for name in dict.fromkeys(map(self._file, self.documents.tolist()))]
        empty: dict[str, Any] = {"empty_documents": 0, "skipped": [], "left_out": [], "notes": {}}
        return {"documents": len(self.documents), "files": files, "corpus": str(self.corpus.path), **empty}


class _Tally:
    """Counts over a corpus that comes in pools."""

    def __init__(self, opened: TextModel, ratio: float, room: int, seed: int, n: int) -> None:
        self.opened, self.ratio, self.room, self.seed = opened, ratio, room, seed
        self.ordinary = opened.tokenizer.ordinary
        self.sentences = _Sample[list[int]](n, generator("evaluate sentences", seed))
        self.stretches = _Sample[text.Stretch](n, generator("evaluate pairs", seed))
        self.single = _Sample[text.Stretch](n, generator("evaluate single sentences", seed))
        self.counts, self.hidden = (np.zeros(len(self.ordinary), np.int64) for _ in range(2))
        """How often the texts have each token, and the hidden ones among them."""
        self.n_sequences = self.right = 0
        self.loss = 0.0
        self.by_file: dict[str, np.ndarray] = {}
        """Hidden, loss, right."""

    def add(self, documents: Sequence[list[list[int]]], files: Sequence[str]) -> None:
        tokenizer, masking = self.opened.tokenizer, TextMaskingConfig(ratio=self.ratio)
        sequences, of = [], []
        for document, file in zip(documents, files):
            digest = hashlib.blake2b(np.concatenate([np.zeros(0, np.int64), *document]).tobytes()).digest()
            for sentence in document:
                self.counts += np.bincount(sentence, minlength=len(self.counts))
                if self.ordinary[sentence].any():
                    self.sentences.add(sentence)
            for parts in text.packed(document, self.room):
                (self.stretches if len(parts) > 1 else self.single).add(text.Stretch(digest, parts))
                rng = generator("evaluate mask", self.seed, 0, self.n_sequences)
                ids = np.array([i for part in parts for i in part])
                self.n_sequences += 1
                if self.ordinary[ids].any():
                    sequences.append(text.hide([ids], IGNORED, tokenizer, self.ordinary, masking, rng))
                    of.append(file)
        scored = text.score(self.opened.model, tokenizer, sequences)
        self.hidden += np.bincount(scored.label, minlength=len(self.hidden))
        self.loss += float(scored.loss.sum())
        self.right += int(scored.right.sum())
        of_token = np.array(of, dtype=object)[scored.sequence]
        for file in dict.fromkeys(of):
            here = of_token == file
            sums = np.array([here.sum(), scored.loss[here].sum(), scored.right[here].sum()])
            self.by_file[file] = self.by_file.get(file, np.zeros(3)) + sums

    def summary(self, notes: dict[str, list[str]]) -> dict[str, Any]:
        tokenizer, n_hidden, n_tokens = self.opened.tokenizer, int(self.hidden.sum()), int(self.counts.sum())
        known = np.where(self.ordinary, self.counts, 0)
        most = int(known.argmax())
        p = (known + 1) / (known + 1)[self.ordinary].sum()
        unigram = float(-(self.hidden[self.ordinary] * np.log(p[self.ordinary])).sum() / n_hidden)
        loss = self.loss / n_hidden
        return {
            "sequences": self.n_sequences,
            "tokens": n_tokens,
            "unknown_share": int(self.counts[tokenizer.unk_id]) / n_tokens,
            "mlm": {
                "hidden": n_hidden, "loss": loss, "perplexity": _exp(loss), "accuracy": self.right / n_hidden,
            },
            "controls": {
                "most_frequent": {"token": tokenizer.token(most), "accuracy": int(self.hidden[most]) / n_hidden},
                "unigram": {"loss": unigram, "perplexity": _exp(unigram)},
            },
            "pseudo_perplexity": self._pseudo_perplexity(),
            "next_sentence": self._next_sentence(notes),
            "by_file": [
                {"file": file, "hidden": int(hidden), "loss": float(one / hidden), "accuracy": float(right / hidden)}
                for file, (hidden, one, right) in self.by_file.items()
            ],
        }  # fmt: skip

    def _pseudo_perplexity(self) -> dict[str, Any]:
        drawn = self.sentences.drawn
        ids = [np.array(one[: self.room]) for one in drawn]
        tokens = sum(int(self.ordinary[one].sum()) for one in ids)
        words = sum(self._words(one) for one in ids)
        with progress("evaluate, each token hidden alone", tokens, "tokens") as meter:
            total = sum(text.pseudo_log_likelihoods(self.opened.model, self.opened.tokenizer, ids, meter.advance))
        return {
            "sentences": len(drawn),
            "of": self.sentences.seen,
            "cut": sum(len(one) > self.room for one in drawn),
            "tokens": tokens,
            "words": words,
            "per_token": _exp(-total / tokens) if tokens else None,
            "per_word": _exp(-total / words) if words and self.opened.tokenizer.prefix else None,
        }

    def _words(self, ids: np.ndarray) -> int:
        """Returns how many words have a token that is scored."""
        return len(set((~self.opened.tokenizer.continues[ids]).cumsum()[self.ordinary[ids]]))

    def _next_sentence(self, notes: dict[str, list[str]]) -> dict[str, Any] | None:
        config = self.opened.model.config.text
        assert config is not None
        if "nsp" not in self.opened.model.heads or config.type_vocab_size < 2:
            return None
        others = self.stretches.drawn + self.single.drawn
        drawn = text.draw_pairs(self.stretches.drawn, others, self.room - 1, generator("evaluate next", self.seed))
        if drawn is None:
            notes["no_pairs"] = [
                "next sentence: not measured, for which two documents that differ are needed, one of two sentences; "
                "--documents file where blank lines end paragraphs"
            ]
            return None
        right = text.next_sentence(self.opened.model, self.opened.tokenizer, drawn)
        return {"accuracy": wilson(int(right.sum()), len(right)), "next": int((drawn.labels == 0).sum())}


def _exp(loss: float) -> float | None:
    return math.exp(loss) if loss < 700 else None
