"""TOML in and out; an unknown key is answered with the nearest known one, a setting without effect with a warning."""

import difflib
import json
import re
import tomllib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from bothways.config.settings import (
    ENCODER_SIZES,
    FinetuneConfig,
    MaskingConfig,
    PatchConfig,
    PretrainConfig,
    Settings,
    TrainingConfig,
)
from bothways.config.text import PRESETS, TEXT_SIZES, TextFinetuneConfig, TextPretrainConfig, spelled_out
from bothways.errors import BothwaysWarning, UserError

S = TypeVar("S", bound=Settings)


def load_config(kind: type[S], path: Path | None = None, changes: Sequence[str] = (), **base: Any) -> S:
    """Builds the settings from defaults, then `base`, then a TOML file, then `a.b=c` changes.

    `encoder.size = "tiny"` is accepted as a short form for one of `ENCODER_SIZES`, of text `TEXT_SIZES`, and
    `encoder.preset = "fast"` of text for one of `PRESETS`.

    Raises:
        UserError: no such file, not TOML, an unknown key (the nearest is named) or a value out of range.
    """
    values: dict[str, Any] = dict(base)
    if path is not None:
        try:
            from_file = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(f"{path}: expected a recipe (TOML) here, found none; check the path") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise UserError(f"{path}: expected TOML, but {problem}") from None
        values = _merge(values, from_file)
    for change in changes:
        values = _merge(values, _parse_change(change))
    settings = validate(kind, values, source=str(path) if path else "settings")
    for message in without_effect(settings):
        warnings.warn(message, BothwaysWarning, stacklevel=2)
    return settings


def without_effect(settings: Settings) -> list[str]:
    """Names the settings that were changed and change nothing, each with the reason."""
    found: list[str] = []

    def changed(name: str, why: str) -> None:
        part: Any = settings
        default: Any = type(settings)()
        for step in name.split("."):
            part, default = getattr(part, step, None), getattr(default, step, None)
            if part is None:
                return
        if part != default:
            found.append(f"{name} has no effect: {why}")

    training = getattr(settings, "training", None)
    if isinstance(training, TrainingConfig) and training.minutes is not None:
        changed("training.steps", "training.minutes says when the run ends")
    patches, masking = getattr(settings, "patches", None), getattr(settings, "masking", None)
    if isinstance(patches, PatchConfig):
        if patches.positions == "sinusoidal":
            changed("patches.max_patches", 'it belongs to patches.positions = "learned"')
        if "spectrum" not in patches.features:
            changed("patches.spectrum_hz", "the patches hold no spectrum")
            changed("objective.spectrum_weight", "the patches hold no spectrum")
        if "samples" not in patches.features:
            changed("objective.samples_weight", "the patches hold no samples")
        if patches.tokens == "all_channels":
            changed("masking.block_space", "a token holds all channels")
    if isinstance(masking, MaskingConfig) and masking.kind == "random":
        changed("masking.block_space", "positions are hidden singly")
        changed("masking.block_time", "positions are hidden singly")
    if isinstance(settings, TextPretrainConfig) and not settings.objective.next_sentence:
        changed("objective.next_sentence_weight", "next sentences are not learned")
    if isinstance(settings, TextFinetuneConfig):
        if settings.frozen:
            for name in ("epochs", "least_steps", "pool", "head_dropout", "training.learning_rate"):
                changed(name, "with frozen = true a head is fitted, not trained")
        else:
            changed("features", "it belongs to frozen = true")
            changed("frozen_head", "it belongs to frozen = true")
        if settings.epochs is None:
            changed("least_steps", "training.steps or training.minutes says when the run ends")
        if settings.labels == "number":
            changed("class_weights", "a number has no classes")
        else:
            changed("number_loss", 'it belongs to labels = "number"')
        if settings.task != "answer":
            for name in type(settings.answers).model_fields:
                changed(f"answers.{name}", 'it belongs to task = "answer"')
        if settings.task != "classify":
            for name in ("columns", "labels", "too_long", "pool"):
                changed(name, 'it belongs to task = "classify"')
        if settings.task == "answer":
            for name in ("class_weights", "head_dropout"):
                changed(name, "an answer is a start and an end")
    if isinstance(settings, FinetuneConfig):
        if settings.freeze_encoder:
            changed("training.head_first", "freeze_encoder lets the head alone learn")
        if settings.labels.kind == "number":
            changed("class_weights", "a number has no classes")
        else:
            changed("number_loss", 'it belongs to labels.kind = "number"')
    if isinstance(settings, PretrainConfig):
        changed("windows.min_overlap", "pretraining has no labels")
    return found


