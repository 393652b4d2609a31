"""`bothways eeg probe`: what a result should be asked before it is believed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import FinetuneConfig, PretrainConfig, WindowConfig
from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation import paired_difference, people_recalls, ridge_probe, summarise
from bothways.files import write_json
from bothways.model import Model
from bothways.report import write_report
from bothways.run.common import SCRATCH, Sources, check_contract, check_eeg, check_page, of_subjects, usable
from bothways.run.finetune import start_model
from bothways.run.probe_page import probe_page
from bothways.run.targets import need_classes
from bothways.run.tasks import head_of
from bothways.run.tested import Tested, open_tested, scored
from bothways.training import (
    class_probabilities,
    cls_features,
    infer,
    interruptible,
    load_config_of,
    load_manifest,
    load_recipe,
    load_run,
    run_at,
    train,
)

RESULT = "probe.json"
FACTORS = {"×10": 10.0, "µV read as V": 1e6, "V read as µV": 1e-6}
"""What the amplitudes are multiplied by."""


@interruptible("probe")
def probe(
    run: str | Path,
    *,
    data: str | Path | None = None,
    steps: int = 30,
    shuffles: int = 5,
    seed: int = 0,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Asks a run whom it recognises, whether it learns what is not there, and whether it minds a wrong unit.

    - Identity: a closed-form probe learns from the embedding ([CLS], frozen) of the first half of each recording whose
      it is, and is tested on the second half. The more it knows, the more a split that is not by person flatters.
    - Shuffled labels (fine-tuned runs): the run's training, short, on labels that are dealt anew among the training
      windows. The mean over several deals must be near chance, or the tested people are known from elsewhere.
    - Amplitude (fine-tuned runs): the tested people's signals times 10, and as if volts and microvolts were mistaken.
      How many answers change, and what `check` and `prepare` say of such recordings.

    What cannot be asked is a note. The result is also written to `probe.json` in the run.

    Args:
        run: a pretrained or fine-tuned run.
        data: its store, where it has moved.
        steps: of each short training.
        shuffles: how many deals, and as many trainings on the true labels.
        seed: of deals and trainings.
        html: file to write a page to.
        overwrite: replace that file.

    Returns:
        `run`, `identity` (`people`, `n` (windows), `accuracy` (mean over people), `chance`, `above_chance` (a
        `paired_difference` over people)), `shuffled` (`steps`, `chance`, `over_shuffles` (balanced accuracy of the
        tested people), `at_chance` (its 95 % interval holds chance), `as_labelled` (the mean of the same trainings,
        with the same seeds, on the true labels), `over_seeds` (`summarise` of these)) or None, `amplitude` (a row for
        each factor: `what`, `factor`, `changed` (share of the answers), `balanced_accuracy`, `as_it_is`, `recordings`,
        `suspected`, `refused` (how many), `said`) or None, `notes`.

    Raises:
        UserError: no such run or store, another contract, or the page cannot be written or exists.
        Interrupted: a signal came.
    """
    if steps < 1 or shuffles < 2:
        raise UserError(f"probe: expected 1 step and 2 shuffles or more, got {steps} and {shuffles}")
    if html is not None:
        check_page(Path(html), [run], overwrite)
    run = run_at(Path(run))
    check_eeg(load_config_of(run), run)
    manifest, notes = load_manifest(run), list[str]()
    fine = manifest.get("kind") == "finetune"
    if fine:
        need_classes(load_recipe(run, FinetuneConfig), "probe")
    store = eeg.Store.open(data or manifest["data"]["store"])
    model = load_run(run, eeg.build_embedding)
    check_contract(model.config, store)
    config = load_recipe(run, FinetuneConfig).windows if fine else load_recipe(run, PretrainConfig).windows
    identity = _identity(model, store, config, notes)
    here, shuffled = None, None
    if fine:
        here = open_tested(run, data)
        notes += here.notes
    else:
        notes.append("no shuffled labels, no amplitude: a pretrained run has no classes to tell apart")
    if here is not None and here.task == "window":
        try:
            shuffled = _shuffled(here, steps, shuffles, seed)
        except UserError as problem:
            notes.append(f"no shuffled labels: {problem}")
    elif here is not None:
        notes.append(f"no shuffled labels: they are dealt among windows, and this run labels each {here.task}")
    result: dict[str, Any] = {
        "run": str(run),
        "identity": identity,
        "shuffled": shuffled,
        "amplitude": None if here is None else [_scaled(here, what, factor) for what, factor in FACTORS.items()],
        "notes": list(dict.fromkeys(notes)),
    }
    try:
        write_json(run / RESULT, result)
    except OSError as problem:
        result["notes"].append(f"not kept in the run: {problem}")
    if html is not None:
        write_report(probe_page(result), Path(html))
    return result


