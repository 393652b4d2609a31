"""Evaluation that can be believed: splits by person, metrics, controls, comparisons. Arrays in, plain dicts out."""

from bothways.evaluation.calibration import apply_temperature, calibration, fit_temperature, temperature_scaling
from bothways.evaluation.comparison import compare_arms
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
from bothways.evaluation.levels import mean_by_group, metrics_by_level, within_subjects
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.multilabel import multilabel_metrics
from bothways.evaluation.regression import constant_controls, regression_metrics
from bothways.evaluation.sleep import UNSCORED, stage_metrics
from bothways.evaluation.splits import (
    Split,
    check_classes,
    check_leak,
    few_subjects,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.statistics import holm, paired_difference, summarise
from bothways.evaluation.tally import METRICS

__all__ = [
    "BANDS_HZ",
    "LOGISTIC_C",
    "METRICS",
    "RIDGE_LAMBDA",
    "SZCORE",
    "UNSCORED",
    "EventRules",
    "LinearControl",
    "Split",
    "apply_temperature",
    "band_power",
    "calibration",
    "chance",
    "check_classes",
    "check_leak",
    "classification_metrics",
    "compare_arms",
    "constant_controls",
    "few_subjects",
    "fit_logistic",
    "fit_temperature",
    "holm",
    "majority",
    "mean_by_group",
    "metrics_by_level",
    "multilabel_metrics",
    "paired_difference",
    "regression_metrics",
    "repeated_splits",
    "ridge_probe",
    "score_events",
    "score_samples",
    "score_subjects",
    "split_subjects",
    "stage_metrics",
    "summarise",
    "temperature_scaling",
    "within_subjects",
]
