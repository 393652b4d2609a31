"""What several commands share: the model against a store, baselines, and what a run records of itself."""

import datetime
import hashlib
import math
import os
import platform
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bothways import eeg
from bothways.config import (
    MaskingConfig,
    ModelConfig,
    PatchConfig,
    S,
    SignalConfig,
    Task,
    TrainingConfig,
    WindowConfig,
    validate,
)
from bothways.errors import BothwaysWarning, UserError
from bothways.evaluation import band_power
from bothways.files import check_output, sha256_file
from bothways.model import Model
from bothways.training import RunFolder, Source, largest_batch

SCRATCH = "scratch"
"""What a run starts from that starts from no other."""
MOST_HASHED_BYTES = 2**31
"""Of a store, before a training begins or goes on: seconds."""
PIECES = 16
"""In which each file of a larger store is looked at."""


def fill_channels(patches: PatchConfig, store: eeg.Store) -> PatchConfig:
    """Gives `all_channels` patches their list of channels where the recipe has none: those of every recording.

    Raises:
        UserError: no channel is in all recordings.
    """
    if patches.tokens != "all_channels" or patches.ch_names:
        return patches
    common = set.intersection(*(set(r.ch_names) for r in store.recordings))
    names = tuple(name for name in store.recordings[0].ch_names if name in common)
    if not names:
        raise UserError(
            f'{store.path}: no channel is in all recordings, which tokens = "all_channels" needs; '
            'use tokens = "channel", or give patches.ch_names'
        )
    return patches.model_copy(update={"ch_names": names})


def check_eeg(config: ModelConfig, source: str | Path) -> None:
    """Refuses a model of text, and one that does not say what recordings it reads.

    Raises:
        UserError: it is one of these.
    """
    if config.patches is None:
        raise UserError(f"{source}: expected a model of EEG, got one of text; choose a run of `bothways eeg`")
    if config.signal is None:
        raise UserError(f"{source}: its config says nothing of the signal that the model was trained on; restore it")


def check_contract(config: ModelConfig, store: eeg.Store) -> None:
    """Refuses a store whose numbers are not what the model was trained on.

    Raises:
        UserError: the differing fields are named with both values.
    """
    check_eeg(config, "config.json")
    assert config.signal is not None
    differences = config.signal.differences(store.signal)
    if differences:
        named = "; ".join(f"{name}: model {mine}, store {theirs}" for name, (mine, theirs) in differences.items())
        raise UserError(
            f"{store.path}: the store was prepared in another way than the model wants ({named}); "
            "prepare it again with the model's settings"
        )


def baselines_of(store: eeg.Store, patches: PatchConfig) -> eeg.Baselines | None:
    """Returns each subject's mean log spectrum at rest, or None where the model does not subtract it.

    Raises:
        UserError: the model needs it and the store was prepared without.
    """
    if not patches.baseline:
        return None
    spans = eeg.baseline_spans(store)
    if not spans:
        raise UserError(
            f"{store.path}: the model subtracts each subject's baseline, but the store has none; "
            "run `bothways eeg prepare` with --baseline FILE.csv"
        )
    one_patch = WindowConfig(window_s=patches.patch_s, stride_s=patches.patch_s)
    return eeg.subject_baselines(store, eeg.cut_windows(store, one_patch, spans=spans), patches)


class Sources:
    """Makes sources of windows of one store for one model, with the baselines that it wants, read once."""

    def __init__(self, store: eeg.Store, patches: PatchConfig) -> None:
        self.store, self.patches = store, patches
        self.baselines = baselines_of(store, patches)

    def of(
        self,
        windows: eeg.Windows,
        *,
        masking: MaskingConfig | None = None,
        seed: int = 0,
        jitter_s: float = 0.0,
        task: Task = "window",
        codes: np.ndarray | None = None,
        background: str | None = None,
    ) -> eeg.WindowSource:
        """Makes the source of a table of windows."""
        return eeg.WindowSource(
            self.store, windows, self.patches, masking=masking, seed=seed, jitter_s=jitter_s, task=task, codes=codes,
            background=background, baselines=self.baselines,
        )  # fmt: skip


def control_patches(store: eeg.Store, windows: eeg.Windows, model: PatchConfig) -> PatchConfig:
    """Returns how the band-power control sees windows: 1-s spectra of the model's channels, or of those all share."""
    patches = PatchConfig(
        tokens="all_channels",
        ch_names=model.ch_names,
        patch_s=min(1.0, windows.window_samples / store.signal.sfreq_hz),
        features=("spectrum",),
        spectrum_hz=(1.0, 45.0),
        baseline=model.baseline,  # the same calibration, where the model has one
    )
    return fill_channels(patches, store)


def band_powers(store: eeg.Store, patches: PatchConfig, windows: eeg.Windows) -> np.ndarray:
    """Returns the classic features of windows: log power of each channel in each band, from the patches' spectra."""
    reader, source = eeg.PatchEmbedding(patches, 1, store.signal.sfreq_hz), Sources(store, patches).of(windows)
    assert reader.spectrum is not None
    spectra = []
    for first in range(0, len(source), 64):
        batch = source.batch(np.arange(first, min(first + 64, len(source))))
        real = batch["patch_mask"][..., None]
        spectrum = (reader.log_spectrum(batch) * real).sum(2) / real.sum(2).clamp_min(1)  # [B C F]
        spectra.append(spectrum.numpy() * np.log(10))
    return band_power(np.concatenate(spectra), reader.spectrum.frequencies_hz)


