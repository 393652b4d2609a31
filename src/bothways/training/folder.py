"""A run's folder while it is trained: locked, gone on with where it was stopped, kept small, finished at the end.

RUN/training.json        what the run depends on; there from the first moment
RUN/metrics.jsonl        the log, live
RUN/checkpoints/step-…   each a whole run that can be loaded, with what training needs to go on
RUN/checkpoints/latest   the name of the one to go on from; `best` likewise
RUN/model.safetensors …  the finished run; its manifest.json is written last
"""

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bothways.config import ANY_TIME, Settings
from bothways.errors import BothwaysWarning, UserError
from bothways.files import check_output, hidden_beside, locked, new_folder, read_json, write_json, write_text
from bothways.model import Model
from bothways.training.checkpoint import BEGUN, CHECKPOINTS, LATEST, MANIFEST, METRICS, load_tensors, save_run
from bothways.training.parallel import Team, whole
from bothways.weights import read_weights, write_weights

BEST, STATE, OPTIMIZER = "best", "state.json", "optimizer.safetensors"
FITTED = "fitted_batch_size"
"""In `training.json`: what `training.batch_size = "auto"` came to."""

_OWN = {BEGUN, CHECKPOINTS, METRICS, "tensorboard", "lock"}


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

    @property
    def finished(self) -> bool:
        """Whether the run is trained and whole."""
        return (self.path / MANIFEST).is_file()

    @property
    def latest(self) -> str:
        """The checkpoint to go on from: what `latest` says, or the newest there is before it; "" = none."""
        pointed = self._pointed()
        return max((name for name in self._steps() if name <= pointed), default="")

    def fitted(self, find: Callable[[], int]) -> int:
        """Returns the batch size that was left to the machine; a run that goes on keeps the one it was begun with."""
        begun = read_json(self.path / BEGUN)
        if FITTED not in begun:
            begun[FITTED] = find()
            self.team.wait()
            if self.team.first:
                write_json(self.path / BEGUN, begun)
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
                write_json(new / STATE, {**asdict(state), "metrics": len(state.metrics)})
                save_run(new, model, self.settings, {**self.manifest, "step": state.step}, weights)
            write_text(self.path / CHECKPOINTS / LATEST, folder.name)
            if state.best_step:
                write_text(self.path / CHECKPOINTS / BEST, _name(state.best_step))
        kept = {*self._steps()[-keep:], folder.name}
        kept |= {self._best_of(name) for name in kept}
        for name in set(self._steps()) - kept:
            hidden = hidden_beside(self.path / CHECKPOINTS / name, "old")
            (self.path / CHECKPOINTS / name).rename(hidden)  # whoever looks sees all of it or nothing
            shutil.rmtree(hidden)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Tensor], State] | None:
        """Reads the latest checkpoint: weights, moments, state; None = the run has to begin.

        A damaged one is passed over with a warning: from the one before it the same numbers come.

        Raises:
            UserError: all are damaged.
        """
        pointed = self._pointed()
        problems = [f"{self.path / CHECKPOINTS / pointed}: missing"] if pointed not in ("", self.latest) else []
        for name in reversed([name for name in self._steps() if name <= self.latest]):
            folder = self.path / CHECKPOINTS / name
            try:
                weights, moments = load_tensors(folder), read_weights(folder / OPTIMIZER)
                log = (folder / METRICS).read_text(encoding="utf-8")
                state = State(**{**read_json(folder / STATE), "metrics": [*map(json.loads, log.splitlines())]})
            except (UserError, OSError, TypeError, ValueError) as problem:
                why = str(problem).partition("\n")[0]
                problems.append(why if str(folder) in why else f"{folder}: the checkpoint is damaged ({why})")
                continue
            for damaged in problems:
                warnings.warn(f"{damaged}; going on from {name} instead", BothwaysWarning, stacklevel=2)
            if self.team.first:
                write_text(self.path / METRICS, log)
            return weights, moments, state
        if problems:
            raise UserError(f"{self.path}: no checkpoint can be read ({problems[0]}); pass --overwrite to begin anew")
        if self.team.first:
            (self.path / METRICS).unlink(missing_ok=True)
        return None

    def weights_of(self, step: int) -> dict[str, Tensor] | None:
        """Returns the weights of the checkpoint of a step; step 0 has none."""
        return load_tensors(self.path / CHECKPOINTS / _name(step)) if step else None

    def finish(self, model: Model, result: Mapping[str, Any]) -> None:
        """Writes the finished run; from here on the folder holds all that other commands need."""
        weights = {name: whole(tensor).detach().cpu() for name, tensor in model.state_dict().items()}
        if self.team.first:
            with self._writing(self.path):
                save_run(self.path, model, self.settings, {**self.manifest, "result": result}, weights)
        self.team.wait()

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


