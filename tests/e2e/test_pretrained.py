"""Models as they are handed on: `bothways.load`, the hub's form, the card; no network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import ModelCard, hub_mixin

import bothways
from bothways import run, text
from bothways.errors import UserError
from bothways.files import sha256_file
from bothways.run import Pretrained
from bothways.training import model_card
from models import FORMS
from people import WINDOWS, Chain
from texts import save_bert, text_inputs


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    (tmp_path / "bert").mkdir()
    save_bert(tmp_path / "bert", transformers.BertForPreTraining)
    return tmp_path / "bert"


def test_importing_the_package_stays_light() -> None:
    code = "import bothways, sys; print([name for name in ('torch', 'mne', 'numpy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("name", ["README.md", "manifest.json", "vocab.txt"])
def test_what_lies_elsewhere_is_not_taken_along(chain: Chain, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("{}")
    shutil.copytree(chain.pretrained, tmp_path / "run")
    (tmp_path / "run" / name).unlink(missing_ok=True)
    (tmp_path / "run" / name).symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match=rf"{name}: expected a file in the folder, got a link out of it"):
        bothways.load(tmp_path / "run")


def test_a_card_of_absurd_size_is_not_taken_along(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.pretrained, tmp_path / "run")
    os.truncate(tmp_path / "run" / "README.md", 2**24 + 1)
    with pytest.raises(UserError, match=r"README.md: expected at most 16,777,216 bytes"):
        bothways.load(tmp_path / "run")


def test_what_lies_beside_takes_no_memory_and_is_copied_when_saved(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.pretrained, tmp_path / "run")
    os.truncate(tmp_path / "run" / "metrics.jsonl", 250 * 2**20)
    model = bothways.load(tmp_path / "run")
    assert model.side_files["metrics.jsonl"] == tmp_path / "run" / "metrics.jsonl"
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(UserError, match=r"expected a file here, found none"):
        model.save_pretrained(tmp_path / "copy")


@pytest.mark.parametrize("which", ["pretrained", "finetuned"])
def test_load_a_run_of_eeg(chain: Chain, which: str) -> None:
    model = bothways.load(str(getattr(chain, which)))
    assert isinstance(model, Pretrained)
    assert not model.training
    assert model.tokenizer is None
    assert model.load_report is not None
    assert model.load_report.matched == list(model.state_dict())
    assert model.load_report.line() == f"loaded {len(model.state_dict())} tensors (100% of embedding and encoder)"


def test_load_a_bert_of_transformers(bert: Path) -> None:
    model, expected = bothways.load(bert), text.load_folder(bert)
    assert same(model, expected.model)
    assert model.tokenizer is not None
    assert model.tokenizer.encode("the cat").ids == expected.tokenizer.encode("the cat").ids
    assert model.load_report == expected.model.load_report


def test_load_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a model \(a folder with config.json\), found none; check the path"):
        bothways.load(tmp_path / "nowhere")


def test_a_saved_run_of_eeg_is_a_run(chain: Chain, tmp_path: Path) -> None:
    model = Pretrained.from_pretrained(chain.finetuned)
    model.save_pretrained(tmp_path / "copy")
    assert same(Pretrained.from_pretrained(tmp_path / "copy"), model)
    for name in ("config.json", "manifest.json", "recipe.toml", "metrics.jsonl", "README.md", "model.safetensors"):
        assert (tmp_path / "copy" / name).read_bytes() == (chain.finetuned / name).read_bytes(), name
    file = next(chain.data.rglob("*.edf"))
    results = [
        run.predict(folder, [file], tmp_path / f"{i}") for i, folder in enumerate((chain.finetuned, tmp_path / "copy"))
    ]
    assert results[0]["recordings"] == results[1]["recordings"]
    assert results[1]["load_report"] == chain.results["evaluate"]["load_report"]
    Pretrained.from_pretrained(str(chain.pretrained)).save_pretrained(tmp_path / "pre")
    result = run.finetune(
        tmp_path / "pre", chain.store, chain.labels, tmp_path / "fine", changes=[*WINDOWS, "training.steps=1"]
    )
    assert result["load_report"]["new_heads"] == ["sequence"]
    assert result["load_report"]["missing"] == ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]


def test_a_changed_model_is_saved_as_it_is(chain: Chain, tmp_path: Path) -> None:
    model = bothways.load(chain.pretrained)
    with torch.no_grad():
        model.encoder.layers[0].norm_1.bias += 1
    model.save_pretrained(tmp_path / "copy")
    back = bothways.load(tmp_path / "copy")
    assert same(back, model)
    assert not same(back, bothways.load(chain.pretrained))


def test_it_can_be_saved_where_it_came_from(chain: Chain, tmp_path: Path) -> None:
    model = bothways.load(chain.pretrained)
    model.save_pretrained(tmp_path / "copy")
    before = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    bothways.load(tmp_path / "copy").save_pretrained(tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == before


def test_a_bert_is_saved_as_transformers_has_it_with_its_tokenizer(bert: Path, tmp_path: Path) -> None:
    model = bothways.load(bert)
    model.save_pretrained(tmp_path / "first")
    bothways.load(tmp_path / "first").save_pretrained(tmp_path / "copy")  # and again
    for path in (tmp_path / "first").iterdir():
        assert (tmp_path / "copy" / path.name).read_bytes() == path.read_bytes()
    given, saved = (transformers.BertForPreTraining.from_pretrained(folder) for folder in (bert, tmp_path / "copy"))
    assert same(saved, given)
    back = bothways.load(tmp_path / "copy")
    assert back.config == model.config
    assert same(back, model)
    assert back.tokenizer is not None
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_text())
    assert manifest == {"kind": "imported", "config_sha256": sha256_file(tmp_path / "copy" / "config.json")}
    with torch.no_grad():
        one, other = (m(text_inputs(), with_losses=False).rows.values for m in (model, back))
    assert torch.equal(one, other)


@pytest.mark.parametrize("which", ["finetuned", "bert"])
def test_another_config_than_it_was_saved_with(chain: Chain, bert: Path, tmp_path: Path, which: str) -> None:
    bothways.load(bert if which == "bert" else chain.finetuned).save_pretrained(tmp_path / "copy")
    values = json.loads((tmp_path / "copy" / "config.json").read_text())
    (values if which == "bert" else values["encoder"])["num_attention_heads"] = 1
    (tmp_path / "copy" / "config.json").write_text(json.dumps(values, indent=1))
    with pytest.raises(UserError, match=r"copy/config.json: not the one that the run was saved with; restore it$"):
        bothways.load(tmp_path / "copy")
    if which == "bert":
        with pytest.raises(UserError, match=r"copy/config.json: not the one"):
            run.walkthrough("text", model=tmp_path / "copy", input="the cat")
    manifest = json.loads((tmp_path / "copy" / "manifest.json").read_text())
    del manifest["config_sha256"]  # of a run of before
    (tmp_path / "copy" / "manifest.json").write_text(json.dumps(manifest))
    assert bothways.load(tmp_path / "copy").config.encoder.num_attention_heads == 1


def test_a_changed_config_is_saved_with_its_checksum(chain: Chain, tmp_path: Path) -> None:
    model = bothways.load(chain.pretrained)
    model.config = model.config.model_copy(update={"heads": {}})
    model.heads = torch.nn.ModuleDict()
    model.save_pretrained(tmp_path / "copy")
    assert not bothways.load(tmp_path / "copy").config.heads


def test_a_trained_run_is_not_saved_over(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.finetuned, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with pytest.raises(UserError, match=r"run: is a run that was trained here, with its checkpoints; choose another"):
        bothways.load(chain.pretrained).save_pretrained(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before


def test_nothing_of_a_model_that_was_saved_before_is_left(chain: Chain, bert: Path, tmp_path: Path) -> None:
    for source in (bert, chain.pretrained, bert):
        bothways.load(source).save_pretrained(tmp_path / "copy")
        bothways.load(source).save_pretrained(tmp_path / "alone" / source.name)
        alone = {path.name: path.read_bytes() for path in (tmp_path / "alone" / source.name).iterdir()}
        assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == alone


def test_half_precision_is_not_saved(chain: Chain, tmp_path: Path) -> None:
    model = bothways.load(chain.pretrained).half()
    with pytest.raises(UserError, match=r"expected float32, got float16; save the model in float32 \(`model.f"):
        model.save_pretrained(tmp_path / "copy")
    model.float().save_pretrained(tmp_path / "copy")
    bothways.load(tmp_path / "copy")


class Api:
    """Takes the place of the hub: keeps what would be uploaded."""

    uploaded: dict[str, bytes]
    asked: dict[str, Any]

    def __init__(self, token: str | None = None) -> None:
        Api.asked = {"token": token}

    def create_repo(self, **options: Any) -> Any:
        Api.asked |= options
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{options['repo_id']}")

    def upload_folder(self, *, folder_path: Path, **options: Any) -> str:
        Api.asked |= options
        Api.uploaded = {path.name: path.read_bytes() for path in folder_path.iterdir()}
        return "https://huggingface.co/commit"


def test_push_to_hub(chain: Chain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hub_mixin, "HfApi", Api)
    model = bothways.load(chain.finetuned)
    assert (
        model.push_to_hub("me/mine", private=True, token="t", commit_message="first") == "https://huggingface.co/commit"
    )
    assert Api.asked["repo_id"] == "me/mine"
    assert (Api.asked["private"], Api.asked["token"], Api.asked["commit_message"]) == (True, "t", "first")
    assert sorted(Api.uploaded) == [
        "README.md", "config.json", "manifest.json", "metrics.jsonl", "model.safetensors", "recipe.toml",
    ]  # fmt: skip
    assert all((chain.finetuned / name).read_bytes() == content for name, content in Api.uploaded.items())


def test_a_repository_of_the_hub(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def download(repo: str, **options: Any) -> str:
        asked.update(options, repo=repo)
        return str(chain.pretrained)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    model = Pretrained.from_pretrained("me/mine", revision="main", local_files_only=True)
    assert same(model, bothways.load(chain.pretrained))
    assert (asked["repo"], asked["revision"], asked["local_files_only"]) == ("me/mine", "main", True)
    assert not any(name.endswith((".bin", ".pt", ".pkl")) or name == "*" for name in asked["allow_patterns"])


def test_no_such_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="me/mine: expected a folder or a repository of the hub, found none") as caught:
        Pretrained.from_pretrained("me/mine", local_files_only=True, cache_dir=tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="expected a folder or a repository"):
        Pretrained.from_pretrained(tmp_path / "no where")


# The card ----------------------------------------------------------------------------------------------------------


def card_of(folder: Path) -> tuple[ModelCard, list[str]]:
    content = (folder / "README.md").read_text(encoding="utf-8")
    return ModelCard(content), content.splitlines()


def test_card_of_a_pretrained_run(chain: Chain) -> None:
    card, lines = card_of(chain.pretrained)
    assert card.data.to_dict() == {"library_name": "bothways", "tags": ["bothways", "eeg", "bert", "pretrain"]}
    manifest = json.loads((chain.pretrained / "manifest.json").read_text())
    result = chain.results["pretrain"]
    for line in (
        "# Encoder of eeg, pretrain",
        "- 5 subjects, 10 recordings, 0.08 hours",
        "- 10 recordings with `Fp1, Cz, O1, O2`",
        f"- subjects: {', '.join(f'`{name}`' for name in manifest['data']['subjects'])}",
        f"- 1 more subjects for validation: `{manifest['validation_subjects'][0]}`",
        "- 200 Hz, band 0.5-70 Hz, mains 50 Hz and harmonics taken out",
        "- unit uV, reference file, scaling recording_robust",
        "- patches of 1 s, a token for each channel, any montage",
        "- features: spectrum",
        "- 55% of the patches hidden (block) and rebuilt; no labels",
        "- windows of 3 s",
        "- 20 steps of 16, seed 0",
        "- `reconstruction`, weight 1 in the loss: smooth_l1 of the content of hidden patches, from their own output "
        "(spectrum 1)",
        "- `cls_reconstruction`, weight 0.5 in the loss: smooth_l1 of the content of hidden patches, from [CLS] and "
        "their place (spectrum 1)",
        f"- last training loss {result['loss']:.3g}",
        'model = bothways.load("PATH")  # this folder',
        "bothways eeg finetune --from PATH --data store --labels labels.csv --out finetuned",
        f"- torch {torch.__version__}",
    ):
        assert line in lines, line
    first = manifest["data"]["recordings"][0]
    assert f"| `{first['file']}` | `{first['subject']}` | {first['sha256'][:12]} |" in lines
    (errors,) = [line for line in lines if line.startswith("- error on hidden patches of the validation subjects")]
    band, found = next(iter(result["reconstruction"]["spectrum"].items()))
    assert f"{band} {found['model']:.3g} (zero {found['zero']:.3g}, interpolation" in errors


def test_card_of_a_finetuned_run(chain: Chain) -> None:
    card, lines = card_of(chain.finetuned)
    assert card.data.tags == ["bothways", "eeg", "bert", "finetune"]
    validation = chain.results["finetune"]["validation"]
    for line in (
        "# Encoder of eeg, finetune",
        "- 4 subjects, 8 recordings, 0.07 hours",
        "- held out: 1 subjects for validation, 1 for test",
        "- a class for each window, read from cls: `closed`, `open`",
        f"- started from `{chain.pretrained}`",
        "- `sequence`, weight 1 in the loss: cross-entropy of the class of the whole (`closed` 1, `open` 1)",
        "- 40 steps of 16, seed 0",
        "bothways eeg predict PATH new.edf --out predictions",
    ):
        assert line in lines, line
    (scores,) = [line for line in lines if line.startswith("- validation subjects: ")]
    assert f"balanced accuracy {validation['balanced_accuracy']:.3g}" in scores


def test_names_in_a_card_mean_nothing_but_themselves() -> None:
    entry = {"file": "a|b`\n# c", "subject": "x\n---\ny", "sha256": "0" * 64}
    manifest = {"kind": "pretrain", "data": {"subjects": ["x"], "recordings": [entry] * 12}}
    card = model_card(FORMS["eeg_channels"].build(), {}, manifest, {})
    assert "| `a¦b' # c` | `x --- y` | 000000000000 |" in card.splitlines()
    assert "and 2 more in `manifest.json`." in card.splitlines()
    assert ModelCard(card).data.library_name == "bothways"


def test_card_of_a_bert(bert: Path, tmp_path: Path) -> None:
    bothways.load(bert).save_pretrained(tmp_path / "copy")
    card, lines = card_of(tmp_path / "copy")
    assert card.data.tags == ["bothways", "text", "bert", "imported"]
    assert "Token ids of a vocabulary of 71, at most 20 in a row." in lines
    at = lines.index("## Objective")
    assert lines[at + 2 : at + 4] == [
        "- `mlm`, weight 1 in the loss: cross-entropy of the hidden tokens",
        "- `nsp`, weight 1 in the loss: cross-entropy of whether the second sentence follows the first",
    ]
    assert not any("license" in line for line in lines)


def test_numbers_of_hours(chain: Chain) -> None:
    data = json.loads((chain.pretrained / "manifest.json").read_text())["data"]
    assert data["hours"] == pytest.approx(10 * 30 / 3600)
    assert data["montages"] == {"Fp1, Cz, O1, O2": 10}
    assert np.isfinite(data["hours"])
