"""A split or an earlier training against the recordings of a store: who and what has been seen already."""

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bothways import eeg
from bothways.evaluation import PARTS, Split, check_content, check_leak, person_of, repeats
from bothways.run.common import SCRATCH

_FOUND: WeakKeyDictionary[eeg.Store, dict[int, tuple[np.ndarray, np.ndarray]]] = WeakKeyDictionary()
"""Landmarks that were found already, for one command asks several times."""
SAME = 0.6
"""Correlation over a minute from which two signals are one; 297 pairs of people had 0.11 at the most."""
_MOST_KEPT = 2**22
"""Of so many in a store no more are kept: 64 MB, which a training would hold all along."""


def check_split(
    split: Split, store: eeg.Store, trained_on: Iterable[Mapping[str, str]] | None = None, *, signals: bool = True
) -> list[str]:
    """Checks that nothing of a store lies in two parts of a split; what may be a leak is returned as notes.

    Args:
        split: the parts.
        store: the recordings.
        trained_on: what a finished run says of the recordings that it was trained on, which may lie in another store;
            its split stands, so that of another store is no error then, but a note.
        signals: look for copies and cuts; without, where `has_copies` said that there is none.

    Raises:
        UserError: the split is of another store; an equal, copied or cut recording, or one person by the names, is in
            two parts. The recordings are named.
    """
    files: dict[str, list[str]] = {}
    for recording in store.recordings:
        files.setdefault(recording.subject, []).append(recording.file)
    notes = check_content(split, content_of_people(store), files, refuse=trained_on is None)
    named = {name for part in PARTS for name in getattr(split, part)}
    here = [traits(store, i, signals) for i, recording in enumerate(store.recordings) if recording.subject in named]
    known = {(entry["file"], entry["sha256"]) for entry in here}
    elsewhere = [entry for entry in trained_on or () if (entry["file"], entry["sha256"]) not in known]
    number = {entry["file"]: i for i, entry in enumerate(here)}
    index = [i for i, recording in enumerate(store.recordings) if recording.subject in named]

    def same(one: Mapping[str, Any], other: Mapping[str, Any], shift_s: float) -> bool:
        first, second = (index[number[entry["file"]]] for entry in (one, other))
        return correlation(store, first, second, shift_s) >= SAME

    return notes + check_leak(split, [*elsewhere, *here], same)


def correlation(store: eeg.Store, one: int, other: int, shift_s: float) -> float:
    """Returns how alike two recordings are where they overlap in time, at the best of the lags up to a second.

    Args:
        store: holds both.
        one: the recording that begins first.
        other: of equal channels.
        shift_s: how much later it begins.

    Returns:
        The median over the channels, of at most a minute at the beginning; 0 where less than 5 s overlap.
    """
    sfreq_hz = store.signal.sfreq_hz
    lag, shift = round(sfreq_hz), round(shift_s * sfreq_hz)
    n = min(store.recordings[one].segments[0].stop - shift, store.recordings[other].segments[0].stop, 60 * lag)
    if n < 5 * lag:
        return 0.0
    names = [store.recordings[i].ch_names for i in (one, other)]
    signals = [np.nan_to_num(store.read(i, at, n)) for i, at in ((one, shift), (other, 0))]
    found = []
    for name in names[0]:
        a, b = (rows[of.index(name)] for rows, of in zip(signals, names))
        size = 2 ** int(np.ceil(np.log2(2 * n)))
        products = np.fft.irfft(np.fft.rfft(a, size) * np.fft.rfft(b, size).conj(), size)
        best = max(products[: lag + 1].max(), products[-lag:].max())
        found.append(best / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-9))
    return float(np.median(found))


def has_copies(store: eeg.Store) -> bool:
    """Whether recordings of different subjects hold one signal: of many splits of a store, what to ask but once."""
    _, people = np.unique([recording.subject for recording in store.recordings], return_inverse=True)
    return bool(repeats([traits(store, i) for i in range(len(store.recordings))], people))


def content_of_people(store: eeg.Store) -> dict[str, str]:
    """Returns a hash of each subject's recordings as they were read, whatever was made of them since."""
    digests: dict[str, list[str]] = {}
    for recording in store.recordings:
        digests.setdefault(recording.subject, []).append(recording.sha256)
    return {name: sha256("".join(sorted(of)).encode()).hexdigest()[:16] for name, of in sorted(digests.items())}


