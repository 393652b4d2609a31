"""`eeg predict --html`: what the page holds, in words, in numbers and in a real browser, and what occlusion finds."""

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from bothways import eeg, run
from bothways.config import SignalConfig
from bothways.run.predict_page import COLUMNS, MOST_LISTED, _lines, envelope_uv
from people import CHANNELS, TINY, Chain, alpha_uv
from recordings import write_edf

Call = Callable[..., tuple[int, str, str]]
NASTY = "<script>x"
FILE = "sub-9_<b>&.edf"


@pytest.fixture(scope="module")
def made(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A recording with a gap, an annotation, a hostile channel name, and alpha waves from 9 s on."""
    folder = tmp_path_factory.mktemp("predicted")
    signal = alpha_uv("open", 99)
    signal[:, 1800:] = alpha_uv("closed", 99)[:, 1800:]
    onsets = [*range(18), *range(60, 72)]
    names = [*CHANNELS[:3], NASTY]
    write_edf(folder / FILE, signal, names, plus="D", onsets_s=onsets, annotations=[(9, 9, "<u>shut")])
    result = run.predict(chain.finetuned, [folder / FILE], folder / "out", pages=True, changes=['background=["open"]'])
    (entry,) = result["recordings"]
    assert json.loads((folder / "out" / "predictions.json").read_text()) == result
    return folder / "out" / entry["files"][-1], entry


class Data(HTMLParser):
    """Reads the JSON of a page."""

    inside, text = False, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script" and ("id", "data") in attrs

    def handle_data(self, text: str) -> None:
        self.text += text if self.inside else ""


def data_of(page: Path) -> list[dict[str, Any]]:
    reader = Data()
    reader.feed(page.read_text(encoding="utf-8"))
    sections: list[dict[str, Any]] = json.loads(reader.text)["sections"]
    return sections


def test_one_file_in_which_nothing_of_the_data_is_markup(made: tuple[Path, dict[str, Any]]) -> None:
    page, entry = made
    assert page.name == f"{FILE}.html"
    html = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\(|<[^>]*\ssrc=|<b>&|<script>x|<u>shut|NaN", html)
    assert "&lt;script&gt;x" in html
    assert "not where in the brain" in html
    for name in [entry["csv"], *entry["files"][:-1]]:
        assert (page.parent / name).is_file()
        assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in html


def test_the_numbers_are_in_the_page(made: tuple[Path, dict[str, Any]]) -> None:
    page, entry = made
    sections = data_of(page)
    (table,) = (s for s in sections if s["kind"] == "table")
    assert [row[:3] for row in table["rows"]] == [
        [e["label"], round(e["onset_s"], 3), round(e["onset_s"] + e["duration_s"], 3)] for e in entry["events"]
    ]
    assert [row[4:] for row in table["rows"]] == [
        [round(e["mean_probability"], 6), round(e["max_probability"], 6)] for e in entry["events"]
    ]
    whole = sections[1]
    assert whole["gaps"] == [{"start_s": 18.0, "stop_s": 60.0}]
    assert whole["truth"] == [{"start_s": 9.0, "stop_s": 18.0, "label": "<u>shut"}]
    assert [line["label"] for line in whole["traces"]] == ["closed", "open"]
    for line in whole["traces"]:
        known = [t for t, v in zip(line["times_s"], line["values"]) if v is not None]
        assert (min(known), max(known)) == (0, 72)
        assert not [t for t in known if 18 < t < 60]
        assert line["values"].count(None) == 1  # the line is open over the gap
    missing = [t for t, v in zip(whole["times_s"], whole["signals_uv"][0]) if v is None]
    assert 18 <= min(missing) < max(missing) < 60


def test_hiding_says_what_an_answer_rests_on(made: tuple[Path, dict[str, Any]]) -> None:
    page, entry = made
    influences = [s for s in data_of(page) if s["kind"] == "influence"]
    assert len(influences) == min(5, len(entry["events"])) > 0
    for section in influences:
        channels, moments = section["groups"]
        assert [item["label"] for item in channels["items"]] == [*CHANNELS[:3], NASTY]
        assert len(moments["items"]) == 3
        assert all(abs(item["value"]) <= 1 for group in section["groups"] for item in group["items"])
    assert any(item["value"] for section in influences for item in section["groups"][0]["items"])


@pytest.mark.parametrize(("task", "tokens"), [("moment", "all_channels"), ("event", "channel")])
def test_every_kind_of_model_has_a_page(chain: Chain, tmp_path: Path, task: str, tokens: str) -> None:
    """Where one channel alone has the alpha waves, hiding that one matters most."""
    rows = ["file,onset_s,duration_s,label"]
    for person in range(4):
        signal, burst = (alpha_uv(state, person, seconds=60) for state in ("open", "closed"))
        for at in range(5 + person, 55, 20):
            signal[2, 200 * at : 200 * (at + 4)] = 2 * burst[2, 200 * at : 200 * (at + 4)]
            rows.append(f"sub-{person}.edf,{at},4,burst")
        write_edf(tmp_path / "data" / f"sub-{person}.edf", signal, CHANNELS)
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    run.prepare([tmp_path / "data"], tmp_path / "store")
    changes = [
        *TINY, "windows.window_s=10", "windows.stride_s=2", "patches.patch_s=1", "training.steps=80",
        "training.learning_rate=3e-3", "training.batch_size=16", f'patches.tokens="{tokens}"', f'task="{task}"',
        "training.seed=1", 'labels.background="rest"',
    ]  # fmt: skip
    run.finetune("scratch", tmp_path / "store", tmp_path / "labels.csv", tmp_path / "run", changes=changes)
    result = run.predict(
        tmp_path / "run", [tmp_path / "data" / "sub-0.edf"], tmp_path / "out", pages=True, changes=["enter=0.4"]
    )
    (entry,) = result["recordings"]
    influences = [s for s in data_of(tmp_path / "out" / entry["files"][-1]) if s["kind"] == "influence"]
    assert influences
    falls = np.array([[item["value"] for item in s["groups"][0]["items"]] for s in influences], dtype=float)
    assert falls.shape == (len(influences), 4)
    assert np.isfinite(falls).all()
    if task == "moment":  # the other one would need more training
        assert falls.mean(0).argmax() == 2


# --- the parts -----------------------------------------------------------------------------------------------------


def trace(n: int, breaks_at: int | None = None) -> eeg.Trace:
    onset_s = np.arange(n, dtype=float)
    segment = np.zeros(n, dtype=np.int64)
    if breaks_at is not None:
        onset_s[breaks_at:] += 100
        segment[breaks_at:] = 1
    p = np.random.default_rng(0).uniform(0.1, 0.9, n)
    return eeg.Trace(("a", "b"), onset_s, np.ones(n), segment, np.stack([p, 1 - p], 1), 1.0)


def test_a_line_is_open_at_a_gap_and_where_no_window_lies() -> None:
    few = trace(5, breaks_at=3)
    few.probabilities[:] = [[0.1, 0.9], [0.2, 0.8], [np.nan, np.nan], [0.3, 0.7], [0.4, 0.6]]
    a, b = _lines(few, COLUMNS)
    assert (a["label"], b["label"]) == ("a", "b")
    np.testing.assert_array_equal(a["times_s"], [0, 1, 1, 2, 103, 103, 104, 104, 105])
    np.testing.assert_array_equal(a["values"], [0.1, 0.1, 0.2, 0.2, np.nan, 0.3, 0.3, 0.4, 0.4])


def test_of_many_moments_the_extremes_stay() -> None:
    many = trace(86_400, breaks_at=40_000)
    many.probabilities[12_345, 0] = 0.0
    many.probabilities[23_456, 0] = 1.0
    (a, _) = _lines(many, 1000)
    assert len(a["values"]) <= 2 * 1002 + 1
    assert np.isnan(a["values"]).sum() == 1
    at = {value: a["times_s"][np.flatnonzero(a["values"] == value)[0]] for value in (0, 1)}
    assert at[0] == pytest.approx(12_345, abs=90)
    assert at[1] == pytest.approx(23_456, abs=90)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> eeg.Store:
    folder = tmp_path_factory.mktemp("store")
    write_edf(
        folder / "gap.edf", alpha_uv("open", 3, seconds=20), CHANNELS, plus="D", onsets_s=[*range(12), *range(30, 38)]
    )
    return eeg.prepare([folder / "gap.edf"], folder / "out", SignalConfig())


def test_an_envelope_is_what_numpy_says(store: eeg.Store) -> None:
    entry = store.recordings[0]
    uv = store.read(0) * entry.scale_uv[:, None] + entry.median_uv[:, None]
    drawn, start_s, rate_hz = envelope_uv(store, 0, 0, entry.n_samples, 76)
    assert (start_s, rate_hz, drawn.shape) == (0.0, 2.0, (4, 76))  # a column a second
    for second in range(38):
        samples = uv[:, 200 * second :][:, :200] if second < 12 else uv[:, 200 * (second - 18) :][:, :200]
        if 12 <= second < 30:
            assert np.isnan(drawn[:, 2 * second : 2 * second + 2]).all()
        else:
            np.testing.assert_allclose(drawn[:, 2 * second], np.nanmin(samples, 1), atol=1e-4)
            np.testing.assert_allclose(drawn[:, 2 * second + 1], np.nanmax(samples, 1), atol=1e-4)
    part, start_s, rate_hz = envelope_uv(store, 0, 12 * 200, 14 * 200, 2000)
    assert (start_s, rate_hz) == (30.0, 200.0)
    np.testing.assert_allclose(part, uv[:, 2400:2800], atol=1e-4)


@pytest.mark.parametrize("together", [64, 1000, 2**18])
def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch, store: eeg.Store, together: int) -> None:
    expected, *_ = envelope_uv(store, 0, 0, store.recordings[0].n_samples, 500)
    monkeypatch.setattr("bothways.run.predict_page._TOGETHER", together)
    found, *_ = envelope_uv(store, 0, 0, store.recordings[0].n_samples, 500)
    np.testing.assert_array_equal(found, expected)


# --- the command, and the browser ------------------------------------------------------------------------------------


def test_the_command_says_where_the_page_lies(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "sub-9.edf", alpha_uv("open", 5, seconds=9), CHANNELS)
    code, out, _ = bothways("eeg", "predict", chain.finetuned, file, "--out", tmp_path / "p", "--html")
    page = tmp_path / "p" / "sub-9.edf.html"
    assert (code, page.is_file()) == (0, True)
    assert f"written: {page}" in out.splitlines()
    bothways("eeg", "predict", chain.finetuned, file, "--out", tmp_path / "q")
    assert not list((tmp_path / "q").glob("*.html"))


@pytest.fixture
def opened(browser: Browser, made: tuple[Path, dict[str, Any]]) -> Iterator[Callable[..., Page]]:
    """Opens the page; nothing is fetched and nothing goes wrong, whatever a test does there."""
    said: list[str] = []
    asked: list[str] = []
    pages: list[Page] = []

    def opener(width: int = 1440, scheme: str = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(made[0].as_uri())
        pages.append(page)
        return page

    yield opener
    for page in pages:
        page.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(opened: Callable[..., Page], width: int, scheme: str) -> None:
    page = opened(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".hole").count() == 2  # over the probabilities and over the signal
    assert (page.locator(".trace .hole").first.bounding_box() or {})["width"] > 50
    colours = page.locator("#s1 .trace .line").evaluate_all("all => all.map((one) => getComputedStyle(one).stroke)")
    assert len(set(colours)) == 2


def test_values_are_read_by_keyboard(opened: Callable[..., Page]) -> None:
    page = opened()
    page.locator("#s1 .signals").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    told = page.locator("#s1 .readout").inner_text()
    assert re.fullmatch(r"72.0 s  ·  closed \d.\d\d  ·  open \d.\d\d  ·  predicted .+  ·  annotated –  ·  Fp1 .+", told)


def test_it_is_told_in_words(opened: Callable[..., Page]) -> None:
    page = opened()
    label = page.locator("#s1 .trace svg").get_attribute("aria-label") or ""
    assert re.match(r"Over time, 0 to 1: closed: lowest 0.*, highest 0.* at \d+ s; open: lowest", label)
    bands = [band.get_attribute("aria-label") for band in page.locator("#s1 .band").all()]
    assert bands[1] == "annotated: <u>shut from 9 to 18 s"
    bars = page.locator(".influence [role=img]").first.get_attribute("aria-label") or ""
    assert "Channels, by how much the probability falls when it is hidden: Fp1 " in bars
    assert MOST_LISTED >= len(page.locator("tbody tr").all()) > 0
