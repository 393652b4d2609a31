"""`bothways.load`, and the form that models have on the Hugging Face hub."""

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
from huggingface_hub import ModelHubMixin
from jaxtyping import Float32

from bothways import eeg, text
from bothways.errors import BothwaysWarning, UserError
from bothways.files import beside, read_json, readable, replacing, sha256_file, write_json, write_text
from bothways.model import Model
from bothways.run.evaluate import EVALUATION
from bothways.training import (
    BEGUN,
    CARD,
    CONFIG,
    CONFIG_SUM,
    MANIFEST,
    METRICS,
    RECIPE,
    check_config,
    check_finished,
    check_float32,
    load_run,
    model_card,
    run_at,
    save_model,
)
from bothways.weights import INDEX, WEIGHTS, other_format

SIDE_FILES = (MANIFEST, RECIPE, METRICS, CARD, "tokenizer.json", "vocab.txt", "tokenizer_config.json")
"""What belongs to a model besides its weights and config, and goes with it."""
MOST_SIDE_BYTES = dict.fromkeys(SIDE_FILES, 2**24) | {MANIFEST: 2**28, METRICS: 2**28}
"""A manifest names all recordings, a log grows with the steps."""


class Pretrained(Model, ModelHubMixin, library_name="bothways", tags=["bert"]):
    """A model with what lies beside it: `from_pretrained`, `save_pretrained`, `push_to_hub`.

    What it saves is a run: `finetune --from`, `predict` and `bothways.load` take it, and transformers where it is a
    BERT of text.
    """

    tokenizer: text.Tokenizer | None = None
    """Of a model of text."""

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
    ) -> "Pretrained":
        """Loads a folder; a name that is none is a repository of the hub, of which the model's files are fetched.

        Arguments are those of huggingface_hub's mixin.

        Raises:
            UserError: the folder is missing or damaged, or the repository cannot be had.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.exists():
            try:
                folder = Path(
                    huggingface_hub.snapshot_download(
                        str(pretrained_model_name_or_path),
                        revision=revision,
                        cache_dir=cache_dir,
                        force_download=force_download,
                        token=token,
                        local_files_only=local_files_only,
                        allow_patterns=[CONFIG, WEIGHTS, INDEX, "model-*.safetensors", *SIDE_FILES],
                    )
                )
            except (OSError, ValueError) as problem:  # all of huggingface_hub's errors are one of these
                why = str(problem).strip().partition("\n")[0]
                raise UserError(
                    f"{pretrained_model_name_or_path}: expected a folder or a repository of the hub, found none ({why})"
                ) from None
        return load_pretrained(folder, cls)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.side_files: dict[str, Path] = {}
        """What lies beside the weights, by name; copied when the model is saved."""

    def embed(self, texts: Sequence[str], *, pool: str = "mean", normalise: bool = False) -> Float32[np.ndarray, "n D"]:
        """Returns a vector for each text of a model of text; more settings are in `text.embed`.

        Raises:
            UserError: the model is one of EEG.
        """
        if self.tokenizer is None:
            raise UserError("expected a model of text, got one of EEG; use bothways.run.embed")
        return text.embed(self, self.tokenizer, texts, pool=pool, normalise=normalise)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Saves a model as a run that `load_pretrained` takes; options are those of huggingface_hub's mixin.

        Raises:
            UserError: the weights are not float32, or the folder is a run that was trained there.
        """
        folder = Path(save_directory)
        if (folder / BEGUN).exists():
            raise UserError(f"{folder}: is a run that was trained here, with its checkpoints; choose another folder")
        check_float32(self.state_dict(), folder)  # now, for the mixin begins with removing the config
        return super().save_pretrained(folder, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        (text.save_folder if self.config.text else save_model)(save_directory, self)
        for name in SIDE_FILES:
            if name in self.side_files and name != MANIFEST:
                with readable(self.side_files[name]) as source, replacing(save_directory / name) as target:
                    shutil.copyfileobj(source, target)
            elif name not in (MANIFEST, CARD):  # of another model that was saved here before
                (save_directory / name).unlink(missing_ok=True)
        for name in EVALUATION.values():
            (save_directory / name).unlink(missing_ok=True)
        manifest = {"kind": "imported"}
        if MANIFEST in self.side_files:
            manifest = read_json(self.side_files[MANIFEST], MOST_SIDE_BYTES[MANIFEST])
        else:
            write_text(save_directory / CARD, model_card(self, {}, {}, {}))
        write_json(save_directory / MANIFEST, {**manifest, CONFIG_SUM: sha256_file(save_directory / CONFIG)})


def load_pretrained(path: str | Path, kind: type[Pretrained] = Pretrained, *, partial: bool = False) -> Pretrained:
    """Loads a folder as a `Pretrained`; see `bothways.load`."""
    folder = run_at(Path(path))
    check_finished(folder)
    if not (folder / CONFIG).is_file():
        if found := other_format(folder):
            raise UserError(f"{folder}: expected a model, found only {found}")
        raise UserError(f"{folder}: expected a model (a folder with {CONFIG}), found none; check the path")
    values = read_json(beside(folder, CONFIG), 2**22)
    if isinstance(values, dict) and ("model_type" in values or values.get("text")):
        if partial:
            raise UserError(f"{folder}: partial is for models of EEG, this is one of text; leave it out")
        check_config(folder)
        loaded = text.load_folder(folder, kind)
        model, tokenizer = loaded.model, loaded.tokenizer
    else:
        model, tokenizer = load_run(folder, eeg.build_embedding, kind, partial=partial), None
        if partial and model.load_report is not None:
            warnings.warn(f"{folder}: {model.load_report.line()}", BothwaysWarning, stacklevel=3)
    assert isinstance(model, Pretrained)
    model.tokenizer = tokenizer
    for name, most in MOST_SIDE_BYTES.items():
        if (folder / name).is_file():
            path = beside(folder, name).absolute()
            if (size := path.stat().st_size) > most:
                raise UserError(
                    f"{path}: expected at most {most:,} bytes, got {size:,}; check that it is the right file"
                )
            model.side_files[name] = path
    return model
