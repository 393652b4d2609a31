"""The arms of `bothways eeg compare`: each is trained on a split's training people and scores its tested ones."""

import difflib
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor, nn

from bothways import eeg
from bothways.config import EncoderConfig, FinetuneConfig, HeadConfig, ModelConfig, PatchConfig, WindowConfig
from bothways.encoder import Embedded, Rows
from bothways.errors import UserError
from bothways.evaluation import (
    LOGISTIC_C,
    RIDGE_LAMBDA,
    TANGENT_BANDS_HZ,
    ConvNet,
    LinearControl,
    classification_metrics,
    covariances,
    fill_missing,
    fit_logistic,
    how_good,
    majority,
    recentred,
    ridge_probe,
    riemannian_mean,
    tangent_vectors,
    typical_variance,
)
from bothways.heads import build_head
from bothways.model import Model
from bothways.run.common import Sources, band_powers, fill_channels
from bothways.run.finetune import SCRATCH, finetune
from bothways.training import CHECKPOINTS, class_probabilities, cls_features, infer, load_run, train


@dataclass(frozen=True)
class Trial:
    """One split and one seed, with all that an arm needs."""

    name: str
    store: eeg.Store
    labels: str
    """As `finetune` takes them."""
    settings: FinetuneConfig
    recipe: Path
    """The same as a file."""
    patches: PatchConfig
    """The encoder's, channels filled in."""
    classes: list[str]
    training: eeg.Windows
    validation: eeg.Windows
    tested: eeg.Windows
    split: Path
    seed: int
    start: Path | None
    """The pretrained run; None = there is none."""
    rates: tuple[float, ...]
    """Learning rates to try, as multiples of the recipe's."""
    folder: Path
    """Where the arm's trainings lie."""


@dataclass(frozen=True)
class Scored:
    """What an arm gives."""

    scores: Float[np.ndarray, "n k"]
    trained: int
    """Parameters that were fitted to the labels."""
    encoder: int | None
    """Parameters of the encoder and its front end, fitted or not; None = the arm has none."""
    given: str
    """What it was given to learn and to choose from."""


@dataclass(frozen=True)
class Arm:
    """A way to get from labels to scores."""

    title: str
    score: Callable[[Trial], Scored]
    drawn: bool = False
    """Whether it depends on the seed; else it is the same for all trials of a split."""
    pretrained: bool = False
    """Whether it needs a pretrained run. Those that do not are the controls."""


# Linear controls ----------------------------------------------------------------------------------------------------


def _chance(trial: Trial) -> Scored:
    k = len(trial.classes)
    return Scored(np.full((len(trial.tested), k), 1 / k), 0, None, "nothing")


def _majority(trial: Trial) -> Scored:
    scores = majority(trial.training.label, len(trial.tested), len(trial.classes))
    return Scored(scores, 0, None, "the number of training windows of each class")


def _band_power(trial: Trial) -> Scored:
    features = [band_powers(trial.store, _common_patches(trial), windows) for windows in _linear(trial)]
    return _logistic(trial, features, "log power in 7 bands")


def _tangent_space(trial: Trial) -> Scored:
    sources = Sources(trial.store, _common_patches(trial, baseline=False))
    rest = _rest_windows(trial) if trial.patches.baseline else None
    windows = _linear(trial)
    bands = []
    for band_hz in TANGENT_BANDS_HZ.values():
        found = [_covariances(sources, part, band_hz) for part in windows]
        typical_uv2 = typical_variance(*found[0])
        filled = [fill_missing(*one, typical_uv2) for one in found]
        if rest is not None:
            resting = fill_missing(*_covariances(sources, rest, band_hz), typical_uv2)
            of = {name: riemannian_mean(resting[rest.subject == name]) for name in np.unique(rest.subject)}
            filled = [_from_rest(one, part.subject, of) for one, part in zip(filled, windows)]
        mean = riemannian_mean(filled[0])
        bands.append([tangent_vectors(one, mean) for one in filled])
    vectors = [np.concatenate(of_part, axis=1) for of_part in zip(*bands)]
    seen = ", seen from each person's rest" if rest is not None else ""
    return _logistic(trial, vectors, f"covariances in {len(bands)} bands{seen}")


def _linear(trial: Trial) -> list[eeg.Windows]:
    """The windows that a linear control needs: to train, to test and, where rates are tried elsewhere, to choose C."""
    choose = [trial.validation] if len(trial.rates) > 1 and len(trial.validation) else []
    return [trial.training, trial.tested, *choose]


