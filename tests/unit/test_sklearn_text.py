"""TextClassifier and TextRegressor: scikit-learn's tools, kinds of labels, mistakes in one line."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bothways import run
from bothways.errors import BothwaysWarning
from bothways.sklearn import InputError, TextClassifier, TextRegressor
from bothways.training import load_manifest
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
CATS, MATS = ["a cat", "the cat", "a cat sat", "my cat .", "cat"], ["a mat", "the mat", "a mat sat", "my mat .", "mat"]
X, Y = CATS + MATS, ["good"] * 5 + ["bad"] * 5
SHORT: dict[str, Any] = {
    "learning_rate": 2e-3, "batch_size": 8, "changes": ("training.steps=100", "training.evaluations=1")
}  # fmt: skip
FROZEN: dict[str, Any] = {"mode": "frozen"}


class Frame:
    """What is needed of a table, or a column, of pandas or polars."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_numpy(self) -> np.ndarray:
        return self.values


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, transformers.BertForPreTraining)
    return str(folder)


@pytest.fixture(scope="module")
def fitted(bert: str, tmp_path_factory: pytest.TempPathFactory) -> TextClassifier:
    """Treat it as read-only."""
    return TextClassifier(bert, out=tmp_path_factory.mktemp("out") / "run", **SHORT).fit(X, Y)


def test_it_learns_and_its_run_says_the_same(fitted: TextClassifier) -> None:
    assert fitted.classes_.tolist() == ["bad", "good"]
    assert fitted.score(X, Y) == 1.0
    told = fitted.predict_proba(np.array(["the cat", "my mat"]))
    found = run.text_predict(fitted.out, texts=["the cat", "my mat"])["predictions"]
    np.testing.assert_allclose(told, [[one["probabilities"][c] for c in ("bad", "good")] for one in found], atol=1e-6)
    np.testing.assert_allclose(
        fitted.decision_function(["cat"]),
        np.log(told_of := fitted.predict_proba(["cat"]))[:, 1] - np.log(told_of)[:, 0],
    )
    assert "heads.sequence.linear.weight" in fitted.load_report_["missing"]
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_changes_say_when_training_ends(bert: str, tmp_path: Path) -> None:
    steps = {}
    for name, settings in {
        "epochs": {"epochs": 2, "batch_size": 2, "changes": ("least_steps=1",)},
        "steps": {"changes": ("training.steps=3",)},
        "least": {"epochs": 1, "changes": ("least_steps=4",)},
    }.items():
        TextClassifier(bert, out=tmp_path / name, **settings).fit(X, Y)
        steps[name] = load_manifest(tmp_path / name)["result"]["steps"]
    assert steps == {"epochs": 10, "steps": 3, "least": 4}


def test_tools_of_scikit_learn(bert: str) -> None:
    estimator = TextClassifier(bert, **FROZEN)
    assert clone(estimator).get_params() == estimator.get_params()
    both, labels = np.array(X * 2), np.array(Y * 2)
    assert cross_val_score(estimator, both, labels, cv=2).mean() > 0.5
    search = GridSearchCV(estimator, {"mode": ["frozen"], "changes": [("features=cls",), ("features=mean",)]}, cv=2)
    assert search.fit(both, labels).best_params_["changes"] in (("features=cls",), ("features=mean",))
    piped = make_pipeline(FunctionTransformer(lambda texts: [one.upper() for one in texts]), estimator).fit(X, Y)
    np.testing.assert_array_equal(piped.predict(X), clone(estimator).fit(X, Y).predict(X))
    with pytest.raises(NotFittedError):
        clone(estimator).predict(X)


@pytest.mark.parametrize(
    ("labels", "kind"), [([10, 2] * 5, int), ([True, False] * 5, bool), (["b", "a"] * 5, str), ([1, -1] * 5, int)]
)
def test_labels_of_any_kind_come_back(bert: str, labels: list[Any], kind: type) -> None:
    texts = [f"{'cat' if i % 2 else 'mat'} {chr(97 + i)}" for i in range(10)]
    estimator = TextClassifier(bert, **FROZEN).fit(texts, labels)
    assert estimator.classes_.tolist() == sorted(set(labels))
    assert estimator.predict(texts).tolist() == labels
    assert isinstance(estimator.predict(texts).tolist()[0], kind)


