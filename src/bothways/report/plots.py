"""The geometry of a report's plots: where each mark goes, in percent of its plot; text stays text."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any

Number = int | float
POINTS = 2000
"""Most points drawn of one channel."""
ENDS = ("low", "high")
"""Of an interval."""
ROW = 28
"""Height of one channel in pixels."""

ROUNDING = 1e-15
"""What is smaller is what differences of equal numbers leave."""


def number(value: Number | None, digits: int = 3) -> str:
    """Writes a number for reading: whole ones in full, others with `digits` significant digits."""
    if value is None:
        return "–"
    if abs(value) < ROUNDING:
        return "0"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\u202f").replace("-", "−")
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    return (mantissa + (f"e{int(exponent)}" if exponent else "")).replace("-", "−")


def cell(value: Any) -> str:
    """Writes a table's cell: text as it is, whole numbers in full, fractions with three decimals, mean ± SD."""
    if isinstance(value, dict):
        spread = "" if value.get("sd") is None else f" ± {value['sd']:.3f}"
        return f"{value['mean']:.3f}{spread}".replace("-", "−")
    if isinstance(value, float):
        return (f"{value:.3f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else number(value)).replace("-", "−")
    return number(value) if value is None or type(value) is int else str(value)


def nothing(section: dict[str, Any]) -> dict[str, Any]:
    """Is for sections without a plot."""
    return {}


def table(section: dict[str, Any]) -> dict[str, Any]:
    """Finds the cells to set off, as (row, column), and which columns hold numbers."""

    def value(row: list[Any], column: int) -> Number | None:
        content = row[column]["mean"] if isinstance(row[column], dict) else row[column]
        return content if isinstance(content, int | float) and not isinstance(content, bool) else None

    columns, rows = section["columns"], section["rows"]
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"expected {len(columns)} cells in each row")
    best = set()
    for name, which in section.get("best", {}).items():
        column = columns.index(name)
        values = {i: v for i, row in enumerate(rows) if (v := value(row, column)) is not None}
        if values:
            target = max(values.values()) if which == "max" else min(values.values())
            best |= {(i, column) for i, v in values.items() if v == target}
    numeric = [any(value(row, c) is not None for row in rows) for c in range(len(columns))]
    return {"best": best, "numeric": numeric}


def curve(section: dict[str, Any]) -> dict[str, Any]:
    """Places lines in a 100 × 100 box, y down; a missing value breaks its line; an interval is a bar at its point."""
    series, log_x, log_y = section["series"], section.get("log_x", False), section.get("log_y", False)
    names, chance = section.get("x_names"), section.get("chance")
    if any(len(line["x"]) != len(values) for line in series for key in ("y", *ENDS) if (values := line.get(key))):
        raise ValueError("expected as many y as x in each series")
    ys = [y for line in series for key in ("y", *ENDS) for y in line.get(key, ()) if y is not None]
    ys += [] if chance is None or not ys else [chance]
    xs = [x for line in series for x in line["x"]]
    if not ys:
        raise ValueError("expected at least one value to draw")
    if log_y and min(ys) <= 0:
        raise ValueError(f"expected values above 0 on a log axis, got {min(ys):g}")
    if log_x and min(xs) <= 0:
        raise ValueError(f"expected x above 0 on a log axis, got {min(xs):g}")
    y_ticks = _log_ticks(min(ys), max(ys)) if log_y else _ticks(min(ys), max(ys))
    x_ticks = [(tick, number(tick)) for tick in _ticks(min(xs), max(xs), 6) if min(xs) <= tick <= max(xs)]
    x_ticks = [(x, number(x)) for x in sorted(set(xs))] if log_x else x_ticks  # few sizes, each measured
    x_ticks = x_ticks if names is None else list(enumerate(names))
    scale, place = (math.log10 if log else float for log in (log_y, log_x))
    bottom, top = scale(min(y_ticks[0], *ys)), scale(max(y_ticks[-1], *ys))
    left, right = place(min(xs)), place(max(xs))

    def x_at(x: Number) -> float:
        return _share(place(x), left, right)

    def y_at(y: Number) -> float:
        return 100 - _share(scale(y), bottom, top)

    paths, bars, dots, told = [], [], [], []
    for line in series:
        ends = [line.get(end) or [None] * len(line["x"]) for end in ENDS]
        spans = [(x, *span) for x, *span in zip(line["x"], *ends) if None not in span]
        bars.append("".join(f"M{x_at(x):.2f} {y_at(low):.2f}V{y_at(high):.2f}" for x, low, high in spans))
        of = {x: f" ({number(low)} to {number(high)})" for x, low, high in spans}
        points = [(x, y) for x, y in zip(line["x"], line["y"]) if y is not None]
        # A point is a line of no length; its round cap draws it.
        dots.append("".join(f"M{x_at(x):.2f} {y_at(y):.2f}h0" for x, y in points) if names or log_x else "")
        at = [names[x] if names else number(x) for x, _ in points]
        told.append(", ".join(f"{where}: {number(y)}{of.get(x, '')}" for where, (x, y) in zip(at, points)))
        path, pen_down = [], False
        for x, y in zip(line["x"], line["y"]):
            if y is not None:
                path.append(f"{'L' if pen_down else 'M'}{x_at(x):.2f} {y_at(y):.2f}")
            pen_down = y is not None
        # A single point is a line of no length; its round cap draws it.
        paths.append("".join(path) + ("h0" if len(path) == 1 else ""))
    return {
        "paths": paths,
        "bars": bars,
        "points": dots,
        "told": told if any(bars) or names or log_x else [],
        "chance": None if chance is None else y_at(chance),
        "last": [next((y for y in reversed(line["y"]) if y is not None), None) for line in series],
        "x_ticks": [(x_at(tick), name) for tick, name in x_ticks],
        "y_ticks": [(y_at(tick), number(tick)) for tick in y_ticks],
    }


