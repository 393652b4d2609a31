"""A graph measured on labelled data, in the place of the model that it was made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bothways.errors import UserError
from bothways.model import Model
from bothways.run.common import Sources, usable
from bothways.run.targets import target_of_model
from bothways.run.tasks import measured, probabilities, rules_of
from bothways.run.tested import Tested, open_tested
from bothways.run.text_measure import ToMeasure, to_measure
from bothways.run.text_model import TextModel

FIGURES: dict[str, tuple[str, ...]] = {
    "sequence": ("accuracy", "balanced_accuracy"),
    "several": ("macro.auroc", "exact_match"),
    "number": ("mae", "r2"),
    "position": ("balanced_accuracy", "micro.f1", "word_accuracy"),
    "span": ("balanced_accuracy", "exact_match", "f1"),
}
"""Head -> the main figures of what it tells; of EEG and text some are other ones."""
N_BOOTSTRAP = 2
"""No interval is told."""


class OfEEG(NamedTuple):
    """The tested people's windows of a fine-tuned run."""

    tested: Tested

    def evaluate(self, model: Model) -> dict[str, Any]:
        """Returns how well a model tells them, as `eeg evaluate` does."""
        one = self.tested
        sources: Sources = one.sources()
        windows = usable(sources, one.tested)
        if (target := target_of_model(model)) is not None:
            said = target.read(model, sources.of(windows))
            return target.measured(target.truth(windows), said, windows.subject, n_bootstrap=N_BOOTSTRAP)
        source = sources.of(windows, task=one.task, background=rules_of(one.settings).background)
        return measured(source, probabilities(model, source), windows.classes, n_bootstrap=N_BOOTSTRAP)

    @property
    def notes(self) -> list[str]:
        """What is to be said of the data."""
        return self.tested.notes


class OfText(NamedTuple):
    """Labelled texts."""

    texts: ToMeasure

    def evaluate(self, model: Model) -> dict[str, Any]:
        """Returns how well a model tells them, as `text evaluate` does."""
        return self.texts.evaluate(model, "evaluate")

    @property
    def notes(self) -> list[str]:
        """What is to be said of the data."""
        return self.texts.notes


def labelled_data(folder: Path, data: Sequence[str | Path], opened: TextModel | None) -> OfEEG | OfText:
    """Opens labelled data for a fine-tuned run.

    Args:
        folder: the run.
        data: tables as `text_evaluate` takes them; of EEG one store, of which the run's tested people are measured.
        opened: the run, where it is one on text.

    Raises:
        UserError: the data do not fit the run.
    """
    if opened is not None:
        return OfText(to_measure(opened, data))
    if len(data) > 1:
        raise UserError(f"--data: expected one store, got {len(data)}; a run on EEG is measured on one")
    return OfEEG(open_tested(folder, data[0]))


def figures(kind: str, found: dict[str, Any]) -> dict[str, float | None]:
    """Returns the main ones of what was measured, by name; answers are those at the best threshold."""
    told = {}
    for name in FIGURES[kind]:
        value: Any = found.get("best", found)
        for part in name.split("."):
            value = value.get(part, ...) if isinstance(value, dict) else ...
        if value is not ...:
            told[name] = value
    return told
