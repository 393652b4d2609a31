"""From a walk as plain dicts to one HTML file that computes it again as its reader points, switches and masks."""

from pathlib import Path
from typing import Any

from bothways.files import write_text
from bothways.report.page import environment, plain, script_json


def write_walkthrough(path: Path, page: dict[str, Any]) -> None:
    """Writes a walk through a model as one self-contained HTML file, atomically.

    Args:
        path: the file; its folder is made if need be.
        page: what `walkthrough.as_page` returns.
    """
    page = plain(page)
    html = environment().get_template("walkthrough.html").render(page=page, data=script_json(page))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, html)
