"""A run's folder while it is trained: locked, gone on with where it was stopped, kept small, finished at the end.

RUN/training.json        what the run depends on; there from the first moment
RUN/metrics.jsonl        the log, live
RUN/checkpoints/step-…   each a whole run that can be loaded, with what training needs to go on
RUN/checkpoints/latest   the name of the one to go on from; `best` likewise
RUN/model.safetensors …  the finished run; its manifest.json is written last
RUN/.before              what `overwrite` replaces, until the new run has its first checkpoint
"""

import json
import re
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

from bothways.config import Settings, TrainingConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import (
    check_output,
    hidden_beside,
    link_or_copy,
    locked,
    make_folder,
    new_folder,
    read_json,
    write_json,
    write_text,
)
from bothways.model import Model
from bothways.training.checkpoint import (
    BEGUN,
    BEST,
    CARD,
    CHECKPOINTS,
    CONFIG,
    LATEST,
    MANIFEST,
    METRICS,
    RECIPE,
    SUMS,
    SaveModel,
    load_manifest,
    load_tensors,
    run_at,
    save_model,
    save_run,
    sums_of,
)
from bothways.training.differences import compare
from bothways.training.optim import in_bf16
from bothways.training.parallel import Team, gathered
from bothways.weights import WEIGHTS, read_weights, write_weights

STATE, OPTIMIZER = "state.json", "optimizer.safetensors"
_GOES_ON = (OPTIMIZER, STATE, METRICS)
FITTED, FORCED = "fitted_batch_size", "forced"
"""In `training.json`: what `training.batch_size = "auto"` came to; what `--force` has overridden, and at which step."""

