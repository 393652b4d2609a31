"""The control of a curve on text: how often words are, without a network."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline

from bothways.errors import UserError
from bothways.run.text_classify import Classify, Rows

C = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Inverse strengths of the penalty, of which parts of the training texts choose, each measured by the others."""
FOLDS = 5


def tfidf(training: Rows, tested: Rows, task: Classify) -> tuple[Float[np.ndarray, "n k"], dict[str, Any]]:
    """Fits a logistic regression to TF-IDF of words and pairs of words; returns probabilities and what was chosen.

    Raises:
        UserError: the training texts have no word.
    """
    texts, others = ([f"{row.text} {row.pair or ''}" for row in rows.rows] for rows in (training, tested))
    targets, groups = task.targets(training), training.keys()
    n_folds = min(FOLDS, int(np.bincount(targets).min()), len(set(groups)))
    folds = [*StratifiedGroupKFold(n_folds).split(texts, targets, groups)] if n_folds > 1 else []
    folds = folds if all(len(set(targets[train])) == len(task.classes) for train, _ in folds) else []
    balanced = "balanced" if task.weights else None

    def fitted(strength: float, where: Any) -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+")
        model = make_pipeline(words, LogisticRegression(C=strength, class_weight=balanced, max_iter=5000))
        return model.fit([texts[i] for i in where], targets[where])

    def loss(strength: float) -> float:
        total = 0.0
        for train, rest in folds:
            said = fitted(strength, train).predict_log_proba([texts[i] for i in rest])
            total -= float(said[np.arange(len(rest)), targets[rest]].sum())
        return total

    try:
        chosen = C[int(np.argmin([loss(strength) for strength in C]))] if folds else 1.0
        model = fitted(chosen, np.arange(len(texts)))
    except ValueError as problem:  # no word at all
        raise UserError(f"TF-IDF: expected training texts with words ({problem}); check the data") from None
    return model.predict_proba(others), {"chosen_by": len(texts) if folds else 0, "strength": chosen}
