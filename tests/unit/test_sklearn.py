"""EEGClassifier: scikit-learn's own checks and tools, units and scales, Epochs, mistakes in one line."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, LeaveOneGroupOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, LabelEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from bothways import eeg
from bothways.config import FinetuneConfig, HeadConfig, ModelConfig, PatchConfig, SignalConfig, WindowConfig
from bothways.eeg import build_embedding, cut_windows, prepare, read_trials
from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from bothways.sklearn import EEGClassifier, InputError
from bothways.training import save_run
from models import ENCODER
from people import CHANNELS, STATES, alpha_uv

SMALL = ("encoder.num_hidden_layers=1", "encoder.hidden_size=16", "encoder.num_attention_heads=2",
         "encoder.intermediate_size=32", 'patches.features=["spectrum"]')  # fmt: skip
ARRAY: dict[str, Any] = {"ch_names": CHANNELS, "sfreq_hz": 200, "unit": "uV"}
FROZEN: dict[str, Any] = {"mode": "frozen", "changes": SMALL, **ARRAY}
SHORT: dict[str, Any] = {"n_steps": 20, "learning_rate": 5e-3, "changes": SMALL, **ARRAY}


def people(n: int = 3, each: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns trials of 2 s [n C T] in microvolts, eyes closed or open, and whose they are."""
    signals = [alpha_uv(state, seed + person, seconds=2 * each) for person in range(n) for state in STATES]
    X = np.concatenate([one.reshape(4, each, 400).swapaxes(0, 1) for one in signals])
    return X, np.tile(np.repeat(STATES, each), n), np.repeat(np.arange(n), 2 * each)


X, Y, WHOSE = people()


def epochs_of(
    data_uv: np.ndarray, labels: np.ndarray, order: np.ndarray | None = None, hz: float = 200.0
) -> mne.Epochs:
    """Makes Epochs of trials; with an `order` they lie in time in another one than they are listed in."""
    order = np.arange(len(data_uv)) if order is None else order
    codes = {name: code for code, name in enumerate(STATES, 1)}
    events = np.stack([1000 * (order + 1), 0 * order, [codes[label] for label in labels]], axis=1)
    info = mne.create_info(list(CHANNELS), hz, "eeg")
    return mne.EpochsArray(data_uv * 1e-6, info, events, event_id=codes, verbose="error")


def run_of(folder: Path, **patches: Any) -> Path:
    """Writes a run with drawn weights."""
    settings = PatchConfig(features=("spectrum",), **patches)
    config = ModelConfig(encoder=ENCODER, patches=settings, signal=SignalConfig(band_hz=(1.0, 40.0)))
    config = config.model_copy(update={"heads": {"sequence": HeadConfig(kind="sequence", classes=("x", "y"))}})
    model = Model(config, build_embedding(config))
    model.initialise(5)
    folder.mkdir()
    save_run(folder, model, FinetuneConfig(), {"kind": "finetune"})
    return folder


# What scikit-learn checks ----------------------------------------------------------------------------------------


