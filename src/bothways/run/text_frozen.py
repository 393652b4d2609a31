"""Fine-tuning without training the encoder: its vectors are computed once, and a linear head is fitted to them."""

import time
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeCV

from bothways import text
from bothways.config import TextFinetuneConfig
from bothways.errors import UserError
from bothways.heads import IGNORED, Batch, Position, Sequence
from bothways.model import Model
from bothways.progress import progress
from bothways.run.text_classify import Classify, Rows
from bothways.run.text_tag import Sentences, Tag
from bothways.training import join

C = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Inverse strengths of the logistic regression's penalty, of which the validation texts choose."""
ALPHAS = tuple(float(a) for a in 10.0 ** np.arange(-2, 6))
"""Strengths of the ridge regression, of which leaving out each text in turn chooses (in closed form)."""


def pooled(model: Model, batch: Batch) -> Float[torch.Tensor, "B D"]:
    """Returns what the model's head for whole texts reads."""
    (head,) = model.heads.values()
    assert isinstance(head, Sequence)
    embedded = model.embedding(batch)
    rows = model.encoder(embedded.hidden, embedded.attention_mask, head.rows(embedded))
    return head.pool(rows, embedded, model.pooler(rows.cls()))


def fit_frozen(
    model: Model,
    task: Classify | Tag,
    parts: dict[str, tuple[Rows | Sentences, text.Tokenised | text.TagSource]],
    pad_id: int,
    settings: TextFinetuneConfig,
) -> dict[str, Any]:
    """Fits the model's head to its frozen vectors, in place.

    A logistic regression of standardised vectors, or in closed form linear discriminants with a covariance that is
    shrunk (Ledoit and Wolf 2004); of a number a ridge regression. Of a text in windows the vectors are averaged. A word
    has the vector of its first piece (Devlin et al. 2019, section 5.3).

    Args:
        model: with its one head.
        task: what the head tells.
        parts: `train`, and where there is one `validation`.
        pad_id: of the tokenizer.
        settings: `frozen_head`, `class_weights`.

    Returns:
        `seconds`, `sequences_per_s` (vectors computed), `strength` (C or alpha; None in closed form of classes).

    Raises:
        UserError: the model has no vectors that are finite, or too few labels for a closed form.
    """
    started = time.monotonic()
    vectors = {name: vectors_of(model, tokens, pad_id, f"vectors, {name}") for name, (_, tokens) in parts.items()}
    seconds = time.monotonic() - started
    targets: dict[str, np.ndarray] = {name: task.targets(rows) for name, (rows, _) in parts.items()}  # type: ignore[arg-type]
    if isinstance(task, Tag):
        vectors, targets = _of_known_tags(vectors, targets)
    weight, bias, used = fit_head(task, settings, vectors, targets)
    (head,) = model.heads.values()
    assert isinstance(head, Sequence | Position)
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(weight))
        head.linear.bias.copy_(torch.from_numpy(bias))
    n = sum(len(tokens) for _, tokens in parts.values())
    return {"seconds": time.monotonic() - started, "sequences_per_s": n / max(seconds, 1e-9), "strength": used}


def vectors_of(
    model: Model, tokens: text.Tokenised | text.TagSource, pad_id: int, title: str
) -> Float[np.ndarray, "n D"]:
    """Returns what a model's head reads of each text, of one in windows the mean; or of each word of sentences.

    Raises:
        UserError: they are not finite.
    """
    model.to(join().device).eval()
    if isinstance(tokens, text.TagSource):
        with progress(title, len(tokens), "windows") as meter:
            vectors = text.word_vectors(model, tokens, meter.advance)
    else:
        with progress(title, int(tokens.first_window[-1]), "windows") as meter:
            vectors = text.told(model, tokens, pad_id, pooled, meter.advance)
    if not np.isfinite(vectors).all():
        raise UserError("the encoder's vectors are not finite; take another model")
    return vectors