@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
def test_several_classes_at_once(bert: str, form: Any) -> None:
    there = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0], [0, 0, 0]] * 3)
    texts = ["cat", "mat", "cat mat", "on"] * 3
    estimator = TextClassifier(bert, mode="frozen", changes=("features=mean",)).fit(texts, form(there))
    told = estimator.predict_proba(texts)
    assert told.shape == (12, 3)
    assert all(told[there[:, k] == 1, k].min() > told[there[:, k] == 0, k].max() for k in range(3))
    np.testing.assert_array_equal(estimator.predict(texts), told >= 0.5)
    with pytest.raises(InputError, match="got none in column 1"):
        TextClassifier(bert, **FROZEN).fit(texts, there * [1, 0, 1])


def test_pairs_columns_and_numbers(bert: str) -> None:
    table = Frame(np.array([X, X[::-1]], dtype=object).T)
    pairs = TextClassifier(bert, **FROZEN).fit(table, Y)
    np.testing.assert_array_equal(pairs.predict(list(zip(X, X[::-1]))), pairs.predict(table))
    with pytest.raises(InputError, match="expected pairs of texts as in fit"):
        pairs.predict(X)
    one = TextClassifier(bert, **FROZEN).fit(Frame(table.values[:, 0]), Y)
    np.testing.assert_array_equal(one.predict(Frame(table.values[:, :1])), one.predict(X))
    stars = TextRegressor(bert, **FROZEN).fit(X, [4.5] * 5 + [1.5] * 5)
    assert stars.score(X, [4.5] * 5 + [1.5] * 5) > 0.5


def test_control_characters_are_spaces_in_fit_and_in_predict(fitted: TextClassifier) -> None:
    np.testing.assert_array_equal(fitted.predict_proba(["the\x01cat"]), fitted.predict_proba(["the cat"]))
    with pytest.raises(InputError):
        fitted.predict(["\ud800"])


def test_held_out_texts_are_others(bert: str) -> None:
    groups = np.repeat(np.arange(5), 2)
    order = [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]
    texts, labels = [X[i] for i in order], [Y[i] for i in order]
    estimator = TextClassifier(bert, validation_fraction=0.4, **FROZEN).fit(texts, labels, groups)
    assert estimator.validation_["n"] == 4
    assert TextClassifier(bert, **FROZEN).fit(texts, labels).validation_ is None
    same = TextClassifier(bert, changes=("training.steps=5", "training.evaluations=1"), random_state=3)
    first, second = (clone(same).fit(X, Y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, clone(same).set_params(random_state=4).fit(X, Y).predict_proba(X))


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "one text": ("a cat", ["a", "b"], "expected a list of texts, got str"),
    "nothing": ([], ["a", "b"], "expected texts, got none"),
    "missing": (["a", float("nan")], [0, 1], r"X\[1\]: expected text, got float nan"),
    "bytes": ([b"a", "b"], [0, 1], r"X\[0\]: expected text, got bytes"),
    "numbers": (np.zeros((4, 3)), [0, 1, 0, 1], "expected a text or a pair of texts in each row"),
    "a set": ({"a", "b"}, [0, 1], "expected a list of texts, got set"),
    "only empty texts": (["a", "b", "", " "], [0, 1, 2, 2], "got none with '2'"),
    "no label": (["a", "b"], ["", "x"], "expected labels that differ, and none empty"),
    "one class": (["a", "b"], [1, 1], "expected two classes or more, got 1"),
}


@pytest.mark.parametrize(("texts", "labels", "message"), REFUSED.values(), ids=REFUSED)
def test_mistakes(bert: str, texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextClassifier(bert).fit(texts, labels)


def test_mistakes_in_settings(bert: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pretrained: expected a run on text"):
        TextClassifier().fit(X, Y)
    with pytest.raises(InputError, match="mode: expected 'full' or 'frozen'"):
        TextClassifier(bert, mode="probe").fit(X, Y)
    with pytest.raises(InputError, match="unknown setting"):
        TextClassifier(bert, changes=("lenght=8",)).fit(X, Y)
    with pytest.raises(InputError, match="task: an estimator"):
        TextClassifier(bert, changes=("task=tag",)).fit(X, Y)
    with pytest.raises(InputError, match="expected a model"):
        TextClassifier(tmp_path / "none").fit(X, Y)
    with pytest.raises(ValueError, match=r"(?i)type|nan|none"):
        TextClassifier(bert).fit(["a", "b"], np.array(["x", None], dtype=object))
    with pytest.raises(ValueError, match="inconsistent numbers"):
        TextClassifier(bert).fit(X, Y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        TextRegressor(bert).fit(X, [float("nan")] * 10)
    with pytest.warns(BothwaysWarning, match="1 of 11 texts are empty"):
        TextClassifier(bert, **FROZEN).fit([*X, " "], [*Y, "bad"])
