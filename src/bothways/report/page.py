"""From plain dicts to one HTML file that needs nothing else: no network, no fonts, no folder beside it."""

import json
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from bothways.files import write_text
from bothways.report import plots, survey

PREPARE = {
    "text": plots.nothing,
    "facts": plots.nothing,
    "files": plots.nothing,
    "table": plots.table,
    "curve": plots.curve,
    "scatter": plots.scatter,
    "dots": plots.dots,
    "bars": plots.bars,
    "confusion": plots.confusion,
    "reliability": plots.reliability,
    "hypnogram": plots.hypnogram,
    "recording": plots.recording,
    "influence": plots.influence,
    "groups": plots.nothing,
    "montage": survey.montage,
    "histogram": survey.histogram,
    "thumbnails": survey.thumbnails,
}
"""Kind of a section -> what works out its geometry; the template of the same name draws it."""
SURVEY = {"groups", "montage", "histogram", "thumbnails"}
"""Kinds that need the style sheet of surveys."""


def write_report(report: dict[str, Any], out: Path) -> None:
    """Writes a report as one self-contained HTML file, atomically.

    Args:
        report: `title`, `subtitle`, `created`, `versions` (name -> version) and `sections`, each with `kind`,
            `title` and what its kind needs; any may have a `caption` and a `note` (a caveat, set apart):

            - `text`: `paragraphs` [str].
            - `facts`: `facts` {name: value}.
            - `table`: `columns` [str], `rows` [[cell]]; a cell is text, a number, None, or `{"mean", "sd"}`;
              `best` {column: "max" or "min"} sets the best cell off.
            - `curve`: `x_label`, `y_label`, `series` [{`label`, `x`, `y`, and where there are intervals `low`,
              `high`}], `log_y` (false), `log_x` (false; each x is a tick), `x_names` (of x = 0, 1, …; numbers if left
              out), `chance` (None).
            - `scatter`: `x_label`, `y_label`, `series` [{`label`, `x`, `y`}]; a point for each x.
            - `dots`: `x_label`, `arms` [{`label`, `values`}] with one value per split, `chance` (None), `splits`
              (names; 1, 2, … if left out), `each` ("split", or "person": what a dot is).
            - `bars`: `unit`, `groups` [str], `series` [{`label`, `values`}] with one value per group.
            - `confusion`: `classes` [str], `matrix` (row = truth).
            - `reliability`: `series` [{`label`, `ece`, `bins` [{`confidence`, `accuracy`, `n`}]}].
            - `hypnogram`: `stages` [str] from top to bottom, `series` [{`label`, `values`}] (a stage, by index, or
              None for each window), `window_s` (30).
            - `recording`: `ch_names`, `sfreq_hz`, `signals_uv` [C T] (NaN or None = missing), `start_s` (0),
              `classes` [str], `trace` {`label`, `times_s`, `values`} (0 to 1; None breaks the line) or several,
              `traces`, labelled by class, `threshold` (None), `predicted`, `truth` [{`start_s`, `stop_s`, `label`}],
              `truth_label` ("true"), `gaps` [{`start_s`, `stop_s`}].
            - `influence`: `unit`, `groups` [{`label`, `items` [{`label`, `value`}]}]: bars about zero, on one
              scale that spans at least `least` (0).
            - `groups`: `groups` [{`label`, `level` (`unusable`, `warning`, `harmless`), `items` [{`file`, `text`}]}],
              `none` (said where there is no group).
            - `montage`: `electrodes` [{`name`, `recordings`, `bad`, `anode`, `cathode`}] (counts; [x y z] on a head of
              radius 1 or None), `total` (recordings).
            - `histogram`: `unit`, `x_label`, `series` [{`label`, `color` (0 to 5), `values`}], `limits` and `usual`
              [low, high]; on a log axis.
            - `thumbnails`: `recordings` [{`file`, `status` (`ok`, `warning`, `unusable`), `facts`, `problems` [str],
              `ch_names`, `drawing` (of `eeg.check`, None = none)}]; at most one such section.
            - `files`: `files` [{`path`, `what`}], `next` [{`command`, `what`}].
        out: the file; its folder is made if need be.

    Raises:
        ValueError: an unknown kind, or numbers that cannot be drawn; the section is named.
        KeyError: a section lacks what its kind needs.
    """
    report = plain(report)
    views = []
    for section in report["sections"]:
        if section["kind"] not in PREPARE:
            raise ValueError(f"{section['title']}: unknown kind {section['kind']!r}; known: {', '.join(PREPARE)}")
        try:
            views.append(PREPARE[section["kind"]](section))
        except ValueError as problem:
            raise ValueError(f"{section['title']}: {problem}") from None
    kinds = {section["kind"] for section in report["sections"]}
    html = (
        environment()
        .get_template("page.html")
        .render(
            report=report,
            views=views,
            data=script_json(report),
            survey=bool(kinds & SURVEY),
            thumbnails="thumbnails" in kinds,
        )
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, html)


def environment() -> Environment:
    """Returns what fills in the templates; text is escaped."""
    made = Environment(
        loader=PackageLoader("bothways.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": plots.number, "cell": plots.cell}
    return made


def plain(value: Any) -> Any:
    """Copies to what JSON holds: arrays to lists, tuples to lists, NaN and infinity to None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def script_json(value: Any) -> str:
    """Writes JSON in which no text can end the script element that holds it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "&<>\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