def _of_known_tags(
    vectors: dict[str, np.ndarray], targets: dict[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns the words whose tag is learned; without a part that has none."""
    known = {name: of != IGNORED for name, of in targets.items()}
    kept = [name for name, some in known.items() if some.any()]
    return {name: vectors[name][known[name]] for name in kept}, {name: targets[name][known[name]] for name in kept}


def with_features(settings: TextFinetuneConfig) -> TextFinetuneConfig:
    """Returns settings that pool as the features of a frozen encoder are pooled."""
    return settings.model_copy(update={"pool": "mean" if settings.features in ("mean", "last_four") else "cls"})


def fit_head(
    task: Classify | Tag,
    settings: TextFinetuneConfig,
    vectors: dict[str, np.ndarray],
    targets: dict[str, np.ndarray],
    strengths: tuple[float, ...] | None = None,
) -> tuple[Float[np.ndarray, "k D"], Float[np.ndarray, " k"], float | None]:
    """Fits a linear head to vectors, see `fit_frozen`.

    Args:
        task: what the head tells.
        settings: `frozen_head`, `class_weights`.
        vectors: `train` [n D], and where there is one `validation`, which chooses the strength.
        targets: the same parts; see `Classify.targets`.
        strengths: to choose from, of a logistic regression; those of `C` if left out, or one without `validation`.

    Returns:
        Weights, biases, and the strength that was used.
    """
    x = vectors["train"]
    mean, scale = x.mean(0), np.where(x.std(0) > 1e-12, x.std(0), 1.0)
    standard = {name: (one - mean) / scale for name, one in vectors.items()}
    chosen = "validation" in vectors
    best: tuple[float, Any, np.ndarray, np.ndarray] | None = None
    for strength in strengths or _strengths(task, settings, chosen=chosen):
        weight, bias, used = _fitted(task, settings, standard["train"], targets["train"], strength)
        loss = _loss(task, standard["validation"] @ weight.T + bias, targets["validation"]) if chosen else 0.0
        if best is None or loss < best[0]:
            best = loss, used, weight, bias
    assert best is not None
    _, used, weight, bias = best
    return weight / scale, bias - weight @ (mean / scale), used


def _strengths(task: Classify | Tag, settings: TextFinetuneConfig, *, chosen: bool) -> tuple[float, ...]:
    """Returns what is tried: strengths that the validation texts choose from, or one."""
    if task.kind == "number" or settings.frozen_head == "closed_form":
        return (0.0,)
    return C if chosen else (0.1,)


def _fitted(
    task: Classify | Tag, settings: TextFinetuneConfig, x: np.ndarray, targets: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Returns weights [k D], biases [k] and the strength that was used."""
    if task.kind == "number":
        ridge = RidgeCV(ALPHAS).fit(x, targets[:, 0])
        return ridge.coef_[None], np.array([ridge.intercept_]), float(ridge.alpha_)
    balanced = "balanced" if settings.class_weights == "balanced" else None
    several = task.kind == "several"
    weights, biases = [], []
    for own in targets.T if several else [targets]:
        if len(np.unique(own)) < 2:  # a class that all texts have, or none
            weights.append(np.zeros((1, x.shape[1])))
            biases.append(np.array([10.0 if own.any() else -10.0]))
            continue
        if settings.frozen_head == "closed_form":
            k = len(np.unique(own))
            if len(own) <= k:
                raise UserError(
                    f"frozen_head: expected more than {k} labels of {k} classes for closed_form, got {len(own)}; label "
                    "more, or set frozen_head=logistic"
                )
            priors = np.full(k, 1 / k) if balanced else None
            fitted = LinearDiscriminantAnalysis("lsqr", shrinkage="auto", priors=priors).fit(x, own)
        else:
            fitted = LogisticRegression(C=strength, class_weight=balanced, max_iter=5000).fit(x, own)
        weights.append(fitted.coef_)
        biases.append(fitted.intercept_)
    weight, bias = np.concatenate(weights), np.concatenate(biases)
    if not several and len(weight) == 1:  # one row for two classes: half of the logit for, half against
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight, bias, None if settings.frozen_head == "closed_form" else strength


def _loss(task: Classify | Tag, scores: np.ndarray, targets: np.ndarray) -> float:
    """Returns the loss that the head would be trained with."""
    s, t = torch.from_numpy(scores), torch.from_numpy(targets)
    if task.kind == "number":
        return float(torch.nn.functional.mse_loss(s, t))
    if task.kind == "several":
        return float(torch.nn.functional.binary_cross_entropy_with_logits(s, t.double()))
    return float(torch.nn.functional.cross_entropy(s, t))
