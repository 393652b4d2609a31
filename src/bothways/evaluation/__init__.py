"""Evaluation that can be believed: splits by person, metrics, controls, comparisons. Arrays in, plain dicts out."""

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
from bothways.evaluation.events import (
    SZCORE,
    EventRules,
    score_events,
    score_samples,
    score_subjects,
)
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.sleep import UNSCORED, stage_metrics
from bothways.evaluation.splits import (
    Split,
    check_classes,
    check_leak,
    few_subjects,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.statistics import paired_difference, summarise

__all__ = [
    "BANDS_HZ",
    "LOGISTIC_C",
    "RIDGE_LAMBDA",
    "SZCORE",
    "UNSCORED",
    "EventRules",
    "LinearControl",
    "Split",
    "band_power",
    "chance",
    "check_classes",
    "check_leak",
    "classification_metrics",
    "few_subjects",
    "fit_logistic",
    "majority",
    "paired_difference",
    "repeated_splits",
    "ridge_probe",
    "score_events",
    "score_samples",
    "score_subjects",
    "split_subjects",
    "stage_metrics",
    "summarise",
]
