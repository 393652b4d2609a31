"""Settings: defaults are frozen as literals, mistakes are answered in one line, TOML comes back equal."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from bothways.config import (
    ENCODER_SIZES,
    EncoderConfig,
    FinetuneConfig,
    HeadConfig,
    LabelConfig,
    MaskingConfig,
    PatchConfig,
    PretrainConfig,
    Settings,
    SignalConfig,
    TextConfig,
    TextFinetuneConfig,
    TextPretrainConfig,
    TrainingConfig,
    load_config,
    to_toml,
    validate,
)
from bothways.errors import BothwaysWarning, UserError


def test_defaults() -> None:
    encoder = EncoderConfig()
    assert (encoder.num_hidden_layers, encoder.hidden_size, encoder.num_attention_heads) == (4, 64, 4)
    assert (encoder.intermediate_size, encoder.hidden_act, encoder.norm) == (256, "gelu", "pre")
    assert TextConfig().model_dump() == {
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "norm": True,
        "pad_token_id": 0,
    }
    assert SignalConfig().model_dump() == {
        "unit": "uV",
        "sfreq_hz": 200.0,
        "band_hz": (0.5, 70.0),
        "notch_hz": 50.0,
        "reference": "file",
        "normaliser": "recording_robust",
    }
    masking = MaskingConfig()
    assert (masking.kind, masking.ratio, masking.mask, masking.random) == ("block", 0.55, 1.0, 0.0)
    assert (FinetuneConfig().train_fraction, FinetuneConfig().validation_fraction) == (0.6, 0.2)


def test_default_encoder_is_the_nano_size() -> None:
    assert EncoderConfig() == EncoderConfig.model_validate(ENCODER_SIZES["nano"])


@pytest.mark.parametrize(
    ("size", "layers_width"), [("nano", (4, 64)), ("tiny", (6, 128)), ("small", (8, 256)), ("base", (12, 512))]
)
def test_sizes(size: str, layers_width: tuple[int, int]) -> None:
    encoder = load_config(PretrainConfig, changes=[f'encoder.size="{size}"']).encoder
    assert (encoder.num_hidden_layers, encoder.hidden_size) == layers_width


def test_later_wins(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[encoder]\nsize = "tiny"\nhidden_dropout_prob = 0.2\n[training]\nsteps = 30\nseed = 4\n')
    config = load_config(PretrainConfig, recipe, ["training.steps=7"], training={"seed": 9, "log_every": 3})
    assert (config.training.steps, config.training.seed, config.training.log_every) == (7, 4, 3)
    assert (config.encoder.hidden_size, config.encoder.hidden_dropout_prob) == (128, 0.2)


def test_changes_take_plain_words_and_toml() -> None:
    changes = ["masking.kind=random", "patches.spectrum_hz=[2, 40.0]", "patches.baseline=true"]
    config = load_config(PretrainConfig, changes=changes)
    assert config.masking.kind == "random"
    assert config.patches.spectrum_hz == (2.0, 40.0)
    assert config.patches.baseline is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.step=5", "unknown setting 'training.step'; did you mean 'training.steps'?"),
        ("trainig.steps=5", "unknown setting 'trainig'; did you mean 'training'?"),
        ("encoder.hidden_sise=64", "unknown setting 'encoder.hidden_sise'; did you mean 'encoder.hidden_size'?"),
        ("learning_rate=0.1", "unknown setting 'learning_rate'; did you mean 'training.learning_rate'?"),
        ("training.steps=0", "training.steps: Input should be greater than or equal to 1 (got 0)"),
        ("training.batch_size=0", "training.batch_size: Input should be greater than or equal to 1 or 'auto' (got 0)"),
        ("training.batch_size=big", "training.batch_size: expected a whole number or 'auto' (got 'big')"),
        ("training.freeze=encoder", 'training.freeze: expected a list, e.g. ["a", "b"] (got \'encoder\')'),
        ("encoder.hidden_size=30", "hidden_size 30 is not a multiple of num_attention_heads 4"),
        ('encoder.norm="post"', 'final_norm belongs to norm = "pre"; set final_norm = false'),
        ("encoder.size=huge", "encoder.size: expected one of nano, tiny, small, base, got 'huge'"),
        ("masking.random=0.5", "mask 1.0 + random 0.5 is over 1; lower one of them"),
        ("patches.features=[]", 'features must name "samples", "spectrum" or "amplitude", each once'),
        ('patches.ch_names=["Cz"]', 'ch_names belongs to tokens = "all_channels"; remove it'),
        ("training.steps", "--set training.steps: expected name=value, e.g. training.steps=500"),
    ],
)
def test_a_mistake_is_answered_in_one_line(change: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_config(PretrainConfig, changes=[change])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(UserError, match=r"masking\.ratio: .*; training\.steps: "):
        load_config(PretrainConfig, changes=["training.steps=0", "masking.ratio=2"])


@pytest.mark.parametrize("content", [b"steps = ", b"\xff", b"[training]\nsteps = 1\nsteps = 2"])
def test_not_toml(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises(UserError, match=r"recipe\.toml: expected TOML, but"):
        load_config(PretrainConfig, tmp_path / "recipe.toml")


def test_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"recipe\.toml: expected a recipe \(TOML\) here, found none"):
        load_config(PretrainConfig, tmp_path / "recipe.toml")


@pytest.mark.parametrize("band_hz", [(0.5, 100.0), (70.0, 0.5), (1.0, 1.0)])
def test_a_band_that_the_rate_cannot_hold(band_hz: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="does not lie below half of sfreq_hz 200"):
        SignalConfig(band_hz=band_hz)


def test_contract_differences() -> None:
    here = SignalConfig()
    assert here.differences(SignalConfig()) == {}
    assert here.differences(SignalConfig(notch_hz=60)) == {}, "mains are out in both"
    assert here.differences(SignalConfig(notch_hz=None)) == {"notch_hz": (50.0, None)}
    other = SignalConfig(sfreq_hz=250, reference="average")
    assert here.differences(other) == {"sfreq_hz": (200.0, 250.0), "reference": ("file", "average")}


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        TrainingConfig().steps = 5  # type: ignore[misc]


def positive(largest: float = 1e6) -> st.SearchStrategy[float]:
    return st.floats(1e-12, largest)


fractions = st.floats(0, 1)
words = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=8)
names = st.lists(words, max_size=4).map(tuple)
some_settings = st.one_of(
    st.builds(
        TrainingConfig,
        steps=st.integers(1, 10**9),
        learning_rate=positive(),
        weight_decay=fractions,
        precision=st.sampled_from(["auto", "float32", "bf16"]),
    ),
    st.builds(SignalConfig, sfreq_hz=st.floats(141, 1e5), notch_hz=positive()),
    st.builds(PatchConfig, tokens=st.just("all_channels"), ch_names=names, patch_s=positive()),
    st.builds(LabelConfig, map=st.dictionaries(words, words.filter(len), max_size=3), priority=names),
    st.builds(MaskingConfig, ratio=st.floats(0.01, 0.99), mask=st.floats(0, 0.5), random=st.floats(0, 0.5)),
)


def read_back(settings: Settings, folder: Path) -> Settings:
    (folder / "settings.toml").write_text(to_toml(settings), encoding="utf-8")
    return load_config(type(settings), folder / "settings.toml")


@given(settings=some_settings)
@example(settings=PretrainConfig())
@example(settings=FinetuneConfig(encoder=EncoderConfig(norm="post", final_norm=False)))
def test_toml_comes_back_equal(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert read_back(settings, tmp_path_factory.getbasetemp()) == settings


@pytest.mark.parametrize("settings", [SignalConfig(notch_hz=None), TextConfig(pad_token_id=None)])
def test_none_comes_back_as_none(settings: Settings, tmp_path: Path) -> None:
    assert read_back(settings, tmp_path) == settings


json_like: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(value=json_like, name=st.sampled_from(["encoder", "training", "masking", "validation_fraction", "surprise"]))
@example(value={"size": ["tiny"]}, name="encoder")
def test_any_value_is_taken_or_refused_by_the_one_error(value: Any, name: str) -> None:
    with suppress(UserError):
        assert isinstance(load_config(PretrainConfig, **{name: value}), PretrainConfig)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (["masking.kind='random'", "masking.block_space=0.5"], "masking.block_space"),
        (["patches.max_patches=5"], "patches.max_patches"),
        (["patches.features=['samples']", "patches.spectrum_hz=[2, 40]"], "patches.spectrum_hz"),
        (["patches.features=['spectrum']", "objective.samples_weight=2"], "objective.samples_weight"),
        (["patches.tokens='all_channels'", "masking.block_space=0.5"], "masking.block_space"),
        (["windows.min_overlap=0.5"], "windows.min_overlap"),
    ],
)
def test_a_setting_without_effect_warns(changes: list[str], named: str) -> None:
    with pytest.warns(BothwaysWarning, match=f"^{named} has no effect: "):
        load_config(PretrainConfig, changes=changes)


def test_a_weight_of_what_is_not_learned_warns() -> None:
    with pytest.warns(BothwaysWarning, match=r"^objective\.next_sentence_weight has no effect: "):
        load_config(TextPretrainConfig, changes=["objective.next_sentence=false", "objective.next_sentence_weight=0.5"])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (["frozen=true", "epochs=5"], "epochs"),
        (["features='cls'"], "features"),
        (["training.steps=5", "least_steps=7"], "least_steps"),
        (["labels='number'", "class_weights='balanced'"], "class_weights"),
        (["number_loss='smooth_l1'"], "number_loss"),
    ],
)
def test_a_setting_of_text_without_effect_warns(changes: list[str], named: str) -> None:
    with pytest.warns(BothwaysWarning, match=f"^{named} has no effect: "):
        load_config(TextFinetuneConfig, changes=changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["task='answer'"], 'frozen = true belongs to task = "classify" or "tag"; to answer, all weights are trained'),
        (["task='tag'", "features='cls'"], "features: expected last or last_four to tag, got cls; choose one"),
        (["features='last'"], "features: expected cls or mean or last_four to classify, got last; choose one"),
    ],
)
def test_what_a_frozen_encoder_cannot_give(changes: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config(TextFinetuneConfig, changes=["frozen=true", *changes])


def test_features_of_words_are_the_last_layers_if_none_are_named() -> None:
    assert load_config(TextFinetuneConfig, changes=["frozen=true"]).features == "mean"
    settings = load_config(TextFinetuneConfig, changes=["frozen=true", "task='tag'"])
    assert settings.features == "last"
    assert validate(TextFinetuneConfig, settings.model_dump()) == settings


def test_steps_or_minutes_end_a_run_instead_of_epochs() -> None:
    assert load_config(TextFinetuneConfig).epochs == 3
    assert load_config(TextFinetuneConfig, changes=["training.steps=5"]).epochs is None
    assert load_config(TextFinetuneConfig, changes=["training.minutes=5"]).epochs is None
    assert load_config(TextFinetuneConfig, changes=["training.learning_rate=1e-4"]).epochs == 3


def test_head_first_has_no_effect_where_nothing_else_learns() -> None:
    with pytest.warns(BothwaysWarning, match=r"^training\.head_first has no effect: "):
        load_config(FinetuneConfig, changes=["freeze_encoder=true", "training.head_first=0.5"])


def test_a_map_of_labels_from_recipe_and_changes(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text('[labels]\nmap = {"Sleep stage W" = "W", "Sleep stage [34]" = "N3"}\n')
    changes = ["labels.map.Sleep stage W=wake", 'labels.map={"Sleep stage R" = "R"}', "labels.priority=['R', 'wake']"]
    labels = load_config(FinetuneConfig, tmp_path / "r.toml", changes).labels
    assert labels.map == {"Sleep stage W": "wake", "Sleep stage [34]": "N3", "Sleep stage R": "R"}
    assert labels.priority == ("R", "wake")
    assert (labels.duration_s, labels.background) == (None, None)


def test_a_weight_for_each_class() -> None:
    assert HeadConfig(kind="sequence", classes=("a", "b"), class_weights=(1.0, 0.5)).class_weights == (1.0, 0.5)
    with pytest.raises(ValidationError, match="expected none or one for each of the 2 classes, got 1"):
        HeadConfig(kind="sequence", classes=("a", "b"), class_weights=(1.0,))


def test_nothing_to_learn_is_refused() -> None:
    with pytest.raises(UserError, match="nothing to learn"):
        load_config(PretrainConfig, changes=["patches.features=['spectrum']", "objective.spectrum_weight=0"])
