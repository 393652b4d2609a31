import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways.report import plots, write_report
from bothways.report.page import plain

NASTY = '</script><script>alert("1")</script><img src=x onerror=alert(1)>'


def recording(**changes: Any) -> dict[str, Any]:
    signals = np.random.default_rng(0).normal(0, 20, (3, 6000))
    signals[1, 100:900] = np.nan
    return {
        "kind": "recording",
        "title": "One recording",
        "ch_names": ["Fz", NASTY, "日本 ğü"],
        "sfreq_hz": 100.0,
        "signals_uv": signals,
        "classes": ["rest", "task"],
        "trace": {"label": "probability of task", "times_s": np.arange(0.5, 60), "values": np.linspace(0, 1, 60)},
        "threshold": 0.5,
        "predicted": [{"start_s": 0.0, "stop_s": 30.0, "label": "rest"}],
        "truth": [{"start_s": 10.0, "stop_s": 70.0, "label": "task"}],
    } | changes


def hypnogram(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "hypnogram",
        "title": "Night",
        "stages": ["W", "REM", NASTY, "N2"],
        "series": [
            {"label": "true", "values": [0, 0, 3, 3, 3, 1, 1, 1]},
            {"label": "predicted", "values": np.array([0, 3, np.nan, np.nan, 3, 3, 1, 0])},
        ],
    } | changes


def influence(*values: float | None, **changes: Any) -> dict[str, Any]:
    items = [{"label": NASTY, "value": value} for value in values or (0.3, -0.1, None, -0.0001)]
    groups = [{"label": "Channels", "items": items}]
    return {"kind": "influence", "title": "Influence", "unit": "fall", "groups": groups} | changes


def sections() -> list[dict[str, Any]]:
    return [
        {"kind": "text", "title": "Text & <b>more</b>", "paragraphs": ["One.", NASTY], "note": "A caveat."},
        {"kind": "facts", "title": "Facts", "facts": {"people": 12, "loss": 0.25, "format": "EDF", "none": None}},
        {
            "kind": "table",
            "title": "Results",
            "columns": ["arm", "accuracy", "parameters"],
            "rows": [["a", {"mean": 0.8, "sd": 0.1}, 1_200_000], ["b", {"mean": 0.9, "sd": None}, None]],
            "best": {"accuracy": "max"},
        },
        {
            "kind": "curve",
            "title": "Curve",
            "x_label": "step",
            "y_label": "loss",
            "log_y": True,
            "series": [{"label": "train", "x": [0, 10, 20, 30], "y": [1.0, float("nan"), 0.1, 0.2]}],
        },
        {
            "kind": "dots",
            "title": "Dots",
            "x_label": "balanced accuracy",
            "chance": 0.5,
            "arms": [{"label": "a", "values": [0.7, 0.8]}, {"label": "b", "values": [0.75, 0.85]}],
        },
        {
            "kind": "scatter",
            "title": "Scatter",
            "x_label": "PC 1",
            "y_label": "PC 2",
            "series": [{"label": NASTY, "x": [0.0, 1.0], "y": [2.0, 4.0]}, {"label": "b", "x": [3], "y": [-1]}],
        },
        {
            "kind": "bars",
            "title": "Bars",
            "unit": "error",
            "groups": ["delta", "theta"],
            "series": [{"label": "model", "values": [0.5, None]}, {"label": "zero", "values": [1, 1]}],
        },
        {"kind": "confusion", "title": "Confusion", "classes": ["a", "b"], "matrix": np.array([[3, 1], [0, 0]])},
        recording(),
        {
            "kind": "files",
            "title": "Files",
            "files": [{"path": "out/<x>", "what": "the model"}],
            "next": [{"command": "bothways eeg check A && B", "what": "Check"}],
        },
        {
            "kind": "reliability",
            "title": "Sure and right",
            "series": [
                {
                    "label": "model",
                    "ece": 0.125,
                    "bins": [
                        {"low": 0.5, "high": 0.6, "n": 3, "confidence": 0.55, "accuracy": 2 / 3},
                        {"low": 0.9, "high": 1.0, "n": 1, "confidence": 0.95, "accuracy": 1.0},
                    ],
                }
            ],
        },
        hypnogram(),
        influence(),
    ]


