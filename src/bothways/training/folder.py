"""A run's folder while it is trained: locked, gone on with where it was stopped, kept small, finished at the end.

RUN/training.json        what the run depends on; there from the first moment
RUN/metrics.jsonl        the log, live
RUN/checkpoints/step-…   each a whole run that can be loaded, with what training needs to go on
RUN/checkpoints/latest   the name of the one to go on from; `best` likewise
RUN/model.safetensors …  the finished run; its manifest.json is written last
RUN/.before              what `overwrite` replaces, until the new run has its first checkpoint
"""

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bothways.config import ANY_TIME, Settings, TrainingConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import (
    check_output,
    hidden_beside,
    link_or_copy,
    locked,
    new_folder,
    read_json,
    sha256_file,
    write_json,
    write_text,
)
from bothways.model import Model
from bothways.training.checkpoint import (
    BEGUN,
    BEST,
    CHECKPOINTS,
    LATEST,
    MANIFEST,
    METRICS,
    load_manifest,
    load_tensors,
    save_run,
)
from bothways.training.optim import in_bf16
from bothways.training.parallel import Team, gathered
from bothways.weights import read_weights, write_weights

STATE, OPTIMIZER = "state.json", "optimizer.safetensors"
FITTED, FORCED = "fitted_batch_size", "forced"
"""In `training.json`: what `training.batch_size = "auto"` came to; what `--force` has overridden, and at which step."""
SUMS = "sha256"
"""In a checkpoint's manifest: of its files that hold no checksums of their own."""

_BITS = ("bothways", "torch", "processes", "threads")
"""Another of these may change the last bits."""
_OWN = {BEGUN, CHECKPOINTS, METRICS, "tensorboard", "lock"}
_BEFORE, _MOVING = ".before", ".before-moving"
"""What `overwrite` replaces; under the second name while it is moved there or back."""


