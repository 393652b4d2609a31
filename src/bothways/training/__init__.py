"""Training: loop, order of samples, optimizer, run folders. It knows batches, not modalities."""

from bothways.training.card import model_card
from bothways.training.checkpoint import (
    BEGUN,
    BEST,
    CARD,
    CHECKPOINTS,
    CONFIG,
    CONFIG_SUM,
    LATEST,
    MANIFEST,
    METRICS,
    RECIPE,
    check_config,
    check_finished,
    check_float32,
    content_of_run,
    load_config_of,
    load_manifest,
    load_recipe,
    load_run,
    load_tensors,
    run_at,
    save_model,
    save_run,
)
from bothways.training.folder import RunFolder, State, check_place, open_run
from bothways.training.inference import class_probabilities, cls_features, infer
from bothways.training.loop import TrainResult, train
from bothways.training.memory import largest_batch
from bothways.training.optim import build_optimizer, freeze, learning_rate, learning_rate_at
from bothways.training.parallel import Team, join
from bothways.training.sampler import Plan, Source, batches
from bothways.training.signals import interruptible

__all__ = [
    "BEGUN",
    "BEST",
    "CARD",
    "CHECKPOINTS",
    "CONFIG",
    "CONFIG_SUM",
    "LATEST",
    "MANIFEST",
    "METRICS",
    "RECIPE",
    "Plan",
    "RunFolder",
    "Source",
    "State",
    "Team",
    "TrainResult",
    "batches",
    "build_optimizer",
    "check_config",
    "check_finished",
    "check_float32",
    "check_place",
    "class_probabilities",
    "cls_features",
    "content_of_run",
    "freeze",
    "infer",
    "interruptible",
    "join",
    "largest_batch",
    "learning_rate",
    "learning_rate_at",
    "load_config_of",
    "load_manifest",
    "load_recipe",
    "load_run",
    "load_tensors",
    "model_card",
    "open_run",
    "run_at",
    "save_model",
    "save_run",
    "train",
]
