"""`embed`: every window of a store or of recordings with its place, time and label; the same by any way."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from bothways import eeg, run
from bothways.config import WindowConfig
from bothways.errors import UserError
from bothways.run.common import Sources
from bothways.training import load_run
from people import CHANNELS, Chain, alpha_uv
from recordings import noise_uv, write_edf

Call = Callable[..., tuple[int, str, str]]


def expected(chain: Chain, which: Path, pool: Any) -> np.ndarray:
    """The model's features of the store's windows, without the command."""
    store = eeg.Store.open(chain.store)
    windows = eeg.cut_windows(store, WindowConfig(window_s=3, stride_s=3))
    model = load_run(which, eeg.build_embedding)
    assert model.config.patches is not None
    batch = Sources(store, model.config.patches).of(windows).batch(np.arange(len(windows)))
    with torch.no_grad():
        return model.features(batch, pool).numpy()


@pytest.mark.parametrize("which", ["pretrained", "finetuned"])
def test_a_table_of_a_store(chain: Chain, tmp_path: Path, which: str) -> None:
    folder = getattr(chain, which)
    result = run.embed(folder, chain.store, tmp_path / "e.parquet", pool="both")
    table = pq.read_table(tmp_path / "e.parquet")
    assert table.column_names == ["file", "subject", "session", "onset_s", "duration_s", "label", "cls", "mean"]
    assert (result["windows"], table.num_rows, result["size"]) == (120, 120, 32)
    for pool in ("cls", "mean"):
        np.testing.assert_allclose(np.stack(table[pool].to_pylist()), expected(chain, folder, pool), atol=1e-5)
    rows = table.select(["file", "subject", "onset_s", "duration_s", "label"]).to_pylist()
    assert rows[11] == {
        "file": "sub-0/sub-0_open.edf", "subject": "0", "onset_s": 3.0, "duration_s": 3.0, "label": None,
    }  # fmt: skip
    assert [entry["windows"] for entry in result["recordings"]] == [10] * 12
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.parquet"]
    json.dumps(result, allow_nan=False)


def test_every_form_holds_the_same(chain: Chain, tmp_path: Path) -> None:
    run.embed(chain.finetuned, chain.store, tmp_path / "e.parquet", pool="both", labels=chain.labels)
    run.embed(chain.finetuned, chain.store, tmp_path / "e.npy", pool="both", labels=chain.labels)
    told = run.embed(chain.finetuned, chain.store, tmp_path / "e", pool="both", labels=chain.labels)
    table = pq.read_table(tmp_path / "e.parquet")
    vectors = np.concatenate([np.stack(table[pool].to_pylist()) for pool in ("cls", "mean")], axis=1)
    for array, lines in (("e.npy", "e.csv"), ("e/embeddings.npy", "e/windows.csv")):
        np.testing.assert_array_equal(np.load(tmp_path / array), vectors.astype(np.float32))
        with (tmp_path / lines).open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["label"] for row in rows] == table["label"].to_pylist()
        assert [float(row["onset_s"]) for row in rows] == table["onset_s"].to_pylist()
    assert json.loads((tmp_path / "e" / "embeddings.json").read_text()) == told
    assert told["labels"] == {"closed": 60, "open": 60}
    assert set(table["label"].to_pylist()) == {"closed", "open"}


def test_recordings_are_prepared_as_the_model_wants(chain: Chain, tmp_path: Path) -> None:
    run.embed(chain.pretrained, chain.data, tmp_path / "files.npy")
    run.embed(chain.pretrained, [chain.data / "sub-0", chain.data / "sub-1"], tmp_path / "two.npy")
    run.embed(chain.pretrained, chain.store, tmp_path / "store.npy")
    whole = np.load(tmp_path / "store.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "files.npy"), whole)
    np.testing.assert_allclose(np.load(tmp_path / "two.npy"), whole[:40], atol=1e-6)


def test_what_is_held_at_once_changes_nothing(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.embed(chain.pretrained, chain.store, tmp_path / "a.parquet")
    module = sys.modules["bothways.run.embed"]
    monkeypatch.setattr(module, "TOGETHER", 7)
    run.embed(chain.pretrained, chain.store, tmp_path / "b.parquet", plot=tmp_path / "b.html")
    one, other = (pq.read_table(tmp_path / f"{name}.parquet") for name in "ab")
    assert pq.ParquetFile(tmp_path / "b.parquet").num_row_groups == 18
    np.testing.assert_allclose(np.stack(one["cls"].to_pylist()), np.stack(other["cls"].to_pylist()), atol=1e-5)
    assert one.drop(["cls"]).equals(other.drop(["cls"]))


def test_onsets_are_true_times_and_unusable_windows_are_counted(chain: Chain, tmp_path: Path) -> None:
    """A gap of 90 s, and 4 s at the end in which nothing moves."""
    signal = alpha_uv("open", 7, seconds=18)
    signal[:, 14 * 200 :] = 0
    starts = [float(t) for t in [*range(9), *range(99, 108)]]
    write_edf(tmp_path / "in" / "sub-8.edf", signal, CHANNELS, plus="D", onsets_s=starts)
    (tmp_path / "in" / "sub-9.edf").write_bytes(b"")
    result = run.embed(chain.pretrained, tmp_path / "in", tmp_path / "e.parquet", stride_s=3)
    assert pq.read_table(tmp_path / "e.parquet")["onset_s"].to_pylist() == [0.0, 3.0, 6.0, 99.0, 102.0]
    (told,) = result["recordings"]
    assert (told["file"], told["windows"], told["unusable_windows"]) == ("sub-8.edf", 5, 1)
    assert [one["file"] for one in result["skipped"]] == ["sub-9.edf"]


def test_a_picture_with_its_words(chain: Chain, tmp_path: Path) -> None:
    options: dict[str, Any] = {"labels": chain.labels, "plot": tmp_path / "map.html", "overwrite": True}
    result = run.embed(chain.finetuned, chain.store, tmp_path / "e.parquet", **options)
    first = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert result["files"][-1] == str(tmp_path / "map.html")
    plot = result["plot"]
    assert (plot["windows"], plot["colour"]) == (120, "label")
    assert plot["by_chance"] == pytest.approx(59 / 119)
    vectors = np.stack(pq.read_table(tmp_path / "e.parquet")["cls"].to_pylist())
    scaled = (vectors - vectors.mean(0)) / vectors.std(0)
    distances = np.linalg.norm(scaled[:, None] - scaled[None], axis=2) + np.diag(np.full(120, np.inf))
    labels = np.tile(np.repeat(["closed", "open"], 10), 6)
    assert plot["same_neighbour"] == pytest.approx((labels == labels[distances.argmin(1)]).mean())
    assert 'aria-label="PCA: PC 2 (' in first
    assert "closed: 60 points around " in first
    assert first.count("<figure>") == 2
    run.embed(chain.finetuned, chain.store, tmp_path / "e.parquet", **options)
    assert (tmp_path / "map.html").read_text(encoding="utf-8") == first
    by_subject = run.embed(chain.finetuned, chain.store, tmp_path / "e.parquet", **options, colour="subject")
    assert by_subject["plot"]["by_chance"] == pytest.approx(19 / 119)


def test_windows_without_a_label_are_no_class(chain: Chain, tmp_path: Path) -> None:
    rows = [row for row in chain.labels.read_text().splitlines() if "sub-0" not in row and "sub-1" not in row]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    options: dict[str, Any] = {"labels": tmp_path / "labels.csv", "plot": tmp_path / "map.html"}
    result = run.embed(chain.finetuned, chain.store, tmp_path / "e.parquet", **options)
    table = pq.read_table(tmp_path / "e.parquet")
    labels = np.array(table["label"].to_pylist(), dtype=object)
    known = np.array([label is not None for label in labels])
    assert result["plot"]["ungrouped"] == (~known).sum() == 40
    vectors = np.stack(table["cls"].to_pylist())
    scaled = ((vectors - vectors.mean(0)) / vectors.std(0))[known]
    distances = np.linalg.norm(scaled[:, None] - scaled[None], axis=2) + np.diag(np.full(known.sum(), np.inf))
    assert result["plot"]["same_neighbour"] == pytest.approx(
        (labels[known] == labels[known][distances.argmin(1)]).mean()
    )
    assert result["plot"]["by_chance"] == pytest.approx(39 / 79)
    assert "40 windows without a label are drawn and not counted." in (tmp_path / "map.html").read_text()


def test_of_many_windows_some_are_drawn(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["bothways.run.embed"], "MOST_POINTS", 30)
    pages = []
    for seed in (0, 0, 1):
        result = run.embed(
            chain.pretrained, chain.store, tmp_path / "e.npy", plot=tmp_path / "m.html", seed=seed, overwrite=True
        )
        assert (result["windows"], result["plot"]["windows"]) == (120, 30)
        pages.append((tmp_path / "m.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1] != pages[2]


def test_the_command(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    arguments = ("eeg", "embed", chain.finetuned, chain.store, "--labels", chain.labels, "--out", tmp_path / "e.npy")
    code, out, _ = bothways(*arguments, "--plot", tmp_path / "map.html")
    assert code == 0
    lines = out.splitlines()
    assert "120 windows of 3 s, 32 numbers for each of cls, 60 closed, 60 open" in lines
    assert any(line.startswith("nearest neighbour of the same label: ") for line in lines)
    assert f"written: {tmp_path / 'map.html'}" in lines
    code, out, _ = bothways(*arguments, "--overwrite", "--json")
    assert (code, json.loads(out)["windows"]) == (0, 120)
    write_edf(tmp_path / "in" / "sub-1.edf", noise_uv(4, 6000), CHANNELS)
    (tmp_path / "in" / "sub-2.edf").write_bytes(b"")
    code, out, _ = bothways("eeg", "embed", chain.pretrained, tmp_path / "in", "--out", tmp_path / "f.npy")
    assert code == 2
    assert "skipped sub-2.edf: " in out


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("e.csv", {}, "expected FILE.parquet, FILE.npy or a folder"),
        ("e.npy", {"pool": "max"}, "pool: expected cls, mean or both, got 'max'"),
        ("e.npy", {"colour": "label"}, "there are no labels"),
        ("e.npy", {"colour": "age"}, "colour: expected label, subject or file"),
        ("e.npy", {"unit": "uV", "notch_hz": 60}, "a store is prepared already; leave --notch-hz, --unit out"),
        ("there.npy", {}, "already exists"),
        ("there.npy", {"overwrite": True}, "not a file that bothways wrote"),
        ("there.parquet", {"overwrite": True}, "not a file that bothways wrote"),
        ("e.npy", {"plot": "there.npy", "overwrite": True}, "not a page"),
        ("e.npy", {"stride_s": 0}, "stride_s"),
    ],
)
def test_mistakes(chain: Chain, tmp_path: Path, out: str, options: dict[str, Any], message: str) -> None:
    for name in ("there.npy", "there.parquet"):
        (tmp_path / name).write_bytes(b"mine")
    options = {name: tmp_path / value if name == "plot" else value for name, value in options.items()}
    with pytest.raises(UserError, match=message):
        run.embed(chain.pretrained, chain.store, tmp_path / out, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.npy", "there.parquet"]
    assert (tmp_path / "there.parquet").read_bytes() == b"mine"


def test_a_store_of_another_contract(chain: Chain, tmp_path: Path) -> None:
    run.prepare([chain.data / "sub-0"], tmp_path / "store", changes=["sfreq_hz=100", "band_hz=[1, 40]"])
    with pytest.raises(UserError, match="prepared in another way"):
        run.embed(chain.pretrained, tmp_path / "store", tmp_path / "e.npy")


def test_what_stops_it_leaves_nothing(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["bothways.run.embed"]
    monkeypatch.setattr(module, "map_page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.embed(chain.pretrained, chain.store, tmp_path / "e.npy", plot=tmp_path / "map.html")
    assert list(tmp_path.iterdir()) == []
