"""`bothways eeg embed`."""

import csv
import io
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Float32

from bothways import __version__, eeg
from bothways.config import FinetuneConfig, LabelConfig, PretrainConfig, WindowConfig, validate
from bothways.draws import generator
from bothways.errors import UserError
from bothways.files import check_output, new_folder, replacing, write_json
from bothways.model import Model
from bothways.progress import progress
from bothways.report import write_report
from bothways.run.common import Sources, calibration, check_baseline, check_contract, usable, with_mains
from bothways.run.embedding_map import MOST_POINTS, map_page
from bothways.run.vector_files import MADE_BY, check_files
from bothways.training import load_manifest, load_recipe, load_run, run_at, stream

POOLS = {"cls": ("cls",), "mean": ("mean",), "both": ("cls", "mean")}
COLUMNS = ("file", "subject", "session", "onset_s", "duration_s", "label")
"""What is said of each window besides its embedding."""
BATCH = 32
TOGETHER = 1024
"""Windows that are written at once: a row group of Parquet."""


def embed(
    run: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    pool: str = "cls",
    labels: str | Path | None = None,
    stride_s: float | int | None = None,
    baseline: str | Path | None = None,
    notch_hz: float | int | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    plot: str | Path | None = None,
    colour: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the encoder's vector of each window of a store or of recordings, with the window's place and time.

    However much there is, a thousand windows are held at a time. What cannot be used is left out and told.

    Args:
        run: pretrained or fine-tuned; its windows are cut as in training.
        data: a store, or recordings and folders of them, which are prepared as the model wants.
        out: `FILE.parquet`: the columns `file`, `subject`, `session`, `onset_s` (true time), `duration_s`, `label`,
            and a list of D numbers for each of `cls` and `mean`. `FILE.npy`: an array [n D], and the other columns in
            `FILE.csv`. Any other name without an ending: a folder with `embeddings.npy`, `windows.csv` and
            `embeddings.json`.
        pool: `cls` = [CLS]; `mean` = the mean of the patches; `both` (in an array side by side).
        labels: see `finetune`; then windows are cut inside labelled stretches, and `label` is filled in.
        stride_s: from one window to the next; as in training where not given.
        baseline: see `predict`; a store has its own.
        notch_hz: see `predict`; not of a store.
        subject_from: see `check`; not of a store.
        unit: see `check`; not of a store.
        plot: an HTML page to write: PCA and t-SNE of at most `MOST_POINTS` windows.
        colour: of the plot: `label`, `subject` or `file`; by default labels, where there are some, else subjects.
        seed: draws the windows of the plot where there are more.
        overwrite: replace `out` and `plot`.

    Returns:
        `run`, `out`, `files` (written), `windows`, `size` (D), `pools`, `window_s`, `recordings` (`file`, `subject`,
        `windows`, `unusable_windows`, `left_out` channels, `notes`), `skipped`, `labels` (label -> windows), `notes`,
        `plot` (None, or `windows`, `ungrouped`, `colour`, `same_neighbour`, `by_chance`), `load_report`.

    Raises:
        UserError: no such run, data that do not fit, nothing usable, or `out` cannot be written.
    """
    run, out = run_at(Path(run)), Path(out)
    paths = [Path(data)] if isinstance(data, str | Path) else [Path(one) for one in data]
    if pool not in POOLS:
        raise UserError(f"pool: expected cls, mean or both, got {pool!r}; choose one")
    if colour not in (None, "label", "subject", "file"):
        raise UserError(f"colour: expected label, subject or file, got {colour!r}; choose one")
    if colour == "label" and labels is None:
        raise UserError("colour: there are no labels; give --labels, or colour by subject")
    _check_place(out, overwrite, paths)
    if plot is not None:
        _check_page(Path(plot), overwrite, paths)
    model = load_run(run, eeg.build_embedding)
    assert model.load_report is not None
    assert model.config.signal is not None
    assert model.config.patches is not None
    windows_config, rules = _cutting(run)
    if stride_s is not None:
        windows_config = validate(WindowConfig, windows_config.model_dump() | {"stride_s": stride_s}, "embed")
    with tempfile.TemporaryDirectory() as scratch:
        if len(paths) == 1 and (paths[0] / "store.json").is_file():
            given = {"baseline": baseline, "notch_hz": notch_hz, "unit": unit}
            if odd := [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]:
                raise UserError(f"{paths[0]}: a store is prepared already; leave {', '.join(odd)} out")
            store = eeg.Store.open(paths[0])
            check_contract(model.config, store)
            names = {recording.file for recording in store.recordings}
            skipped: list[dict[str, str]] = []
        else:
            check_baseline(run, model.config.patches, baseline)
            wanted = eeg.scan(paths, subject_from)
            extra, rows = ([], []) if baseline is None else calibration(Path(baseline), paths, wanted, subject_from)
            store = eeg.prepare(
                [*paths, *extra], Path(scratch) / "store",
                with_mains(run, model.config.signal, None if notch_hz is None else float(notch_hz), "embed"),
                subject_from=subject_from, unit=unit, baseline=rows,
            )  # fmt: skip
            places = {one.path.resolve() for one in wanted}
            names = {one.file for one in eeg.scan([*paths, *extra], subject_from) if one.path.resolve() in places}
            skipped = [entry for entry in store.head["skipped"] if entry["file"] in names]
        chosen = [index for index, recording in enumerate(store.recordings) if recording.file in names]
        if not chosen:
            raise UserError(f"none of {len(names)} recordings can be used: {skipped[0]['reason']}")
        spans = None if labels is None else eeg.find_labels(labels, store, rules)
        cut = eeg.cut_windows(store, windows_config, labels=spans, rules=rules, recordings=chosen)
        sources = Sources(store, model.config.patches)
        windows = usable(sources, cut)
        source = sources.of(windows)
        picked = np.sort(generator("embed", seed).permutation(len(windows))[:MOST_POINTS])
        points = np.empty((len(picked) if plot else 0, model.config.encoder.hidden_size), np.float32)
        size = model.config.encoder.hidden_size
        with (
            _writer(out, POOLS[pool], size, len(windows), overwrite) as writer,
            progress("embed", len(windows), "windows") as meter,
        ):
            for ids, values in _embedded(model, source, pool):
                writer.add(_rows(store, windows, ids), values)
                if plot:
                    here = (picked >= ids[0]) & (picked <= ids[-1])
                    points[here] = values[picked[here] - ids[0], :size]
                meter.advance(len(ids))
            result = {
                "run": str(run), "out": str(out), "files": [str(path) for path in writer.files],
                "windows": len(windows), "size": size, "pools": list(POOLS[pool]),
                "window_s": windows.window_samples / store.signal.sfreq_hz,
                "recordings": _told(store, chosen, cut, windows), "skipped": skipped,
                "labels": _label_counts(windows), "notes": [note.message for note in windows.notes], "plot": None,
                "load_report": model.load_report.as_dict(),
            }  # fmt: skip
            if plot is not None:
                colour = colour or ("label" if labels is not None else "subject")
                groups = [row[colour] for row in _rows(store, windows, picked)]
                page, said = map_page(points, groups, colour, f"{run.name}, {POOLS[pool][0]}", seed)
                write_report({**page, "versions": {"bothways": __version__}}, Path(plot))
                result["plot"] = {"file": str(plot), **said}
                result["files"] = [*map(str, writer.files), str(plot)]
            writer.finish(result)
    return result


def _cutting(run: Path) -> tuple[WindowConfig, LabelConfig]:
    """How a run's windows were cut, and its labels understood."""
    if load_manifest(run).get("kind") == "pretrain":
        return load_recipe(run, PretrainConfig).windows, LabelConfig()
    settings = load_recipe(run, FinetuneConfig)
    return settings.windows, settings.labels


def _embedded(
    model: Model, source: eeg.WindowSource, pool: Any
) -> Iterator[tuple[np.ndarray, Float32[np.ndarray, "n D"]]]:
    """Yields the places of some windows and their embeddings, side by side where there are two of each."""

    def read(m: Model, batch: Any) -> torch.Tensor:
        return m.features(batch, pool)

    everything = np.arange(len(source))
    for start in range(0, len(everything), TOGETHER):
        ids = everything[start : start + TOGETHER]
        yield ids, np.concatenate(list(stream(model, source, read, ids, batch_size=BATCH)))


def _rows(store: eeg.Store, windows: eeg.Windows, ids: np.ndarray) -> list[dict[str, Any]]:
    """Returns what is said of windows, by column; onsets are true times, gaps counted."""
    sfreq_hz = store.signal.sfreq_hz
    rows: list[dict[str, Any]] = []
    for index in ids.tolist():
        recording = store.recordings[int(windows.recording[index])]
        label = int(windows.label[index])
        onset_s = eeg.true_time_s(int(windows.start[index]) / sfreq_hz, recording.segments, sfreq_hz)
        values = (
            recording.file, str(windows.subject[index]), recording.session, round(onset_s, 6),
            windows.window_samples / sfreq_hz, windows.classes[label] if label >= 0 else None,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, values)))
    return rows