@dataclass
class State:
    """Where a training stands; with the weights and the optimizer's moments all that going on needs."""

    step: int = 0
    """Steps done."""
    seconds: float = 0.0
    waited_s: float = 0.0
    evaluated: int = 0
    """The last step after which was evaluated."""
    evaluations: int = 0
    best_score: float | None = None
    best_step: int = 0
    stale: int = 0
    """Evaluations since the best one."""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The log so far."""
    entry: dict[str, Any] | None = None
    """What can be logged of the last step."""
    pending: dict[str, Any] | None = None
    """A line of it whose evaluation is still to come."""


Saved = tuple[dict[str, Tensor], dict[str, Tensor], State]
"""What a checkpoint holds: weights, moments, state."""


class RunFolder:
    """An open run's folder; made by `open_run`.

    Attributes:
        path: the folder.
        settings: the run's, as they are written into it; a setting that was left to the machine may be set anew.
        manifest: what a run records of its data and itself, known before the first step.
        result: what the finished run gave, or None while there is something to do.
    """

    def __init__(self, path: Path, settings: Settings, team: Team) -> None:
        self.path, self.settings, self.team = path, settings, team
        self.manifest: dict[str, Any] = {}
        self.result: dict[str, Any] | None = None
        self.forced: list[dict[str, Any]] = []
        self._begun: dict[str, Any] | None = None  # what `training.json` will hold once `force` has come to something

    @property
    def finished(self) -> bool:
        """Whether the run is trained and whole."""
        return (self.path / MANIFEST).is_file()

    @property
    def latest(self) -> str:
        """The checkpoint to go on from: what `latest` says, or the newest there is before it; "" = none."""
        steps, pointed = self._steps(), self._pointed()
        return max((name for name in steps if name <= (pointed or steps[-1])), default="")

    def fitted(self, find: Callable[[], int]) -> int:
        """Returns the batch size that was left to the machine; a run that goes on keeps the one it was begun with."""
        begun = self.team.first_does(lambda: _read_begun(self.path))
        if FITTED not in begun:
            begun[FITTED] = min(self.team.agree(find))
            self.team.first_does(lambda: write_json(self.path / BEGUN, begun))
        return begun[FITTED]

    def log(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to the log."""
        if self.team.first:
            with self._writing(self.path / METRICS), (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def save(
        self,
        model: Model,
        weights: Mapping[str, Tensor],
        moments: Mapping[str, Tensor],
        state: State,
        *,
        keep: int,
    ) -> None:
        """Writes a checkpoint, points `latest` to it and `best` to its best, and removes all but the `keep` newest.

        What one of these counts as its best stays, too: so each can be gone on from.

        Raises:
            UserError: it cannot be written; the one before stays valid.
        """
        if not self.team.first:
            return
        folder = self.path / CHECKPOINTS / _name(state.step)
        with self._writing(folder):
            with new_folder(folder, overwrite=True) as new:
                write_weights(new / OPTIMIZER, moments)
                write_text(new / METRICS, "".join(json.dumps(entry) + "\n" for entry in state.metrics))
                write_json(new / STATE, {**vars(state), "metrics": len(state.metrics)})
                sums = {name: sha256_file(new / name) for name in (METRICS, STATE)}
                save_run(new, model, self.settings, {**self._told(), "step": state.step, SUMS: sums}, weights)
            self._note_force()
            write_text(self.path / CHECKPOINTS / LATEST, folder.name)
            if state.best_step:
                write_text(self.path / CHECKPOINTS / BEST, _name(state.best_step))
        _remove(self.path / _BEFORE)
        kept = {*[name for name in self._steps() if name <= folder.name][-keep:], folder.name}
        kept |= {self._best_of(name) for name in kept}
        for name in set(self._steps()) - kept:
            hidden = hidden_beside(self.path / CHECKPOINTS / name, "old")
            with suppress(OSError):  # what is left is removed when the run is opened again
                (self.path / CHECKPOINTS / name).rename(hidden)  # whoever looks sees all of it or nothing
            _remove(hidden)

    def load(self) -> Saved | None:
        """Reads the latest checkpoint: weights, moments, state; None = the run has to begin.

        A damaged one is passed over with a warning: from the one before it the same numbers come. The first process
        chooses, and the others go on from the same one.

        Raises:
            UserError: all are damaged, or another process does not find in the chosen one what the first one did.
        """
        read: list[Saved] = []
        name, sums = self.team.first_does(lambda: self._choose(read))

        def read_it() -> None:
            folder = self.path / CHECKPOINTS / name
            if not read:
                try:
                    if load_manifest(folder)[SUMS] != sums:
                        raise UserError("it is another one than the first process reads")
                    weights, moments, _, state = _read_checkpoint(folder)
                except (UserError, OSError, KeyError, TypeError, ValueError) as problem:
                    why = str(problem).partition("\n")[0]
                    raise UserError(f"{folder}: process {self.team.rank} cannot go on from it ({why})") from None
                read.append((weights, moments, state))

        if name:
            self.team.agree(read_it)
        return read[0] if read else None

    def _choose(self, read: list[Saved]) -> tuple[str, dict[str, str]]:
        """Names the checkpoint to go on from, "" = none, with its checksums; what it holds is added to `read`."""
        checkpoints, latest, pointed = self.path / CHECKPOINTS, self.latest, self._pointed()
        problems = [f"{pointed or LATEST}: missing"] if latest and pointed != latest else []
        for name in reversed([name for name in self._steps() if name <= latest]):
            try:
                weights, moments, log, state = _read_checkpoint(checkpoints / name)
            except (UserError, OSError, KeyError, TypeError, ValueError) as problem:
                why = str(problem).partition("\n")[0].removesuffix("; restore it").replace(f"{checkpoints}/", "")
                problems.append(why if name in why else f"{name}: the checkpoint is damaged ({why})")
                continue
            for damaged in problems:
                warnings.warn(f"{checkpoints}/{damaged}; going on from {name} instead", BothwaysWarning, stacklevel=2)
            write_text(self.path / METRICS, log)
            read.append((weights, moments, state))
            return name, load_manifest(checkpoints / name)[SUMS]
        if problems:
            raise UserError(
                f"{self.path}: no checkpoint can be read ({'; '.join(problems)}); pass --overwrite to begin anew"
            )
        (self.path / METRICS).unlink(missing_ok=True)
        return "", {}

    def weights_of(self, step: int) -> dict[str, Tensor] | None:
        """Returns the weights of the checkpoint of a step; step 0 has none."""
        read: list[dict[str, Tensor]] = []
        if step:
            self.team.agree(lambda: read.append(load_tensors(self.path / CHECKPOINTS / _name(step))))
        return read[0] if read else None

    def finish(self, model: Model, result: Mapping[str, Any]) -> None:
        """Writes the finished run; from here on the folder holds all that other commands need."""
        weights = gathered(model.state_dict(), self.team)

        def write() -> None:
            with self._writing(self.path):
                self._note_force()
                save_run(self.path, model, self.settings, {**self._told(), "result": result}, weights)
            _remove(self.path / _BEFORE)

        self.team.first_does(write)

    def _told(self) -> dict[str, Any]:
        return {**self.manifest, **({FORCED: self.forced} if self.forced else {})}

    def _note_force(self) -> None:
        """From now on the run is one of the settings that `force` has put in the place of others."""
        if self._begun is not None:
            fitted = {name: value for name, value in _read_begun(self.path).items() if name == FITTED}
            write_json(self.path / BEGUN, {**self._begun, **fitted, FORCED: self.forced})
            self._begun = None

    @contextmanager
    def _writing(self, what: Path) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            after = f"step {int(self.latest.removeprefix('step-'))}" if self.latest else "the beginning"
            raise UserError(
                f"{what}: cannot be written: {problem.strerror or problem}; make room and run the same command again, "
                f"it goes on from {after}"
            ) from None

    def _steps(self) -> list[str]:
        return sorted(path.name for path in (self.path / CHECKPOINTS).glob("step-*") if path.is_dir())

    def _pointed(self) -> str:
        """The name in `latest`; where it holds none, that of the newest checkpoint; "" without the file."""
        file = self.path / CHECKPOINTS / LATEST
        if not file.is_file():
            return ""
        name = file.read_text(encoding="utf-8", errors="replace").strip()
        return name if name.startswith("step-") else max(self._steps(), default="")

    def _best_of(self, checkpoint: str) -> str:
        try:
            return _name(read_json(self.path / CHECKPOINTS / checkpoint / STATE)["best_step"])
        except (UserError, KeyError, TypeError, ValueError):
            return ""


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], str, State]:
    """Reads weights, moments, the log's text and the state; whatever is wrong with one of them is an exception."""
    sums = load_manifest(folder)[SUMS]
    if odd := [name for name in (METRICS, STATE) if sha256_file(folder / name) != sums[name]]:
        raise UserError(f"{folder / odd[0]}: SHA-256 is not the one it was saved with")
    log = (folder / METRICS).read_text(encoding="utf-8")
    state = State(**{**read_json(folder / STATE), "metrics": [*map(json.loads, log.splitlines())]})
    if _name(state.step) != folder.name:
        raise UserError(f"{folder / STATE}: expected the step of the folder's name, got {state.step}")
    return load_tensors(folder), read_weights(folder / OPTIMIZER), log, state