class Flat(EEGClassifier):
    """Takes the tables [n F] of scikit-learn's checks: each feature sets the amplitude of a wave."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> "Flat":
        validate_data(self, X, ensure_all_finite=False)
        return super().fit(X, y, groups)  # type: ignore[return-value]

    def _trials(self, X: Any) -> Any:
        X = validate_data(self, X, reset=False, dtype=float)
        at_s = np.arange(200) / 200
        waves = np.sin(2 * np.pi * (4 + 2 * np.arange(X.shape[1]))[:, None] * at_s)  # [F T]
        signal = 10 * np.exp(np.clip(X, -3, 3) / 2) @ waves
        return super()._trials(np.stack([signal, 0.8 * signal + np.cos(9 * at_s)], axis=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array, tags.input_tags.allow_nan = True, False, False
        return tags


FLAT: dict[str, Any] = {"mode": "frozen", "ch_names": ("C3", "C4"), "sfreq_hz": 200, "unit": "uV"}
UNMET = {
    "check_methods_subset_invariance": 'scale_by = "group" scales the trials of a call together, which is quick',
    "check_do_not_raise_errors_in_init_or_set_params": "types are checked while our tests run; elsewhere it passes",
}


@pytest.mark.slow
@parametrize_with_checks(
    [Flat(scale_by="group", changes=(*SMALL[:1], "encoder.hidden_size=32", *SMALL[2:]), **FLAT)],
    expected_failed_checks=lambda _: UNMET,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_a_table_is_refused() -> None:
    assert EEGClassifier().__sklearn_tags__().input_tags.three_d_array
    with pytest.raises(ValueError, match=r"expected trials \[n C T\] or mne's Epochs, got an array of 2 dimensions"):
        EEGClassifier(**FROZEN).fit(X.reshape(len(X), -1), Y)


# What it does ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [FROZEN, SHORT], ids=["frozen", "full"])
def test_a_difference_is_learned(options: dict[str, Any]) -> None:
    """Six trials of each state of an unseen person; 11 of 12 right has a probability of 0.003 by chance."""
    data, labels, whose = people(each=6)
    fitted = EEGClassifier(**options).fit(data[whose < 2], labels[whose < 2])
    unseen = data[whose == 2]
    assert fitted.score(unseen, labels[whose == 2]) >= 11 / 12
    probabilities = fitted.predict_proba(unseen)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert probabilities.min() > 0
    decision = fitted.decision_function(unseen)
    np.testing.assert_allclose(decision, np.log(probabilities[:, 1] / probabilities[:, 0]))
    np.testing.assert_array_equal(fitted.predict(unseen), fitted.classes_[(decision > 0).astype(int)])
    assert (fitted.n_chans_, fitted.n_times_, fitted.window_s_) == (4, 400, 2.0)


@pytest.mark.parametrize("labels", [["b", "a"], [7, -2], [True, False], [0.0, 1.0], ["a", "b", "c"]])
def test_labels_of_any_type(labels: list[Any]) -> None:
    few = X[:9]
    y = np.array(labels)[np.arange(9) % len(labels)]
    fitted = EEGClassifier(**FROZEN).fit(few, y)
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert fitted.predict(few).dtype == y.dtype
    assert set(fitted.predict(few).tolist()) <= set(labels)
    assert fitted.predict_proba(few).shape == (9, len(labels))
    assert fitted.decision_function(few).shape == ((9,) if len(labels) == 2 else (9, 3))


def test_scikit_learns_tools() -> None:
    estimator = EEGClassifier(**FROZEN)
    scores = cross_val_score(
        estimator, X, Y, groups=WHOSE, cv=LeaveOneGroupOut(), scoring="roc_auc", error_score="raise", n_jobs=1
    )
    assert scores.min() > 0.9
    piped = make_pipeline(FunctionTransformer(lambda data: data - data.mean(1, keepdims=True)), estimator)
    assert piped.fit(X, Y).predict(X[:2]).tolist() == ["closed", "closed"]
    search = GridSearchCV(estimator, {"scale_by": ["trial", "group"]}, cv=GroupKFold(3), error_score="raise")
    search.fit(X, Y, groups=WHOSE)
    assert search.best_score_ > 0.8
    assert search.best_estimator_.predict(X[:3]).tolist() == ["closed"] * 3


def test_groups_are_routed() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = EEGClassifier(**FROZEN, scale_by="group").set_fit_request(groups=True)
        estimator.set_predict_request(groups=True).set_score_request(sample_weight=False)
        scores = cross_val_score(
            estimator, X, Y, params={"groups": WHOSE}, cv=GroupKFold(3), error_score="raise", scoring="accuracy"
        )
    assert scores.min() > 0.8


def test_clones_and_pickles() -> None:
    fitted = EEGClassifier(**{**SHORT, "n_steps": 5}, random_state=4).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(clone(fitted).fit(X, Y).predict_proba(X), fitted.predict_proba(X))
    assert clone(fitted).get_params() == fitted.get_params()
    other = clone(fitted).set_params(random_state=5).fit(X, Y)
    assert np.abs(other.predict_proba(X) - fitted.predict_proba(X)).max() > 1e-4


def test_a_trial_is_alone() -> None:
    fitted = EEGClassifier(**SHORT).fit(X, Y)
    whole = fitted.predict_proba(X[:5])
    louder = np.concatenate([X[:5], 3 * X[5:9]])
    np.testing.assert_allclose(fitted.predict_proba(louder)[:5], whole, atol=1e-5)
    np.testing.assert_allclose(np.concatenate([fitted.predict_proba(X[k : k + 1]) for k in range(5)]), whole, atol=1e-5)


def test_trials_of_a_group_are_scaled_as_those_of_a_recording_are(tmp_path: Path) -> None:
    """A store that `prepare` makes of the pieces has the same samples."""
    signal = SignalConfig()
    pieces = X[:6]
    recording = read_trials(pieces, CHANNELS, 200, "uV")
    store, windows = eeg.hold_trials(recording, signal, 1.0, np.zeros(6, np.int64))
    prepared = prepare([eeg.from_array(pieces, CHANNELS, 200, unit="uV")], tmp_path / "store", signal)
    table = cut_windows(prepared, WindowConfig(window_s=2))
    np.testing.assert_array_equal(windows.start, table.start)
    np.testing.assert_array_equal(store.read(0), prepared.read(0))
    for name in ("median_uv", "scale_uv", "positions"):
        np.testing.assert_allclose(getattr(store.recordings[0], name), getattr(prepared.recordings[0], name), atol=1e-6)
    alone, _ = eeg.hold_trials(recording, signal, 1.0, np.arange(6))
    assert len({tuple(one.scale_uv) for one in alone.recordings}) == 6


def test_scale_by_group_depends_on_the_groups() -> None:
    fitted = EEGClassifier(**{**FROZEN, "changes": (*SMALL[:4], 'patches.features=["samples"]')}, scale_by="group")
    fitted.fit(X, Y, WHOSE)
    mixed = np.concatenate([X[:6], 5 * X[6:12]])
    apart, together = fitted.predict_proba(mixed, np.repeat([0, 1], 6)), fitted.predict_proba(mixed)
    assert np.abs(apart - together).max() > 1e-4
    np.testing.assert_allclose(apart[:6], fitted.predict_proba(X[:6]), atol=1e-5)


# Units and Epochs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "factor"), [("V", 1e-6), ("mV", 1e-3), ("nV", 1e3)])
def test_units(unit: str, factor: float) -> None:
    expected = EEGClassifier(**FROZEN).fit(X, Y).decision_function(X)
    scaled = EEGClassifier(**{**FROZEN, "unit": unit}).fit(X * factor, Y)
    np.testing.assert_allclose(scaled.decision_function(X * factor), expected, atol=0.02 * np.abs(expected).max())


def test_a_wrong_unit_is_never_taken() -> None:
    with pytest.raises(InputError, match="does not say its unit; give them"):
        EEGClassifier(ch_names=CHANNELS, sfreq_hz=200).fit(X, Y)
    with pytest.raises(InputError, match=r"trial 0: no good channel: .*uV"):
        EEGClassifier(**{**FROZEN, "unit": "V"}).fit(X, Y)
    fitted = EEGClassifier(**FROZEN).fit(X, Y)
    with pytest.raises(InputError, match="no good channel"):
        fitted.predict(X * 1e-6)


def test_epochs_carry_what_an_array_needs() -> None:
    array = EEGClassifier(**FROZEN).fit(X, Y)
    shuffled = np.random.default_rng(0).permutation(len(X))
    epochs = epochs_of(X, Y, shuffled)
    fitted = EEGClassifier(mode="frozen", changes=SMALL).fit(epochs, Y)
    assert (fitted.n_chans_, fitted.n_times_, fitted.sfreq_hz_) == (4, 400, 200.0)
    expected = array.decision_function(X)
    np.testing.assert_allclose(fitted.decision_function(epochs), expected, atol=0.02 * np.abs(expected).max())
    scores = cross_val_score(
        EEGClassifier(mode="frozen", changes=SMALL), epochs, Y, groups=WHOSE, cv=GroupKFold(3), error_score="raise"
    )
    np.testing.assert_allclose(
        scores, cross_val_score(array, X, Y, groups=WHOSE, cv=GroupKFold(3), error_score="raise"), atol=0.1
    )
    with pytest.raises(InputError, match="mne's Epochs are in V, got 'uV'"):
        EEGClassifier(unit="uV", mode="frozen", changes=SMALL).fit(epochs, Y)


def test_what_moabb_calls() -> None:
    """Its evaluations encode labels, clone a pipeline, fit it on arrays in microvolts (or Epochs), score by AUC."""
    y = LabelEncoder().fit_transform(Y)
    assert not hasattr(EEGClassifier(), "steps")  # what has them is a Pipeline to moabb
    for data, names in ((X, ARRAY), (epochs_of(X, Y), {})):
        pipeline = make_pipeline(EEGClassifier(mode="frozen", changes=SMALL, **names))
        for train, test in GroupKFold(3).split(y, y, WHOSE):
            fitted = clone(pipeline).fit(data[train], y[train])
            assert roc_auc_score(y[test], fitted.predict_proba(data[test])[:, 1]) > 0.9
            assert len(fitted.predict(data[test])) == len(test)


# Pretrained --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["frozen", "full"])
def test_a_runs_encoder_is_used(tmp_path: Path, mode: Any) -> None:
    folder = run_of(tmp_path / "run")
    fitted = EEGClassifier(str(folder), mode=mode, n_steps=1, learning_rate=1e-9, **ARRAY).fit(X, Y)
    drawn = Model(fitted.model_.config, build_embedding(fitted.model_.config))
    drawn.initialise(5)
    for name, weight in drawn.encoder.state_dict().items():
        np.testing.assert_allclose(fitted.model_.encoder.state_dict()[name], weight, atol=1e-7)
    assert fitted.model_.config.signal == SignalConfig(band_hz=(1.0, 40.0))
    assert fitted.model_.config.heads["sequence"].classes == STATES


def test_what_a_run_and_trials_do_not_share(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="subtracts each person's baseline"):
        EEGClassifier(run_of(tmp_path / "base", baseline=True), **ARRAY).fit(X, Y)
    with pytest.raises(InputError, match="expected a run"):
        EEGClassifier(tmp_path / "nowhere", **ARRAY).fit(X, Y)
    fixed = run_of(tmp_path / "fixed", tokens="all_channels", ch_names=("Cz", "Oz"))
    with pytest.raises(InputError, match="this one lacks Oz"):
        EEGClassifier(fixed, **ARRAY).fit(X, Y)
    with pytest.warns(BothwaysWarning, match="encoder in changes has no effect"):
        EEGClassifier(run_of(tmp_path / "run"), mode="frozen", changes=["encoder.size='tiny'"], **ARRAY).fit(X, Y)


def test_whole_groups_are_held_out() -> None:
    options = {**SHORT, "n_steps": 10, "changes": (*SMALL, "training.patience=2", "training.evaluations=5")}
    fitted = EEGClassifier(**options, validation_fraction=1 / 3).fit(X, Y, WHOSE)
    assert fitted.validation_["n"] == 6
    assert len(fitted.validation_["subjects"]) == 1
    with pytest.warns(BothwaysWarning, match="people who are trained on, too; give `groups`") as said:
        assert EEGClassifier(**SHORT, validation_fraction=0.25).fit(X, Y).validation_["n"] == 5
    assert len(said) == 1
    assert EEGClassifier(**SHORT).fit(X, Y).validation_ is None


# What is said ------------------------------------------------------------------------------------------------------


def test_what_is_left_out_is_said() -> None:
    names = [*CHANNELS[:3], "EOG"]
    with pytest.warns(BothwaysWarning, match=r"channels left out: EOG \(.*not scalp EEG\)"):
        fitted = EEGClassifier(**{**FROZEN, "ch_names": names}).fit(X, Y)
    assert fitted.notes_["left_out"].startswith("EOG")
    with pytest.warns(BothwaysWarning, match="the first 1 s of each trial are used, 0.5 s are no patch"):
        EEGClassifier(**FROZEN).fit(X[:, :, :300], Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # mne's Epochs have the sample at their end
        EEGClassifier(**FROZEN).fit(X[:, :, :201], Y)


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({"mode": "frosen"}, X, "mode: expected 'full' or 'frozen', got 'frosen'"),
        ({"scale_by": "window"}, X, "scale_by: expected 'trial' or 'group'"),
        ({"ch_names": CHANNELS[:3]}, X, "expected 3 channels as named"),
        ({"changes": ("trainig.steps=3",)}, X, "did you mean 'training"),
        ({"batch_size": 0}, X, "batch_size"),
        ({}, X[:, :, :150], r"trials of 0.75 s hold no patch of 1 s"),
        ({"notch_hz": 0}, X, "notch_hz"),
        ({}, np.where(np.arange(18)[:, None, None] == 3, 0.0, X), "trial 3: no good channel"),
    ],
)
def test_mistakes(options: dict[str, Any], data: np.ndarray, message: str) -> None:
    estimator = EEGClassifier(**{**FROZEN, **options})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message) as caught:
        estimator.fit(data, Y)
    assert isinstance(caught.value, UserError)
    assert isinstance(caught.value, ValueError)


def test_other_trials_than_in_fit() -> None:
    with pytest.raises(NotFittedError):
        EEGClassifier(**FROZEN).predict(X)
    fitted = EEGClassifier(**FROZEN).fit(X, Y)
    with pytest.raises(InputError, match="4 channels and 400 samples as in fit, got 4 and 200"):
        fitted.predict(X[:, :, :200])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.fit(X, Y[:-1])
    of_epochs = EEGClassifier(mode="frozen", changes=SMALL).fit(epochs_of(X, Y), Y)
    with pytest.raises(InputError, match="expected the rate of fit, 200 Hz, got 250 Hz"):
        of_epochs.predict(epochs_of(X, Y, hz=250.0))
    lacking = epochs_of(X, Y).drop_channels([CHANNELS[1]])
    with pytest.raises(InputError, match=f"expected the channels of fit, got trials without {CHANNELS[1]}; pick"):
        of_epochs.predict(lacking)
    renamed = epochs_of(X, Y).rename_channels({CHANNELS[0]: "Fz", CHANNELS[1]: "Pz"})
    with pytest.raises(InputError, match=f"without {CHANNELS[0]}, {CHANNELS[1]} and with Fz, Pz; pick them alike"):
        of_epochs.predict(renamed)


def test_channels_of_epochs_are_put_in_the_order_of_fit() -> None:
    epochs = epochs_of(X, Y)
    fitted = EEGClassifier(mode="frozen", changes=(*SMALL[:4], 'patches.features=["samples"]')).fit(epochs, Y)
    turned = epochs.copy().reorder_channels(CHANNELS[::-1])
    np.testing.assert_array_equal(fitted.decision_function(turned), fitted.decision_function(epochs))
    assert turned.ch_names == list(CHANNELS[::-1])


@pytest.mark.parametrize("options", [ARRAY, {}], ids=["array", "epochs"])
def test_missing_samples_are_said_once(options: dict[str, Any]) -> None:
    holed = X.copy()
    holed[2, 1, 30:40] = holed[5, 0, 7] = np.nan
    data = epochs_of(holed, Y) if not options else holed
    estimator = EEGClassifier(mode="frozen", changes=SMALL, **options)
    told = "2 of 18 trials hold NaN, 11 of 28800 samples: a patch with more than a quarter missing is hidden"
    for call in (lambda: estimator.fit(data, Y), lambda: estimator.predict(data)):
        with pytest.warns(BothwaysWarning, match=told) as said:
            call()
        assert len(said) == 1