def _label_counts(windows: eeg.Windows) -> dict[str, int]:
    return {name: int((windows.label == number).sum()) for number, name in enumerate(windows.classes)}


def _told(store: eeg.Store, chosen: Sequence[int], cut: eeg.Windows, kept: eeg.Windows) -> list[dict[str, Any]]:
    before, after = (Counter(table.recording.tolist()) for table in (cut, kept))
    told = []
    for index in chosen:
        recording = store.recordings[index]
        told.append(
            {
                "file": recording.file,
                "subject": recording.subject,
                "windows": after[index],
                "unusable_windows": before[index] - after[index],
                "left_out": recording.left_out,
                "notes": [asdict(note) for note in recording.notes],
            }
        )
    return told


# Writing -----------------------------------------------------------------------------------------------------------


class Writer(Protocol):
    """Takes windows as they come; what it writes is there when its block ends, or not at all."""

    files: list[Path]

    def add(self, rows: list[dict[str, Any]], values: Float32[np.ndarray, "n D"]) -> None:
        """Adds some windows."""

    def finish(self, result: dict[str, Any]) -> None:
        """Is told what the command tells."""


def _check_place(out: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    """Refuses, before any work, what cannot be written or is nothing of ours.

    Raises:
        UserError: see `files.check_output`; the ending is none that is written.
    """
    if out.suffix not in (".parquet", ".npy", ""):
        raise UserError(f"{out}: expected FILE.parquet, FILE.npy or a folder without an ending; choose one of them")
    if out.suffix == "":
        return check_output(out, overwrite=overwrite, inputs=inputs)
    check_files(out, COLUMNS, overwrite, inputs)


def _check_page(page: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    if not (overwrite and page.is_file()):
        return check_output(page, inputs=inputs)
    if not page.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise UserError(f"{page}: not a page, so it is not overwritten; choose another --plot")


@contextmanager
def _writer(out: Path, pools: Sequence[str], size: int, n: int, overwrite: bool) -> Iterator[Writer]:
    with ExitStack() as stack:
        if out.suffix == "":
            folder = stack.enter_context(new_folder(out, overwrite=overwrite))
            places = [folder / "embeddings.npy", folder / "windows.csv"]
            files = [out / path.name for path in (*places, folder / "embeddings.json")]
        else:
            out.absolute().parent.mkdir(parents=True, exist_ok=True)
            folder = None
            places = [out] if out.suffix == ".parquet" else [out, out.with_suffix(".csv")]
            files = places
        streams = [stack.enter_context(replacing(path)) for path in places]
        if out.suffix == ".parquet":
            fields = [(name, pa.float64() if name.endswith("_s") else pa.string()) for name in COLUMNS]
            vectors = [(pool, pa.list_(pa.float32(), size)) for pool in pools]
            schema = pa.schema(fields + vectors, metadata={MADE_BY: __version__.encode()})
            yield _Parquet(files, stack.enter_context(pq.ParquetWriter(streams[0], schema)), pools)
        else:
            head = {"descr": "<f4", "fortran_order": False, "shape": (n, size * len(pools))}
            np.lib.format.write_array_header_1_0(streams[0], head)
            yield _Array(files, streams, folder)


class _Parquet:
    def __init__(self, files: list[Path], writer: pq.ParquetWriter, pools: Sequence[str]) -> None:
        self.files, self.writer, self.pools = files, writer, pools

    def add(self, rows: list[dict[str, Any]], values: Float32[np.ndarray, "n D"]) -> None:
        schema = self.writer.schema
        table = pa.Table.from_pylist(rows, schema=pa.schema([schema.field(name) for name in COLUMNS]))
        for pool, part in zip(self.pools, np.split(values, len(self.pools), axis=1)):
            flat = pa.array(np.ascontiguousarray(part).ravel())
            table = table.append_column(schema.field(pool), pa.FixedSizeListArray.from_arrays(flat, part.shape[1]))
        self.writer.write_table(table.cast(schema))

    def finish(self, result: dict[str, Any]) -> None:
        """Has nothing to add: a table says all."""


class _Array:
    def __init__(self, files: list[Path], streams: Sequence[Any], folder: Path | None) -> None:
        self.files, self.streams, self.folder = files, streams, folder
        self._write([dict(zip(COLUMNS, COLUMNS))])

    def _write(self, rows: list[dict[str, Any]]) -> None:
        lines = io.StringIO()
        csv.DictWriter(lines, COLUMNS, lineterminator="\n").writerows(rows)
        self.streams[1].write(lines.getvalue().encode())

    def add(self, rows: list[dict[str, Any]], values: Float32[np.ndarray, "n D"]) -> None:
        self._write(rows)
        self.streams[0].write(values.astype("<f4", copy=False).tobytes())

    def finish(self, result: dict[str, Any]) -> None:
        if self.folder is not None:
            write_json(self.folder / "embeddings.json", result)
