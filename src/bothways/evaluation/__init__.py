"""Evaluation that can be believed: splits by person, metrics, controls, comparisons. Arrays in, plain dicts out."""

from bothways.evaluation.answers import answer_f1, answer_metrics, best_thresholds, exact_match, normalised_answer
from bothways.evaluation.arms import FEWEST_TRIALS, above_from, crossings, people_recalls, side_by_side
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
    ridge_regression,
)
from bothways.evaluation.convnet import ConvNet
from bothways.evaluation.dividing import (
    class_counts,
    few_subjects,
    fixed_split,
    k_fold,
    leave_one_out,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.entities import entity_metrics
from bothways.evaluation.events import (
    SZCORE,
    EventRules,
    score_events,
    score_samples,
    score_subjects,
)
from bothways.evaluation.leaks import Repeat, check_content, check_leak, repeats
from bothways.evaluation.levels import by_level, mean_by_group, metrics_by_level, within_subjects
from bothways.evaluation.metrics import classification_metrics, how_good
from bothways.evaluation.multilabel import multilabel_metrics
from bothways.evaluation.nesting import nested_order
from bothways.evaluation.people import alias_groups, person_of, read_aliases, read_names
from bothways.evaluation.regression import constant_controls, regression_metrics
from bothways.evaluation.sleep import (
    STAGES,
    UNSCORED,
    most_of,
    sleep_scores,
    sleep_stages,
    stage_metrics,
    stage_numbers,
    stage_of,
)
from bothways.evaluation.spans import best_spans, span_metrics
from bothways.evaluation.splits import PARTS, Split, check_classes
from bothways.evaluation.statistics import holm, mean_of_classes, paired_difference, summarise, wilson
from bothways.evaluation.tally import METRICS
from bothways.evaluation.tangent import (
    TANGENT_BANDS_HZ,
    covariances,
    fill_missing,
    recentred,
    riemannian_mean,
    tangent_vectors,
    typical_variance,
)
from bothways.tags import Entity, Scheme, convert_tags, entities_of, recognise_scheme, scheme_named

__all__ = [
    "BANDS_HZ",
    "FEWEST_TRIALS",
    "LOGISTIC_C",
    "METRICS",
    "PARTS",
    "RIDGE_LAMBDA",
    "STAGES",
    "SZCORE",
    "TANGENT_BANDS_HZ",
    "UNSCORED",
    "ConvNet",
    "Entity",
    "EventRules",
    "LinearControl",
    "Repeat",
    "Scheme",
    "Split",
    "above_from",
    "alias_groups",
    "answer_f1",
    "answer_metrics",
    "apply_temperature",
    "band_power",
    "best_spans",
    "best_thresholds",
    "by_level",
    "calibration",
    "chance",
    "check_classes",
    "check_content",
    "check_leak",
    "class_counts",
    "classification_metrics",
    "compare_arms",
    "constant_controls",
    "convert_tags",
    "covariances",
    "crossings",
    "entities_of",
    "entity_metrics",
    "exact_match",
    "few_subjects",
    "fill_missing",
    "fit_logistic",
    "fit_temperature",
    "fixed_split",
    "holm",
    "how_good",
    "k_fold",
    "leave_one_out",
    "majority",
    "mean_by_group",
    "mean_of_classes",
    "metrics_by_level",
    "most_of",
    "multilabel_metrics",
    "nested_order",
    "normalised_answer",
    "paired_difference",
    "people_recalls",
    "person_of",
    "read_aliases",
    "read_names",
    "recentred",
    "recognise_scheme",
    "regression_metrics",
    "repeated_splits",
    "repeats",
    "ridge_probe",
    "ridge_regression",
    "riemannian_mean",
    "scheme_named",
    "score_events",
    "score_samples",
    "score_subjects",
    "side_by_side",
    "sleep_scores",
    "sleep_stages",
    "span_metrics",
    "split_subjects",
    "stage_metrics",
    "stage_numbers",
    "stage_of",
    "summarise",
    "tangent_vectors",
    "temperature_scaling",
    "typical_variance",
    "wilson",
    "within_subjects",
]
