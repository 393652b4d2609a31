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
from bothways.evaluation.dividing import (
    class_counts,
    few_subjects,
    fixed_split,
    k_fold,
    leave_one_out,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.leaks import Repeat, check_content, check_leak, repeats
from bothways.evaluation.metrics import classification_metrics
from bothways.evaluation.people import alias_groups, person_of, read_aliases, read_names
from bothways.evaluation.splits import PARTS, Split, check_classes
from bothways.evaluation.statistics import paired_difference, summarise

__all__ = [
    "BANDS_HZ",
    "LOGISTIC_C",
    "PARTS",
    "RIDGE_LAMBDA",
    "LinearControl",
    "Repeat",
    "Split",
    "alias_groups",
    "band_power",
    "chance",
    "check_classes",
    "check_content",
    "check_leak",
    "class_counts",
    "classification_metrics",
    "few_subjects",
    "fit_logistic",
    "fixed_split",
    "k_fold",
    "leave_one_out",
    "majority",
    "paired_difference",
    "person_of",
    "read_aliases",
    "read_names",
    "repeated_splits",
    "repeats",
    "ridge_probe",
    "split_subjects",
    "summarise",
]
