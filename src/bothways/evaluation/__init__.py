"""Evaluation that can be believed: splits by person, metrics, controls, comparisons. Arrays in, plain dicts out."""

from bothways.evaluation.arms import compare_arms, people_scores
from bothways.evaluation.controls import (
    BANDS_HZ,
    LOGISTIC_C,
    RIDGE_LAMBDA,
    LinearControl,
    band_power,
    chance,
    fit_logistic,
    majority,
    ridge_probe,
)
from bothways.evaluation.convnet import ConvNet
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.splits import (
    Split,
    check_classes,
    check_leak,
    few_subjects,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.statistics import paired_difference, summarise
from bothways.evaluation.tangent import (
    TANGENT_BANDS_HZ,
    covariances,
    fill_missing,
    recentred,
    riemannian_mean,
    tangent_vectors,
    typical_variance,
)

__all__ = [
    "BANDS_HZ",
    "LOGISTIC_C",
    "RIDGE_LAMBDA",
    "TANGENT_BANDS_HZ",
    "ConvNet",
    "LinearControl",
    "Split",
    "band_power",
    "chance",
    "check_classes",
    "check_leak",
    "classification_metrics",
    "compare_arms",
    "covariances",
    "few_subjects",
    "fill_missing",
    "fit_logistic",
    "majority",
    "paired_difference",
    "people_scores",
    "recentred",
    "repeated_splits",
    "ridge_probe",
    "riemannian_mean",
    "split_subjects",
    "summarise",
    "tangent_vectors",
    "typical_variance",
]
