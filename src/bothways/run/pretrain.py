"""`bothways eeg pretrain`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import eeg
from bothways.config import HeadConfig, ModelConfig, ObjectiveConfig, PretrainConfig, load_config
from bothways.draws import generator
from bothways.errors import BothwaysWarning, UserError
from bothways.evaluation import Split
from bothways.model import Model
from bothways.run.common import (
    Sources,
    absent_notes,
    check_names,
    content_of,
    fill_channels,
    fitted_batch,
    of_subjects,
    parameters_of,
    provenance,
)
from bothways.run.leaks import check_split
from bothways.training import check_fits, check_place, interruptible, join, open_run, train


@interruptible("pretrain")
def pretrain(
    data: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    split: str | Path | None = None,
    overwrite: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Trains an encoder to rebuild hidden patches from both sides; no label is used.

    A run that was stopped goes on when it is called again, to the same numbers as if it had not been.

    Args:
        data: a store.
        out: the run's folder.
        recipe: TOML of `config.PretrainConfig`.
        changes: `a.b=value` on top of it.
        split: a split file; its training subjects are trained on and its validation subjects, where it has some,
            measure the reconstruction, so that its test subjects stay unseen. Those without a window are left out,
            with a note.
        overwrite: replace `out`; begin anew.
        force: go on with a stopped run although its settings or data have changed.

    Returns:
        `run`, `finished_before` (it was there already, nothing was done), `windows`, `notes` (recordings without a
        window), `without_windows` (who of the split is left out for want of one, per part), `subjects`,
        `validation_subjects`, `parameters`, `steps`, `best_step`, `seconds` (of all sittings), `windows_per_s`,
        `wait_share` (of the time, for batches), `loss` (last), `reconstruction` (see `eeg.reconstruction_errors`; on
        the validation subjects, else on the training ones).

    Raises:
        UserError: the store, the recipe or the split does not fit, or the split leaks (see `leaks.check_split`); `out`
            was begun with others; the loss is not finite.
        Interrupted: a signal came; what was done is saved.
    """
    check_names(data, out)
    out = Path(out)
    settings = load_config(PretrainConfig, Path(recipe) if recipe else None, changes)
    check_place(out, overwrite=overwrite, inputs=[data])
    team = join()
    store = eeg.Store.open(data)
    windows = eeg.cut_windows(store, settings.windows)
    notes = [note.message for note in windows.notes]
    absent: dict[str, list[str]] = {}
    subjects, held_out = sorted(set(windows.subject.tolist())), list[str]()
    if split is not None:
        chosen, what = Split.load(Path(split)), f"window of {settings.windows.window_s:g} s"
        chosen.check_known(recording.subject for recording in store.recordings)
        notes += check_split(chosen, store)
        present = set(subjects)
        parts = {"train": chosen.train, "validation": chosen.validation}
        absent = {part: gone for part, people in parts.items() if (gone := sorted(set(people) - present))}
        notes += absent_notes(absent, what)
        subjects, held_out = (sorted(set(people) & present) for people in parts.values())
        if held_out and settings.model_dump(include={"validation_fraction"}, exclude_defaults=True):
            notes.append("validation_fraction has no effect beside a split file with validation people")
        if not subjects:
            raise UserError(f"{split}: expected somebody in train with a {what}, got nobody; choose a shorter one")
    for note in notes:
        warnings.warn(note, BothwaysWarning, stacklevel=2)
    held_out = held_out or _held_out(subjects, settings)
    used = of_subjects(windows, set(subjects) - set(held_out))
    settings = settings.model_copy(update={"patches": fill_channels(settings.patches, store)})
    patches, seed = settings.patches, settings.training.seed
    sources = Sources(store, patches)
    source = sources.of(used, masking=settings.masking, seed=seed, jitter_s=settings.windows.jitter_s)
    tested_on = of_subjects(windows, held_out) if held_out else used
    test_source = sources.of(tested_on, masking=settings.masking, seed=seed)

    depends_on = {
        "command": "pretrain",
        "data": team.first_does(lambda: content_of(store)),
        "split": split and chosen.identity(),
    }
    with open_run(out, settings, depends_on, team, overwrite=overwrite, force=force, inputs=[data]) as folder:
        if folder.result is not None:
            return {**folder.result, "run": str(out), "finished_before": True}
        config = ModelConfig(encoder=settings.encoder, patches=patches, signal=store.signal)
        check_fits(config, eeg.build_embedding, "settings", trained=team.device.type == "cpu")
        embedding = eeg.build_embedding(config)
        config = config.model_copy(update={"heads": _heads(settings.objective, embedding.targets)})
        model = Model(config, embedding)
        model.initialise(seed)
        eeg.fit_spectrum(embedding, source)
        folder.settings = settings = fitted_batch(settings, model, source, folder)
        folder.manifest = {
            "kind": "pretrain",
            **provenance(store, set(subjects) - set(held_out)),
            "validation_subjects": held_out,
            "windows": len(used),
            "notes": notes,
            "without_windows": absent,
        }
        result = train(
            model,
            source,
            settings.training,
            title="pretrain",
            evaluate=lambda m: {"reconstruction": eeg.reconstruction_errors(m, test_source)},
            score=_score,
            team=team,
            run=folder,
        )
        assert result.evaluation is not None
        told = {
            "run": str(out),
            "windows": len(used),
            "notes": notes,
            "without_windows": absent,
            "subjects": len(set(subjects) - set(held_out)),
            "validation_subjects": held_out,
            "parameters": parameters_of(model),
            **result.told("windows"),
            "reconstruction": result.evaluation["reconstruction"],
        }
        folder.finish(model, told)
    return {**told, "finished_before": False}


def _score(evaluation: dict[str, Any]) -> float:
    """How good a reconstruction is: minus the error, as a share of the zero guess's, mean over features and bands."""
    errors = [band["model"] for bands in evaluation["reconstruction"].values() for band in bands.values()]
    return -sum(errors) / max(len(errors), 1)


def _held_out(subjects: Sequence[str], settings: PretrainConfig) -> list[str]:
    """Draws the subjects whose windows measure the reconstruction error; nobody where there is one subject only."""
    if settings.validation_fraction == 0 or len(subjects) == 1:
        return []
    n = min(max(1, round(settings.validation_fraction * len(subjects))), len(subjects) - 1)
    order = generator("validation", settings.training.seed).permutation(len(subjects))
    return sorted(subjects[i] for i in order[:n])


def _heads(objective: ObjectiveConfig, targets: dict[str, int]) -> dict[str, HeadConfig]:
    given = {"samples": objective.samples_weight, "spectrum": objective.spectrum_weight}
    weights = {name: given[name] for name in targets}
    own = HeadConfig(kind="reconstruction", features=targets, feature_weights=weights, loss=objective.loss)
    if objective.cls_weight == 0:
        return {"reconstruction": own}
    from_cls = own.model_copy(update={"kind": "cls_reconstruction", "weight": objective.cls_weight})
    return {"reconstruction": own, "cls_reconstruction": from_cls}
