"""`bothways eeg check`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bothways import __version__, eeg
from bothways.report import write_report
from bothways.run.common import check_page


def check(
    paths: str | Path | eeg.Recording | Sequence[str | Path | eeg.Recording],
    *,
    subject_from: str | Path = "path",
    unit: str | None = None,
    html: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Reads recordings and says what is in them and what is wrong; nothing is written but the page, if asked for.

    Args:
        paths: files, folders (searched for every format that mne reads) and recordings in memory, or one.
        subject_from: `path` (`sub-…` in the path), `parent` (the folder's name) or a CSV `file,subject`.
        unit: what the files' numbers are, where their own statement is wrong.
        html: file to write a page to, with a picture of each recording.
        overwrite: replace that file.

    Returns:
        See `bothways.eeg.check`; `exit_status` is 0 = fine, 1 = usable with warnings, 2 = something unusable.

    Raises:
        UserError: no recording is found, or the page cannot be written or exists.
    """
    paths = eeg.as_paths(paths)
    if html is not None:
        on_disk = [path for path in paths if not isinstance(path, eeg.Recording)]
        check_page(Path(html), on_disk, overwrite)
    report = eeg.check(paths, subject_from=subject_from, unit=unit, drawings=html is not None)
    if html is not None:
        write_report(_page(report), Path(html))
        for recording in report["recordings"]:
            recording.pop("drawing", None)
    return report


def _page(report: dict[str, Any]) -> dict[str, Any]:
    """What was found, for `write_report`."""
    recordings, totals = report["recordings"], report["totals"]
    read = [r for r in recordings if "format" in r]
    channels = [(r, name, q) for r in read for name, q in r["quality"].items()]
    bad = [q["amplitude_uv"] for r, name, q in channels if name in r["bad_channels"]]
    good = [q["amplitude_uv"] for r, name, q in channels if name not in r["bad_channels"]]
    possible = report["limits_uv"]["possible"]
    sections: list[dict[str, Any]] = [
        {
            "kind": "facts",
            "title": "Totals",
            "facts": {
                "Recordings": totals["recordings"],
                "People": totals["subjects"],
                "Minutes": f"{totals['duration_s'] / 60:.1f}",
                "Fine": totals["ok"],
                "With warnings": totals["warning"],
                "Unusable": totals["unusable"],
                "Channels": len(channels),
                "Bad channels": len(bad),
                "Formats": ", ".join(sorted({r["format"] for r in read})) or "none",
            },
        },
        {
            "kind": "groups",
            "title": "What was found",
            "groups": _groups(report),
            "none": "Nothing that needs a word.",
        },
    ]
    if report["electrodes"]:
        sections.append(
            {
                "kind": "montage",
                "title": "Electrodes",
                "electrodes": report["electrodes"],
                "total": len(read),
                "caption": "The head from above, nose up. Bad channels are hidden from attention and loss.",
            }
        )
    if any(good) or any(bad):
        sections.append(
            {
                "kind": "histogram",
                "title": "Amplitudes",
                "x_label": "robust SD of a channel within one second",
                "unit": "µV",
                "series": [
                    {"label": "good", "color": 0, "values": good},
                    {"label": "bad", "color": 1, "values": bad},
                ],
                "limits": possible,
                "usual": report["limits_uv"]["usual"],
                "caption": f"A head gives {possible[0]:g} to {possible[1]:g} µV. A whole heap a thousand times outside "
                "is a wrong unit: --unit says what the numbers really are.",
            }
        )
    sections.append(
        {
            "kind": "thumbnails",
            "title": "Recordings",
            "recordings": [_card(r) for r in recordings],
            "caption": "Least and largest value in each column, all channels on one scale, drift taken out. A gap has "
            "the same width however long it is.",
        }
    )
    return {
        "title": "What is in the recordings",
        "subtitle": f"{totals['recordings']} recordings of {totals['subjects']} people: {totals['ok']} fine, "
        f"{totals['warning']} with warnings, {totals['unusable']} unusable.",
        "versions": {"bothways": __version__},
        "sections": sections,
    }


def _groups(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found by kind: what is unusable first, then what most recordings have."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for r in report["recordings"]:
        for level, label, text in _found(r, report["harmless"]):
            groups.setdefault((level, label), []).append({"file": r["file"], "text": text})
    order = ["unusable", "warning", "harmless"]
    ranked = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), -len(item[1])))
    return [{"level": level, "label": label, "items": items} for (level, label), items in ranked]


def _found(r: dict[str, Any], harmless: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    if r["reason"]:
        yield "unusable", "Unusable", r["reason"]
    for note in r.get("notes", ()):
        level = "harmless" if note["code"] in harmless else "warning"
        yield level, note["code"].replace("_", " ").capitalize(), note["message"]
    if r.get("left_out"):
        left_out = "; ".join(f"{name} ({why})" for name, why in r["left_out"].items())
        yield "harmless", "Channels left out", left_out


def _card(r: dict[str, Any]) -> dict[str, Any]:
    facts = [f"person {r['subject']}"]
    if "format" in r:
        gaps, events = len(r["segments"]) - 1, r["n_events"]
        facts += [
            r["format"],
            f"{len(r['ch_names'])} channels" + (f", {len(r['left_out'])} left out" if r["left_out"] else ""),
            f"{r['sfreq_hz']:g} Hz",
            f"{r['duration_s']:.4g} s",
            *([f"{gaps} gap{'s' * (gaps > 1)}"] if gaps else []),
            *([f"{events} event{'s' * (events > 1)}"] if events else []),
            *([f"{r['amplitude_uv']:.3g} µV"] if r["amplitude_uv"] is not None else []),
        ]
    return {
        "file": r["file"],
        "status": r["status"],
        "facts": " · ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts),
        "problems": [*filter(None, [r["reason"]]), *(note["message"] for note in r.get("notes", ()))],
        "ch_names": r.get("ch_names", []),
        "drawing": r.get("drawing"),
    }