class Page(HTMLParser):
    """Collects tags, ids, outside addresses and the text of the scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.outside: list[str] = []
        self.scripts: list[str] = []
        self.figures = {"figure": 0, "img": 0}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"]] if values.get("id") else []
        self.outside += [v for k, v in attrs if k in {"src", "href", "onerror", "onload"} and v and v[0] != "#"]
        if values.get("role") == "img":
            assert values["aria-label"]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, text: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += text


@pytest.fixture
def html(tmp_path: Path) -> str:
    out = tmp_path / "new folder" / "report.html"
    report = {"title": NASTY, "subtitle": "s", "created": "today", "versions": {"x": "1"}, "sections": sections()}
    write_report(report, out)
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    return out.read_text(encoding="utf-8")


def test_nothing_from_outside_and_nothing_injected(html: str) -> None:
    page = Page()
    page.feed(html)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert page.outside == ["data:,"]
    assert not re.search(r"https?://|@import|url\(", html)
    assert len(set(page.ids)) == len(page.ids)
    assert page.tags.count("figure") == 10
    assert page.tags.count("section") == len(sections())
    assert "NaN" not in html
    assert "None" not in html


def test_the_numbers_are_in_the_page_as_json(html: str) -> None:
    page = Page()
    page.feed(html)
    data = json.loads(page.scripts[0])
    assert data["title"] == NASTY
    drawn = data["sections"][8]
    assert drawn["ch_names"][1] == NASTY
    assert {len(signal) for signal in drawn["signals_uv"]} == {len(drawn["times_s"])} == {2000}
    assert drawn["signals_uv"][1][100] is None
    assert data["sections"][3]["series"][0]["y"] == [1.0, None, 0.1, 0.2]


def test_what_is_read_in_the_page(html: str) -> None:
    assert "0.800 ± 0.100" in html
    assert '<td class="number best">0.900<span class="hidden"> (best)</span></td>' in html
    assert "1\u202f200\u202f000" in html
    assert "a 0.750 ± 0.071; b 0.800 ± 0.071; chance 0.5" in html
    assert "2 points around 0.5, 3; b: 1 points around 3, −1" in html
    assert "75 %" in html
    assert "model, calibration error 0.125: sure 0.55 right 0.667 (n = 3), sure 0.95 right 1 (n = 1)" in html
    assert 'd="M55.0 33.33L95.0 0.0"' in html
    assert f'style="stroke-width:{5 + 15 * 0.5}px" d="M95.0 0.0h0"' in html
    assert "bothways eeg check A &amp;&amp; B" in html


def test_the_callers_dict_is_left_alone(tmp_path: Path) -> None:
    section = recording()
    write_report({"title": "t", "sections": [section]}, tmp_path / "r.html")
    assert section["signals_uv"].shape == (3, 6000)
    assert "start_s" not in section


def test_no_spike_is_lost_in_drawing() -> None:
    signal = [0.0] * 100_000
    signal[12_345], signal[12_346] = 500.0, -400.0
    section = recording(ch_names=["Fz"], signals_uv=[signal], sfreq_hz=1000.0)
    plots.recording(section)
    drawn = section["signals_uv"][0]
    assert len(drawn) <= 2000
    assert drawn.index(500.0) < drawn.index(-400.0)
    at = section["times_s"][drawn.index(500.0)]
    assert at == pytest.approx(12.345, abs=0.1)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kind": "pie"}, "X: unknown kind 'pie'; known: text"),
        ({"kind": "table", "columns": ["a"], "rows": [[1, 2]]}, "X: expected 1 cells in each row"),
        ({"kind": "curve", "log_y": True, "series": [{"x": [1], "y": [0.0]}]}, "X: expected values above 0"),
        ({"kind": "curve", "series": [{"x": [1, 2], "y": [0.0]}]}, "as many y as x"),
        ({"kind": "curve", "series": [{"x": [1], "y": [None]}]}, "at least one value"),
        ({"kind": "curve", "series": [{"x": [1], "y": [0.5], "low": [0.4, 0.5]}]}, "as many y as x"),
        ({"kind": "dots", "arms": [{"label": "a", "values": []}]}, "at least one finite value"),
        ({"kind": "scatter", "series": [{"x": [1, 2], "y": [0.0]}]}, "as many y as x"),
        ({"kind": "scatter", "series": [{"x": [1], "y": [None]}]}, "expected points, all of them finite"),
        ({"kind": "scatter", "series": []}, "expected points, all of them finite"),
        ({"kind": "bars", "groups": ["a"], "series": [{"values": [1, 2]}]}, "expected 1 values"),
        ({"kind": "confusion", "classes": ["a"], "matrix": [[1, 2]]}, "matrix of 1 × 1"),
        ({"kind": "reliability", "series": [{"bins": []}]}, "at least one bin in each series"),
        (recording(ch_names=["a"]), "one signal per channel"),
        (influence(None), "at least one value"),
        (hypnogram(series=[]), "at least one series, all of the same length"),
        (hypnogram(series=[{"label": "a", "values": []}]), "at least one series, all of the same length"),
        (hypnogram(series=[{"label": "a", "values": [0]}, {"label": "b", "values": [0, 1]}]), "all of the same length"),
        (hypnogram(series=[{"label": "a", "values": [4]}]), "stages 0 to 3 or None"),
        (recording(ch_names=["a"], signals_uv=[[]]), "at least one sample"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, section: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_report({"title": "t", "sections": [section | {"title": "X"}]}, tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_a_flat_or_missing_channel_is_drawn(tmp_path: Path) -> None:
    section = recording(ch_names=["flat", "none"], signals_uv=np.array([[5.0] * 50, [np.nan] * 50]))
    for name in ("trace", "threshold", "predicted", "truth", "classes"):
        del section[name]
    write_report({"title": "t", "sections": [section]}, tmp_path / "r.html")
    assert "50" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_bars_lie_about_zero() -> None:
    view = plots.influence(influence())
    assert view["zero"] == pytest.approx(25)
    assert view["bars"][0][0] == pytest.approx((25, 75))
    assert view["bars"][0][1] == pytest.approx((0, 25))
    assert view["bars"][0][2] is None
    assert view["texts"] == [["0.300", "−0.100", "–", "0.000"]]
    assert plots.influence(influence(0.01, least=0.05))["bars"][0] == [pytest.approx((0, 20))]
    assert plots.influence(influence(0.0))["bars"] == [[(0.0, 0.0)]]


def test_several_classes_over_a_gap() -> None:
    section = recording(trace=None, sfreq_hz=0.5, gaps=[{"start_s": 3000.0, "stop_s": 6000.0}])
    traces = [{"label": "task", "times_s": [0, 3000, 3000, 6000, 12000], "values": [0.5, 0.25, None, 1, 0]}]
    view = plots.recording(plain(section | {"traces": traces}))
    assert view["traces"] == ["M0.00 50.0L25.00 75.0M50.00 0.0L100.00 100.0"]
    assert view["told"] == "task: lowest 0, highest 1 at 6\u202f000 s"
    assert (view["gaps"][0]["left"], view["gaps"][0]["width"]) == (25, 25)
    assert (view["duration"], view["unit"], view["ticks"][-1]) == ("3.3333", "h", (pytest.approx(90), "3"))


def test_a_hypnogram_steps_from_stage_to_stage(html: str) -> None:
    true, predicted = plots.hypnogram(plain(hypnogram()))["rows"]
    assert true["path"] == "M0.00 12.50H25.00V87.50H62.50V37.50H100.00"
    assert predicted["path"] == "M0.00 12.50H12.50V87.50H25.00M50.00 87.50H75.00V37.50H87.50V12.50H100.00"
    assert (true["changes"], predicted["changes"]) == (2, 3)
    assert true["told"].startswith("W 1 min, REM 1.5 min, ")
    assert "Night, true: W 1 min, REM 1.5 min, &lt;/script&gt;" in html
    assert "N2 1.5 min; 2 changes of stage" in html
    assert "N2 1.5 min, none 1 min; 3 changes of stage" in html


def test_the_time_of_a_hypnogram_is_in_minutes_or_hours() -> None:
    def ticks(n: int, **changes: Any) -> list[tuple[float, str]]:
        series = [{"label": "a", "values": [0] * n}]
        made: list[tuple[float, str]] = plots.hypnogram(hypnogram(series=series, **changes))["ticks"]
        return made

    assert ticks(20)[:3] == [(0, "0 min"), (20, "2 min"), (40, "4 min")]
    assert ticks(960)[-1] == (100, "8 h")
    assert ticks(2, window_s=3600)[-1] == (100, "2 h")


def test_numbers_as_they_are_written() -> None:
    assert plots.number(-2.08e-17) == "0"
    assert [plots.number(v) for v in (None, 3, 1234.0, -0.5, 1e-7, 0.98765)] == [
        "–",
        "3",
        "1\u202f234",
        "−0.5",
        "1e-7".replace("-", "−"),
        "0.988",
    ]
    assert [plots.cell(v) for v in ("x", True, 0.0, 0.5, 1.0, 2e-6, 7)] == [
        "x",
        "True",
        "0.000",
        "0.500",
        "1.000",
        "2e−6",
        "7",
    ]


def test_points_lie_where_they_are() -> None:
    series = [{"label": str(k), "x": [0, 10], "y": [0, 100 - k]} for k in range(8)]
    view = plots.scatter({"series": series})
    assert view["paths"][0] == "M0.0 100.0h0M100.0 0.0h0"
    assert (view["color"], view["ring"]) == ([0, 1, 2, 3, 4, 5, 0, 1], [False] * 6 + [True] * 2)


def test_ticks_are_round_and_cover_the_range() -> None:
    assert plots._ticks(0.52, 0.91) == [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert plots._ticks(0, 1000) == [0, 200, 400, 600, 800, 1000]
    assert plots._ticks(3, 3)[0] < 3 < plots._ticks(3, 3)[-1]
    assert plots._log_ticks(0.3, 1.4) == [0.2, 0.5, 1, 2]
    assert plots._log_ticks(0.003, 40) == [0.001, 0.01, 0.1, 1, 10, 100]


def test_a_curve_with_intervals_and_names() -> None:
    series = [{"label": "a", "x": [0, 1, 2], "y": [0.5, 0.75, 1.0], "low": [0.25, None, 1.0], "high": [0.75, 1.0, 1.0]}]
    section = {"x_names": ["1", "2", "all"], "chance": 0.0, "series": series}
    view = plots.curve(section)
    assert view["x_ticks"] == [(0.0, "1"), (50.0, "2"), (100.0, "all")]
    assert view["paths"] == ["M0.00 50.00L50.00 25.00L100.00 0.00"]
    assert view["points"] == ["M0.00 50.00h0M50.00 25.00h0M100.00 0.00h0"]
    assert view["bars"] == ["M0.00 75.00V25.00M100.00 0.00V0.00"]  # without both ends no bar
    assert view["told"] == ["1: 0.5 (0.25 to 0.75), 2: 0.75, all: 1 (1 to 1)"]
    assert view["chance"] == 100.0


def test_a_curve_over_sizes_on_a_log_axis() -> None:
    series = [{"label": "a", "x": [10, 100, 1000], "y": [0.5, 0.75, 1.0]}, {"label": "b", "x": [100], "y": [0.5]}]
    view = plots.curve({"log_x": True, "series": series})
    assert view["x_ticks"] == [(0.0, "10"), (50.0, "100"), (100.0, "1\u202f000")]
    assert view["paths"] == ["M0.00 100.00L50.00 50.00L100.00 0.00", "M50.00 100.00h0"]
    assert view["points"][1] == "M50.00 100.00h0"
    assert view["told"] == ["10: 0.5, 100: 0.75, 1\u202f000: 1", "100: 0.5"]
    with pytest.raises(ValueError, match="expected x above 0 on a log axis, got 0"):
        plots.curve({"log_x": True, "series": [{"label": "a", "x": [0, 1], "y": [0, 1]}]})