def _logistic(trial: Trial, features: Sequence[np.ndarray], what: str) -> Scored:
    """Fits to the features of `_linear`; one C, or the best on the people by whom others choose their rate."""
    training, tested, *choose = features
    c = LOGISTIC_C if choose else 0.01
    validation = (choose[0], trial.validation.label, trial.validation.subject.tolist()) if choose else None
    fitted = fit_logistic(training, trial.training.label, len(trial.classes), c=c, validation=validation)
    tried = ", ".join(f"{one:g}" for one in LOGISTIC_C)
    given = f"C of {tried}, the best on the validation people" if choose else "C 0.01"
    return Scored(fitted.scores(tested), _size(fitted), None, f"{what}; {given}")


def _size(fitted: LinearControl) -> int:
    return fitted.weights.size + fitted.bias.size


def _common_patches(trial: Trial, *, baseline: bool | None = None) -> PatchConfig:
    """Patches of the model's channels, or of those that all recordings have: of 1 s, or as long as the window."""
    window_s = trial.training.window_samples / trial.store.signal.sfreq_hz
    patches = PatchConfig(
        tokens="all_channels",
        ch_names=trial.patches.ch_names,
        patch_s=1.0 if window_s % 1 == 0 else window_s,
        features=("spectrum",),
        spectrum_hz=(1.0, 45.0),
        baseline=trial.patches.baseline if baseline is None else baseline,
    )
    return fill_channels(patches, trial.store)


def _batches(source: eeg.WindowSource, size: int = 64) -> Iterator[dict[str, Tensor]]:
    for start in range(0, len(source), size):
        yield source.batch(np.arange(start, min(start + size, len(source))))


def _signals_uv(batch: Mapping[str, Tensor]) -> Float32[Tensor, "B C S"]:
    return batch["signals"] * 10 ** batch["log_scale_uv"][..., None]


def _covariances(
    sources: Sources, windows: eeg.Windows, band_hz: tuple[float, float]
) -> tuple[Float[np.ndarray, "n C C"], Bool[np.ndarray, "n C"]]:
    """Returns covariances, and which channels are real in more than half of their window."""
    found, real = [], []
    for batch in _batches(sources.of(windows)):
        found.append(covariances(_signals_uv(batch).double().numpy(), sources.store.signal.sfreq_hz, band_hz))
        real.append((batch["patch_mask"].float().mean(2) > 0.5).numpy())
    return np.concatenate(found), np.concatenate(real)


def _rest_windows(trial: Trial) -> eeg.Windows:
    """Cuts everybody's calibration stretches, into windows as long as the model's where all are so long."""
    spans = eeg.baseline_spans(trial.store)
    shortest_s = min(span.duration_s for span in spans if span.duration_s is not None)
    window_s = min(trial.training.window_samples / trial.store.signal.sfreq_hz, float(int(shortest_s) or shortest_s))
    return eeg.cut_windows(trial.store, WindowConfig(window_s=window_s, stride_s=window_s), spans=spans)


def _from_rest(windows: np.ndarray, subjects: np.ndarray, rest: Mapping[str, np.ndarray]) -> np.ndarray:
    if lacking := sorted(set(subjects.tolist()) - rest.keys()):
        raise UserError(f"covariance: no window of rest of {', '.join(lacking)}; lengthen the baseline's stretches")
    seen = np.empty_like(windows)
    for name in np.unique(subjects):
        seen[subjects == name] = recentred(windows[subjects == name], rest[name])
    return seen


# The small CNN ------------------------------------------------------------------------------------------------------


CNN_HZ = 128.0
"""Lawhern et al. 2018: signals of a higher rate are brought to it."""


