"""The command line: the chain as a user types it, and one line with status 2 for every mistake."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from bothways import cli, run
from bothways.config import FinetuneConfig
from bothways.eeg import preparing
from bothways.training import save_run
from models import FORMS
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv, write_people
from recordings import noise_uv, write_edf

EEG = ("check", "paste", "prepare", "split", "pretrain", "finetune", "evaluate", "compare", "predict", "embed", "probe")
CURVES = ("labels", "channels")
TEXT = (
    "tokenizer", "prepare", "pretrain", "show", "fill-mask", "embed", "evaluate", "finetune", "predict", "import",
    "export", "curve",
)  # fmt: skip
Call = Callable[..., tuple[int, str, str]]


def sets(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


SHORT = sets(*TINY, *WINDOWS, "training.steps=2")
FINE = sets(*WINDOWS, "training.steps=2")


def run_json(bothways: Call, *arguments: object) -> dict[str, Any]:
    code, out, err = bothways(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_chain_as_a_user_types_it(tmp_path: Path) -> None:
    """In another process, another folder, under a bare locale, with names that are not ASCII."""
    top = tmp_path / "日本語 ğü"
    write_people(top / "données", 5)
    new = write_edf(top / "neu 🙂" / "sub-9_closed.edf", alpha_uv("closed", 99), CHANNELS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))}

    def bothways(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "bothways", "eeg", *arguments],
            cwd=top, env=environment | {"LC_ALL": "C", "COLUMNS": "200"}, capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done.stdout.decode()

    assert "10 recordings of 5 people, 5.0 minutes: 10 ok" in bothways("check", "données")
    assert "store: 10 recordings of 5 people" in bothways("prepare", "données", "--out", "store")
    learn = sets(*WINDOWS, "training.steps=40")
    said = bothways("pretrain", "--data", "store", "--out", "ünî", *sets(*TINY, *WINDOWS, "training.steps=10"))
    assert "alpha" in said
    assert "windows/s" in said
    said = bothways("finetune", "--from", "ünî", "--data", "store", "--labels", "labels.csv", "--out", "run", *learn)
    assert "train: 3 people, windows: 30 closed, 30 open" in said
    said = bothways("evaluate", "run")
    assert "this run" in said
    assert "frozen probe" in said
    for line in (
        "this run against band power: balanced accuracy ",
        "this run, per recording: balanced accuracy ",
        "this run, per subject: every subject has windows of several classes",
        "this run, within each person: balanced accuracy ",
        "this run, calibration: error ",
    ):
        assert line in said
    said = bothways("predict", "run", str(new.relative_to(top)), "--out", "предсказания")
    assert "sub-9_closed.edf" in said
    assert (top / "предсказания" / "sub-9_closed.edf.csv").is_file()


def test_the_script_is_the_same() -> None:
    script = shutil.which("bothways", path=str(Path(sys.executable).parent))
    assert script is not None
    said = [
        subprocess.run([*start, "--version"], capture_output=True, check=True).stdout
        for start in ([script], [sys.executable, "-m", "bothways"])
    ]
    assert said[0] == said[1] != b""


@pytest.mark.parametrize(
    "command",
    [
        *(f"eeg {name}" for name in EEG),
        *(f"eeg curve {name}" for name in CURVES),
        *(f"text {name}" for name in TEXT),
        "export onnx",
        "walkthrough",
    ],
)
def test_help_shows_an_example(bothways: Call, command: str) -> None:
    code, out, _ = bothways(*command.split(), "--help")
    assert code == 0
    assert f"Example: bothways {command} " in out
    assert "--json" in out


def test_every_command_is_a_function() -> None:
    from bothways import run

    commands = [*cli.eeg.registered_commands, *cli.curve.registered_commands, *cli.app.registered_commands]
    functions = {*EEG, "label_curve", "channel_curve", "walkthrough"}
    assert {command.callback.__name__ for command in commands if command.callback} == functions
    assert {command.name for command in cli.curve.registered_commands} == set(CURVES)
    of_text = {(c.name or c.callback.__name__).replace("_", "-") for c in cli.text.registered_commands if c.callback}
    assert of_text == set(TEXT)
    (exported,) = cli.export.registered_commands
    assert exported.callback is not None
    functions |= {f"text_{name.replace('-', '_')}" for name in TEXT} | {exported.callback.__name__}
    assert set(run.__all__) == {*functions, "Pretrained", "load_pretrained"}


def test_json_of_every_command(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    """On one stream JSON and nothing else, equal in keys to what the function returns."""
    results = {
        "check": run_json(bothways, "eeg", "check", chain.data),
        "prepare": run_json(bothways, "eeg", "prepare", chain.data, "--out", tmp_path / "store"),
        "pretrain": run_json(bothways, "eeg", "pretrain", "--data", chain.store, "--out", tmp_path / "pre", *SHORT),
        "finetune": run_json(
            bothways, "eeg", "finetune", "--from", tmp_path / "pre", "--data", chain.store, "--labels", chain.labels,
            "--out", tmp_path / "run", *FINE,
        ),
        "evaluate": run_json(bothways, "eeg", "evaluate", tmp_path / "run"),
    }  # fmt: skip
    divided = run_json(bothways, "eeg", "split", "--data", chain.store, "--out", tmp_path / "split.json", "--seed", 3)
    assert sorted([*divided["train"], *divided["validation"], *divided["test"]]) == [str(i) for i in range(6)]
    for command, result in results.items():
        assert result.keys() == chain.results[command].keys()
    predicted = run_json(bothways, "eeg", "predict", tmp_path / "run", chain.data / "sub-0", "--out", tmp_path / "p")
    assert [r["windows"] for r in predicted["recordings"]] == [10, 10]


def test_recipe_then_set(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[encoder]\nsize = "nano"\nnum_hidden_layers = 1\n[training]\nsteps = 3\nseed = 4\n')
    run_json(
        bothways, "eeg", "pretrain", recipe, "--data", chain.store, "--out", tmp_path / "run",
        *sets("training.steps=1", "windows.window_s=3", "windows.stride_s=10"),
    )  # fmt: skip
    written = (tmp_path / "run" / "recipe.toml").read_text()
    for line in ("hidden_size = 64", "num_hidden_layers = 1", "steps = 1", "seed = 4"):
        assert line in written.splitlines()
    again = run_json(
        bothways, "eeg", "pretrain", tmp_path / "run" / "recipe.toml", "--data", chain.store, "--out", tmp_path / "2"
    )
    assert again["windows"] > 0
    assert (tmp_path / "2" / "recipe.toml").read_text() == written
    assert (tmp_path / "2" / "model.safetensors").read_bytes() == (tmp_path / "run" / "model.safetensors").read_bytes()


def test_status_of_check_and_of_partial_work(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    good = write_edf(tmp_path / "in" / "sub-1.edf", alpha_uv("open", 1), CHANNELS)
    assert bothways("eeg", "check", good)[0] == 0
    write_edf(tmp_path / "in" / "sub-2.edf", alpha_uv("open", 2), [*CHANNELS[:3], "weird name"])
    (tmp_path / "in" / "sub-3.edf").write_bytes(b"")
    code, out, _ = bothways("eeg", "check", tmp_path / "in")
    assert code == 2  # one is unusable
    (row,) = [line for line in out.splitlines() if line.startswith("sub-3.edf")]
    assert " ".join(row.split()) == "sub-3.edf unusable 3 not an EDF or BDF file: it is empty"
    assert "unusable sub-3.edf: not an EDF or BDF file: it is empty; check that it was copied whole" in out.splitlines()
    code, out, _ = bothways("eeg", "prepare", tmp_path / "in", "--out", tmp_path / "store")
    assert code == 2
    assert "skipped sub-3.edf: " in out
    code, out, _ = bothways("eeg", "predict", chain.finetuned, tmp_path / "in", "--out", tmp_path / "out")
    assert code == 2
    assert "sub-1.edf" in out
    assert "skipped sub-3.edf: " in out


def test_warnings_are_lines_on_the_error_stream(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    code, out, err = bothways(
        "eeg", "finetune", "--from", chain.pretrained, "--data", chain.store, "--labels", chain.labels, "--out",
        tmp_path / "run", *FINE, *sets("encoder.hidden_size=96"), "--json",
    )  # fmt: skip
    assert code == 0
    json.loads(out)
    assert any(line.startswith("warning: [encoder] of the recipe has no effect") for line in err.splitlines())


def test_overwrite(bothways: Call, fails: Callable[..., str], chain: Chain, tmp_path: Path) -> None:
    arguments = ("eeg", "prepare", chain.data / "sub-0", "--out", tmp_path / "store")
    assert bothways(*arguments)[0] == 0
    assert "already exists" in fails(*arguments)
    (tmp_path / "store" / "old").touch()
    assert bothways(*arguments, "--overwrite")[0] == 0
    assert not (tmp_path / "store" / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


# Mistakes --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory, chain: Chain) -> Path:
    """A folder of things that are wrong."""
    top = tmp_path_factory.mktemp("bad")
    (top / "empty").mkdir()
    (top / "file").write_text("x")
    (top / "garbage.toml").write_bytes(bytes(range(256)))
    (top / "broken.toml").write_text("[training\nsteps = 3")
    (top / "garbage").mkdir()
    (top / "garbage" / "sub-1.edf").write_bytes(os.urandom(1000))
    write_edf(top / "ecg" / "sub-1.edf", noise_uv(1, 6000), ["ECG"])
    write_edf(top / "short" / "sub-1.edf", alpha_uv("open", 0, seconds=2), CHANNELS)
    rows = chain.labels.read_text().splitlines()
    for name, lines in {
        "no_column": ["file,state", *rows[1:]],
        "no_match": ["file,label", "other_1.edf,a", "other_2.edf,b"],
        "one_class": ["file,label", *(row for row in rows if row.endswith("open"))],
        "no_label": ["file,label", *(row.split(",")[0] + "," for row in rows[1:])],
        "time": ["file,onset_s,duration_s,label", "sub-0_open.edf,zero,1,a"],
        "overlap": ["file,onset_s,duration_s,label", "sub-0_open.edf,0,9,a", "sub-0_open.edf,5,9,b"],
    }.items():
        (top / f"{name}.csv").write_text("\n".join(lines))
    (top / "empty.csv").write_text("")
    for name, parts in {
        "both": {"train": ["0", "1", "2"], "test": ["2", "3"]},
        "unknown": {"train": ["0", "1"], "test": ["42"]},
        "nobody": {"train": [], "test": ["1"]},
        "keys": {"training": ["0"], "test": ["1"]},
    }.items():
        (top / f"{name}.json").write_text(json.dumps(parts))
    (top / "text_run").mkdir()
    save_run(top / "text_run", FORMS["bert"].build(), FinetuneConfig(), {"kind": "pretrain"})
    shutil.copytree(chain.finetuned, top / "no_manifest")
    (top / "no_manifest" / "manifest.json").unlink()
    shutil.copytree(chain.finetuned, top / "cut")
    weights = top / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    return top


PREPARE = ["eeg", "prepare", "DATA", "--out", "NEW"]
PRETRAIN = ["eeg", "pretrain", "--data", "STORE", "--out", "NEW", *SHORT]
FINETUNE = ["eeg", "finetune", "--from", "PRE", "--data", "STORE", "--labels", "LABELS", "--out", "NEW", *FINE]
PREDICT = ["eeg", "predict", "FINE", "DATA", "--out", "NEW"]


def swap(arguments: list[str], old: str, new: str) -> list[str]:
    assert old in arguments
    return [new if word == old else word for word in arguments]


MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "check: no such path": (["eeg", "check", "BAD/nowhere"], ["BAD/nowhere", "found none"]),
    "check: empty folder": (["eeg", "check", "BAD/empty"], ["BAD/empty: no recording found", ".edf"]),
    "check: subjects": (["eeg", "check", "DATA", "--subject-from", "BAD/nowhere.csv"], ["BAD/nowhere.csv"]),
    "prepare: no such path": (swap(PREPARE, "DATA", "BAD/nowhere"), ["BAD/nowhere", "found none"]),
    "prepare: empty folder": (swap(PREPARE, "DATA", "BAD/empty"), ["no recording found"]),
    "prepare: garbage": (swap(PREPARE, "DATA", "BAD/garbage"), ["none of 1 recordings can be used", "EDF"]),
    "prepare: no EEG": (swap(PREPARE, "DATA", "BAD/ecg"), ["none of 1 recordings can be used", "ECG"]),
    "prepare: unknown setting": ([*PREPARE, *sets("sfrq_hz=100")], ["'sfrq_hz'", "did you mean 'sfreq_hz'?"]),
    "prepare: no value": ([*PREPARE, *sets("notch_hz")], ["--set notch_hz", "name=value"]),
    "prepare: bad value": ([*PREPARE, *sets("sfreq_hz=fast")], ["sfreq_hz", "'fast'"]),
    "prepare: band": ([*PREPARE, *sets("sfreq_hz=100")], ["half of sfreq_hz"]),
    "prepare: unit": ([*PREPARE, "--unit", "parsec"], ["unit: expected one of V, mV, uV, nV, got 'parsec'"]),
    "prepare: baseline": ([*PREPARE, "--baseline", "LABELS"], ["onset_s"]),
    "prepare: garbage recipe": ([*PREPARE, "--recipe", "BAD/garbage.toml"], ["garbage.toml", "TOML"]),
    "prepare: out is there": (swap(PREPARE, "NEW", "BAD/empty"), ["BAD/empty: already exists", "--overwrite"]),
    "prepare: out in a file": (swap(PREPARE, "NEW", "BAD/file/store"), ["is a file, expected a folder"]),
    "prepare: unwritable": (swap(PREPARE, "NEW", "/proc/store"), ["/proc", "check the path"]),
    "pretrain: no store": (swap(PRETRAIN, "STORE", "BAD/nowhere"), ["BAD/nowhere: expected a prepared store"]),
    "pretrain: recordings": (swap(PRETRAIN, "STORE", "DATA"), ["expected a prepared store", "prepare"]),
    "pretrain: a run": (swap(PRETRAIN, "STORE", "PRE"), ["expected a prepared store"]),
    "pretrain: long windows": ([*PRETRAIN, *sets("windows.window_s=100")], ["no window of 100 s"]),
    "pretrain: short windows": ([*PRETRAIN, *sets("windows.window_s=0.5")], ["holds no patch"]),
    "pretrain: unknown setting": ([*PRETRAIN, *sets("trainig.steps=3")], ["did you mean 'training"]),
    "pretrain: size": ([*PRETRAIN, *sets("encoder.size=huge")], ["nano, tiny, small, base"]),
    "pretrain: size of size": ([*PRETRAIN, *sets("encoder.size.x=1")], ["encoder.size"]),
    "pretrain: a table": ([*PRETRAIN, *sets("training=5")], ["training"]),
    "pretrain: heads": ([*PRETRAIN, *sets("encoder.num_attention_heads=5")], ["not a multiple"]),
    "pretrain: garbage recipe": ([*PRETRAIN, "BAD/garbage.toml"], ["garbage.toml", "expected TOML"]),
    "pretrain: broken recipe": ([*PRETRAIN, "BAD/broken.toml"], ["broken.toml", "expected TOML"]),
    "pretrain: no recipe": ([*PRETRAIN, "BAD/nowhere.toml"], ["BAD/nowhere.toml", "found none"]),
    "pretrain: recipe is a folder": ([*PRETRAIN, "BAD/empty"], ["BAD/empty"]),
    "pretrain: out is there": (swap(PRETRAIN, "NEW", "STORE"), ["already exists", "--overwrite"]),
    "pretrain: unknown subject": ([*PRETRAIN, "--split", "BAD/unknown.json"], ["42 (test)"]),
    "finetune: no labels": (swap(FINETUNE, "LABELS", "BAD/nowhere.csv"), ["BAD/nowhere.csv"]),
    "finetune: no column": (swap(FINETUNE, "LABELS", "BAD/no_column.csv"), ["labels.column=NAME"]),
    "finetune: empty labels": (swap(FINETUNE, "LABELS", "BAD/empty.csv"), ["an empty file"]),
    "finetune: no label": (swap(FINETUNE, "LABELS", "BAD/no_label.csv"), ["expected labelled rows"]),
    "finetune: no match": (swap(FINETUNE, "LABELS", "BAD/no_match.csv"), ["other_1.edf", "none of 2 rows"]),
    "finetune: one class": (swap(FINETUNE, "LABELS", "BAD/one_class.csv"), ["two classes or more", "open"]),
    "finetune: time": (swap(FINETUNE, "LABELS", "BAD/time.csv"), ["line 2", "'zero'"]),
    "finetune: overlap": (swap(FINETUNE, "LABELS", "BAD/overlap.csv"), ["overlap", "sub-0_open.edf"]),
    "finetune: in both parts": ([*FINETUNE, "--split", "BAD/both.json"], ["2 (train and test)"]),
    "finetune: unknown subject": ([*FINETUNE, "--split", "BAD/unknown.json"], ["42 (test)", "0, 1, 2"]),
    "finetune: nobody": ([*FINETUNE, "--split", "BAD/nobody.json"], ["no subject in train"]),
    "finetune: split's keys": ([*FINETUNE, "--split", "BAD/keys.json"], ["train and test"]),
    "finetune: split is a CSV": ([*FINETUNE, "--split", "LABELS"], ["expected JSON"]),
    "finetune: no run": (swap(FINETUNE, "PRE", "BAD/nowhere"), ["BAD/nowhere: expected a run"]),
    "finetune: a store": (swap(FINETUNE, "PRE", "STORE"), ["expected a run"]),
    "finetune: a text run": (swap(FINETUNE, "PRE", "BAD/text_run"), ["got one of text"]),
    "finetune: damaged": (swap(FINETUNE, "PRE", "BAD/cut"), ["model.safetensors", "damaged"]),
    "finetune: unknown setting": ([*FINETUNE, *sets("pol=mean")], ["did you mean 'pool'?"]),
    "finetune: few people": ([*FINETUNE, *sets("labelled_subjects=50")], ["50"]),
    "finetune: out is there": (swap(FINETUNE, "NEW", "STORE"), ["already exists", "--overwrite"]),
    "evaluate: no run": (["eeg", "evaluate", "BAD/nowhere"], ["BAD/nowhere: expected a run"]),
    "evaluate: pretrained": (["eeg", "evaluate", "PRE"], ["expected a fine-tuned run", "finetune"]),
    "evaluate: a store": (["eeg", "evaluate", "STORE"], ["expected a run"]),
    "evaluate: part": (["eeg", "evaluate", "FINE", "--part", "train"], ["test or validation", "train"]),
    "evaluate: no manifest": (["eeg", "evaluate", "BAD/no_manifest"], ["the run is not finished", "checkpoints/step-"]),
    "evaluate: damaged": (["eeg", "evaluate", "BAD/cut"], ["model.safetensors", "damaged"]),
    "evaluate: no store": (["eeg", "evaluate", "FINE", "--data", "BAD/empty"], ["expected a prepared store"]),
    "predict: pretrained": (swap(PREDICT, "FINE", "PRE"), ["expected a fine-tuned run"]),
    "predict: no such file": (swap(PREDICT, "DATA", "BAD/nowhere.edf"), ["BAD/nowhere.edf", "found none"]),
    "predict: garbage": (swap(PREDICT, "DATA", "BAD/garbage"), ["none of 1 recordings can be used", "EDF"]),
    "predict: no EEG": (swap(PREDICT, "DATA", "BAD/ecg"), ["none of 1 recordings can be used", "ECG"]),
    "predict: too short": (swap(PREDICT, "DATA", "BAD/short"), ["sub-1.edf", "no window of 3 s"]),
    "predict: baseline": ([*PREDICT, "--baseline", "BASELINE"], ["leave --baseline out"]),
    "predict: stride": ([*PREDICT, "--stride-s", "0"], ["stride_s", "greater than 0"]),
    "predict: below a sample": ([*PREDICT, "--stride-s", "0.001"], ["--stride-s", "0.005 s"]),
    "predict: out is there": (swap(PREDICT, "NEW", "BAD/empty"), ["already exists", "--overwrite"]),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(
    fails: Callable[..., str], chain: Chain, bad: Path, tmp_path: Path, arguments: list[str], named: list[str]
) -> None:
    places = {
        "BAD": bad, "NEW": tmp_path / "new", "DATA": chain.data, "STORE": chain.store, "PRE": chain.pretrained,
        "FINE": chain.finetuned, "LABELS": chain.labels, "BASELINE": chain.baseline,
    }  # fmt: skip

    def fill(word: str) -> str:
        first, slash, rest = word.partition("/")
        return f"{places[first]}{slash}{rest}" if first in places else word

    message = fails(*map(fill, arguments))
    for part in named:
        assert part.replace("BAD", str(bad)) in message
    assert list(tmp_path.iterdir()) == []  # nothing half made is left


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("eeg pretrain", "Missing option '--data'; see `bothways eeg pretrain --help`"),
        ("eeg check", "Missing argument 'paths'; see `bothways eeg check --help`"),
        ("eeg nonsense", "No such command 'nonsense'; see `bothways eeg --help`"),
        ("eeg evaluate --dat x", "No such option: --dat"),
        ("--wat", "No such option: --wat; see `bothways --help`"),
        ("eeg prepare x --out y --workers 0", "Invalid value for '--workers': "),
    ],
)
def test_wrong_usage_is_one_line(fails: Callable[..., str], arguments: str, said: str) -> None:
    assert fails(*arguments.split()).startswith(said)


def test_what_else_parsing_raises_is_one_line(fails: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    (kind,) = [one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException"]

    def broken(*_: object, **__: object) -> None:
        raise kind("no such\nfile.")

    monkeypatch.setattr(run, "check", broken)
    assert fails("eeg", "check", "x") == "no such file; see `bothways --help`"


@pytest.mark.parametrize("arguments", [[], ["eeg"]])
def test_no_command_shows_the_help(bothways: Call, arguments: list[str]) -> None:
    code, out, err = bothways(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: bothways ")
    assert "--help" in err


@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_stopped_prepare_says_how_it_goes_on(
    bothways: Call, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int, word: str
) -> None:
    real, begun = preparing.prepare_one, 0

    def stopped(task: preparing.Task) -> preparing.Result:
        nonlocal begun
        begun += 1
        if begun == 4:
            os.kill(os.getpid(), number)
        return real(task)

    command = ("eeg", "prepare", chain.data, "--out", tmp_path / "store", "--workers", 1)
    handler = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "prepare_one", stopped)
        code, _, err = bothways(*command)
    signal.signal(signal.SIGTERM, handler)
    work = tmp_path / ".store.partial"
    again = f"run it again, it goes on after the 3 recordings that are finished (in {work})"
    assert (code, err.splitlines()[-1]) == (status, f"{word}: {tmp_path / 'store'}: {again}")
    assert "Traceback" not in err
    code, out, _ = bothways(*command)
    assert code == 0
    assert "3 recordings had been finished before and were kept" in out


def test_appending_what_is_there_says_so(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    command = ("eeg", "prepare", chain.data / "sub-0", "--out", tmp_path / "store")
    assert bothways(*command)[0] == 0
    code, out, err = bothways(*command, "--append")
    assert code == 0
    assert out.splitlines()[0] == "nothing new: 2 recordings were in the store already"
    assert err == ""
    code, out, _ = bothways(*command, chain.data / "sub-1", "--append")
    assert code == 0
    assert out.splitlines()[0] == "2 recordings were in the store already"
