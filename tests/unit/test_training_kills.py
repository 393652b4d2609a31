"""Full disks and kills at any moment of a run's life: what is there stays whole and is gone on from."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bothways import files
from bothways.errors import UserError
from bothways.training import checkpoint, folder
from commands import timeless
from sittings import opened, outcome, sitting, step, stopped


@pytest.fixture
def undisturbed(tmp_path: Path) -> tuple[bytes, list[tuple[Any, ...]]]:
    sitting(tmp_path / "undisturbed")
    return outcome(tmp_path / "undisturbed")


def full_on(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """As if the disk were full for a file whose path ends so."""

    def write(path: Path, *arguments: Any, **options: Any) -> Any:
        if str(path).endswith(name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *arguments, **options)

    return write


@pytest.mark.filterwarnings("ignore:.*latest. missing")
@pytest.mark.parametrize(
    ("place", "written", "name", "where", "after"),
    [
        (folder, "write_json", "run/training.json", "training.json", "the beginning"),
        (folder, "write_text", "latest", f"checkpoints/{step(1)}", "step 1"),
        (Path, "open", "run/metrics.jsonl", "metrics.jsonl", "step 2"),
        (checkpoint, "write_text", "recipe.toml", f"checkpoints/{step(1)}", "the beginning"),
    ],
    ids=["settings", "pointer", "log", "checkpoint"],
)
def test_a_full_disk_names_the_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    undisturbed: Any,
    place: Any,
    written: str,
    name: str,
    where: str,
    after: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, written, full_on(name, getattr(place, written)))
        with pytest.raises(UserError) as caught:
            sitting(tmp_path / "run", log_every=3)
    assert str(caught.value) == (
        f"{tmp_path / 'run' / where}: cannot be written: No space left on device; make room and run the same command "
        f"again, it goes on from {after}"
    )
    sitting(tmp_path / "run")
    assert outcome(tmp_path / "run")[0] == undisturbed[0]


def test_a_full_disk_when_the_log_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(tmp_path / "run", 2)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_text", full_on("metrics.jsonl", folder.write_text))
        with pytest.raises(UserError, match=r"run/metrics.jsonl: cannot be written: No "):
            sitting(tmp_path / "run")


@pytest.mark.parametrize("name", ["model.safetensors", "README.md", "manifest.json"])
def test_a_full_disk_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Any, name: str) -> None:
    stopped(tmp_path / "run", 5)
    sitting(tmp_path / "whole")
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if target.name == name and target.parent.name == "run":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(UserError, match=r"run: cannot be written: No .* from step 6$"):
            sitting(tmp_path / "run")
    assert not (tmp_path / "run" / "manifest.json").exists()
    sitting(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_a_full_disk_while_a_run_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sitting(tmp_path / "run")
    before = outcome(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(folder, "write_json", full_on("training.json", folder.write_json))
        with pytest.raises(UserError) as caught:
            sitting(tmp_path / "run", seed=1, overwrite=True)
    assert str(caught.value).endswith("make room and run the same command again, it goes on from the beginning")
    with opened(tmp_path / "run") as run:
        assert run.result is not None
    assert outcome(tmp_path / "run") == before
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", full_on("run/metrics.jsonl", Path.open))
        with pytest.raises(UserError) as caught:
            sitting(tmp_path / "run", seed=1, overwrite=True, log_every=3)
    assert str(caught.value).endswith("run the same command again, without --overwrite, it goes on from step 2")


# Killed at each change of the disk -------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def killed_at(run: Path, change: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Trains until so many files and folders have got their names or gone; says whether it was killed by then."""
    left = [change]

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*arguments: Any, **options: Any) -> Any:
            if left[0] <= 0:  # the rest of the process does nothing either
                raise Killed
            left[0] -= 1
            return real(*arguments, **options)

        return work

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "mkdir", "unlink", "rmdir"):
            patch.setattr(Path, name, mortal(getattr(Path, name)))
        for place, name in ((os, "fsync"), (shutil, "rmtree"), (files, "_exchange")):
            patch.setattr(place, name, mortal(getattr(place, name)))
        try:
            sitting(run, steps=2, evaluations=2, keep=1)
        except Killed:
            return True
    return False


@pytest.mark.filterwarnings("ignore:.*latest. missing")
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_each_change_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """From before the folder is there to the end of `finish`."""
    sitting(tmp_path / "undisturbed", steps=2, evaluations=2, keep=1)
    expected, change = left_of(tmp_path / "undisturbed"), 0
    while killed_at(tmp_path / "run", change, monkeypatch):
        sitting(tmp_path / "run", steps=2, evaluations=2, keep=1)
        assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed"), change
        assert left_of(tmp_path / "run") == expected, change
        shutil.rmtree(tmp_path / "run")
        change += every
    assert change > 100


def left_of(run: Path) -> dict[str, Any]:
    """All files, manifests and pointers with what does not depend on the clock."""
    return {
        str(path.relative_to(run)): timeless(json.loads(path.read_text()) | {"sha256": None})
        if path.name == "manifest.json"
        else path.read_text()
        if path.name in ("latest", "best")
        else None
        for path in sorted(run.rglob("*"))
    }