def check_place(path: Path, *, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Checks, before any work, that a run can be made at `path`, or gone on with; see `files.check_output`."""
    check_output(path, overwrite=overwrite or (path / BEGUN).is_file(), inputs=inputs)


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
        overwrite: begin anew, whatever is there.
        force: go on although something differs, with a warning that names it.
        inputs: see `files.check_output`.

    Yields:
        The folder; its `result` is set where the run is finished already.

    Raises:
        UserError: `path` is no run, another process trains it, or it was begun with other settings or data.
    """
    if team.first:  # the others may come when it is there
        check_place(path, overwrite=overwrite, inputs=inputs)
    mine = {
        **settings.model_dump(mode="json"), **depends_on,
        "torch": torch.__version__, "threads": torch.get_num_threads(), "processes": team.size,
    }  # fmt: skip
    mine = json.loads(json.dumps(mine))  # as it comes back from the file
    folder = RunFolder(path, settings, team)
    with ExitStack() as stack:
        if team.first:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(path / "lock", f"{path}: another process trains it; wait until it is done"))
            if overwrite or not (folder.finished or folder.latest):
                _clear(path, mine)
            else:
                _compare(path, _without_fitted(read_json(path / BEGUN)), mine, finished=folder.finished, force=force)
            (path / CHECKPOINTS).mkdir(exist_ok=True)
            for left in (path / CHECKPOINTS).glob(".*"):
                shutil.rmtree(left, ignore_errors=True)
        team.wait()
        if folder.finished:
            folder.result = read_json(path / MANIFEST)["result"]
        try:
            yield folder
        finally:
            if team.first and not (folder.finished or folder.latest) and {p.name for p in path.iterdir()} <= _OWN:
                shutil.rmtree(path)  # nothing to go on from


def _clear(path: Path, mine: Mapping[str, Any]) -> None:
    """Empties a run's folder for a new one; killed in between, it is a run that has to begin, never a mixture."""
    for first in (path / CHECKPOINTS / LATEST, path / MANIFEST):
        first.unlink(missing_ok=True)
    write_json(path / BEGUN, mine)
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name not in ("lock", BEGUN):
            entry.unlink()


def _without_fitted(begun: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in begun.items() if name != FITTED}


def _compare(path: Path, theirs: dict[str, Any], mine: dict[str, Any], *, finished: bool, force: bool) -> None:
    """Refuses what would change the numbers; what may change their last bits only is said."""
    differing = list(_differences(theirs, mine))
    bits = [text for name, text in differing if name in ("torch", "processes", "threads")]
    if bits and not finished:
        warnings.warn(
            f"{path}: goes on with {'; '.join(bits)}: the last bits may differ", BothwaysWarning, stacklevel=4
        )
    others = [
        text
        for name, text in differing
        if name not in ("torch", "processes", "threads", *(f"training.{name}" for name in ANY_TIME))
    ]
    if others and (finished or not force):
        go_on = "" if finished else ", or --force to go on all the same"
        raise UserError(
            f"{path}: was {'made' if finished else 'begun'} with other settings or data ({'; '.join(others)}); use "
            f"those, choose another --out, pass --overwrite to begin anew{go_on}"
        )
    if others:
        warnings.warn(f"{path}: --force goes on although {'; '.join(others)}", BothwaysWarning, stacklevel=4)


def _differences(theirs: Any, mine: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in dict.fromkeys([*theirs, *mine]):
            yield from _differences(theirs.get(key), mine.get(key), f"{name}.{key}" if name else str(key))
    elif theirs != mine:
        yield name, f"{name}: {_short(theirs)}, now {_short(mine)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"
