"""Small recordings for the tests, written byte by byte so that each field can be wrong on purpose."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

NAMES = ["Fp1", "Fp2", "C3", "C4"]
GAIN_UV = 0.1
"""Microvolts in one digital step of `write_edf`."""


def noise_uv(n_channels: int = 4, n: int = 1600, seed: int = 0, sd_uv: float = 30.0) -> np.ndarray:
    """Returns noise on the grid that `write_edf` stores exactly, [n_channels, n]."""
    values = np.random.default_rng(seed).normal(0, sd_uv, (n_channels, n))
    return np.rint(values / GAIN_UV) * GAIN_UV


def write_edf(
    path: Path,
    data: Sequence[np.ndarray] | np.ndarray,
    labels: Sequence[str],
    *,
    sfreq_hz: float = 200,
    record_s: float = 1.0,
    units: Sequence[bytes | str] | str = "uV",
    plus: str = "",
    onsets_s: Sequence[float] | None = None,
    annotations: Sequence[tuple[float, float | None, str]] = (),
    n_records: int | None = None,
    start: bytes = b"01.02.2010.20.30",
    physical: dict[str, tuple[float, float]] | None = None,
    bdf: bool = False,
    status: np.ndarray | None = None,
) -> Path:
    """Writes EDF, EDF+C, EDF+D or BDF; channels of another length have another rate.

    Args:
        path: where to.
        data: one array for each label, in the channel's unit, on the grid of `GAIN_UV`.
        labels: as they stand in the header.
        sfreq_hz: rate of the first channel.
        record_s: seconds in a record.
        units: one for all, or one for each.
        plus: "C" or "D" for EDF+.
        onsets_s: start of each record, for "D".
        annotations: (onset, duration, text), all in the first record.
        n_records: what the header says instead of the truth.
        start: date and time as they stand in the header.
        physical: label -> physical minimum and maximum to state instead of the right ones.
        bdf: 24 bit.
        status: codes of a status channel at the first channel's rate, for BDF.
    """
    width, top = (3, 2**23 - 1) if bdf else (2, 2**15 - 1)
    true_records = round(len(data[0]) / (sfreq_hz * record_s))
    columns = [np.rint(np.asarray(row) / GAIN_UV).astype(np.int64) for row in data]
    labels, units = list(labels), [units] * len(labels) if isinstance(units, str) else list(units)
    if status is not None:
        labels, units, columns = [*labels, "Status"], [*units, "Boolean"], [*columns, status.astype(np.int64)]
    per_record = [len(column) // max(true_records, 1) for column in columns]
    if not true_records:
        per_record = [round(sfreq_hz * record_s)] * len(columns)
    times = list(onsets_s) if onsets_s is not None else [i * record_s for i in range(true_records)]
    texts = [_tal(times[i], annotations if i == 0 else ()) for i in range(true_records)] if plus else []
    if plus:
        room = -(-max(map(len, texts), default=40) // width) + 4
        labels, units, per_record = [*labels, "EDF Annotations"], [*units, ""], [*per_record, room]
    n_signals = len(labels)
    ranges = [(physical or {}).get(label, (-top * GAIN_UV, top * GAIN_UV)) for label in labels]
    header = [
        _field("\xffBIOSEMI" if bdf else "0", 8), _field("X X X X", 80), _field("Startdate X X X X", 80),
        _field(start, 16), _field(256 * (1 + n_signals), 8),
        _field(f"EDF+{plus}" if plus else "24BIT" if bdf else "", 44),
        _field(true_records if n_records is None else n_records, 8), _field(f"{record_s:g}", 8),
        _field(n_signals, 4),
    ]  # fmt: skip
    for width_of, values in (
        (16, labels), (80, [""] * n_signals), (8, units), (8, [f"{low:.8g}"[:8] for low, _ in ranges]),
        (8, [f"{high:.8g}"[:8] for _, high in ranges]), (8, [-top] * n_signals), (8, [top] * n_signals),
        (80, [""] * n_signals), (8, per_record), (32, [""] * n_signals),
    ):  # fmt: skip
        header += [_field(value, width_of) for value in values]
    body = []
    for i in range(true_records):
        for column, n in zip(columns, per_record):
            body.append(_digits(column[i * n : (i + 1) * n], width))
        if plus:
            body.append(texts[i].ljust(per_record[-1] * width, b"\x00"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(header + body))
    return path


def _field(value: object, width: int) -> bytes:
    return (value if isinstance(value, bytes) else str(value).encode("latin-1")).ljust(width)[:width]


def _digits(values: np.ndarray, width: int) -> bytes:
    return values.astype("<i4").view(np.uint8).reshape(-1, 4)[:, :width].tobytes()


def _tal(time_s: float, annotations: Sequence[tuple[float, float | None, str]]) -> bytes:
    entries = [f"+{time_s:g}\x14\x14\x00".encode()]
    for onset_s, duration_s, text in annotations:
        stamp = f"+{onset_s:g}" + ("" if duration_s is None else f"\x15{duration_s:g}")
        entries.append(f"{stamp}\x14{text}\x14\x00".encode())
    return b"".join(entries)


def write_five(folder: Path) -> Path:
    """Writes five recordings, of which one is a copy and one is broken."""
    for number in (1, 2, 3):
        write_edf(folder / f"sub-{number}_rest.edf", noise_uv(seed=number), NAMES)
    (folder / "sub-4_bad.edf").write_bytes(b"no")
    shutil.copy(folder / "sub-2_rest.edf", folder / "sub-5_copy.edf")
    return folder


def write_brainvision(path: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float = 200) -> Path:
    """Writes `.vhdr`, `.vmrk` and `.eeg` (float32 microvolts) with one marker at sample 400."""
    stem = path.stem
    channels = "\n".join(f"Ch{i + 1}={label},,1,µV" for i, label in enumerate(labels))
    path.with_suffix(".vhdr").write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n[Common Infos]\nCodepage=UTF-8\n"
        f"DataFile={stem}.eeg\nMarkerFile={stem}.vmrk\nDataFormat=BINARY\nDataOrientation=MULTIPLEXED\n"
        f"NumberOfChannels={len(labels)}\nSamplingInterval={1e6 / sfreq_hz:g}\n[Binary Infos]\n"
        f"BinaryFormat=IEEE_FLOAT_32\n[Channel Infos]\n{channels}\n",
        encoding="utf-8",
    )
    path.with_suffix(".vmrk").write_text(
        "Brain Vision Data Exchange Marker File, Version 1.0\n[Common Infos]\nCodepage=UTF-8\n"
        f"DataFile={stem}.eeg\n[Marker Infos]\nMk1=New Segment,,1,1,0,00000000000000000000\n"
        "Mk2=Stimulus,S  7,401,1,0\n",
        encoding="utf-8",
    )
    path.with_suffix(".eeg").write_bytes(data_uv.T.astype("<f4").tobytes())
    return path.with_suffix(".vhdr")


def write_eeglab(path: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float = 200) -> Path:
    """Writes a `.set` with the samples inside and one event at latency 401 (counted from 1)."""
    from scipy.io import savemat

    locations = np.zeros(len(labels), dtype=[("labels", "O")])
    locations["labels"] = list(labels)
    event = np.array([("go", 401.0, 1.0)], dtype=[("type", "O"), ("latency", "O"), ("duration", "O")])
    fields = {
        "setname": path.stem, "nbchan": len(labels), "pnts": data_uv.shape[1], "trials": 1,
        "srate": float(sfreq_hz),
        "xmin": 0.0, "xmax": (data_uv.shape[1] - 1) / sfreq_hz, "data": data_uv.astype(np.float32),
        "chanlocs": locations, "event": event, "epoch": np.array([]), "icawinv": np.array([]),
        "icaweights": np.array([]), "icasphere": np.array([]), "icaact": np.array([]), "ref": "common",
    }  # fmt: skip
    savemat(path, {"EEG": fields}, appendmat=False)
    return path


def write_fif(path: Path, data_uv: np.ndarray, labels: Sequence[str], sfreq_hz: float = 200) -> Path:
    """Writes a FIF (`…_raw.fif`) with one annotation at 2 s."""
    import mne

    info = mne.create_info(list(labels), sfreq_hz, "eeg", verbose="error")
    with mne.utils.use_log_level("error"):
        raw = mne.io.RawArray(data_uv * 1e-6, info)
        raw.set_annotations(mne.Annotations([2.0], [0.5], ["go"]))
        raw.save(path, fmt="double")
    return path