def usable(sources: Sources, windows: eeg.Windows) -> eeg.Windows:
    """Returns the windows that hold at least one real patch: nothing can be learned or said of the others.

    Raises:
        UserError: there is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BothwaysWarning)  # the source of the windows that are kept says it
        kept = windows.select(sources.of(windows).usable())
    if len(kept) == 0:
        file = sources.store.recordings[int(windows.recording[0])].file
        raise UserError(f"{file}: no window holds a usable patch; look at it with `bothways eeg check`")
    return kept


def guessed_subjects(store: eeg.Store, subjects: Collection[str]) -> list[str]:
    """Returns a note where whose a recording is was guessed: a split by person then rests on file names."""
    guessed = [
        r.file for r in store.recordings if r.subject in subjects and any(n.code == "subject_guessed" for n in r.notes)
    ]
    if not guessed:
        return []
    return [
        f"{len(guessed)} recordings have no subject in their path and count as a person each (e.g. {guessed[0]}); if a "
        "person has several, prepare again with --subject-from, or people are trained and tested on at once"
    ]


def absent_notes(absent: Mapping[str, Sequence[str]], what: str) -> list[str]:
    """Returns a note for each part of a split of which some people have no windows and are left out."""
    return [
        f"{len(people)} people of the split's {part} have no {what} and are left out: {', '.join(people[:8])}"
        + (f" and {len(people) - 8} more" if len(people) > 8 else "")
        for part, people in absent.items()
    ]


def check_names(*paths: str | Path) -> None:
    """Refuses names that no JSON can hold, before a run is trained that could not be written.

    Raises:
        UserError: one is no UTF-8.
    """
    for path in paths:
        try:
            os.fspath(path).encode()
        except UnicodeEncodeError:
            raise UserError(f"{str(path)!a}: expected a path in UTF-8; rename it, or set PYTHONUTF8=1") from None


def label_sets(windows: eeg.Windows) -> dict[str, str]:
    """Returns the classes that each subject has windows of, as one word, to stratify by."""
    has: dict[str, set[str]] = {name: set() for name in windows.subject.tolist()}
    for name, label in zip(windows.subject.tolist(), windows.label.tolist()):
        has[name].add(windows.classes[label])
    return {name: " and ".join(sorted(those)) for name, those in has.items()}


def strata(windows: eeg.Windows) -> dict[str, str] | None:
    """Returns `label_sets`; None where all subjects have the same classes, so that there is nothing to stratify by."""
    sets = label_sets(windows)
    return sets if len(set(sets.values())) > 1 else None


def of_subjects(windows: eeg.Windows, subjects: Collection[str]) -> eeg.Windows:
    """Returns the windows of some subjects."""
    return windows.select(np.isin(windows.subject, sorted(subjects)))


def parameters_of(model: torch.nn.Module) -> dict[str, int]:
    """Counts a model's parameters by part."""
    counts = {part: sum(p.numel() for p in module.parameters()) for part, module in model.named_children()}
    return {**{part: n for part, n in counts.items() if n}, "total": sum(counts.values())}


def identities(store: eeg.Store) -> list[dict[str, str]]:
    """Returns what tells each recording of a store from others: file, subject, hash of the content."""
    return [{"file": r.file, "subject": r.subject, "sha256": r.sha256} for r in store.recordings]


def content_of(store: eeg.Store) -> str:
    """Returns a hash of what a store's windows and labels come from: its contract, its entries, and its samples.

    Of more than `MOST_HASHED_BYTES` of samples that many are read, in pieces that are spread evenly over each file.
    """
    digest = hashlib.sha256()
    for name in ("store.json", "recordings.json"):
        digest.update(sha256_file(Path(store.path) / name).encode())
    files = [Path(store.path) / "signals" / f"{recording.id}.npy" for recording in store.recordings]
    sizes = [file.stat().st_size for file in files]
    share = min(MOST_HASHED_BYTES / max(sum(sizes), 1), 1.0)
    for path, size in zip(files, sizes):
        n = 1 if share == 1 else PIECES
        length = math.ceil(share * size / n)
        with path.open("rb") as file:
            for i in range(n):
                file.seek(i * (size - length) // max(n - 1, 1))
                for _ in range(0, length, 2**20):
                    digest.update(file.read(min(length, 2**20)))
    return digest.hexdigest()


def fitted_batch(settings: S, model: Model, source: Source, folder: RunFolder) -> S:
    """Returns settings whose batch size `auto` is the number that memory holds, or held when the run was begun."""
    training: TrainingConfig = settings.training  # type: ignore[attr-defined]
    if training.batch_size != "auto":
        return settings
    team = folder.team
    size = folder.fitted(
        lambda: largest_batch(model, source, training, device=team.device, n_processes=team.size, n_here=team.here)
    )
    warnings.warn(f"training.batch_size: auto = {size}", BothwaysWarning, stacklevel=3)
    return settings.model_copy(update={"training": training.model_copy(update={"batch_size": size})})


def provenance(store: eeg.Store, subjects: Collection[str]) -> dict[str, Any]:
    """Returns what a run records of its data and of the software that made it."""
    used = set(subjects)
    recordings = [r for r in store.recordings if r.subject in used]
    return {
        **made_with("mne"),
        "data": {
            "store": str(Path(store.path).absolute()),
            "subjects": sorted(used),
            "recordings": [entry for entry in identities(store) if entry["subject"] in used],
            "hours": sum(r.n_samples for r in recordings) / store.signal.sfreq_hz / 3600,
            "montages": dict(Counter(", ".join(r.ch_names) for r in recordings).most_common()),
        },
    }


def made_with(library: str) -> dict[str, Any]:
    """Returns when a run is made and by which software, of which one library is its modality's."""
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("bothways", "torch", "numpy", library)},
        },
    }


