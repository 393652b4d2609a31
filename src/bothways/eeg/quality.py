"""What is wrong with a channel, or with ten seconds of it, seen from samples alone: cheap, the same each time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int
from scipy import fft

from bothways.eeg.electrodes import Comparison
from bothways.eeg.recording import MARKED_BAD, Event, Note, Recording, Segment, listed, whole_sample
from bothways.eeg.scan import Found

AMPLITUDE_UV = (0.1, 500.0)
"""Robust SD (within one second) that a living head can give at the scalp, with a wide margin."""
USUAL_UV = (1.0, 200.0)
"""Where the median channel of a good recording lies; a unit slip is a thousand times outside."""
FLAT_S = 0.5
"""A value that does not change for as long as this is no signal."""
JUMP_UV, JUMP_SHARE, JUMP_S = 1000.0, 50.0, 0.25
"""No head jumps from one sample to the next by more than the first, and by more than the second times what is usual in
the channel, and back within the third, and does no more for as long: that is a recorder's sign for missing data, or a
pulse."""
HALO_S = 0.05
"""Taken as missing on both sides of missing data: there the low-pass still sees what was filled in."""
MAX_FLAT, MAX_MISSING, MAX_CLIPPED = 0.5, 0.5, 0.05
"""Shares of the samples of a channel, or of a stretch of it, above which it is bad."""
STRETCH_S = 10
"""Whole seconds that are judged together; what is left at a segment's end belongs to its last stretch."""
SECONDS = 15
"""So many, and up to twice as many, spread evenly, say how large a channel is and how much of it is from the mains."""
MAX_BAD = 0.5
"""Share of a channel's stretches above which all of it is bad."""
MARKED = "marked bad in the file"
MAX_LINE_NOISE = 0.5
"""Share of the power above which the mains are worth a note."""
MIN_DURATION_S = 1.0
"""A recording without a gapless stretch of this length is unusable."""


@dataclass(frozen=True)
class Grid:
    """Where the seconds and stretches of a recording lie; none crosses a gap.

    Attributes:
        block: samples in a second.
        seconds: first sample of each whole second.
        owner: the stretch that each second belongs to.
        stretches: samples [start, stop) of each.
    """

    block: int
    seconds: Int[np.ndarray, " S"]
    owner: Int[np.ndarray, " S"]
    stretches: Int[np.ndarray, "W 2"]


@dataclass(frozen=True)
class Row:
    """A channel's samples and which of them are missing, still, or at the amplifier's limit."""

    data_uv: Float32[np.ndarray, " T"]
    nan: Bool[np.ndarray, " T"]
    still: Bool[np.ndarray, " T"]
    clipped: Bool[np.ndarray, " T"]