def validate(kind: type[S], values: dict[str, Any], source: str = "settings") -> S:
    """Checks plain values against a kind of settings; see `load_config`."""
    if isinstance(encoder := values.get("encoder"), dict):
        of_text = issubclass(kind, TextPretrainConfig)
        sets = {"size": TEXT_SIZES, "preset": PRESETS} if of_text else {"size": ENCODER_SIZES}
        for name, known in sets.items():
            if name in encoder and (not isinstance(encoder[name], str) or encoder[name] not in known):
                raise UserError(f"{source}: encoder.{name}: expected one of {', '.join(known)}, got {encoder[name]!r}")
        values = {**values, "encoder": spelled_out(encoder, sets)}
    own = {name: field.default for name, field in kind.model_fields.items() if isinstance(field.default, Settings)}
    # A table that sets one thing leaves the kind's own defaults of the others, which may not be the table's.
    values = _merge({name: d.model_dump(exclude_unset=True) for name, d in own.items() if name in values}, values)
    try:
        return kind.model_validate(values)
    except ValidationError as problem:
        raise UserError(f"{source}: {'; '.join(_explain(kind, problem))}") from None


_WORDS = {
    "tuple_type": 'expected a list, e.g. ["a", "b"]',
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
}
"""What is said instead of some of pydantic's messages."""


def _explain(kind: type[Settings], problem: ValidationError) -> Iterator[str]:
    wrong: dict[str, list[Any]] = {}  # several where a setting takes different kinds of values, which pydantic names
    for error in problem.errors():
        own = [str(part) for part in error["loc"] if not re.match(r"constrained-|literal\[", str(part))]
        wrong.setdefault(".".join(own), []).append(error)
    for name, errors in [*wrong.items()][:5]:
        error = errors[0]
        if error["type"] != "extra_forbidden":
            said = [_WORDS.get(one["type"], one["msg"].removeprefix("Value error, ")) for one in errors]
            message = " or ".join([said[0], *(other.removeprefix("Input should be ") for other in said[1:])])
            got = "" if isinstance(error["input"], dict) else f" (got {error['input']!r})"
            yield f"{name}: {message}{got}" if name else f"{message}"
            continue
        known = _known_names(kind)
        last = {full.split(".")[-1]: full for full in reversed(known)}
        tables = sorted({full.rpartition(".")[0] for full in known} - {""})
        near = difflib.get_close_matches(name, tables + known, n=1, cutoff=0.7)
        near = near or [last[n] for n in difflib.get_close_matches(name.split(".")[-1], last, n=1, cutoff=0.6)]
        near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known[:5])}, …"
        yield f"unknown setting {name!r}; {hint}"


def _known_names(kind: type[Settings], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            names += _known_names(inner, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = {k: _merge({}, v) if isinstance(v, dict) else v for k, v in below.items()}
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _parse_change(change: str) -> dict[str, Any]:
    name, equals, text = change.partition("=")
    if not equals or not name.strip():
        raise UserError(f"--set {change}: expected name=value, e.g. training.steps=500")
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    for part in reversed(name.strip().split(".")):
        value = {part: value}
    return value


def to_toml(settings: Settings) -> str:
    """Writes settings as TOML that `load_config` reads back equal; None is the word `none`."""
    lines: list[str] = []

    def table(values: dict[str, Any], name: str) -> None:
        plain = {k: "none" if v is None else v for k, v in values.items() if not isinstance(v, dict)}
        if name and plain:
            lines.append(f"\n[{name}]")
        lines.extend(f"{_key(k)} = {json.dumps(v, ensure_ascii=False)}" for k, v in plain.items())
        for key, value in values.items():
            if isinstance(value, dict):
                table(value, f"{name}.{_key(key)}" if name else _key(key))

    table(settings.model_dump(mode="json"), "")
    return "\n".join(lines).strip() + "\n"


def _key(name: str) -> str:
    """A key as TOML takes it: quoted where it is more than a word."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