def calibration(
    path: Path, files: Sequence[str | Path], wanted: Sequence[eeg.Found], subject_from: str | Path
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Returns the files to read besides the wanted ones, and the calibration stretches of the wanted subjects.

    Raises:
        UserError: the CSV has no stretch for them, or names a file that fits several of the wanted ones.
    """
    subjects = {one.subject for one in wanted}
    used: list[tuple[Path, dict[str, Any]]] = []
    for span in eeg.read_spans(path).rows:
        place = _place(path, span.file, wanted)
        if place is None:
            continue
        subject = span.subject or eeg.scan([place], subject_from)[0].subject
        if subject in subjects:
            used.append((place, {"onset_s": span.onset_s, "duration_s": span.duration_s, "subject": subject}))
    if not used:
        raise UserError(
            f"{path}: no stretch for {', '.join(sorted(subjects))}; name a recording of theirs among the given "
            "files or relative to this CSV"
        )
    known = {one.path.resolve() for one in wanted}
    extra = [place for place in dict.fromkeys(place for place, _ in used) if place.resolve() not in known]
    named = {one.path.resolve(): one.file for one in eeg.scan([*files, *extra], subject_from)}
    return extra, [{"file": named[place.resolve()]} | row for place, row in used]


def _place(path: Path, file: str, wanted: Sequence[eeg.Found]) -> Path | None:
    """Returns where a file of the CSV lies: relative to the CSV, else the one wanted recording whose path ends so."""
    if (path.parent / file).exists():
        return path.parent / file
    fits = [one.path for one in wanted if eeg.ends_with(one.path.absolute().as_posix(), file)]
    if len(fits) > 1:
        raise UserError(f"{path}: {file} fits {len(fits)} of the recordings; write more of the path")
    return fits[0] if fits else None


def check_baseline(run: Path, patches: PatchConfig, baseline: str | Path | None) -> None:
    """Refuses a calibration that a model does not use, and the lack of one that it needs.

    Raises:
        UserError: one of the two.
    """
    if patches.baseline and baseline is None:
        raise UserError(
            f"{run}: the model subtracts each person's baseline; give --baseline FILE.csv with the columns "
            "file,onset_s,duration_s and a stretch of rest for each person"
        )
    if baseline is not None and not patches.baseline:
        raise UserError(f"{run}: the model uses no baseline; leave --baseline out")


def with_mains(run: Path, signal: SignalConfig, notch_hz: float | None, source: str) -> SignalConfig:
    """Returns a model's signal contract with the mains frequency of where a recording was made.

    Raises:
        UserError: the model was trained with mains left in, or the frequency is none.
    """
    if notch_hz is None:
        return signal
    if signal.notch_hz is None:
        raise UserError(f"{run}: the model was trained with mains left in; leave --notch-hz out")
    return validate(SignalConfig, signal.model_dump() | {"notch_hz": notch_hz}, source)


def check_page(html: Path, paths: Sequence[str | Path], overwrite: bool) -> None:
    """Refuses, before any work, a page that cannot be written; only a page is ever replaced, never a recording.

    Args:
        html: the page.
        paths: what is read to make it.
        overwrite: whether a page that is there may be replaced.

    Raises:
        UserError: no such folder, something is there, or it is no page.
    """
    if not html.absolute().parent.is_dir():
        raise UserError(f"{html}: expected a file in a folder that exists, {html.parent} does not; make it first")
    if not html.exists():
        return check_output(html, inputs=paths)
    if not overwrite:
        raise UserError(f"{html}: already exists; choose another --html, or pass --overwrite to replace it")
    if not html.is_file() or not html.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise UserError(f"{html}: not a page, so it is not overwritten; choose another --html")


@contextmanager
def said_once() -> Iterator[list[str]]:
    """Takes what is warned of in the block as notes, each once: forty trainings would say it forty times."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", BothwaysWarning)
        try:
            yield notes
        finally:
            for one in caught:
                if issubclass(one.category, BothwaysWarning) and str(one.message) not in notes:
                    notes.append(str(one.message))
    for one in caught:
        if not issubclass(one.category, BothwaysWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