class _Front(nn.Module):
    """The CNN where a front end is: its features are the one vector that a head reads."""

    def __init__(self, net: ConvNet, n_samples: int, scale_uv: float) -> None:
        super().__init__()
        self.net, self.n_samples, self.scale_uv = net, n_samples, scale_uv

    def forward(self, batch: Mapping[str, Tensor]) -> Embedded:
        signals, real = _signals_uv(batch) / self.scale_uv, batch["patch_mask"]
        signals = signals * real.repeat_interleave(signals.shape[2] // real.shape[2], dim=2)
        return Embedded(self.net(at_rate(signals, self.n_samples))[:, None], None)


def at_rate(signals: Float32[Tensor, "B C S"], n_samples: int) -> Float32[Tensor, "B C s"]:
    """Brings windows to a lower rate: the Fourier coefficients that it can hold are kept."""
    if n_samples == signals.shape[2]:
        return signals
    kept = torch.fft.rfft(signals)[..., : n_samples // 2 + 1]
    return torch.fft.irfft(kept, n_samples) * (n_samples / signals.shape[2])


class _Nothing(nn.Module):
    """Stands where a model has its encoder."""

    def forward(self, hidden: Tensor, mask: Tensor | None, wanted: Tensor) -> Rows:
        return Rows(hidden[wanted], wanted)


class ConvModel(Model):
    """The small CNN as the training room wants a model: front end, no encoder, the sequence head of all other arms."""

    def __init__(self, net: ConvNet, n_samples: int, head: HeadConfig, scale_uv: float, seed: int) -> None:
        nn.Module.__init__(self)
        encoder = EncoderConfig(hidden_size=net.size, num_attention_heads=1)
        self.config = ModelConfig(encoder=encoder, patches=PatchConfig(), heads={"sequence": head})
        self.embedding = _Front(net, n_samples, scale_uv)
        self.encoder = _Nothing()  # type: ignore[assignment]
        self.pooler = nn.Identity()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.heads = nn.ModuleDict({"sequence": build_head(head, encoder)})


def _cnn(trial: Trial) -> Scored:
    sources, settings = Sources(trial.store, _common_patches(trial, baseline=False)), trial.settings
    window_s = trial.training.window_samples / trial.store.signal.sfreq_hz
    n_samples = round(min(trial.store.signal.sfreq_hz, CNN_HZ) * window_s)
    tested, validation = sources.of(trial.tested), trial.validation
    training = sources.of(trial.training, seed=trial.seed, jitter_s=settings.windows.jitter_s)
    squares = [float((_signals_uv(batch) ** 2).mean()) for batch in _batches(training)]
    scale_uv = float(np.sqrt(np.mean(squares))) or 1.0
    counts = np.bincount(trial.training.label, minlength=len(trial.classes))
    balanced = tuple(float(len(trial.training) / (len(counts) * n)) for n in counts)
    head = HeadConfig(
        kind="sequence",
        classes=tuple(trial.classes),
        class_weights=balanced if settings.class_weights == "balanced" else (),
    )
    validation_source = sources.of(validation) if len(validation) else None

    def evaluate(model: Model) -> dict[str, Any]:
        assert validation_source is not None
        scores = infer(model, validation_source, class_probabilities)
        return classification_metrics(validation.label, scores, trial.classes, validation.subject, n_bootstrap=2)

    best: tuple[float, Scored] | None = None
    for rate in trial.rates:
        try:
            net = ConvNet(len(sources.patches.ch_names), n_samples, n_samples / window_s, seed=trial.seed)
        except ValueError as problem:
            raise UserError(f"CNN: {problem}; lengthen windows.window_s") from None
        model = ConvModel(net, n_samples, head, scale_uv, trial.seed)
        config = settings.training.model_copy(
            update={
                "seed": trial.seed, "learning_rate": settings.training.learning_rate * rate, "freeze": (),
                "layer_decay": 1.0, "head_first": 0.0, "gradient_checkpointing": False, "shard": False,
                "tensorboard": False,
            }
        )  # fmt: skip
        with_validation = validation_source is not None
        result = train(
            model, training, config, title="CNN",
            evaluate=evaluate if with_validation else None, score=how_good if with_validation else None,
        )  # fmt: skip
        value = how_good(result.evaluation) if result.evaluation else 0.0
        if best is None or value > best[0]:
            n = sum(p.numel() for p in model.parameters())
            scored = Scored(infer(model, tested, class_probabilities), n, None, f"{_budget(trial)}; no baseline")
            best = value, scored
    assert best is not None
    return best[1]


def _budget(trial: Trial) -> str:
    training = trial.settings.training
    steps = f"{training.minutes:g} minutes" if training.minutes is not None else f"{training.steps} steps"
    rates = ", ".join(f"{training.learning_rate * rate:g}" for rate in trial.rates)
    chosen = ", the best on the validation people" if len(trial.rates) > 1 else ""
    return f"{steps} of {training.batch_size} windows; learning rate {rates}{chosen}"


# The encoder --------------------------------------------------------------------------------------------------------


def _frozen_probe(trial: Trial) -> Scored:
    assert trial.start is not None
    model = load_run(trial.start, eeg.build_embedding)
    sources = Sources(trial.store, trial.patches)
    features = infer(model, sources.of(trial.training), cls_features)
    k, subjects = len(trial.classes), trial.training.subject.tolist()
    alone = len(set(subjects)) == 1
    probe = ridge_probe(features, trial.training.label, k, subjects=None if alone else subjects)
    scores = probe.scores(infer(model, sources.of(trial.tested), cls_features))
    left_out = "window of the one training person" if alone else "training person"
    given = f"[CLS] of the frozen encoder; {len(RIDGE_LAMBDA)} penalties, each {left_out} left out in turn"
    return Scored(scores, _size(probe), _body(model), given)


def _body(model: Model) -> int:
    return sum(p.numel() for part in (model.embedding, model.encoder) for p in part.parameters())


def _trained(name: str, start: str | None, changes: Sequence[str]) -> Callable[[Trial], Scored]:
    """Makes an arm of `finetune`, with these settings on top of the recipe's; `start` None = the pretrained run."""

    def score(trial: Trial) -> Scored:
        settings = trial.settings.training
        best: tuple[float, Path, dict[str, Any]] | None = None
        for rate in trial.rates:
            out = trial.folder / name / f"{trial.name}-rate-{rate:g}"
            own = [f"training.seed={trial.seed}", f"training.learning_rate={settings.learning_rate * rate!r}"]
            result = finetune(
                start or str(trial.start), trial.store.path, trial.labels, out,
                recipe=trial.recipe, changes=[*own, *changes], split=trial.split,
            )  # fmt: skip
            value = how_good(result["validation"]) if result["validation"] else 0.0
            if best is None or value > best[0]:
                best = value, out, result
        assert best is not None
        _, kept, result = best
        model = load_run(kept, eeg.build_embedding)
        assert model.config.patches is not None
        scores = infer(model, Sources(trial.store, model.config.patches).of(trial.tested), class_probabilities)
        shutil.rmtree(kept / CHECKPOINTS, ignore_errors=True)
        for rate in trial.rates:
            if (other := trial.folder / name / f"{trial.name}-rate-{rate:g}") != kept:
                shutil.rmtree(other, ignore_errors=True)
        total, heads = result["parameters"]["total"], result["parameters"]["heads"]
        frozen = "freeze_encoder=true" in changes
        return Scored(scores, heads if frozen else total, total - heads, _budget(trial))

    return score


ARMS: dict[str, Arm] = {
    "chance": Arm("chance", _chance),
    "majority": Arm("largest class", _majority),
    "band_power": Arm("band power + logistic regression", _band_power),
    "tangent_space": Arm("tangent space + logistic regression", _tangent_space),
    "cnn": Arm("small CNN", _cnn, drawn=True),
    "scratch": Arm(
        "same encoder from scratch",
        _trained(
            "scratch",
            SCRATCH,
            ["freeze_encoder=false", "training.freeze=[]", "training.layer_decay=1.0", "training.head_first=0.0"],
        ),
        drawn=True,
    ),
    "frozen_probe": Arm("frozen, linear probe", _frozen_probe, pretrained=True),
    "frozen_attention": Arm(
        "frozen, attention pooling",
        _trained("frozen_attention", None, ["freeze_encoder=true", 'pool="attention"', "training.head_first=0.0"]),
        drawn=True,
        pretrained=True,
    ),
    "finetuned": Arm("fine-tuned", _trained("finetuned", None, ["freeze_encoder=false"]), drawn=True, pretrained=True),
}
"""In the order in which they are told."""
CONTROLS = tuple(name for name, arm in ARMS.items() if not arm.pretrained)
TRIVIAL = ("chance", "majority")
"""Controls that need no signal."""


def check_asked(arms: Sequence[str], seeds: int, rates: Sequence[float]) -> None:
    """Checks what arms are measured with.

    Raises:
        UserError: no such arm (the nearest is named), no seed, or a rate that is none.
    """
    for name in arms:
        if name not in ARMS:
            near = difflib.get_close_matches(name, ARMS, n=1, cutoff=0.4)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"--arm: expected arms of {', '.join(ARMS)}, got {name}{hint}")
    if seeds < 1:
        raise UserError(f"--seeds: expected 1 or more, got {seeds}")
    if not rates or not all(0 < rate < math.inf for rate in rates):
        got = ", ".join(f"{rate:g}" for rate in rates) or "none"
        raise UserError(f"--rate: expected multiples of the recipe's learning rate, above 0, got {got}")
