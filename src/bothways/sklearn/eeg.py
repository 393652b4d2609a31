"""The encoder as an estimator of trials: labels in, a fitted classifier out."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit
from sklearn.utils import assert_all_finite, check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from bothways import eeg
from bothways.config import FinetuneConfig, HeadConfig, ModelConfig, SignalConfig, load_config, validate
from bothways.errors import BothwaysWarning
from bothways.evaluation import LinearControl, classification_metrics, how_good, ridge_probe
from bothways.heads import Batch
from bothways.model import Model, check_sizes, load_weights
from bothways.progress import quiet
from bothways.sklearn.common import InputError, check_is_one_of, for_scikit_learn
from bothways.training import cls_features, infer, load_config_of, load_tensors, run_at, train


class EEGClassifier(ClassifierMixin, BaseEstimator):
    """A class for each trial, from an encoder that was pretrained or is trained from scratch.

    Trials are arrays [n C T] or mne's Epochs. They go through the model's signal contract as recordings do: filtered,
    brought to its rate, scaled by median and robust SD, bad channels and stretches hidden. What is shorter than a
    filter's reach of several seconds is better filtered before it is cut, as mne's users do anyway.

    Args:
        pretrained: a run (a checkpoint, too); None = an encoder that is freshly drawn.
        ch_names: of an array's channels; Epochs carry theirs.
        sfreq_hz: an array's rate.
        unit: an array's unit, `V`, `mV`, `uV` or `nV`. There is no default: mne gives volts, moabb microvolts.
        mode: `full` = all weights are fine-tuned; `frozen` = a ridge regression on [CLS], in closed form.
        scale_by: whose median and robust SD scale a trial. `trial` = its own, so what is predicted of it depends on no
            other. `group` = those of its group in `groups`, as `bothways eeg prepare` has it for the windows of a
            recording; without groups all trials of a call are one.
        n_steps: of training, of `full`.
        learning_rate: its peak.
        batch_size: trials in a step.
        validation_fraction: share of the groups (of the trials, where there are none) that are not trained on; the
            metrics on them are in `validation_`, and `training.patience` among `changes` stops by them.
        notch_hz: mains frequency where the trials were recorded; as in the model where not given.
        changes: further settings of `config.FinetuneConfig`, e.g. `("head_dropout=0.2", "training.layer_decay=0.8")`;
            without `pretrained` also the encoder's and patches', e.g. `("patches.patch_s=0.5",)`.
        verbose: say how training goes.
        random_state: of the drawn weights, the order of the trials and the validation groups.

    Attributes:
        classes_: the labels, sorted.
        model_: the trained model.
        probe_: of `frozen`, the ridge regression.
        n_chans_, n_times_: of the trials that it was fitted on.
        window_s_: how much of each trial is used: whole patches.
        loss_: of `full`, at the logged steps.
        validation_: metrics on the groups held out; None without.
        notes_: what was changed, hidden or left out: code -> the first message and how many more there are.
    """

    def __init__(
        self,
        pretrained: str | Path | None = None,
        *,
        ch_names: Sequence[str] | None = None,
        sfreq_hz: float | int | None = None,
        unit: str | None = None,
        mode: str = "full",
        scale_by: str = "trial",
        n_steps: int = 300,
        learning_rate: float = 3e-4,
        batch_size: int = 16,
        validation_fraction: float | int = 0.0,
        notch_hz: float | int | None = None,
        changes: Sequence[str] = (),
        verbose: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.pretrained = pretrained
        self.ch_names = ch_names
        self.sfreq_hz = sfreq_hz
        self.unit = unit
        self.mode = mode
        self.scale_by = scale_by
        # Not `steps`: moabb takes what has such an attribute for a Pipeline.
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.notch_hz = notch_hz
        self.changes = changes
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, groups: Any = None) -> "EEGClassifier":
        """Trains on labelled trials.

        Args:
            X: trials [n C T] or mne's Epochs; NaN where data are missing.
            y: a label for each; text, numbers, True and False.
            groups: whose each is, so that what is held out for validation, and chosen by, are other people.

        Raises:
            InputError: X, y, groups or a setting do not fit.
        """
        check_is_one_of("mode", self.mode, ("full", "frozen"))
        check_is_one_of("scale_by", self.scale_by, ("trial", "group"))
        X = self._trials(X)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        check_consistent_length(X, y, groups)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y: expected two classes or more, got 1 class, {self.classes_[0]}; label others, too")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with for_scikit_learn(), quiet(not self.verbose):
            self._fit(X, labels, None if groups is None else np.asarray(groups), seed)
        return self

    def _fit(self, X: Any, labels: np.ndarray, groups: np.ndarray | None, seed: int) -> None:
        training: dict[str, Any] = {"steps": int(self.n_steps), "batch_size": int(self.batch_size), "seed": seed}
        training |= {"learning_rate": float(self.learning_rate)}
        settings = load_config(FinetuneConfig, None, self.changes, training=training)
        if settings.labels.kind != "classes":
            raise InputError(f'labels.kind: a classifier tells classes, got "{settings.labels.kind}"; leave it out')
        if settings.training.batch_size == "auto":
            raise InputError("batch_size: expected a number, got 'auto'; set it")
        names = tuple(map(str, self.classes_.tolist()))
        recording = eeg.read_trials(X, self.ch_names, self.sfreq_hz, self.unit)
        if self.validation_fraction and groups is None:
            unsure = "validation_fraction without groups holds out trials of people who are trained on, too"
            warnings.warn(f"{unsure}; give `groups`, whose each trial is", BothwaysWarning, stacklevel=3)
        trained, held_out = self._divided(labels, groups, seed)
        weights = _even(labels[trained], len(names)) if settings.class_weights == "balanced" else ()
        head = HeadConfig(
            kind="sequence", classes=names, class_weights=weights, pool=settings.pool, dropout=settings.head_dropout
        )
        model = self._model(settings, head, recording, seed)
        self.ch_names_, self.sfreq_hz_ = list(recording.file_names), recording.sfreq_hz
        self.n_chans_, self.n_times_ = self._shape(X)
        source = self._source(model, recording, self._owners(len(X), groups), labels, names)
        self.window_s_ = source.windows.window_samples / source.store.signal.sfreq_hz
        self._say(recording, source.store)

        part = _part(source, trained)
        self.probe_: LinearControl | None = None
        self.loss_: list[float] = []
        if self.pretrained is None:
            assert isinstance(model.embedding, eeg.PatchEmbedding)
            eeg.fit_spectrum(model.embedding, part)
        if self.mode == "frozen":
            whose = None if groups is None else groups[trained]
            self.probe_ = ridge_probe(infer(model, part, cls_features), labels[trained], len(names), subjects=whose)
        else:
            self._train(model, part, settings, source, held_out, groups)
        self.model_ = model.cpu().eval()
        self.validation_ = None
        if len(held_out):
            self.validation_ = _measured(self._logits_of(_part(source, held_out)), labels, held_out, names, groups)

    def _train(
        self,
        model: Model,
        part: eeg.WindowSource,
        settings: FinetuneConfig,
        source: eeg.WindowSource,
        held_out: np.ndarray,
        groups: np.ndarray | None,
    ) -> None:
        if settings.freeze_encoder:
            model.embedding.requires_grad_(False)
            model.encoder.requires_grad_(False)
        classes = model.config.heads["sequence"].classes
        if settings.training.patience and len(set(source.windows.label[held_out].tolist())) == 1:
            told = "validation_fraction: those held out are of one class, so the step is chosen by accuracy"
            warnings.warn(told, BothwaysWarning, stacklevel=4)

        def evaluate(m: Model) -> dict[str, Any]:
            logits = infer(m, _part(source, held_out), class_logits)
            return _measured(logits, source.windows.label, held_out, classes, groups)

        result = train(
            model,
            part,
            settings.training,
            title="fit",
            unit="trials",
            evaluate=evaluate if len(held_out) else None,
            score=how_good if len(held_out) else None,
        )
        self.loss_ = [entry["loss"] for entry in result.metrics]

    def predict(self, X: Any, groups: Any = None) -> np.ndarray:
        """Returns the most probable label of each trial; for the arguments see `fit`.

        Channels of Epochs are put in the order of `fit` by their names.

        Raises:
            InputError: X is not as it was in `fit`, or a trial holds nothing usable.
        """
        logits = self._logits(X, groups)
        return self.classes_[logits.argmax(1)]

    def predict_proba(self, X: Any, groups: Any = None) -> np.ndarray:
        """Returns the probability of each class [n k], in the order of `classes_`.

        Those of `frozen` are no more than monotone in the regression's scores: they are its scores through a softmax
        that has their slope where the odds are even.

        Raises:
            InputError: see `predict`.
        """
        return softmax(self._logits(X, groups), axis=1)

    def decision_function(self, X: Any, groups: Any = None) -> np.ndarray:
        """Returns the log odds of the second of two classes [n], or the logits of more [n k].

        Raises:
            InputError: see `predict`.
        """
        logits = self._logits(X, groups)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def _logits(self, X: Any, groups: Any) -> np.ndarray:
        check_is_fitted(self)
        X = self._trials(X)
        check_consistent_length(X, groups)
        if not eeg.is_epochs(X):
            self._check_shape(X)
        with for_scikit_learn():
            recording = self._as_fitted(eeg.read_trials(X, self.ch_names, self.sfreq_hz, self.unit))
            self._check_shape(X)
            owners = self._owners(len(X), None if groups is None else np.asarray(groups))
            return self._logits_of(self._source(self.model_, recording, owners))

    def _check_shape(self, X: Any) -> None:
        if self._shape(X) != (self.n_chans_, self.n_times_):
            raise InputError(
                f"expected trials of {self.n_chans_} channels and {self.n_times_} samples as in fit, got "
                "{} and {}; cut them alike".format(*self._shape(X))
            )

    def _as_fitted(self, recording: eeg.Recording) -> eeg.Recording:
        """Returns trials with their channels in the order of `fit`."""
        if recording.sfreq_hz != self.sfreq_hz_:
            raise InputError(
                f"expected the rate of fit, {self.sfreq_hz_:g} Hz, got {recording.sfreq_hz:g} Hz; resample them alike"
            )
        if recording.file_names == self.ch_names_:
            return recording
        lacking, other = (
            ", ".join(name for name in some if name not in those)
            for some, those in ((self.ch_names_, recording.file_names), (recording.file_names, self.ch_names_))
        )
        if lacking or other or len(recording.file_names) != len(self.ch_names_):
            said = [f"{what} {names}" for what, names in (("without", lacking), ("with", other)) if names]
            raise InputError(f"expected the channels of fit, got trials {' and '.join(said)}; pick them alike")
        return eeg.in_channel_order(recording, self.ch_names_)

    def _logits_of(self, source: eeg.WindowSource) -> np.ndarray:
        if self.probe_ is None:
            return infer(self.model_, source, class_logits).astype(np.float64)
        return len(self.classes_) * self.probe_.scores(infer(self.model_, source, cls_features))

    def _trials(self, X: Any) -> Any:
        """Returns Epochs as they are, and all else as an array of three axes."""
        if eeg.is_epochs(X):
            return X
        X = check_array(X, allow_nd=True, ensure_2d=False, ensure_all_finite=False, dtype="numeric", estimator=self)
        if X.ndim != 3:
            raise InputError(
                f"expected trials [n C T] or mne's Epochs, got an array of {X.ndim} dimensions {X.shape}; one trial is "
                "X[None], flattened ones are X.reshape(n, C, T)"
            )
        return X

    @staticmethod
    def _shape(X: Any) -> tuple[int, int]:
        """Returns the channels and samples of a trial."""
        if not eeg.is_epochs(X):
            return int(X.shape[1]), int(X.shape[2])
        first = X[0] if isinstance(X, list) else X
        return len(first.ch_names), len(first.times)

    def _divided(self, labels: np.ndarray, groups: np.ndarray | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of the trials to train on and of those held out: whole groups, where there are some."""
        everything = np.arange(len(labels))
        if not self.validation_fraction:
            return everything, everything[:0]
        kind = StratifiedShuffleSplit if groups is None else GroupShuffleSplit
        division = kind(1, test_size=float(self.validation_fraction), random_state=seed)
        trained, held_out = next(division.split(everything, labels, groups))
        if len(np.unique(labels[trained])) < len(self.classes_):
            raise InputError("validation_fraction: without the groups held out a class is missing; lower it")
        return np.sort(trained), np.sort(held_out)

    def _owners(self, n: int, groups: np.ndarray | None) -> np.ndarray:
        if self.scale_by == "trial":
            return np.arange(n)
        return np.zeros(n, np.int64) if groups is None else np.unique(groups, return_inverse=True)[1]

    def _model(self, settings: FinetuneConfig, head: HeadConfig, recording: eeg.Recording, seed: int) -> Model:
        """Builds the model; of a run it has embedding and encoder, its heads told other classes apart."""
        heads = {"sequence": head}
        weights: dict[str, Tensor] = {}
        if self.pretrained is None:
            patches = settings.patches
            if patches.tokens == "all_channels" and not patches.ch_names:
                patches = patches.model_copy(update={"ch_names": tuple(recording.ch_names)})
            config = ModelConfig(encoder=settings.encoder, patches=patches, signal=SignalConfig(), heads=heads)
        else:
            folder = run_at(Path(self.pretrained))
            theirs = load_config_of(folder)
            if theirs.patches is None:
                raise InputError(f"{folder}: expected a run of `bothways eeg`, got a model of text; choose another")
            for name in ("encoder", "patches"):
                if getattr(settings, name) != getattr(FinetuneConfig(), name):
                    warnings.warn(f"{name} in changes has no effect with {folder}: its own is used", BothwaysWarning, 4)
            weights = load_tensors(folder)
            check_sizes(theirs, eeg.build_embedding, weights, str(folder))  # before memory is taken for them
            config = theirs.model_copy(update={"heads": heads})
        assert config.patches is not None
        assert config.signal is not None
        if config.patches.baseline:
            raise InputError(
                "the model subtracts each person's baseline, which trials do not have; fine-tune it with `bothways eeg "
                "finetune`, or take a run without patches.baseline"
            )
        if self.notch_hz is not None:
            if config.signal.notch_hz is None:
                raise InputError("notch_hz: the model was trained with mains left in; leave it out")
            signal = validate(SignalConfig, config.signal.model_dump() | {"notch_hz": self.notch_hz}, "notch_hz")
            config = config.model_copy(update={"signal": signal})
        model = Model(config, eeg.build_embedding(config))
        model.initialise(seed)
        if weights:
            load_weights(model, {name: w for name, w in weights.items() if not name.startswith("heads.")})
        return model

    def _source(
        self,
        model: Model,
        recording: eeg.Recording,
        owners: np.ndarray,
        labels: np.ndarray | None = None,
        names: Sequence[str] = (),
    ) -> eeg.WindowSource:
        signal, patches = model.config.signal, model.config.patches
        assert signal is not None
        assert patches is not None
        store, windows = eeg.hold_trials(recording, signal, patches.patch_s, owners, labels, names)
        source = eeg.WindowSource(store, windows, patches)
        unusable = np.flatnonzero(~source.usable())
        if len(unusable):
            raise InputError(
                f"trial {unusable[0]}: holds no usable patch ({len(unusable)} of {len(owners)} trials do not); leave "
                "such trials out"
            )
        missing = np.isnan(recording.data_uv).reshape(len(recording.ch_names), len(owners), -1)
        if missing.any():
            n, samples = int(missing.any((0, 2)).sum()), f"{int(missing.sum())} of {missing.size} samples"
            hidden = "a patch with more than a quarter missing is hidden, else they count as 0"
            warnings.warn(f"{n} of {len(owners)} trials hold NaN, {samples}: {hidden}", BothwaysWarning, stacklevel=4)
        return source

    def _say(self, recording: eeg.Recording, store: eeg.Store) -> None:
        """Keeps what was changed or left out, and warns of what is left out."""
        unused = self.n_times_ - self.window_s_ * self.sfreq_hz_
        left_out = [f"{name} ({why})" for name, why in recording.left_out.items()]
        if left_out:
            warnings.warn(f"channels left out: {', '.join(left_out)}", BothwaysWarning, stacklevel=4)
        if unused > 1 + 1e-6:  # mne's Epochs have one sample more than their length
            whole = f"the first {self.window_s_:g} s of each trial are used, {unused / self.sfreq_hz_:g} s are no patch"
            warnings.warn(whole, BothwaysWarning, stacklevel=4)
        self.notes_ = {"left_out": ", ".join(left_out)} if left_out else {}
        for code, notes in eeg.said_of(store).items():
            more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
            self.notes_[code] = f"{notes[0].message}{more}"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.input_tags.allow_nan = True
        return tags


def class_logits(model: Model, batch: Batch) -> Tensor:
    """Reads the sequence head before its softmax, [B k]."""
    return model(batch, with_losses=False).predictions["sequence"]


def _part(source: eeg.WindowSource, which: np.ndarray) -> eeg.WindowSource:
    return eeg.WindowSource(source.store, source.windows.select(which), source.patches)


def _measured(
    logits: np.ndarray,
    labels: np.ndarray,
    held_out: np.ndarray,
    names: Sequence[str],
    groups: np.ndarray | None,
) -> dict[str, Any]:
    whose = None if groups is None else list(map(str, groups[held_out]))
    return classification_metrics(labels[held_out], softmax(logits, axis=1), names, whose, n_bootstrap=200)


def _even(labels: np.ndarray, n_classes: int) -> tuple[float, ...]:
    counts = np.bincount(labels, minlength=n_classes)
    return tuple((len(labels) / (n_classes * counts)).tolist())
