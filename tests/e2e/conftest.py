"""One finished chain over small recordings, made once; the command line in this process; a browser for pages."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from bothways import cli, run
from bothways.walkthrough import Paper, Walk, walk_eeg
from browser import Opener, launch
from pages import sentence_walk
from people import TINY, WINDOWS, Chain, write_people

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    """check, prepare, pretrain, finetune, evaluate on six people; treat it as read-only."""
    top = tmp_path_factory.mktemp("chain")
    data = write_people(top / "data")
    here = Chain(
        data, top / "labels.csv", top / "baseline.csv", top / "store", top / "pretrained", top / "finetuned", {}
    )
    here.results["check"] = run.check([data])
    here.results["prepare"] = run.prepare([data], here.store)
    here.results["pretrain"] = run.pretrain(here.store, here.pretrained, changes=[*TINY, *WINDOWS, "training.steps=20"])
    here.results["finetune"] = run.finetune(
        here.pretrained, here.store, here.labels, here.finetuned, changes=[*WINDOWS, "training.steps=40"]
    )
    here.results["evaluate"] = run.evaluate(here.finetuned)
    return here


@pytest.fixture
def bothways(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs the command line in this process: arguments in; status, output and error stream out."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["bothways", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return (0 if code is None else int(code)), *capsys.readouterr()

    return call


@pytest.fixture
def fails(bothways: Call) -> Callable[..., str]:
    """Runs a command that must end with status 2, nothing on the output, and one line that says why."""

    def call(*arguments: object) -> str:
        code, out, err = bothways(*arguments)
        lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "prepare: ", "predict: "))]
        assert (code, out) == (2, ""), err
        assert len(lines) == 1, err
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")

    return call


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of the system."""
    yield from launch()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Opener]:
    """Opens walks; whatever a test does there, nothing is fetched and nothing goes wrong."""
    opener = Opener(browser, tmp_path)
    yield opener
    for one in opener.opened:
        one.page.context.close()
        assert one.said == []
        assert [url for url in one.asked if not url.startswith(("file://", "data:"))] == []


@pytest.fixture(scope="session")
def eeg() -> Walk:
    """The small encoder on EEG."""
    return walk_eeg(Paper())


@pytest.fixture(scope="session")
def sentence() -> Walk:
    """A small BERT on a pair of sentences."""
    return sentence_walk()