def _identity(model: Model, store: eeg.Store, config: WindowConfig, notes: list[str]) -> dict[str, Any] | None:
    """Learns whose a window is from the first halves of recordings, and tells it of the second halves."""
    assert model.config.patches is not None
    sources = Sources(store, model.config.patches)
    windows = usable(sources, eeg.cut_windows(store, config))
    middle = np.array([r.n_samples // 2 for r in store.recordings])[windows.recording]
    early, late = windows.start + windows.window_samples <= middle, windows.start >= middle
    known = sorted(set(windows.subject[early].tolist()) & set(windows.subject[late].tolist()))
    if len(known) < 2:
        notes.append(f"no identity: {len(known)} people have windows in both halves of a recording, 2 are needed")
        return None
    first, second = (of_subjects(windows.select(half), known) for half in (early, late))
    features, asked = (infer(model, sources.of(half), cls_features) for half in (first, second))
    whose = [np.searchsorted(known, half.subject) for half in (first, second)]
    fitted = ridge_probe(features, whose[0], len(known))
    right = people_recalls(whose[1], fitted.scores(asked), second.subject.tolist(), known)
    values, chance = [recall for own in right.values() for recall in own.values()], 1 / len(known)
    notes.append("identity: within recordings, so cap, session and amplifier are recognised along with the person")
    return {
        "people": len(known),
        "n": len(second),
        "accuracy": float(np.mean(values)),
        "chance": chance,
        "above_chance": paired_difference(values, [chance] * len(values)),
    }


def _shuffled(here: Tested, steps: int, shuffles: int, seed: int) -> dict[str, Any]:
    """Trains on labels dealt anew, and on the true ones, in the same way."""
    sources = here.sources()
    training = usable(sources, of_subjects(here.windows, here.split.train))
    tested = usable(sources, here.tested)

    def balanced_accuracy(windows: eeg.Windows, own: int) -> float:
        changes = {
            "seed": own, "steps": steps, "minutes": None, "shard": False, "tensorboard": False,
            "batch_size": b if isinstance(b := here.settings.training.batch_size, int) else 32,
        }  # fmt: skip
        settings = here.settings.model_copy(update={"training": here.settings.training.model_copy(update=changes)})
        head = head_of(settings, windows.classes, windows)
        start = here.manifest["from"]
        model, report, settings = start_model(start, here.store, settings, head, on_cpu=True)
        if model.config.patches != here.patches:
            raise UserError(f"{start}: has other patches than {here.run}, which started from it; restore it")
        source = sources.of(windows, seed=own, jitter_s=settings.windows.jitter_s)
        if report is None:
            assert start == SCRATCH
            assert isinstance(model.embedding, eeg.PatchEmbedding)
            eeg.fit_spectrum(model.embedding, source)
        if settings.freeze_encoder:
            model.embedding.requires_grad_(False)
            model.encoder.requires_grad_(False)
        train(model, source, settings.training, title="probe")
        found = scored(tested, infer(model, sources.of(tested), class_probabilities))["balanced_accuracy"]
        if found is None:
            raise UserError("the tested people have one class only, so their balanced accuracy is undefined")
        return float(found)

    values = []
    seeds = range(seed, seed + shuffles)
    for own in seeds:
        dealt = generator("shuffled", own).permutation(training.label)
        values.append(balanced_accuracy(_relabelled(training, dealt), own))
    over, chance = summarise(values), 1 / len(training.classes)
    labelled = summarise([balanced_accuracy(training, own) for own in seeds])
    low, high = over["low"], over["high"]
    assert low is not None
    assert high is not None
    return {
        "steps": steps,
        "chance": chance,
        "over_shuffles": over,
        "at_chance": bool(low - 1e-9 <= chance <= high + 1e-9),
        "as_labelled": labelled["mean"],
        "over_seeds": labelled,
    }


def _relabelled(windows: eeg.Windows, labels: np.ndarray) -> eeg.Windows:
    # A shifted window may reach another label's stretch: these labels go by window, so none is shifted.
    return replace(windows, label=labels, earliest=windows.start, latest=windows.start)


def _scaled(here: Tested, what: str, factor: float) -> dict[str, Any]:
    """Predicts the tested people as if their amplitudes had been multiplied, whatever the guards say of it."""
    sources = here.sources()
    tested = usable(sources, here.tested)
    things, before = here.predict(sources, tested)
    _, after = here.predict(here.sources(eeg.in_other_unit(here.store, factor)), tested)
    suspected, refused, said = 0, 0, ""
    used = sorted(set(tested.recording.tolist()))
    for index in used:
        entry = here.store.recordings[index]
        data_uv = here.store.read(index) * entry.scale_uv[:, None] + entry.median_uv[:, None]
        one = eeg.from_array(data_uv * factor, entry.ch_names, here.store.signal.sfreq_hz, unit="uV")
        _, bad, notes = eeg.assess(one)
        doubts = [note.message for note in [*one.notes, *notes] if note.code == "unit_suspect"]
        why = eeg.unusable(one, bad, notes)
        suspected, refused = suspected + bool(doubts), refused + bool(why)
        said = said or (doubts[0] if doubts else why)
    return {
        "what": what,
        "factor": factor,
        "changed": float(np.mean(before.argmax(1) != after.argmax(1))),
        "balanced_accuracy": scored(things, after)["balanced_accuracy"],
        "as_it_is": scored(things, before)["balanced_accuracy"],
        "recordings": len(used),
        "suspected": suspected,
        "refused": refused,
        "said": said or "nothing",
    }
