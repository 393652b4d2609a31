"""The encoder as estimators of texts: labels or numbers in, a fitted classifier or regressor out."""

import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from bothways import run, text
from bothways.config import TextFinetuneConfig, load_config
from bothways.errors import BothwaysWarning
from bothways.progress import quiet
from bothways.sklearn.common import InputError, check_is_one_of, for_scikit_learn
from bothways.training import class_probabilities, number_values, several_probabilities

SEVERAL_FROM = 0.5
"""Of several classes at once, from which probability one is there."""


class _TextEstimator(BaseEstimator):
    """What a classifier and a regressor of texts share."""

    def __init__(
        self,
        pretrained: str | Path | None = None,
        *,
        mode: str = "full",
        epochs: float | int = 3.0,
        learning_rate: float = 5e-5,
        batch_size: int = 16,
        validation_fraction: float | int = 0.0,
        changes: Sequence[str] = (),
        out: str | Path | None = None,
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.pretrained = pretrained
        self.mode = mode
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.changes = changes
        self.out = out
        self.verbose = verbose
        self.random_state = random_state

    def _learn(self, X: Any, labels: Sequence[Any], kind: str, groups: Any) -> None:
        """Fine-tunes as `bothways text finetune` does, in a folder that is kept or not."""
        check_is_one_of("mode", self.mode, ("full", "frozen"))
        if self.pretrained is None:
            raise InputError("pretrained: expected a run on text or a folder of a BERT, got None; give one")
        pairs = _texts(X)
        check_consistent_length(pairs, labels, groups)
        self.pairs_ = pairs[0][1] is not None
        columns = {"text": [one[0] for one in pairs], "label": list(labels)}
        columns |= {"pair": [one[1] for one in pairs]} if self.pairs_ else {}
        columns |= {} if groups is None else {"group": list(map(str, groups))}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        said = {change.partition("=")[0].strip() for change in self.changes}
        ends = () if said & {"training.steps", "training.minutes"} else (f"epochs={float(self.epochs)}",)
        changes = [
            *(f"columns.{name}={name}" for name in columns), f"labels={kind}", *ends,
            f"frozen={str(self.mode == 'frozen').lower()}", f"validation_fraction={float(self.validation_fraction)}",
            f"training.learning_rate={float(self.learning_rate)}", f"training.batch_size={int(self.batch_size)}",
            f"training.seed={seed}", *self.changes,
        ]  # fmt: skip
        if "task" in said:
            raise InputError("task: an estimator tells a label of each text; leave it out of changes")
        with for_scikit_learn(), quiet(not self.verbose), tempfile.TemporaryDirectory() as temporary:
            data, out = Path(temporary) / "X.jsonl", Path(temporary) / "run" if self.out is None else Path(self.out)
            rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
            data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="ascii")
            result = run.text_finetune(self.pretrained, data, out, changes=changes)
            loaded = text.load_folder(out)
        self.model_, self.tokenizer_, self.length_ = loaded.model, loaded.tokenizer, int(result["length"])
        self.validation_, self.notes_ = result["validation"], result["notes"]
        self.load_report_ = result["load_report"]
        self.too_long_ = load_config(TextFinetuneConfig, None, changes).too_long

    def _told(self, X: Any, read: Callable[..., Any]) -> np.ndarray:
        """Returns what the model says of texts, [n k]."""
        check_is_fitted(self)
        pairs = _texts(X)
        if (pairs[0][1] is not None) != self.pairs_:
            raise InputError(f"X: expected {'pairs of texts' if self.pairs_ else 'single texts'} as in fit, got others")
        seconds = [one[1] or "" for one in pairs] if self.pairs_ else None
        with for_scikit_learn():
            made = text.tokenise(
                self.tokenizer_, [one[0] for one in pairs], seconds, length=self.length_, too_long=self.too_long_
            )
        if made.n_too_long:
            rule = "the mean of their windows is taken" if self.too_long_ == "windows" else "their ends are not read"
            longer = f"X: {made.n_too_long} of {len(pairs)} texts are longer than {self.length_} tokens: {rule}"
            warnings.warn(longer, BothwaysWarning, stacklevel=3)
        told = text.told(self.model_, made, self.tokenizer_.pad_id, read, lambda n: None)
        return np.asarray(told, np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):
    """A class for each text or pair of texts, or any number of classes at once; a BERT that is fine-tuned.

    What is learned, and how, is what `bothways text finetune` does.

    Args:
        pretrained: a run on text, or a folder of a BERT that transformers saved.
        mode: `full` = all weights are fine-tuned; `frozen` = a linear head on the encoder's vectors.
        epochs: how often the texts are gone through, of `full`; 200 steps at least (`least_steps` among `changes`).
        learning_rate: its peak.
        batch_size: texts in a step.
        validation_fraction: share of the texts that are not trained on; equal texts, and those of one of `groups`, stay
            together. Metrics on them are in `validation_`; `frozen` chooses its penalty by them.
        changes: further settings of `config.TextFinetuneConfig`, e.g. `("pool=mean", "class_weights=balanced")`.
        out: folder of the run, which `bothways text predict` opens; None = it is not kept.
        verbose: say how training goes.
        random_state: of the drawn weights, the order of the texts and those held out.

    Attributes:
        classes_: the labels, sorted; of an indicator matrix the numbers of its columns.
        model_: the fine-tuned model.
        validation_: metrics on the texts held out; None without.
        notes_: what was cut or looks wrong.
        load_report_: which weights came from `pretrained` and which were drawn.
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> "TextClassifier":
        """Fine-tunes on labelled texts.

        Args:
            X: texts: a list, an array, a column; pairs are tuples of two, or two columns.
            y: a label for each (text, numbers, True and False), or an indicator matrix [n k] of 0 and 1.
            groups: whose each is, so that what is held out for validation is others'.

        Raises:
            InputError: X, y, groups or a setting do not fit.
        """
        try:
            kind = type_of_target(y, input_name="y")
        except TypeError as problem:
            raise InputError(f"y: expected labels of one type, got others ({problem}); leave missing out") from None
        if kind == "multilabel-indicator":
            there = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
            self.classes_ = np.arange(there.shape[1])
            labels: list[Any] = [list(map(str, np.flatnonzero(row))) for row in there]
            if unused := np.flatnonzero(~there.astype(bool).any(0)).tolist():
                raise InputError(f"y: expected some text with each class, got none in column {unused[0]}; leave it out")
            self._learn(X, labels, "several", groups)
        else:
            y = column_or_1d(y, warn=True)
            assert_all_finite(y, input_name="y")
            check_classification_targets(y)
            self.classes_ = np.unique(y)
            if len(self.classes_) < 2:
                raise InputError(f"y: expected two classes or more, got {len(self.classes_)}; label others, too")
            names = [text.label_name(str(one)) for one in self.classes_.tolist()]
            if None in names or len(set(names)) < len(names):
                raise InputError(f"y: expected labels that differ, and none empty, got {', '.join(map(repr, names))}")
            self._learn(X, list(map(str, y.tolist())), "classes", groups)
        (head,) = self.model_.config.heads.values()
        self.several_ = head.kind == "several"
        names = [text.label_name(str(one)) for one in self.classes_.tolist()]
        if lacking := [name for name in names if name not in head.classes]:
            raise InputError(f"y: expected a text that is not empty with each label, got none with {lacking[0]!r}")
        self._order = np.array([head.classes.index(name) for name in names])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable label of each text [n]; of several classes at once 0 and 1 [n k].

        Raises:
            InputError: X is not as it was in `fit`.
        """
        told = self.predict_proba(X)
        if self.several_:
            return (told >= SEVERAL_FROM).astype(np.int64)
        return self.classes_[told.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probability of each class [n k], in the order of `classes_`.

        Raises:
            InputError: see `predict`.
        """
        check_is_fitted(self)
        return self._told(X, several_probabilities if self.several_ else class_probabilities)[:, self._order]

    def decision_function(self, X: Any) -> np.ndarray:
        """Returns the log odds of the second of two classes [n], or log probabilities of more [n k].

        Raises:
            InputError: see `predict`.
        """
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float32).tiny))
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 and not self.several_ else logs


class TextRegressor(RegressorMixin, _TextEstimator):
    """A number for each text or pair of texts; for arguments and attributes see `TextClassifier`."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> "TextRegressor":
        """Fine-tunes on texts with a number each; for the arguments see `TextClassifier.fit`.

        Raises:
            InputError: X, y, groups or a setting do not fit.
        """
        y = column_or_1d(y, dtype=np.float64, warn=True)
        assert_all_finite(y, input_name="y")
        self._learn(X, y.tolist(), "number", groups)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Returns a number for each text [n].

        Raises:
            InputError: X is not as it was in `fit`.
        """
        return self._told(X, number_values)[:, 0]


def _texts(X: Any) -> list[tuple[str, str | None]]:
    """Returns texts, or pairs of them; refuses all else, and says where it stands."""
    if isinstance(X, str | bytes | dict | set | frozenset) or not hasattr(X, "__len__"):
        raise InputError(f"X: expected a list of texts, got {type(X).__name__}; one text is [text]")
    rows = X.to_numpy().tolist() if hasattr(X, "to_numpy") else X.tolist() if isinstance(X, np.ndarray) else list(X)
    if not rows:
        raise InputError("X: expected texts, got none; give one or more")
    rows = [row if isinstance(row, list | tuple) else [row] for row in rows]
    sizes = {len(row) for row in rows}
    if sizes not in ({1}, {2}):
        raise InputError(f"X: expected a text or a pair of texts in each row, got {sorted(sizes)}; give one or two")
    for number, row in enumerate(rows):
        for one in row:
            if not isinstance(one, str):
                raise InputError(
                    f"X[{number}]: expected text, got {type(one).__name__} {one!r:.20}; leave such rows out"
                )
    if empty := sum(not any(one.strip() for one in row) for row in rows):
        warnings.warn(f"X: {empty} of {len(rows)} texts are empty", BothwaysWarning, stacklevel=4)
    rows = [[text.clean(one, Counter()) for one in row] for row in rows]  # as where tables are read
    return [(row[0], row[1] if len(row) == 2 else None) for row in rows]