def assess(recording: Recording) -> tuple[dict[str, dict[str, Any]], list[str], list[Note]]:
    """Measures each channel of a recording, and each `STRETCH_S` of it; one channel at a time.

    Returns:
        per channel {`flat`, `missing`, `clipped` (shares 0 to 1), `amplitude_uv` (robust SD about each second's
        mean, flat stretches left out; None = no samples), `line_noise` {`50`, `60`: share of the power from 1 Hz
        up}, `correlation` (see `electrodes.Comparison`; None = not compared), `bad` (list of reasons),
        `bad_stretches` [[start, stop, reason]] (seconds of stored samples, gaps closed up; reason = `missing`, `flat`,
        `clipped`, `amplitude`, `disconnected` or `marked bad in the file`)}; the bad channels; notes.
    """
    grid = cut_grid(recording.segments, recording.sfreq_hz)
    comparison = Comparison(len(recording.ch_names), grid.stretches, recording.sfreq_hz)
    quality: dict[str, dict[str, Any]] = {}
    wrong: list[list[str]] = []
    missing, jumps = 0, dict[str, int]()
    for name, data_uv in zip(recording.ch_names, recording.data_uv):
        nan = np.isnan(data_uv)
        missing += int(np.count_nonzero(nan))
        if len(jumped := jumped_samples(data_uv, recording.sfreq_hz)):
            jumps[name] = len(jumped)
            data_uv = without(data_uv, jumped)
            nan = np.isnan(data_uv)
        row = Row(data_uv, nan, flat_samples(data_uv, recording.sfreq_hz), clipped_samples(data_uv))
        quality[name], of_stretches = _measure(row, grid, recording.sfreq_hz)
        quality[name]["bad"] += [MARKED] if name in recording.marked_bad else []
        wrong.append(of_stretches)
        comparison.add(data_uv, nan | row.still)
    found = comparison.result()
    for index, (measured, of_stretches) in enumerate(zip(quality.values(), wrong)):
        measured["correlation"] = found.correlation[index]
        measured["bad"] += found.reasons[index]
        for stretch in found.alone[index]:
            of_stretches[stretch] = of_stretches[stretch] or "disconnected"
        share = sum(map(bool, of_stretches)) / max(len(of_stretches), 1)
        if share > MAX_BAD and not measured["bad"]:
            measured["bad"].append(f"{share:.0%} {' or '.join(sorted({*of_stretches} - {''}))}")
        measured["bad_stretches"] = _joined(of_stretches, grid, recording.sfreq_hz)
    marked = _marked(recording)
    for own, measured in zip(recording.file_names, quality.values()):
        if _n_covered(marked[own]) == recording.data_uv.shape[1] and marked[own]:
            measured["bad"].append(f"all of it {MARKED}")
    bad = [name for name, measured in quality.items() if measured["bad"]]
    copies = [(recording.ch_names[later], recording.ch_names[first]) for later, first in found.copies]
    notes = _notes(quality, bad, missing, copies)
    if jumps:
        counts = listed([f"{name} {n}" for name, n in jumps.items()])
        text = f"samples between a jump of over {JUMP_UV:g} uV and the jump back are taken as missing: {counts}"
        notes.append(Note("jumps", text))
    if labels := Counter(event.label for event in recording.events if event.duration_s and is_bad(event)):
        kinds = listed([f"{label} ({n})" for label, n in labels.items()])
        hidden_s = max(map(_n_covered, marked.values())) / recording.sfreq_hz
        text = f"{labels.total()} stretches, {hidden_s:.4g} s of a channel at most, are {MARKED} and hidden: {kinds}"
        notes.append(Note("marked_stretches", text))
    for own, measured in zip(recording.file_names, quality.values()):
        spans = [[round(at / recording.sfreq_hz, 4) for at in span] + [MARKED] for span in marked[own]]
        measured["bad_stretches"] = sorted(measured["bad_stretches"] + spans)
    return quality, bad, notes


def is_bad(event: Event) -> bool:
    """Whether an event marks what shall not be used."""
    return MARKED_BAD.fullmatch(event.label) is not None


def _marked(recording: Recording) -> dict[str, list[tuple[int, int]]]:
    """Returns the stored samples [start, stop) of each channel, as the file names it, that an event marks as bad."""
    marked: dict[str, list[tuple[int, int]]] = {name: [] for name in recording.file_names}
    for event in filter(is_bad, recording.events):
        for segment in recording.segments:
            begins_s = event.onset_s - segment.onset_s
            start, stop = (whole_sample(s * recording.sfreq_hz) for s in (begins_s, begins_s + event.duration_s))
            start, stop = segment.start + max(start, 0), min(segment.start + stop, segment.stop)
            if stop > start:
                for name in event.ch_names or marked:
                    if name in marked:  # it may be about a channel that is no EEG
                        marked[name].append((start, stop))
    return marked


