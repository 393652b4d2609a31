"""A model of text opened for use: what `text_fill_mask`, `text_embed` and `text_evaluate` begin with."""

import hashlib
import tomllib
from pathlib import Path
from typing import NamedTuple

from bothways import text
from bothways.config import HeadConfig, TextFinetuneConfig
from bothways.errors import UserError
from bothways.files import beside, read_bytes
from bothways.model import LoadReport, Model
from bothways.training import RECIPE, check_config, check_finished, content_of_run, join, load_recipe, run_at

LENGTH_OF_ANSWERS = 384
"""Tokens of a question with its context at most, as in run_squad.py of google-research/bert."""


class TextModel(NamedTuple):
    """A model on its device, in eval mode."""

    folder: Path
    model: Model
    tokenizer: text.Tokenizer
    report: LoadReport
    length: int
    """Tokens of the sequences it was trained on; of a BERT from elsewhere as many as it has positions."""


def open_model(path: str | Path) -> TextModel:
    """Opens a run on text, one of its checkpoints, or a BERT that transformers saved.

    Raises:
        UserError: there is none, it is not finished, damaged, or a model of EEG.
    """
    folder = run_at(Path(path))
    check_finished(folder)
    loaded = text.load_folder(folder)
    check_config(folder)
    return opened_model(folder, loaded._replace(model=loaded.model.to(join().device).eval()))


def opened_model(folder: Path, loaded: text.Loaded) -> TextModel:
    """Returns a model that is loaded already as one that is opened; it is moved nowhere."""
    config = loaded.model.config.text
    assert config is not None
    length = min(_trained_length(folder) or config.max_position_embeddings, config.max_position_embeddings)
    return TextModel(folder, loaded.model, loaded.tokenizer, loaded.report, length)


def content_of_model(opened: TextModel) -> str:
    """Returns a hash of a model's weights, config and tokenizer, wherever it lies."""
    digest = hashlib.sha256(content_of_run(opened.folder).encode())
    for name, content in sorted(text.tokenizer_files(opened.tokenizer, opened.folder).items()):
        digest.update(f"\n{name}\n{content}".encode())
    return digest.hexdigest()


def _trained_length(folder: Path) -> int | None:
    """Returns what a run's recipe says: positions beyond it may never have been trained."""
    if not (folder / RECIPE).is_file():
        return None
    try:
        values = tomllib.loads(read_bytes(beside(folder, RECIPE), 2**16).decode())
        length = values.get("sequences", {}).get("length")
    except (ValueError, AttributeError) as problem:
        raise UserError(f"{folder / RECIPE}: expected TOML, but it cannot be read ({problem}); restore it") from None
    return length if isinstance(length, int) else None


def needs_mlm(opened: TextModel) -> None:
    """Refuses a model that cannot predict hidden tokens.

    Raises:
        UserError: it has no such head; what its weights lack is said.
    """
    if "mlm" not in opened.model.heads:
        has = ", ".join(opened.model.heads) or "none"
        lacking = " (its config names one that the weights do not hold)" if "heads.mlm" in opened.report.missing else ""
        raise UserError(
            f"{opened.folder}: expected a model with a head for hidden tokens (mlm), got the heads: {has}{lacking}; "
            "take one that was pretrained, saved with transformers' BertForMaskedLM or BertForPreTraining"
        )


def tag_head(opened: TextModel) -> HeadConfig | None:
    """Returns the head that tags words, of a model with no other head for labels."""
    found = [head for head in opened.model.config.heads.values() if head.kind == "position"]
    return found[0] if len(found) == 1 and not label_heads(opened) else None


def label_heads(opened: TextModel) -> list[HeadConfig]:
    """Returns the heads that tell a label of a whole text."""
    return [head for head in opened.model.config.heads.values() if head.kind in ("sequence", "several", "number")]


def answers(opened: TextModel) -> bool:
    """Says whether a model finds answers, and has no head for labels or tags."""
    return "span" in opened.model.heads and not label_heads(opened) and tag_head(opened) is None


def settings_of(opened: TextModel) -> TextFinetuneConfig:
    """Returns the settings of a run of `text_finetune`; of a model from elsewhere the default ones."""
    if (opened.folder / RECIPE).is_file():
        return load_recipe(opened.folder, TextFinetuneConfig)
    return TextFinetuneConfig()


def length_of(opened: TextModel, settings: TextFinetuneConfig) -> int:
    """Returns the tokens of a window: those of the settings, or as many as the model was trained on.

    Raises:
        UserError: the model has not as many positions.
    """
    most = opened.length if settings.task != "answer" else min(LENGTH_OF_ANSWERS, opened.length)
    return text.window_length(opened.model, settings.length or most)