def scatter(section: dict[str, Any]) -> dict[str, Any]:
    """Places points in a 100 × 100 box, y down; six colours as dots, six more as rings."""
    series = section["series"]
    if any(len(group["x"]) != len(group["y"]) for group in series):
        raise ValueError("expected as many y as x in each series")
    xs, ys = ([value for group in series for value in group[axis]] for axis in "xy")
    if not xs or None in xs or None in ys:
        raise ValueError("expected points, all of them finite")
    x_ticks, y_ticks = _ticks(min(xs), max(xs), 6), _ticks(min(ys), max(ys))

    def x_at(x: Number) -> float:
        return _share(x, x_ticks[0], x_ticks[-1])

    def y_at(y: Number) -> float:
        return 100 - _share(y, y_ticks[0], y_ticks[-1])

    centres = [
        f"{group['label']}: {len(group['x'])} points around "
        f"{number(statistics.fmean(group['x']))}, {number(statistics.fmean(group['y']))}"
        for group in series
        if group["x"]
    ]
    return {
        # A point is a line of no length; its round cap draws it.
        "paths": ["".join(f"M{x_at(x):.1f} {y_at(y):.1f}h0" for x, y in zip(g["x"], g["y"])) for g in series],
        "color": [index % 6 for index in range(len(series))],
        "ring": [index // 6 % 2 == 1 for index in range(len(series))],
        "summary": "; ".join(centres),
        "x_ticks": [(x_at(tick), number(tick)) for tick in x_ticks],
        "y_ticks": [(y_at(tick), number(tick)) for tick in y_ticks],
    }


def dots(section: dict[str, Any]) -> dict[str, Any]:
    """Places one row per arm: a dot per split, mean and SD; a split keeps its height in every row."""
    arms, chance = section["arms"], section.get("chance")
    values = [value for arm in arms for value in arm["values"]] + ([] if chance is None else [chance])
    if not all(arm["values"] for arm in arms) or None in values:
        raise ValueError("expected at least one finite value for each arm")
    ticks = _ticks(min(values), max(values), 5)
    low, high = ticks[0], ticks[-1]
    rows = []
    for arm in arms:
        mean = statistics.fmean(arm["values"])
        sd = statistics.stdev(arm["values"]) if len(arm["values"]) > 1 else None
        left, right = (max(low, mean - (sd or 0)), min(high, mean + (sd or 0)))
        n = len(arm["values"])
        rows.append(
            {
                "label": arm["label"],
                "text": cell({"mean": mean, "sd": sd}),
                "mean": _share(mean, low, high),
                "left": _share(left, low, high),
                "width": _share(right, low, high) - _share(left, low, high),
                "dots": [
                    (_share(v, low, high), 50 if n == 1 else 20 + 60 * i / (n - 1), v)
                    for i, v in enumerate(arm["values"])
                ],
            }
        )
    best = max(rows, key=lambda row: row["mean"])
    return {
        "rows": rows,
        "best": best["label"],
        "chance": None if chance is None else _share(chance, low, high),
        "ticks": [(_share(tick, low, high), number(tick)) for tick in ticks],
        "splits": section.get("splits") or [str(i + 1) for i in range(max(len(arm["values"]) for arm in arms))],
    }


def bars(section: dict[str, Any]) -> dict[str, Any]:
    """Gives each bar's length in percent of the longest, and its text."""
    series, n = section["series"], len(section["groups"])
    if any(len(line["values"]) != n for line in series):
        raise ValueError(f"expected {n} values in each series, one per group")
    values = [value for line in series for value in line["values"] if value is not None]
    if not values or min(values) < 0:
        raise ValueError("expected values of at least 0")
    longest = max(values) or 1.0
    return {
        "lengths": [[None if v is None else 100 * v / longest for v in line["values"]] for line in series],
        "texts": [[cell(None if v is None else float(v)) for v in line["values"]] for line in series],
    }


def confusion(section: dict[str, Any]) -> dict[str, Any]:
    """Gives each cell's share of its row in percent (None: no such window), which sets its shade."""
    matrix, k = section["matrix"], len(section["classes"])
    if len(matrix) != k or any(len(row) != k for row in matrix):
        raise ValueError(f"expected a matrix of {k} × {k}")
    return {"shares": [[100 * count / sum(row) if sum(row) else None for count in row] for row in matrix]}


def reliability(section: dict[str, Any]) -> dict[str, Any]:
    """Places each bin of confidence in a 100 × 100 box, y down; the area of its point grows with its windows."""
    series = section["series"]
    if not series or not all(line["bins"] for line in series):
        raise ValueError("expected at least one bin in each series")
    points, texts = [], []
    for line in series:
        total = sum(one["n"] for one in line["bins"])
        points.append(
            [
                (
                    round(100 * one["confidence"], 2),
                    round(100 - 100 * one["accuracy"], 2),
                    round(5 + 15 * math.sqrt(one["n"] / total), 1),
                )
                for one in line["bins"]
            ]
        )
        bins = ", ".join(
            f"sure {number(one['confidence'])} right {number(one['accuracy'])} (n = {one['n']})" for one in line["bins"]
        )
        texts.append(f"{line['label']}, calibration error {number(line['ece'])}: {bins}")
    return {
        "points": points,
        "paths": ["".join(f"{'L' if i else 'M'}{x} {y}" for i, (x, y, _) in enumerate(line)) for line in points],
        "text": "; ".join(texts),
        "ticks": [(tick, number(tick / 100)) for tick in (0, 25, 50, 75, 100)],
    }


def hypnogram(section: dict[str, Any]) -> dict[str, Any]:
    """Places stages over time as steps in a 100 × 100 box for each series, the first stage on top; None breaks it."""
    stages, series, window_s = section["stages"], section["series"], section.setdefault("window_s", 30)
    n = len(series[0]["values"]) if series else 0
    if not n or any(len(line["values"]) != n for line in series):
        raise ValueError("expected at least one series, all of the same length")
    if any(v is not None and v not in range(len(stages)) for line in series for v in line["values"]):
        raise ValueError(f"expected stages 0 to {len(stages) - 1} or None")
    heights = [100 * (index + 0.5) / len(stages) for index in range(len(stages))]
    rows = []
    for line in series:
        path, before, at, changes = [], None, 0, 0
        for value, run in groupby(line["values"]):
            start, at = at, at + len(list(run))
            if value is not None:
                y = f"{heights[int(value)]:.2f}"  # of an array with NaN the others are fractions
                path.append(f"{f'M{100 * start / n:.2f} {y}' if before is None else f'V{y}'}H{100 * at / n:.2f}")
                changes += before is not None
            before = value
        minutes = [line["values"].count(index) * window_s / 60 for index in range(len(stages))]
        told = [f"{stage} {number(m)} min" for stage, m in zip(stages, minutes)]
        missing = line["values"].count(None) * window_s / 60
        told += [f"none {number(missing)} min"] if missing else []
        rows.append({"label": line["label"], "path": "".join(path), "told": ", ".join(told), "changes": changes})
    duration_s = n * window_s
    unit, unit_s = ("h", 3600) if duration_s >= 2 * 3600 else ("min", 60)
    ticks = [tick for tick in _ticks(0, duration_s / unit_s, 8) if tick <= duration_s / unit_s]
    return {
        "rows": rows,
        "stages": list(zip(heights, stages)),
        "ticks": [(100 * tick * unit_s / duration_s, f"{number(tick)} {unit}") for tick in ticks],
    }


def recording(section: dict[str, Any]) -> dict[str, Any]:
    """Places signals, trace and spans along one time axis; the section keeps only the points that are drawn."""
    signals, sfreq_hz, start_s = section["signals_uv"], section["sfreq_hz"], section.setdefault("start_s", 0)
    if len(signals) != len(section["ch_names"]) or not signals or len({len(signal) for signal in signals}) != 1:
        raise ValueError("expected one signal per channel name, all of the same length")
    n_samples = len(signals[0])
    duration_s = n_samples / sfreq_hz
    if not n_samples:
        raise ValueError("expected at least one sample")
    times, columns = _envelope_columns(n_samples)
    reduced = [_envelope(signal, columns) for signal in signals]
    section["signals_uv"] = [[None if v is None else round(v, 1) for v in signal] for signal in reduced]
    section["times_s"] = [round(start_s + index / sfreq_hz, 4) for index in times]

    def x_at(seconds: Number) -> float:
        return min(100.0, max(0.0, _share(seconds, start_s, start_s + duration_s)))

    def spans(name: str) -> list[dict[str, Any]]:
        return [
            {"left": x_at(s["start_s"]), "width": x_at(s["stop_s"]) - x_at(s["start_s"]), **s}
            for s in section.get(name, [])
        ]

    middles = [statistics.median(known) if (known := [v for v in s if v is not None]) else 0.0 for s in reduced]
    row_uv = _row_uv(reduced, middles)
    traces = [section["trace"]] if section.get("trace") else section.get("traces", [])
    unit, unit_s = ("h", 3600) if duration_s >= 2 * 3600 else ("s", 1)
    low, high = start_s / unit_s, (start_s + duration_s) / unit_s
    return {
        "height": ROW * len(signals),
        "row": ROW,
        "row_uv": row_uv,
        "paths": [
            _path(
                signal,
                times,
                n_samples,
                lambda v, i=i, m=m: ROW * (i + 0.5 - min(1.0, max(-1.0, (v - m) / row_uv))),
            )
            for i, (signal, m) in enumerate(zip(reduced, middles))
        ],
        "traces": [_trace_path(trace, x_at) for trace in traces],
        "told": "; ".join(_told(trace) for trace in traces),
        "threshold": section.get("threshold"),
        "predicted": spans("predicted"),
        "truth": spans("truth"),
        "gaps": spans("gaps"),
        "color": {name: index % 6 for index, name in enumerate(section.get("classes", []))},
        "unit": unit,
        "duration": number(duration_s / unit_s, 5),
        "ticks": [(x_at(t * unit_s), number(t)) for t in _ticks(low, high, 8) if low <= t <= high],
        "duration_s": duration_s,
    }


def _trace_path(trace: dict[str, Any], x_at: Callable[[Number], float]) -> str:
    """Writes an SVG path in a 100 × 100 box, y down; None breaks it."""
    path, pen_down = [], False
    for time, value in zip(trace["times_s"], trace["values"]):
        if value is not None:
            path.append(f"{'L' if pen_down else 'M'}{x_at(time):.2f} {100 - 100 * value:.1f}")
        pen_down = value is not None
    return "".join(path)


def _told(trace: dict[str, Any]) -> str:
    """Says in words where a trace is highest."""
    known = [(value, -time) for time, value in zip(trace["times_s"], trace["values"]) if value is not None]
    if not known:
        return f"{trace['label']}: none"
    value, time = max(known)
    return f"{trace['label']}: lowest {number(min(known)[0])}, highest {number(value)} at {number(-time, 6)} s"


def influence(section: dict[str, Any]) -> dict[str, Any]:
    """Gives each bar its left end and its length in percent, about one line of zero; None has no bar."""
    values = [item["value"] for group in section["groups"] for item in group["items"] if item["value"] is not None]
    if not values:
        raise ValueError("expected at least one value")
    low, high = min(0.0, *values), max(0.0, *values)
    high = max(high, low + section.get("least", 0)) or 1.0
    bars = [
        [
            None
            if item["value"] is None
            else (_share(min(0.0, item["value"]), low, high), 100 * abs(item["value"]) / (high - low))
            for item in group["items"]
        ]
        for group in section["groups"]
    ]
    texts = [
        ["–" if item["value"] is None else cell(round(item["value"], 3) + 0.0) for item in group["items"]]
        for group in section["groups"]
    ]
    return {"zero": _share(0.0, low, high), "bars": bars, "texts": texts}


def _envelope_columns(n_samples: int) -> tuple[list[float], list[tuple[int, int]]]:
    """Cuts the samples into columns of which the least and the largest are drawn, so no spike is lost."""
    if n_samples <= POINTS:
        return list(map(float, range(n_samples))), [(i, i + 1) for i in range(n_samples)]
    n = POINTS // 2
    edges = [round(i * n_samples / n) for i in range(n + 1)]
    columns = list(pairwise(edges))
    return [a + (b - a) * part for a, b in columns for part in (0.25, 0.75)], columns


def _envelope(signal: Sequence[Number | None], columns: list[tuple[int, int]]) -> list[Number | None]:
    if len(columns) == len(signal):
        return list(signal)
    points: list[Number | None] = []
    for start, stop in columns:
        known = [(value, index) for index in range(start, stop) if (value := signal[index]) is not None]
        if known:
            points += [value for value, _ in sorted((min(known), max(known)), key=lambda point: point[1])]
        else:
            points += [None, None]
    return points


def _row_uv(signals: list[list[Number | None]], middles: list[Number]) -> float:
    """Picks the microvolts of one row: a round number near the typical channel's central range."""
    typical = []
    for signal, middle in zip(signals, middles):
        sizes = sorted(abs(v - middle) for v in signal if v is not None)
        if sizes:
            typical.append(2 * sizes[int(0.9 * (len(sizes) - 1))])
    size = statistics.median(typical) if typical else 0.0
    return _nice(size) if size > 0 else 1.0


def _path(signal: list[Number | None], times: list[float], n_samples: int, y_at: Any) -> str:
    """Writes an SVG path with whole-number steps (x 0 to 2000): a third of the size, no visible loss."""
    path, pen_down, here = [], False, (0, 0)
    for time, value in zip(times, signal):
        if value is not None:
            # y in tenths of a pixel
            point = round(POINTS * time / n_samples), round(10 * y_at(value))
            if pen_down:
                path.append(f"l{point[0] - here[0]} {point[1] - here[1]}")
            else:
                path.append(f"M{point[0]} {point[1]}")
            here = point
        pen_down = value is not None
    return "".join(path).replace(" -", "-")


def _share(value: Number, low: Number, high: Number) -> float:
    return 50.0 if high == low else 100 * (value - low) / (high - low)


def _nice(size: Number) -> float:
    """Returns the smallest of 1, 2, 5 × a power of ten that is at least `size`."""
    power: float = 10.0 ** math.floor(math.log10(size))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= size * (1 - 1e-9))


def _ticks(low: Number, high: Number, about: int = 5) -> list[float]:
    """Returns round numbers from at most `low` to at least `high`."""
    if high == low:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    step = _nice((high - low) / about)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _log_ticks(low: Number, high: Number) -> list[float]:
    """Returns 1, 2, 5 × powers of ten around the range; only the powers where it spans more than two."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 2 else (1,)
    ticks = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    inside = [tick for tick in ticks if low <= tick <= high]
    below, above = [t for t in ticks if t < low], [t for t in ticks if t > high]
    return below[-1:] + inside + above[:1]
