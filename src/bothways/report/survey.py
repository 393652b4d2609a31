"""The geometry of a survey of recordings: electrodes on the head, a histogram, small pictures of the signals."""

import math
from collections.abc import Sequence
from typing import Any

from bothways.report.plots import Number, number

HEAD = 136
"""Radius of the head in a map of 400 × 400."""
PER_DECADE = 8
"""Bars of a histogram in one power of ten."""
CHANNEL_PX, HEIGHT_PX = 10, (44, 240)
"""Height of a channel in a thumbnail; least and largest height of a whole one."""
LISTED = 40
"""Most electrodes that are listed by name where no place is known."""

Point = Sequence[Number]


def montage(section: dict[str, Any]) -> dict[str, Any]:
    """Places electrodes on the head as seen from above, at their angle from the top; a pair small, at its middle."""
    electrodes, total = section["electrodes"], max(section["total"], 1)
    placed = [one for one in electrodes if one["anode"]]
    radius = min(14.0, max(4.0, 88 / math.sqrt(max(len(placed), 1))))
    dots = []
    for one in placed:
        x, y = _from_above(one["anode"])
        pair = _from_above(one["cathode"]) if one["cathode"] else None
        share, bad = one["recordings"] / total, one["bad"] / max(one["recordings"], 1)
        dots.append(
            {
                "name": one["name"],
                "x": round(x if pair is None else (x + pair[0]) / 2, 1),
                "y": round(y if pair is None else (y + pair[1]) / 2, 1),
                "line": pair and f"M{x:.1f} {y:.1f}L{pair[0]:.1f} {pair[1]:.1f}",
                "shade": round(15 + 85 * share),
                "radius": round(radius if pair is None else radius / 2, 1),
                "bad": _arc((radius if pair is None else radius / 2) + 1.5, bad),
                "named": len(placed) <= 80 and pair is None and "#" not in one["name"],
                "text": _have(one, total),
            }
        )
    worst = sorted((one for one in electrodes if one["bad"]), key=lambda one: (-one["bad"], one["name"]))
    unplaced = [one for one in electrodes if not one["anode"]]
    dots.sort(key=lambda dot: dot["named"])  # drawn last, so that no name is covered
    return {
        "dots": dots,
        "font": round(min(11.0, 0.88 * radius), 1),
        "worst": [(one["name"], f"{one['bad']} of {one['recordings']}") for one in worst[:8]],
        "more_worst": max(len(worst) - 8, 0),
        "unplaced": [(one["name"], _have(one, total)) for one in unplaced[:LISTED]],
        "more_unplaced": max(len(unplaced) - LISTED, 0),
        "summary": f"{len(placed)} electrodes with a place, {len(unplaced)} without; {len(worst)} are bad in some "
        "recording",
    }


def _have(one: dict[str, Any], total: int) -> str:
    bad = f", bad in {one['bad']}" if one["bad"] else ""
    return f"{one['name']}: in {one['recordings']} of {total} recordings{bad}"


def _from_above(point: Point) -> tuple[float, float]:
    """Unrolls the head: the distance from the middle is the angle from the top, a right angle = `HEAD`."""
    x, y, z = point
    flat = math.hypot(x, y)
    length = HEAD * math.atan2(flat, z) / (math.pi / 2)
    return (200 + length * x / flat, 200 - length * y / flat) if flat else (200.0, 200.0)


def _arc(radius: Number, share: Number) -> str | None:
    """A ring from the top, clockwise, of that share of the whole."""
    if share <= 0:
        return None
    angle = 2 * math.pi * min(share, 0.9999)
    x, y = radius * math.sin(angle), -radius * math.cos(angle)
    return f"M0 {-radius:.1f}A{radius:.1f} {radius:.1f} 0 {int(share > 0.5)} 1 {x:.2f} {y:.2f}"


def histogram(section: dict[str, Any]) -> dict[str, Any]:
    """Counts values on a log axis, some series on top of each other; the section keeps the counts only."""
    series, limits, usual = section["series"], section["limits"], section["usual"]
    known = [[value for value in line["values"] if value is not None and value > 0] for line in series]
    every = sorted(value for values in known for value in values)
    if not every:
        raise ValueError("expected at least one value above 0")
    low = math.floor(PER_DECADE * math.log10(min(every[0], limits[0])) - 1e-9)
    high = math.ceil(PER_DECADE * math.log10(max(every[-1], limits[1])) + 1e-9)
    counts = [[0] * (high - low) for _ in series]
    for values, bins in zip(known, counts):
        for value in values:
            bins[min(int(PER_DECADE * math.log10(value) - low), high - low - 1)] += 1
    most = max(map(sum, zip(*counts)))

    def x_at(value: Number) -> float:
        return round(100 * (PER_DECADE * math.log10(value) - low) / (high - low), 3)

    bars = []
    for place, column in enumerate(zip(*counts)):
        edges = [10 ** ((low + place + i) / PER_DECADE) for i in range(2)]
        parts = ", ".join(f"{n} {line['label']}" for n, line in zip(column, series) if n)
        below = 0
        for n, line in zip(column, series):
            if n:
                bars.append(
                    {
                        "x": 100 * (place + 0.06) / (high - low),
                        "width": 88 / (high - low),
                        "y": 100 - 100 * (below + n) / most,
                        "height": 100 * n / most,
                        "color": line["color"],
                        "text": f"{number(edges[0])} to {number(edges[1])} {section['unit']}: {parts}",
                    }
                )
            below += n
    for line, bins in zip(series, counts):
        del line["values"]
        line["counts"] = bins
    powers = range(math.ceil(low / PER_DECADE), math.floor(high / PER_DECADE) + 1)
    step = -(-len(powers) // 9)
    outside = sum(not limits[0] <= value <= limits[1] for value in every)
    return {
        "bars": bars,
        "most": most,
        "ticks": [(x_at(10.0**power), number(10.0**power)) for power in powers[::step]],
        "limits": [(x_at(value), number(value)) for value in limits],
        "usual": (x_at(usual[0]), x_at(usual[1]) - x_at(usual[0])),
        "summary": f"{len(every)} channels, the middle one {number(every[len(every) // 2])} {section['unit']}, "
        f"{outside} outside {number(limits[0])} to {number(limits[1])} {section['unit']}",
    }


def thumbnails(section: dict[str, Any]) -> dict[str, Any]:
    """Lays out cards; the section keeps only what is drawn."""
    cards = []
    for one in section["recordings"]:
        n_channels = len(one["ch_names"])
        folder, slash, name = one["file"].rpartition("/")
        cards.append(
            {key: one[key] for key in ("status", "facts", "problems")}
            | {
                "folder": folder + slash,
                "name": name,
                "height": min(HEIGHT_PX[1], max(HEIGHT_PX[0], CHANNEL_PX * n_channels)) if one["drawing"] else None,
                "text": f"Signals of {n_channels} channels, {len((one['drawing'] or {}).get('bad', []))} of them bad",
            }
        )
    section["recordings"] = [{key: one[key] for key in ("ch_names", "drawing")} for one in section["recordings"]]
    count = {status: sum(card["status"] == status for card in cards) for status in ("ok", "warning", "unusable")}
    return {"cards": cards, "count": count}
