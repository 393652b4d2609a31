"""The control of a curve on text: how often words are, without a network."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline

from bothways.run.text_classify import Classify, Rows

C = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Inverse strengths of the penalty, of which parts of the training texts choose, each measured by the others."""
FOLDS = 5


def tfidf(training: Rows, tested: Rows, task: Classify) -> tuple[Float[np.ndarray, "n k"], dict[str, Any]]:
    """Fits a logistic regression to TF-IDF of words and pairs of words; returns probabilities and what was chosen."""
    texts, others = ([f"{row.text} {row.pair or ''}" for row in rows.rows] for rows in (training, tested))
    targets = task.targets(training)
    folds = min(FOLDS, int(np.bincount(targets).min()))

    def model(strength: float) -> Any:
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        return make_pipeline(words, LogisticRegression(C=strength, class_weight=_weights(task), max_iter=5000))

    chosen = 1.0
    if folds > 1:
        parts = StratifiedKFold(folds)
        losses = [-cross_val_score(model(c), texts, targets, cv=parts, scoring="neg_log_loss").mean() for c in C]
        chosen = C[int(np.argmin(losses))]
    fitted = model(chosen).fit(texts, targets)
    return fitted.predict_proba(others), {"chosen_by": len(texts) if folds > 1 else 0, "strength": chosen}


def _weights(task: Classify) -> str | None:
    return "balanced" if task.weights else None