def traits(store: eeg.Store, index: int, signals: bool = True) -> dict[str, Any]:
    """Returns what tells a recording from others, as `evaluation.check_leak` takes it."""
    recording = store.recordings[index]
    last = recording.segments[-1]
    found = _FOUND.setdefault(store, {})
    here: dict[str, Any] = {}
    if signals:
        here["landmarks"] = found[index] if index in found else eeg.landmarks(store, index)
        if sum(len(marks) for marks, _ in found.values()) < _MOST_KEPT:
            found[index] = here["landmarks"]
    return here | {
        "file": recording.file,
        "subject": recording.subject,
        "sha256": recording.sha256,
        "sfreq_hz": store.signal.sfreq_hz,
        "start": recording.meas_date,
        "seconds": last.onset_s + (last.stop - last.start) / store.signal.sfreq_hz,
        "device": (recording.file_sfreq_hz, *sorted(recording.ch_names)),
        "guessed": any(note.code == "subject_guessed" for note in recording.notes),
    }


def pretraining_overlap(
    start: Mapping[str, Any] | None, store: eeg.Store, subjects: Collection[str], split: Split
) -> dict[str, Any]:
    """Says how all that the weights were trained on before touches some people of a store.

    Args:
        start: manifest of the run that they come from, with those before it inside; None = from scratch.
        store: the people's.
        subjects: the people.
        split: with its aliases.

    Returns:
        `kind`, and the `recordings` and `subjects` of these people that are concerned:
        `same recording, with its labels`; `same recording` (equal content, or a copy or cut of one that the store has,
        too); `same subject` (an equal name, or another name of the person, in whatever store); `same corpus` (others
        of the people in this store, but not these); `none`; or `unknown` where a run on the way does not say.
    """
    seen: set[str] = set()
    labelled: set[str] = set()
    people: set[str] = set()
    stores: set[str] = set()
    while start is not None:
        if "data" not in start:
            return {"kind": "unknown", "recordings": [], "subjects": []}
        data = start["data"]
        hashes = {entry["sha256"] for entry in data["recordings"]}
        seen |= hashes
        if start["kind"] == "finetune":
            labelled |= hashes
        people |= set(data["subjects"])
        stores.add(data.get("store", ""))
        # A pretrained run started from nothing; a fine-tuned one that lost its beginning does not say.
        scratch = start.get("from", SCRATCH) == SCRATCH
        start = None if scratch else start.get("pretraining") or {}
    tested = [i for i, r in enumerate(store.recordings) if r.subject in subjects]
    trained = [i for i, r in enumerate(store.recordings) if r.sha256 in seen]
    labels = [i for i in trained if store.recordings[i].sha256 in labelled]
    same, with_labels = _seen(store, tested, trained), _seen(store, tested, labels)
    persons = person_of(people | set(subjects), split.aliases)
    known = {persons[name] for name in people}
    named = [i for i in tested if persons[store.recordings[i].subject] in known]
    if same:
        kind = "same recording" + (", with its labels" if with_labels else "")
    elif named:
        kind = "same subject"
    else:
        kind = "same corpus" if trained or str(store.path.absolute()) in stores else "none"
    concerned = [store.recordings[i] for i in same or named]
    return {
        "kind": kind,
        "recordings": sorted(recording.file for recording in concerned),
        "subjects": sorted({recording.subject for recording in concerned}),
    }


def _seen(store: eeg.Store, tested: list[int], trained: list[int]) -> list[int]:
    """Returns the tested recordings that were trained on, or that are a copy or cut of one that was."""
    known = {store.recordings[i].sha256 for i in trained}
    equal = [i for i in tested if store.recordings[i].sha256 in known]
    left = [i for i in tested if i not in equal]
    if not left or not trained:
        return equal
    both = [*trained, *left]
    parts = np.repeat([0, 1], [len(trained), len(left)])
    found = repeats([traits(store, i) for i in both], parts)
    return equal + sorted({both[max(r.one, r.other)] for r in found})