_OWN = {BEGUN, CHECKPOINTS, METRICS, "tensorboard", "lock"}
_FILES = (WEIGHTS, CONFIG, RECIPE, CARD, METRICS, MANIFEST, f"{CHECKPOINTS}/{LATEST}", f"{CHECKPOINTS}/{BEST}")
"""What is written at a time when a folder in its place would cost a training."""
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
        side_files: what lies beside the weights in every checkpoint and in the finished run: name -> text.
    """

    def __init__(self, path: Path, settings: Settings, team: Team, *, overwrite: bool = False) -> None:
        self.path, self.settings, self.team = path, settings, team
        self.manifest: dict[str, Any] = {}
        self.result: dict[str, Any] | None = None
        self.side_files: dict[str, str] = {}
        self.forced: list[dict[str, Any]] = []
        self._overwrite, self._saved = overwrite, False
        self._begun: dict[str, Any] | None = None  # what `training.json` will hold once `force` has come to something

    @property
    def finished(self) -> bool:
        """Whether the run is trained and whole."""
        return (self.path / MANIFEST).is_file()

    @property
    def latest(self) -> str:
        """The checkpoint to go on from: what `latest` says or, where that is not there, the newest; "" = none."""
        steps, pointed = self._steps(), self._pointed()
        return pointed if pointed in steps else max(steps, default="")

    def fitted(self, find: Callable[[], int]) -> int:
        """Returns the batch size that was left to the machine; a run that goes on keeps the one it was begun with."""
        begun = self.team.first_does(lambda: _read_begun(self.path))
        if FITTED not in begun:
            begun[FITTED] = min(self.team.agree(find))
            self.team.first_does(lambda: self._write_begun(begun))
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
    ) -> None:
        """Writes a checkpoint, points `latest` to it and `best` to its best, and removes what need not be kept.

        Raises:
            UserError: it cannot be written; the one before stays valid.
        """
        if not self.team.first:
            return
        folder = self.path / CHECKPOINTS / _name(state.step)
        with self._writing(folder):
            _discard(folder)  # one that was passed over, or that `latest` did not come to name
            with new_folder(folder) as new:
                write_weights(new / OPTIMIZER, moments)
                write_text(new / METRICS, "".join(json.dumps(entry) + "\n" for entry in state.metrics))
                write_json(new / STATE, {**vars(state), "metrics": len(state.metrics)})
                told = {**self._told(), "step": state.step}
                save_run(new, model, self.settings, told, weights, _GOES_ON, self.side_files)
            self._saved = True
            self._note_force()
            self._settle(folder.name)

    def _settle(self, newest: str) -> None:
        """Points to a checkpoint and to its best, and removes all but the `training.keep` newest.

        What one of these counts as its best stays, too: so each can be gone on from.
        """
        for pointer, name in ((LATEST, newest), (BEST, self._best_of(newest))):
            if name and run_at(self.path / CHECKPOINTS / pointer).name != name:
                write_text(self.path / CHECKPOINTS / pointer, name)
        _remove(self.path / _BEFORE)
        keep: int = self.settings.training.keep  # type: ignore[attr-defined]
        kept = {*[name for name in self._steps() if name <= newest][-keep:], newest}
        kept |= {self._best_of(name) for name in kept}
        for name in set(self._steps()) - kept:
            _discard(self.path / CHECKPOINTS / name)

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
                why = re.sub("; (restore it|check the path)$", "", str(problem).partition("\n")[0])
                why = why.replace(f"{checkpoints}/", "")
                problems.append(why if name in why else f"{name}: the checkpoint is damaged ({why})")
                continue
            for damaged in problems:
                warnings.warn(f"{checkpoints}/{damaged}; going on from {name} instead", BothwaysWarning, stacklevel=2)
            with self._writing(self.path / METRICS):
                write_text(self.path / METRICS, log)
            read.append((weights, moments, state))
            return name, load_manifest(checkpoints / name)[SUMS]
        if problems:
            raise UserError(
                f"{self.path}: no checkpoint can be read ({'; '.join(problems)}); pass --overwrite to begin anew"
            )
        _remove(self.path / METRICS)
        return "", {}

    def weights_of(self, step: int) -> dict[str, Tensor] | None:
        """Returns the weights of the checkpoint of a step; step 0 has none."""
        read: list[dict[str, Tensor]] = []
        if step:
            try:
                self.team.agree(lambda: read.append(load_tensors(self.path / CHECKPOINTS / _name(step))))
            except UserError as problem:
                raise UserError(
                    f"{problem}: they are the weights that training.patience chose; without them, go on with --force "
                    "--set training.patience=0 to keep the last ones, or begin anew with --overwrite"
                ) from None
        return read[0] if read else None

    def finish(self, model: Model, result: Mapping[str, Any], save: SaveModel = save_model) -> None:
        """Writes the finished run; from here on the folder holds all that other commands need.

        `save` may write weights and config in another layout than ours, in which the checkpoints are.
        """
        weights = gathered(model.state_dict(), self.team)

        def write() -> None:
            with self._writing(self.path):
                self._note_force()
                if self.latest:  # killed after its last checkpoint, the run has nothing more to save
                    self._settle(self.latest)
                told = {**self._told(), "result": result}
                save_run(self.path, model, self.settings, told, weights, (), self.side_files, save)
            _remove(self.path / _BEFORE)

        self.team.first_does(write)

    def _told(self) -> dict[str, Any]:
        return {**self.manifest, **({FORCED: self.forced} if self.forced else {})}

    def _note_force(self) -> None:
        """From now on the run is one of the settings that `force` has put in the place of others."""
        if self._begun is not None:
            fitted = {name: value for name, value in _read_begun(self.path).items() if name == FITTED}
            self._write_begun({**self._begun, **fitted, FORCED: self.forced})
            self._begun = None

    def _write_begun(self, begun: Mapping[str, Any]) -> None:
        with self._writing(self.path / BEGUN):
            write_json(self.path / BEGUN, begun)

    @contextmanager
    def _writing(self, what: Path) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            again = "run the same command again" + (", without --overwrite" if self._overwrite and self._saved else "")
            after = self.latest if self._saved or not self._overwrite else ""  # before, that is what it replaces
            raise UserError(
                f"{what}: cannot be written: {problem.strerror or problem}; make room and {again}, it goes on from "
                f"{f'step {int(after[5:])}' if after else 'the beginning'}"
            ) from None

    def _steps(self) -> list[str]:
        found = [path.name for path in (self.path / CHECKPOINTS).glob("step-*") if path.is_dir()]
        return sorted(name for name in found if re.fullmatch(r"step-\d{8,}", name))

    def _pointed(self) -> str:
        """The name in `latest`; where it holds none, that of the newest checkpoint; "" without the file."""
        file = self.path / CHECKPOINTS / LATEST
        if not file.is_file():
            return ""
        name = file.read_text(encoding="utf-8", errors="replace").strip()
        return name if name.startswith("step-") else max(self._steps(), default="")

    def _best_of(self, checkpoint: str) -> str:
        try:
            best = int(read_json(self.path / CHECKPOINTS / checkpoint / STATE)["best_step"])
        except (UserError, KeyError, TypeError, ValueError):
            return ""
        return _name(best) if best else ""


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _read_checkpoint(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], str, State]:
    """Reads weights, moments, the log's text and the state; whatever is wrong with one of them is an exception."""
    sums = load_manifest(folder)[SUMS]
    if odd := [name for name, found in sums_of(folder, (WEIGHTS, *_GOES_ON)).items() if found != sums[name]]:
        raise UserError(f"{folder / odd[0]}: not the one that the checkpoint was saved with")
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
    if begun and (path / MANIFEST).is_file() and not overwrite:
        return  # nothing will be written
    if not (overwrite or begun) and any((path / CHECKPOINTS).glob("step-*")):
        raise UserError(
            f"{path}: has checkpoints but no {BEGUN}, which says what they come from; restore it, choose another "
            "--out, or pass --overwrite to begin anew"
        )
    hardly = path.is_dir() and all(at.name == "lock" or at.name.startswith(f".{BEGUN}.") for at in path.iterdir())
    # A run that was killed before its first file is as good as none.
    check_output(path / BEGUN if hardly and not begun else path, overwrite=overwrite or begun, inputs=inputs)


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
    folder = RunFolder(path, settings, team, overwrite=overwrite)
    with ExitStack() as stack:

        def begin() -> dict[str, Any] | None:
            check_place(path, overwrite=overwrite, inputs=inputs)
            with folder._writing(path / "lock"):
                make_folder(path)
                try:
                    stack.enter_context(
                        locked(path / "lock", f"{path}: another process trains it; wait until it is done")
                    )
                except OSError:
                    if overwrite or not folder.finished:
                        raise  # of a finished run that only can be read, the result is given
            with folder._writing(path):
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
    if overwrite and any(entry.name not in ("lock", BEGUN) for entry in path.iterdir()):
        _put_aside(folder, mine)
    elif overwrite or not (folder.finished or folder.latest):
        folder._write_begun(mine)
        for name in (METRICS, "tensorboard"):
            _remove(path / name)
    else:
        theirs = _read_begun(path)
        folder.forced = theirs.pop(FORCED, [])
        theirs.pop(FITTED, None)
        if forced := compare(path, theirs, mine, finished=folder.finished, force=force):
            step = int(folder.latest.removeprefix("step-"))
            folder.forced, folder._begun = [*folder.forced, {"step": step, "changed": forced}], mine
    if not folder.finished:
        if odd := [name for name in _FILES if (path / name).is_dir()]:
            raise UserError(f"{path / odd[0]}: expected a file or nothing here, got a folder; move it away")
        make_folder(path / CHECKPOINTS)


def _put_aside(folder: RunFolder, mine: Mapping[str, Any]) -> None:
    """Empties a run's folder for a new one; `_put_back` undoes it, wherever it was killed."""
    path = folder.path
    (path / _MOVING).mkdir()
    if (path / BEGUN).exists():  # there is one at any moment: it says whose the folder is
        link_or_copy(path / BEGUN, path / _MOVING / BEGUN)
    folder._write_begun(mine)
    for entry in [*path.iterdir()]:
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
        _remove(path / _MOVING)  # in it may be a second name of what is back, which `rename` leaves


def _discard(checkpoint: Path) -> None:
    """Removes a checkpoint; whoever looks sees all of it or nothing."""
    hidden = hidden_beside(checkpoint, "old")
    with suppress(OSError):  # what is left is removed when the run is opened again
        checkpoint.rename(hidden)
    _remove(hidden)


def _remove(path: Path) -> None:
    """Removes a file or a folder as far as the file system lets it."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
