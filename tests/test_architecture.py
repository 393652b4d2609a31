"""The rooms of docs/architecture.md: who may import whom, read from the source without running it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bothways"
SOURCES = sorted(PACKAGE.rglob("*.py"))
LONGEST = 500  # lines of one file

FOUNDATIONS = {"errors", "files", "draws", "progress", "workers", "making", "weights", "tags"}
TO_MODEL = FOUNDATIONS | {"config", "masking", "encoder", "heads", "model"}
BELOW_RUN = TO_MODEL | {"padded", "eeg", "text", "training", "evaluation", "inspection", "report", "walkthrough"}
# The table of the document. `errors` is open to every room but the walkthrough: each may have to refuse input.
MAY_IMPORT = {
    **dict.fromkeys(FOUNDATIONS, FOUNDATIONS),
    "weights": {"errors", "files"},
    "tags": {"errors"},
    "config": FOUNDATIONS,
    "masking": {"errors", "config", "draws"},
    "encoder": {"errors", "config"},
    "heads": {"errors", "config", "encoder"},
    "model": {"errors", "config", "encoder", "heads"},
    "padded": {"errors", "config", "encoder", "heads", "model"},
    "eeg": TO_MODEL,
    "text": TO_MODEL,
    "training": TO_MODEL,
    "evaluation": FOUNDATIONS | {"config"},
    "inspection": TO_MODEL,
    "report": {"errors", "files"},
    "walkthrough": set(),
    "nn": TO_MODEL | {"eeg", "training"},
    "run": BELOW_RUN,
    "sklearn": BELOW_RUN | {"run"},
    "cli": {"errors", "config", "run"},
    "__init__": {"run"},  # `bothways.load`, imported when it is called
    "__main__": {"cli"},
}
ONLY_IN = {"mne": {"eeg"}, "tokenizers": {"text"}}
NOT_IN = {"torch": {"report", "walkthrough"}}


def imports(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Yields (line, full dotted name) of every import, wherever it stands; `package` resolves relative ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            # `from bothways import eeg` names a room; `from bothways.eeg import Store` names what a room offers.
            names = [f"{source}.{alias.name}" for alias in node.names] if source == "bothways" else [source]
            yield from ((node.lineno, name) for name in names)


def violations(source: str, module: str) -> list[str]:
    """Returns what `module` (its path in the package, such as "eeg/store.py") imports against the table."""
    path = Path(module)
    room = path.parts[0].removesuffix(".py")
    found = []
    for line, name in imports(ast.parse(source), ["bothways", *path.parent.parts]):
        top, *inside = name.split(".")
        if top != "bothways":
            if room not in ONLY_IN.get(top, {room}) or room in NOT_IN.get(top, set()):
                found.append(f"{module}:{line}: {room} may not import {top}")
        elif inside and inside != ["__version__"] and inside[0] != room:
            if inside[0] not in MAY_IMPORT[room]:
                found.append(f"{module}:{line}: {room} may not import {inside[0]}")
            elif inside[1:]:
                found.append(f"{module}:{line}: enter {inside[0]} through its __init__, not {name}")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports(path: Path) -> None:
    assert violations(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix()) == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("encoder.py", "import bothways.eeg", "encoder may not import eeg"),
        ("encoder.py", "from bothways import eeg", "encoder may not import eeg"),
        ("heads.py", "def f():\n    from bothways.text import Tokenizer", "heads may not import text"),
        ("training/loop.py", "from bothways.eeg import Store", "training may not import eeg"),
        ("training/loop.py", "from ..text import Corpus", "training may not import text"),
        ("evaluation/splits.py", "if TYPE_CHECKING:\n    from bothways.eeg import Windows", "may not import eeg"),
        ("eeg/store.py", "from bothways.text.hf import names", "eeg may not import text"),
        ("text/hf.py", "from .. import eeg", "text may not import eeg"),
        ("walkthrough/encoder.py", "import torch.nn as nn", "walkthrough may not import torch"),
        ("walkthrough/encoder.py", "from bothways.errors import UserError", "walkthrough may not import errors"),
        ("report/__init__.py", "import numpy, torch", "report may not import torch"),
        ("report/__init__.py", "from mne.io import read_raw", "report may not import mne"),
        ("run.py", "import mne", "run may not import mne"),
        ("eeg/store.py", "import tokenizers", "eeg may not import tokenizers"),
        (
            "run.py",
            "from bothways.eeg.store import Store",
            "enter eeg through its __init__, not bothways.eeg.store",
        ),
        ("cli.py", "from bothways.training import Loop", "cli may not import training"),
        ("config.py", "from bothways.model import Model", "config may not import model"),
    ],
)
def test_a_breach_is_found(module: str, source: str, expected: str) -> None:
    (found,) = violations(source, module)
    assert expected in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "eeg/__init__.py",
            "from bothways.eeg.store import Store\nfrom .labels import read_labels\nfrom . import store",
        ),
        ("eeg/reading.py", "import mne\nimport torch\nfrom bothways.config import SignalConfig"),
        ("run.py", "import torch\nfrom bothways import __version__, eeg\nfrom bothways.text import Tokenizer"),
        ("walkthrough/encoder.py", "import numpy as np\nfrom bothways.walkthrough import trace"),
    ],
)
def test_what_the_table_allows_is_allowed(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_the_table_names_the_same_rooms_as_the_document() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## Rooms")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    rooms = {name.strip("/").removesuffix(".py") for cell in first_cells for name in re.findall("`(.+?)`", cell)}
    assert rooms == MAY_IMPORT.keys() - {"__init__", "__main__"}


def test_every_source_lies_in_a_room() -> None:
    assert {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in SOURCES} <= MAY_IMPORT.keys()


def test_imports_point_down() -> None:
    seen: set[str] = {"__init__"} | FOUNDATIONS
    for room, allowed in MAY_IMPORT.items():
        assert room in FOUNDATIONS or allowed <= seen, f"{room} imports a room above itself"
        seen.add(room)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_no_file_is_too_long(folder: str) -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): n for path, n in lengths.items() if n > LONGEST} == {}