def _n_covered(spans: Sequence[tuple[int, int]]) -> int:
    """Counts the samples in one or more of some spans."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(stop - max(start, end), 0)
        end = max(end, stop)
    return total


def unusable(recording: Recording, bad: Sequence[str], notes: Sequence[Note]) -> str:
    """Says why a recording can be used for nothing; empty = it can. `check` and `prepare` go by this alone.

    Args:
        recording: what was read.
        bad: its bad channels, and
        notes: its notes, both as `assess` gives them.
    """
    if len(bad) == len(recording.ch_names):
        why = next(n.message for code in ("unit_suspect", "bad_channels") for n in notes if n.code == code)
        return f"no good channel: {why}"
    longest_s = max(segment.stop - segment.start for segment in recording.segments) / recording.sfreq_hz
    if longest_s < MIN_DURATION_S:
        return f"too short: {longest_s:g} s without a gap, at least {MIN_DURATION_S:g} s expected"
    return ""


def file_notes(one: Found, digest: str, seen: dict[str, str]) -> list[Note]:
    """What is to be said of a recording among others: whose it is, and whether its content came before.

    Args:
        one: the recording as it was found.
        digest: `store.content_hash` of it.
        seen: digest -> the first file that has it; this one is entered.
    """
    notes = [Note(one.code, one.note)] if one.note else []
    if (first := seen.setdefault(digest, one.file)) != one.file:
        notes.append(Note("duplicate_content", f"same content as {first}"))
    return notes


def cut_grid(segments: Sequence[Segment], sfreq_hz: float) -> Grid:
    """Cuts segments into whole seconds, and those into stretches; the last of a segment is up to twice as long."""
    block = max(round(sfreq_hz), 1)
    seconds, owner = [], []
    stretches: list[tuple[int, int]] = []
    for segment in segments:
        count = (segment.stop - segment.start) // block
        n = max(count // STRETCH_S, 1)
        starts = segment.start + np.arange(n) * STRETCH_S * block
        seconds.append(segment.start + np.arange(count) * block)
        owner.append(len(stretches) + np.minimum(np.arange(count) // STRETCH_S, n - 1))
        stretches += list(zip(starts.tolist(), [*starts[1:].tolist(), segment.stop]))
    return Grid(block, np.concatenate(seconds), np.concatenate(owner), np.array(stretches))


def _measure(row: Row, grid: Grid, sfreq_hz: float) -> tuple[dict[str, Any], list[str]]:
    """Measures a channel, and says what is wrong with each stretch of it ("" = nothing)."""
    data_uv, hole, n = row.data_uv, row.nan | row.still, len(row.data_uv)
    n_there = n - np.count_nonzero(row.nan)
    measured: dict[str, Any] = {
        name: round(float(np.count_nonzero(mask) / max(n, 1)), 4)
        for name, mask, n in (("missing", row.nan, n), ("flat", row.still, n), ("clipped", row.clipped, n_there))
    }
    centred, whole = _seconds(data_uv, hole, grid)
    spread_uv = np.sqrt(np.einsum("ij,ij->i", centred, centred) / grid.block)
    if not len(centred):  # no second without a hole: what is left, closed up
        left = data_uv[~(row.nan if hole.all() else hole)]
        block = max(min(grid.block, len(left)), 1)
        centred = left[: len(left) // block * block].reshape(-1, block)
        centred = centred - centred.mean(1, keepdims=True)
    # a long recording is judged by some whole seconds of it (single samples could fall in step with a rhythm)
    some = centred[:: max(len(centred) // SECONDS, 1)]
    measured["amplitude_uv"] = rounded_uv(1.4826 * median(np.abs(some).ravel())) if some.size else None
    measured["line_noise"] = _line_noise(some, sfreq_hz)
    measured["bad"] = _reasons(measured, _lost_share(hole, sfreq_hz))
    return measured, _judged(row, grid, grid.owner[whole], spread_uv)


def rounded_uv(value_uv: float) -> float:
    """To four decimals; below 1 uV to four digits, for what is a million times too small is not 0."""
    return round(value_uv, 4) if value_uv >= 1 else float(f"{value_uv:.4g}")


def median(values: Float32[np.ndarray, " n"]) -> float:
    """Numpy's own in half the time: only what lies about the median of a few is looked at closely."""
    few = np.sort(values[:: max(len(values) // 512, 1)])
    low, high = few[7 * len(few) // 16], few[9 * len(few) // 16]
    middle = values[(values >= low) & (values <= high)]
    n_below = np.count_nonzero(values < low)
    first, last = (len(values) - 1) // 2 - n_below, len(values) // 2 - n_below
    if not 0 <= first <= last < len(middle):
        return float(np.median(values))
    return float(np.partition(middle, (first, last))[[first, last]].mean())


def _seconds(
    data_uv: Float32[np.ndarray, " T"], hole: Bool[np.ndarray, " T"], grid: Grid
) -> tuple[Float32[np.ndarray, "s block"], Bool[np.ndarray, " S"]]:
    """Returns the seconds without a hole, each minus its mean, and which they are."""

    def cut(values: Any) -> Any:
        n = len(grid.seconds)
        if n and grid.seconds[-1] == (n - 1) * grid.block:
            return values[: n * grid.block].reshape(n, grid.block)
        return values[grid.seconds[:, None] + np.arange(grid.block)]

    blocks, whole = cut(data_uv), np.ones(len(grid.seconds), bool)
    if hole.any():
        whole = ~cut(hole).any(1)
        blocks = blocks[whole]
    return blocks - (blocks @ np.full((grid.block, 1), 1 / grid.block, np.float32)), whole


def _judged(row: Row, grid: Grid, owner: Int[np.ndarray, " s"], spread_uv: Float32[np.ndarray, " s"]) -> list[str]:
    """Judges the stretches of a channel by the rules for a whole channel; `spread_uv` is of their good seconds."""
    n = len(grid.stretches)
    low, high = AMPLITUDE_UV
    outside = np.bincount(owner, (spread_uv < low) | (spread_uv > high), minlength=n)
    wrong = np.where(outside > np.bincount(owner, minlength=n) / 2, "amplitude", "").astype(object)
    start, stop = grid.stretches.T
    for reason, mask, most in (
        ("clipped", row.clipped, MAX_CLIPPED), ("flat", row.still, MAX_FLAT), ("missing", row.nan, MAX_MISSING),
    ):  # fmt: skip
        if mask.any():
            total = np.concatenate([[0], np.cumsum(mask)])
            wrong[total[stop] - total[start] > most * (stop - start)] = reason
    return wrong.tolist()


def _joined(wrong: Sequence[str], grid: Grid, sfreq_hz: float) -> list[list[Any]]:
    """Joins neighbours with the same reason, in seconds of stored samples."""
    joined = []
    for reason, group in groupby(range(len(wrong)), lambda stretch: wrong[stretch]):
        if reason:
            places = list(group)
            start, stop = grid.stretches[places[0], 0], grid.stretches[places[-1], 1]
            joined.append([round(float(start / sfreq_hz), 3), round(float(stop / sfreq_hz), 3), reason])
    return joined


def _lost_share(hole: Bool[np.ndarray, " T"], sfreq_hz: float) -> float:
    """Share of the samples that are missing or flat, or within the halo that the filter takes with them."""
    if not hole.any():
        return 0.0
    halo, n = round(HALO_S * sfreq_hz), len(hole)
    starts, stops = np.flatnonzero(np.diff(hole, prepend=False, append=False)).reshape(-1, 2).T
    starts, stops = np.maximum(starts - halo, 0), np.minimum(stops + halo, n)
    taken = np.concatenate([[0], stops[:-1]])  # by the holes before
    return float(np.maximum(stops - np.maximum(starts, taken), 0).sum() / n)


def flat_samples(data_uv: Float32[np.ndarray, " T"], sfreq_hz: float) -> Bool[np.ndarray, " T"]:
    """Returns which samples lie in a stretch of at least `FLAT_S` in which the value never changes."""
    flat = np.zeros(len(data_uv), bool)
    shortest = min(max(round(FLAT_S * sfreq_hz), 2), len(data_uv))
    half = (shortest + 1) // 2
    if len(data_uv) < 2 or half < 1:
        return flat
    # a stretch of that length holds a whole block of half of it: where none may be constant, no need to look closer
    blocks = data_uv[: len(data_uv) // half * half].reshape(-1, half)
    first = blocks[:, 0]
    if not ((first == blocks[:, -1]) & (first == blocks[:, half // 2]) & (first == blocks[:, half // 3])).any():
        return flat
    changes = np.flatnonzero(data_uv[1:] != data_uv[:-1]) + 1
    edges = np.concatenate([[0], changes, [len(data_uv)]])
    for index in np.flatnonzero(np.diff(edges) >= shortest):
        flat[edges[index] : edges[index + 1]] = True
    return flat & ~np.isnan(data_uv)


def jumped_samples(data_uv: Float32[np.ndarray, " T"], sfreq_hz: float) -> Int[np.ndarray, " n"]:
    """Returns which samples lie between a jump and the jump back, see `JUMP_UV`: -9999 for what was lost, a pulse."""
    if len(data_uv) < 3 or not np.fmax.reduce(data_uv) - np.fmin.reduce(data_uv) >= JUMP_UV:
        return np.zeros(0, np.int64)
    steps = np.diff(data_uv)
    size = np.abs(steps)
    few = size[:: max(len(size) // 8192, 1)]
    usual = 1.4826 * np.median(few[~np.isnan(few)]) if not np.isnan(few).all() else 0.0
    at = np.flatnonzero(size > max(JUMP_UV, JUMP_SHARE * usual))
    # two, alone for a while: where there are more, the signal is large, and judged as that
    apart = np.diff(at, prepend=-len(size), append=2 * len(size)) > JUMP_S * sfreq_hz
    pairs = apart[:-2] & ~apart[1:-1] & apart[2:]
    pairs &= steps[at[:-1]] * steps[at[1:]] < 0
    pieces = [np.arange(at[first] + 1, at[first + 1] + 1) for first in np.flatnonzero(pairs)]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def without(data_uv: Float32[np.ndarray, " T"], samples: Int[np.ndarray, " n"]) -> Float32[np.ndarray, " T"]:
    """Returns a channel in which some samples are missing."""
    if len(samples):
        data_uv = data_uv.copy()
        data_uv[samples] = np.nan
    return data_uv


def clipped_samples(data_uv: Float32[np.ndarray, " T"]) -> Bool[np.ndarray, " T"]:
    """Returns which samples stand at the highest or lowest value three times or more in a row.

    An amplifier's limit collects what lies beyond it; the outermost step of a coarse but whole signal holds no more
    than the one inside it, and does not count.
    """
    clipped = np.zeros(len(data_uv), bool)
    if not len(data_uv):
        return clipped
    low, high = data_uv.min(), data_uv.max()
    if np.isnan(low):
        low, high = np.fmin.reduce(data_uv), np.fmax.reduce(data_uv)
    if not low < high:
        return clipped
    for extreme in (low, high):
        at = data_uv == extreme
        if (n := np.count_nonzero(at)) >= 3:
            others = data_uv[~at]
            inside = (np.fmin if extreme == low else np.fmax).reduce(others)
            if n > 2 * np.count_nonzero(others == inside):
                inner = at[1:-1] & at[:-2] & at[2:]
                for offset in range(3):
                    clipped[offset : len(at) - 2 + offset] |= inner
    return clipped


def _line_noise(blocks: Float32[np.ndarray, "n block"], sfreq_hz: float) -> dict[str, float]:
    """Share of the power above 1 Hz that lies within 1 Hz of the mains."""
    if not blocks.size:
        return {"50": 0.0, "60": 0.0}
    taper, real, near = _bins(blocks.shape[1], sfreq_hz)
    spectra = fft.rfft(blocks * taper, axis=1)
    power = np.einsum("nf,nf->f", spectra, spectra.conj()).real
    total = power[real].sum()
    return {mains: round(float(power[at].sum() / total), 4) if total > 0 else 0.0 for mains, at in near.items()}


@lru_cache(maxsize=16)
def _bins(block: int, sfreq_hz: float) -> tuple[Any, Any, dict[str, Any]]:
    """A taper for `block` samples, and which bins of their spectrum lie from 1 Hz up and at the mains."""
    hz = np.fft.rfftfreq(block, 1 / sfreq_hz)
    near = {str(mains): np.abs(hz - mains) <= 1.01 for mains in (50, 60)}
    return np.hanning(block).astype(np.float32), hz >= 1, near


def _reasons(measured: dict[str, Any], lost: float) -> list[str]:
    low, high = AMPLITUDE_UV
    amplitude_uv = measured["amplitude_uv"]
    reasons = []
    if measured["missing"] > MAX_MISSING:
        reasons.append(f"{measured['missing']:.0%} missing")
    if measured["flat"] > MAX_FLAT:
        reasons.append(f"{measured['flat']:.0%} flat")
    elif amplitude_uv is not None and not low <= amplitude_uv <= high:
        reasons.append(f"amplitude {amplitude_uv:g} uV outside {low:g} to {high:g}")
    if lost > MAX_MISSING and measured["missing"] <= MAX_MISSING and measured["flat"] <= MAX_FLAT:
        reasons.append(f"{lost:.0%} missing or flat with {HALO_S:g} s around")
    if measured["clipped"] > MAX_CLIPPED:
        reasons.append(f"{measured['clipped']:.0%} clipped")
    return reasons


def _notes(
    quality: dict[str, dict[str, Any]], bad: list[str], missing: int, copies: list[tuple[str, str]]
) -> list[Note]:
    notes = [Note("bad_channels", f"{len(bad)} of {len(quality)}: {_bad_listed(bad, quality)}")] if bad else []
    notes += _unit_notes([q["amplitude_uv"] for q in quality.values() if q["amplitude_uv"]])
    good = {name: q for name, q in quality.items() if name not in bad}
    if flat := [f"{name} {q['flat']:.1%}" for name, q in good.items() if q["flat"]]:
        notes.append(Note("flat_stretches", f"stretches without any change are taken as missing: {listed(flat)}"))
    stretches: list[str] = []
    for name, q in good.items():
        if q["bad_stretches"]:
            seconds = sum(stop - start for start, stop, _ in q["bad_stretches"])
            reasons = " or ".join(sorted({reason for *_, reason in q["bad_stretches"]}))
            stretches.append(f"{name} {seconds:.3g} s ({reasons})")
    if stretches:
        notes.append(Note("bad_stretches", f"of channels that are good elsewhere: {listed(stretches)}"))
    if missing:
        notes.append(Note("missing_samples", f"{missing} samples are missing (not a number)"))
    for mains in ("50", "60"):
        if noisy := [name for name, q in good.items() if q["line_noise"][mains] > MAX_LINE_NOISE]:
            most = max(quality[name]["line_noise"][mains] for name in noisy)
            notes.append(
                Note(
                    "line_noise",
                    f"mains at {mains} Hz are up to {most:.0%} of the power: {listed(noisy)}; "
                    f"prepare with notch_hz={mains}",
                )
            )
    if copies:
        pairs = listed([f"{later} = {first}" for later, first in copies])
        notes.append(Note("copied_channels", f"the same samples twice: {pairs}; leave one out, or look for a bridge"))
    return notes


def _bad_listed(bad: list[str], quality: dict[str, dict[str, Any]]) -> str:
    shown = "; ".join(f"{name} ({', '.join(quality[name]['bad'])})" for name in bad[:6])
    return shown + (f" and {len(bad) - 6} more" if len(bad) > 6 else "")


def _unit_notes(amplitudes_uv: list[float]) -> list[Note]:
    """Suspects a unit slip where the median channel is far outside, and says which factor would make sense."""
    if not amplitudes_uv:
        return []
    median_uv = float(np.median(amplitudes_uv))
    low, high = AMPLITUDE_UV
    if low <= median_uv <= high:
        return []
    for factor, hint in ((1e-3, "÷1000"), (1e3, "×1000"), (1e-6, "÷1000000"), (1e6, "×1000000")):
        if USUAL_UV[0] <= median_uv * factor <= USUAL_UV[1]:
            advice = f"{hint} would make {median_uv * factor:.3g} uV; if the stated unit is wrong, pass --unit (unit=)"
            break
    else:
        advice = "no change of unit makes sense of it"
    return [Note("unit_suspect", f"median amplitude {median_uv:.3g} uV is not that of scalp EEG; {advice}")]
