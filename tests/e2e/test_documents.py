"""What the README and the recipes say is run as it stands; only the number of steps is cut."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import BertForPreTraining

from bothways import run
from bothways.config import FinetuneConfig, PretrainConfig, TextPretrainConfig, load_config
from corpora import TINY, many_documents
from people import Chain, write_people
from texts import save_bert

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT_RECIPES = sorted((ROOT / "recipes").glob("*-text.toml"))
RECIPES = sorted(set((ROOT / "recipes").glob("*.toml")) - {*TEXT_RECIPES})
TEXT_SETS = [word for change in TINY for word in ("--set", change)]
SETS_OF = {"pretrain": TEXT_SETS, "finetune": ["--set", "training.steps=2"]}
Call = Callable[..., tuple[int, str, str]]


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [text for kind, text in fenced if kind == language]


def test_the_commands_on_ones_own_recordings(tmp_path: Path) -> None:
    write_people(tmp_path / "my-recordings", n=5)
    source = next((tmp_path / "my-recordings").rglob("*.edf"))
    (tmp_path / "new.edf").write_bytes(source.read_bytes())
    commands = [line.split("#")[0] for line in blocks("")[1].splitlines()]
    assert len(commands) == 8
    for command in commands:
        words = shlex.split(command)
        assert words[:2] == ["bothways", "eeg"]
        if words[2] in ("pretrain", "finetune"):
            words += ["--set", "training.steps=2"]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 1) if words[2] in ("check", "predict") else done.returncode == 0, done.stderr
    assert (tmp_path / "predictions" / "new.edf.csv").is_file()


def test_the_commands_on_ones_own_text(bothways: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text(f"The cat sat on the mat. It slept.\n\n{many_documents(12)}")
    (tmp_path / "reviews.csv").write_text("text\na cat\nthe mat\n")
    (tmp_path / "train.csv").write_text("text,label\n" + "a cat,good\nthe mat,bad\nthe cat,good\na mat,bad\n" * 3)
    (tmp_path / "test.csv").write_text("text,label\nmy cat,good\nmy mat,bad\n")
    save_bert(tmp_path / "bert-base-uncased", BertForPreTraining)
    commands = [line.split("#")[0] for line in blocks("")[2].splitlines()]
    assert len(commands) == 11
    for command in commands:
        words = shlex.split(command.replace("8192", "60"))
        assert words[:2] == ["bothways", "text"]
        code, out, err = bothways(*words[1:], *SETS_OF.get(words[2], ()))
        assert code == 0, err
        assert out
    for written in ("tokenizer", "my-bert", "bert", "for-others"):
        assert (tmp_path / written / "tokenizer.json").is_file()
    assert (tmp_path / "vectors.parquet").is_file()
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 3


def test_the_walkthroughs(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "pretrained").symlink_to(chain.pretrained)
    (tmp_path / "new.edf").symlink_to(next(chain.data.rglob("*.edf")))
    commands = [line.split("#")[0] for line in blocks("")[3].splitlines()]
    assert len(commands) == 5
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.glob("*.html")} == {"walkthrough.html", "mine.html"}


def test_the_python_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    example = blocks("python")[0]
    names: dict[str, dict] = {}
    exec(example, names)
    assert names["result"]["subjects"] == 12
    assert set(names["result"]["reconstruction"]) == {"samples", "spectrum"}


def test_a_model_without_python(bothways: Call, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.csv").write_text("text,label\n" + "a cat,good\nthe mat,bad\nthe cat,good\na mat,bad\n" * 2)
    save_bert(tmp_path / "bert", BertForPreTraining)
    run.text_finetune(
        "bert", "test.csv", "classifier", changes=["training.steps=2", "training.batch_size=4", "validation_fraction=0"]
    )
    (tmp_path / "finetuned").symlink_to(chain.finetuned)
    (tmp_path / "store").symlink_to(chain.store)
    commands = [line.split("#")[0] for line in blocks("")[4].splitlines()]
    assert len(commands) == 2
    for command in commands:
        code, _, err = bothways(*shlex.split(command)[1:])
        assert code == 0, err
    _, example = blocks("python")
    names: dict[str, np.ndarray] = {}
    exec(example, names)
    told = run.text_predict("classifier", texts=["a fine film", "dull"])["predictions"]
    wanted = [list(one["probabilities"].values()) for one in told]
    np.testing.assert_allclose(names["probabilities"], wanted, atol=1e-5)


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make ([a-z-]+)", blocks("")[0], flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_files_that_the_readme_names_exist() -> None:
    for path in re.findall(r"\]\(([^)h][^)]*)\)", README):
        assert (ROOT / path).exists(), path


def test_recipes_are_tested() -> None:
    assert {path.stem.split("-")[-1] for path in RECIPES} == {"pretrain", "finetune"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_each_recipe_runs(recipe: Path, chain: Chain, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run.prepare([chain.data], store, baseline=chain.baseline)
    tiny = ["training.steps=2", "windows.window_s=4", "windows.stride_s=4"]
    out, labels = tmp_path / "run", chain.labels
    if recipe.stem in ("moments-finetune", "events-finetune"):  # of recordings with events in them
        (tmp_path / "two.csv").write_text(chain.labels.read_text().replace(",open", ",rest"))
        long = tmp_path / "long"
        run.paste([chain.data], tmp_path / "two.csv", long, recordings=4, shortest_s=2, longest_s=4)
        (tmp_path / "calm.csv").write_text(
            "file,onset_s,duration_s\n" + "".join(f"sub-{n}_run-1.edf,0,2\n" for n in range(6))
        )
        store, labels = tmp_path / "long-store", long / "labels.csv"
        run.prepare([long], store, baseline=tmp_path / "calm.csv")
    if recipe.stem.endswith("pretrain"):
        made = run.pretrain(store, out, recipe=recipe, changes=tiny)
        kind: type[PretrainConfig] | type[FinetuneConfig] = PretrainConfig
    else:
        made = run.finetune("scratch", store, labels, out, recipe=recipe, changes=tiny)
        kind = FinetuneConfig
    assert made["parameters"]["total"] > 10_000
    # What is kept with the run is the recipe, filled in.
    kept = load_config(kind, out / "recipe.toml")
    given = load_config(kind, recipe, tiny)
    names = kept.patches.ch_names
    assert kept == given.model_copy(update={"patches": given.patches.model_copy(update={"ch_names": names})})
    assert tomllib.loads((out / "recipe.toml").read_text())["training"]["steps"] == 2


@pytest.mark.parametrize("recipe", TEXT_RECIPES, ids=lambda path: path.stem)
def test_each_recipe_of_text_runs(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(many_documents(20))
    given = ["training.minutes=none", "training.steps=2", "training.batch_size=4"]
    made = run.text_pretrain(tmp_path / "a.txt", tmp_path / "run", recipe=recipe, changes=given)
    assert made["parameters"]["total"] > 100_000
    kept = load_config(TextPretrainConfig, tmp_path / "run" / "recipe.toml")
    assert kept == load_config(TextPretrainConfig, recipe, given)
