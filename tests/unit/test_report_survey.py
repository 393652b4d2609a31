import math
import re
from pathlib import Path
from typing import Any

import pytest

from bothways.report import survey, write_report

NASTY = "</script><img onerror=alert(1)>\"'&"


def electrode(
    name: str, recordings: int, bad: int, anode: list[float] | None, cathode: list[float] | None = None
) -> dict[str, Any]:
    return {"name": name, "recordings": recordings, "bad": bad, "anode": anode, "cathode": cathode}


def sections() -> list[dict[str, Any]]:
    return [
        {
            "kind": "groups",
            "title": "Found",
            "none": "Nothing.",
            "groups": [{"level": "warning", "label": NASTY, "items": [{"file": NASTY, "text": NASTY}]}],
        },
        {
            "kind": "montage",
            "title": "Electrodes",
            "total": 4,
            "electrodes": [
                electrode("Cz", 4, 1, [0, 0, 1]),
                electrode("T8", 1, 0, [1, 0, 0]),
                electrode("C3-Cz", 2, 2, [-0.7, 0, 0.7], [0, 0, 1]),
                electrode(NASTY, 2, 0, None),
            ],
        },
        {
            "kind": "histogram",
            "title": "Amplitudes",
            "unit": "µV",
            "x_label": "SD",
            "limits": [0.1, 500.0],
            "usual": [1.0, 200.0],
            "series": [
                {"label": "good", "color": 0, "values": [10.0, 11.0, 30.0, None]},
                {"label": "bad", "color": 1, "values": [3e4, 0, 12.0]},
            ],
        },
        {
            "kind": "thumbnails",
            "title": "Recordings",
            "recordings": [
                {
                    "file": f"folder/{NASTY}", "status": "warning", "facts": NASTY, "problems": [NASTY, "b", "c"],
                    "ch_names": [NASTY], "drawing": {"columns": 1, "levels": "eA==", "bad": [0]},
                },
                {"file": "y", "status": "unusable", "facts": "", "problems": [], "ch_names": [], "drawing": None},
            ],
        },
    ]  # fmt: skip


@pytest.fixture
def html(tmp_path: Path) -> str:
    write_report({"title": "t", "sections": sections()}, tmp_path / "r.html")
    return (tmp_path / "r.html").read_text(encoding="utf-8")


def test_names_are_escaped_and_nothing_is_fetched(html: str) -> None:
    assert "<img" not in html
    assert html.count("</script>") == 3
    assert not re.search(r"https?://|@import|url\(|<[^>]*\ssrc=", html)
    assert "None" not in html
    assert 'data-status="unusable"' in html
    assert "1 more" in html


def test_a_report_without_a_survey_has_nothing_of_it(tmp_path: Path) -> None:
    write_report({"title": "t", "sections": [{"kind": "text", "title": "x", "paragraphs": []}]}, tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert ".card" not in html
    assert "IntersectionObserver" not in html


def test_where_electrodes_lie_and_how_many_have_them() -> None:
    view = survey.montage(sections()[1])
    dots = {dot["name"]: dot for dot in view["dots"]}
    assert (dots["Cz"]["x"], dots["Cz"]["y"]) == (200, 200)
    assert (dots["T8"]["x"], dots["T8"]["y"]) == (200 + survey.HEAD, 200)
    assert dots["C3-Cz"]["x"] == pytest.approx(200 - survey.HEAD / 4, abs=0.1)  # half of 45 degrees
    assert [dot["named"] for dot in view["dots"]] == [False, True, True]
    assert (dots["Cz"]["shade"], dots["T8"]["shade"]) == (100, 36)
    assert dots["T8"]["bad"] is None
    assert dots["Cz"]["text"] == "Cz: in 4 of 4 recordings, bad in 1"
    assert view["worst"] == [("C3-Cz", "2 of 2"), ("Cz", "1 of 4")]
    assert view["unplaced"] == [(NASTY, f"{NASTY}: in 2 of 4 recordings")]
    assert view["summary"] == "3 electrodes with a place, 1 without; 2 are bad in some recording"


def test_a_histogram_counts_on_a_log_axis() -> None:
    section = sections()[2]
    view = survey.histogram(section)
    assert [sum(line["counts"]) for line in section["series"]] == [3, 2]
    assert "values" not in section["series"][0]
    heights = [(round(bar["y"]), round(bar["height"]), bar["color"]) for bar in view["bars"]]
    assert heights == [(33, 67, 0), (0, 33, 1), (67, 33, 0), (67, 33, 1)]
    assert view["bars"][0]["text"] == "10 to 13.3 µV: 2 good, 1 bad"
    positions = {label: at for at, label in view["ticks"]}
    assert positions["10"] - positions["1"] == pytest.approx(positions["100"] - positions["10"], abs=0.01)
    assert [label for _, label in view["limits"]] == ["0.1", "500"]
    assert view["summary"] == "5 channels, the middle one 12 µV, 1 outside 0.1 to 500 µV"
    every = [bar["x"] + bar["width"] for bar in view["bars"]]
    assert 0 <= min(bar["x"] for bar in view["bars"]) < max(every) <= 100


@pytest.mark.parametrize("value", [0.1, 1.0, 500.0, 1000.0, math.nextafter(10, 0)])
def test_a_value_on_an_edge_is_counted_once(value: float) -> None:
    section = sections()[2] | {"series": [{"label": "good", "color": 0, "values": [value]}]}
    assert len(survey.histogram(section)["bars"]) == 1


def test_nothing_to_count_is_an_error(tmp_path: Path) -> None:
    section = sections()[2] | {"series": [{"label": "good", "color": 0, "values": [None]}]}
    with pytest.raises(ValueError, match="Amplitudes: expected at least one value above 0"):
        write_report({"title": "t", "sections": [section]}, tmp_path / "r.html")


def test_a_thumbnail_keeps_only_what_is_drawn() -> None:
    section = sections()[3]
    view = survey.thumbnails(section)
    assert [sorted(one) for one in section["recordings"]] == [["ch_names", "drawing"]] * 2
    assert [(card["folder"], card["height"]) for card in view["cards"]] == [
        ("folder/</", 44), ("", None),
    ]  # fmt: skip
    assert view["count"] == {"ok": 0, "warning": 1, "unusable": 1}
