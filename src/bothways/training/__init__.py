"""Training: loop, order of samples, optimizer, run folders. It knows batches, not modalities."""

from bothways.training.checkpoint import (
    MANIFEST,
    METRICS,
    RECIPE,
    load_config_of,
    load_recipe,
    load_run,
    load_tensors,
    save_run,
)
from bothways.training.inference import class_probabilities, cls_features, infer
from bothways.training.loop import TrainResult, train
from bothways.training.optim import build_optimizer, learning_rate
from bothways.training.sampler import Plan, Source, batches

__all__ = [
    "MANIFEST",
    "METRICS",
    "RECIPE",
    "Plan",
    "Source",
    "TrainResult",
    "batches",
    "build_optimizer",
    "class_probabilities",
    "cls_features",
    "infer",
    "learning_rate",
    "load_config_of",
    "load_recipe",
    "load_run",
    "load_tensors",
    "save_run",
    "train",
]