def _read_begun(path: Path) -> dict[str, Any]:
    begun = read_json(path / BEGUN)
    if not isinstance(begun, dict):
        raise UserError(f"{path / BEGUN}: expected a JSON object; restore it, or pass --overwrite to begin anew")
    return begun


def check_place(path: Path, *, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Checks, before any work, that a run can be made at `path`, or gone on with; see `files.check_output`."""
    begun = (path / BEGUN).is_file()
    if not (overwrite or begun) and any((path / CHECKPOINTS).glob("step-*")):
        raise UserError(
            f"{path}: has checkpoints but no {BEGUN}, which says what they come from; restore it, choose another "
            "--out, or pass --overwrite to begin anew"
        )
    check_output(path, overwrite=overwrite or begun, inputs=inputs)


@contextmanager
def open_run(
    path: Path,
    settings: Settings,
    depends_on: Mapping[str, Any],
    team: Team,
    *,
    overwrite: bool = False,
    force: bool = False,
    inputs: Iterable[str | Path] = (),
) -> Iterator[RunFolder]:
    """Makes a run's folder, or opens one that was begun with the same settings and data; locked while it is open.

    Args:
        path: the folder.
        settings: of the run, with a `training` table.
        depends_on: what else the run's numbers come from: name -> plain value, best a hash.
        team: the processes that train.
        overwrite: begin anew, whatever is there; it is kept until the new run has its first checkpoint.
        force: go on although something differs, with a warning that names it; `training.json` and the manifest keep it.
        inputs: see `files.check_output`.

    Yields:
        The folder; its `result` is set where the run is finished already.

    Raises:
        UserError: `path` is no run, another process trains it, or it was begun with other settings or data.
    """
    training: TrainingConfig = settings.training  # type: ignore[attr-defined]
    mine = {
        **settings.model_dump(mode="json"), **depends_on,
        "device": team.device.type, "arithmetic": "bf16" if in_bf16(training, team.device) else "float32",
        "bothways": version("bothways"), "torch": torch.__version__,
        "threads": torch.get_num_threads(), "processes": team.size,
    }  # fmt: skip
    mine = json.loads(json.dumps(mine))  # as it comes back from the file
    folder = RunFolder(path, settings, team)
    with ExitStack() as stack:

        def begin() -> dict[str, Any] | None:
            check_place(path, overwrite=overwrite, inputs=inputs)
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(path / "lock", f"{path}: another process trains it; wait until it is done"))
            _begin(folder, mine, overwrite=overwrite, force=force)
            if not folder.finished:
                return None
            result = load_manifest(path).get("result")
            if not isinstance(result, dict):
                raise UserError(f"{path / MANIFEST}: holds no result; restore it, or pass --overwrite to begin anew")
            return result

        folder.result = team.first_does(begin)
        try:
            yield folder
        finally:
            if team.first and not (folder.finished or folder.latest):
                with suppress(OSError):  # what led here matters more
                    if (path / _BEFORE).exists():
                        _put_back(path)
                    elif {entry.name for entry in path.iterdir()} <= _OWN:  # nothing to go on from
                        for entry in path.iterdir():
                            _remove(entry)
                        path.rmdir()


def _begin(folder: RunFolder, mine: dict[str, Any], *, overwrite: bool, force: bool) -> None:
    """Makes a locked folder one that can be trained in: as it was left, emptied, or refused."""
    path = folder.path
    if (path / _MOVING).exists() or not (folder.finished or folder.latest):
        _put_back(path)  # killed before its first checkpoint
    for left in [*path.glob(".*.partial"), *(path / CHECKPOINTS).glob(".*"), path / _BEFORE]:
        _remove(left)
    others = [entry for entry in path.iterdir() if entry.name not in ("lock", BEGUN)]
    if overwrite and others:
        _put_aside(path, mine)
    elif overwrite or not (folder.finished or folder.latest):
        write_json(path / BEGUN, mine)
        for entry in others:
            _remove(entry)
    else:
        theirs = _read_begun(path)
        folder.forced = theirs.pop(FORCED, [])
        theirs.pop(FITTED, None)
        if forced := _compare(path, theirs, mine, finished=folder.finished, force=force):
            step = int(folder.latest.removeprefix("step-"))
            folder.forced, folder._begun = [*folder.forced, {"step": step, "changed": forced}], mine
    (path / CHECKPOINTS).mkdir(exist_ok=True)


def _put_aside(path: Path, mine: Mapping[str, Any]) -> None:
    """Empties a run's folder for a new one; `_put_back` undoes it, wherever it was killed."""
    (path / _MOVING).mkdir()
    if (path / BEGUN).exists():  # there is one at any moment: it says whose the folder is
        link_or_copy(path / BEGUN, path / _MOVING / BEGUN)
    write_json(path / BEGUN, mine)
    for entry in path.iterdir():
        if entry.name not in ("lock", BEGUN, _MOVING):
            entry.rename(path / _MOVING / entry.name)
    (path / _MOVING).rename(path / _BEFORE)


def _put_back(path: Path) -> None:
    """Gives a run's folder what a new run would have replaced, if there is something."""
    if (path / _BEFORE).exists():
        for name in _OWN - {"lock", BEGUN}:
            _remove(path / name)
        (path / _BEFORE).rename(path / _MOVING)
    if (path / _MOVING).exists():
        entries = sorted((path / _MOVING).iterdir(), key=lambda entry: entry.name == BEGUN)
        for entry in entries:
            entry.rename(path / entry.name)
        if entries and entries[-1].name != BEGUN:
            (path / BEGUN).unlink(missing_ok=True)
        (path / _MOVING).rmdir()


def _remove(path: Path) -> None:
    """Removes a file or a folder as far as the file system lets it."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _compare(path: Path, theirs: dict[str, Any], mine: dict[str, Any], *, finished: bool, force: bool) -> list[str]:
    """Refuses what would change the numbers, or returns it; what may change their last bits only is said."""
    differing = list(_differences(theirs, mine))
    bits = {name: text for name, text in differing if name in _BITS}
    if bits and not finished:
        drawn = "processes" in bits and any(_dropouts(mine))
        what = "other dropout is drawn" if drawn else "the last bits may differ"
        warnings.warn(f"{path}: goes on with {'; '.join(bits.values())}: {what}", BothwaysWarning, stacklevel=4)
    others = [text for name, text in differing if name not in (*_BITS, *(f"training.{name}" for name in ANY_TIME))]
    if others and (finished or not force):
        go_on = "" if finished else ", or --force to go on all the same"
        over = ", and a finished run cannot be extended" if finished and force else ""
        raise UserError(
            f"{path}: was {'made' if finished else 'begun'} with other settings or data ({'; '.join(others)}){over}; "
            f"use those, choose another --out, pass --overwrite to begin anew{go_on}"
        )
    if others:
        warnings.warn(f"{path}: --force goes on although {'; '.join(others)}", BothwaysWarning, stacklevel=4)
    return others


def _dropouts(values: Mapping[str, Any]) -> Iterator[float]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _dropouts(value)
        elif "dropout" in name:
            yield value


def _differences(theirs: Any, mine: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in dict.fromkeys([*theirs, *mine]):
            yield from _differences(theirs.get(key), mine.get(key), f"{name}.{key}" if name else str(key))
    elif theirs != mine:
        yield name, f"{name}: {_short(theirs)}, now {_short(mine)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"
