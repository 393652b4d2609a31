"""`bothways text import` and `export`, and runs on text that are finished in transformers' layout."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

import bothways as package
from bothways import run, text
from bothways.config import PretrainConfig, TextConfig
from bothways.errors import UserError
from bothways.files import sha256_file
from bothways.training import load_config_of, save_run, train
from models import FORMS
from people import Chain
from sentences import Pairs, bert
from sittings import Stopped, opened
from texts import VOCAB, edit_json, edit_weights, save_bert, text_inputs

Call = Callable[..., tuple[int, str, str]]
FILES = [
    "README.md", "config.json", "manifest.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    "vocab.txt",
]  # fmt: skip
KINDS = {
    "BertModel": [], "BertForMaskedLM": ["mlm"], "BertForPreTraining": ["mlm", "nsp"],
    "BertForSequenceClassification": ["sequence"], "BertForTokenClassification": ["position"],
    "BertForQuestionAnswering": ["span"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A BERT for masked words and the next sentence, as transformers saves it."""
    (tmp_path / "theirs").mkdir()
    save_bert(tmp_path / "theirs", transformers.BertForPreTraining)
    return tmp_path / "theirs"


def same_outputs(one: Path, other: Path, name: str) -> None:
    kind, inputs = getattr(transformers, name), text_inputs()
    with torch.no_grad():
        found, expected = (kind.from_pretrained(path).eval()(**inputs) for path in (one, other))
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=0, atol=0)


@pytest.mark.parametrize("name", KINDS)
def test_a_bert_there_and_back(tmp_path: Path, bothways: Call, name: str) -> None:
    (tmp_path / "theirs").mkdir()
    labels = {"id2label": {0: "no", 1: "maybe", 2: "yes"}} if "Classification" in name else {}
    save_bert(tmp_path / "theirs", getattr(transformers, name), **labels)
    code, said, error = bothways("text", "import", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert code == 0, error
    assert f"heads: {', '.join(KINDS[name]) or 'none'}\n" in said
    assert f"for {name}.from_pretrained" in said
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == FILES
    same_outputs(tmp_path / "ours", tmp_path / "theirs", name)
    code, said, error = bothways("text", "export", tmp_path / "ours", "--out", tmp_path / "back")
    assert code == 0, error
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == FILES
    same_outputs(tmp_path / "back", tmp_path / "theirs", name)
    tokenizers = [transformers.AutoTokenizer.from_pretrained(tmp_path / one) for one in ("ours", "back")]
    ids = text.load_folder(tmp_path / "theirs").tokenizer.encode("The cat, über!", "[MASK]").ids
    assert [one("The cat, über!", "[MASK]")["input_ids"] for one in tokenizers] == [ids, ids]
    values = json.loads((tmp_path / "back" / "config.json").read_text())
    assert values.get("id2label") == ({"0": "no", "1": "maybe", "2": "yes"} if labels else None)


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        ("single_label_classification", ["no", "maybe", "yes"]),
        ("multi_label_classification", ["slow", "loud"]),
        ("regression", ["stars"]),
    ],
)
def test_predictions_of_a_classifier_there_and_back_are_transformers_own(
    tmp_path: Path, problem: str, names: list[str]
) -> None:
    kind, texts = transformers.BertForSequenceClassification, ["the cat sat", "Über, the mat!", "on"]
    theirs = save_bert(tmp_path / "theirs", kind, id2label=dict(enumerate(names)), problem_type=problem)
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "theirs" / "vocab.txt"))
    with torch.no_grad():
        logits = theirs(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    wanted = {
        "single_label_classification": logits.softmax(1), "multi_label_classification": logits.sigmoid(),
        "regression": logits,
    }[problem].numpy()  # fmt: skip
    run.text_import(tmp_path / "theirs", tmp_path / "ours")
    run.text_export(tmp_path / "ours", tmp_path / "back")
    for one in ("theirs", "ours", "back"):
        found = run.text_predict(tmp_path / one, texts=texts)["predictions"]
        said = [[*row["probabilities"].values()] if problem != "regression" else [row["prediction"]] for row in found]
        np.testing.assert_allclose(said, wanted, atol=1e-5)
        if problem == "multi_label_classification":
            there = [[name for name, p in zip(names, row) if p >= 0.5] for row in wanted]
            assert [row["prediction"] for row in found] == there
        config = json.loads((tmp_path / one / "config.json").read_text())
        assert config["problem_type"] == problem
        assert config["id2label"] == {str(i): name for i, name in enumerate(names)}
    given, back = (load_file(tmp_path / one / "model.safetensors") for one in ("theirs", "back"))
    assert given.keys() == back.keys()
    assert all(torch.equal(tensor, back[name]) for name, tensor in given.items())


def test_what_import_says_and_keeps(folder: Path, tmp_path: Path, bothways: Call) -> None:
    edit_weights(folder, drop=["cls.seq_relationship"], add={"crf.weight": torch.ones(2)})
    (folder / "README.md").write_text("---\nlicense: mit\n---\n")
    stored = load_file(folder / "model.safetensors")
    save_file({name: one.bfloat16() for name, one in stored.items()}, folder / "model.safetensors")
    code, said, _ = bothways("text", "import", folder, "--out", tmp_path / "ours")
    assert code == 0
    for line in (
        "36 tensors, 100% of embedding and encoder; heads: mlm",
        "missing: heads.nsp",
        "unexpected: crf.weight",
        "note: weights of bfloat16 are float32 now",
        "note: its own README.md is not copied; what it says of licence and data holds for this copy, too",
        "12,559 parameters; 71 tokens in 71 rows",
    ):
        assert line in said.splitlines(), said
    manifest = json.loads((tmp_path / "ours" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["source"]["folder"]) == ("imported", "theirs")
    assert manifest["load_report"]["unexpected"] == ["crf.weight"]
    assert manifest["config_sha256"] == sha256_file(tmp_path / "ours" / "config.json")
    weights = load_file(tmp_path / "ours" / "model.safetensors")
    assert {one.dtype for one in weights.values()} == {torch.float32}
    name = "bert.embeddings.word_embeddings.weight"
    assert torch.equal(weights[name], stored[name].bfloat16().float())
    card = (tmp_path / "ours" / "README.md").read_text()
    assert "That of `theirs`, which this is a copy of: what is said there of data and licence holds here, too." in card
    assert "from transformers import AutoTokenizer, BertForMaskedLM" in card
    code, out, _ = bothways("text", "import", folder, "--out", tmp_path / "ours", "--overwrite", "--json")
    assert code == 0
    assert json.loads(out) == run.text_import(folder, tmp_path / "ours", overwrite=True)


IMPORTS_REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "untied": (lambda path: edit_json(path / "config.json", tie_word_embeddings=False), "only tied MLM decoders"),
    "own decoder": (
        lambda path: edit_weights(path, add={"cls.predictions.decoder.weight": torch.ones(71, 24)}),
        "only tied MLM decoders can be loaded",
    ),
    "pickle": (
        lambda path: (path / "model.safetensors").rename(path / "pytorch_model.bin"),
        "found only pytorch_model.bin, a pickle that can run code",
    ),
    "no tokenizer": (lambda path: (path / "vocab.txt").unlink(), "expected tokenizer.json or vocab.txt"),
    "roberta": (lambda path: edit_json(path / "config.json", model_type="roberta"), "only BERT encoders can be loaded"),
    "nothing": (shutil.rmtree, "expected a model (a folder with config.json), found none"),
}


@pytest.mark.parametrize(("change", "said"), IMPORTS_REFUSED.values(), ids=IMPORTS_REFUSED)
def test_what_is_not_imported(
    folder: Path, tmp_path: Path, fails: Callable[..., str], change: Callable[[Path], Any], said: str
) -> None:
    change(folder)
    assert said in fails("text", "import", folder, "--out", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_where_nothing_is_written(folder: Path, tmp_path: Path, fails: Callable[..., str]) -> None:
    for command in ("import", "export"):
        assert "already exists" in fails("text", command, folder, "--out", folder)
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / "thesis.tex").touch()
        said = fails("text", command, folder, "--out", tmp_path / "mine", "--overwrite")
        assert "not a folder that bothways wrote" in said


# Runs --------------------------------------------------------------------------------------------------------------


class Cut(Pairs):
    """Gives so many batches."""

    def __init__(self, batches: int) -> None:
        self.left = batches

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        self.left -= 1
        if self.left < 0:
            raise Stopped
        return super().batch(ids, epochs)


def side_files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "vocab").mkdir(exist_ok=True)
    (tmp_path / "vocab" / "vocab.txt").write_text("\n".join(VOCAB[:40]) + "\n", encoding="utf-8")
    (tmp_path / "vocab" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    loaded = text.load_tokenizer(tmp_path / "vocab", TextConfig(vocab_size=40, max_position_embeddings=12))
    return text.tokenizer_files(loaded, tmp_path / "vocab")


def sitting(path: Path, files: dict[str, str], source: Pairs) -> None:
    model = bert()
    with opened(path) as folder:
        folder.side_files, folder.manifest = files, {"kind": "pretrain", "corpus": "secret corpus"}
        config = folder.settings.training  # type: ignore[attr-defined]
        train(model, source, config, title="test", evaluate=lambda model: {"mlm": 1.0}, run=folder)
        folder.finish(model, {"loss": 1.0}, text.save_folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on text in transformers' layout, with its checkpoints."""
    top = tmp_path_factory.mktemp("text")
    sitting(top / "run", side_files(top), Pairs())
    return top / "run"


def test_a_run_is_finished_in_transformers_layout(trained: Path, tmp_path: Path) -> None:
    theirs, info = transformers.BertForPreTraining.from_pretrained(trained, output_loading_info=True)
    assert not any(info.values())
    files = side_files(tmp_path)
    places = [trained, *(trained / "checkpoints").glob("step-*")]
    assert len(places) == 3
    for place in places:
        assert all((place / name).read_text(encoding="utf-8") == content for name, content in files.items())
        assert text.load_folder(place).tokenizer.encode("ab").tokens == ["[CLS]", "a", "##b", "[SEP]"]
    model = package.load(trained)
    last = package.load(trained / "checkpoints" / "latest")
    assert all(torch.equal(one, last.state_dict()[name]) for name, one in model.state_dict().items())
    assert model.config == last.config == FORMS["bert"].config.model_copy(update={"encoder": model.config.encoder})
    assert torch.equal(theirs.bert.embeddings.word_embeddings.weight, model.embedding.word.weight)
    model.save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "config.json").read_bytes() == (trained / "config.json").read_bytes()
    weights = [load_file(place / "model.safetensors") for place in (trained, tmp_path / "copy")]
    assert weights[0].keys() == weights[1].keys()
    transformers.AutoModel.from_pretrained(tmp_path / "copy")
    edit_json(tmp_path / "copy" / "config.json", num_attention_heads=1)
    with pytest.raises(UserError, match=r"config.json: not the one that the run was saved with"):
        package.load(tmp_path / "copy")


def test_a_run_that_was_stopped_comes_to_the_same_bits(trained: Path, tmp_path: Path) -> None:
    files = side_files(tmp_path)
    for _ in range(2):
        with pytest.raises(Stopped):
            sitting(tmp_path / "other", files, Cut(2))
    with pytest.raises(UserError, match="the run is not finished; give the command that began it again"):
        run.text_export(tmp_path / "other", tmp_path / "out")
    sitting(tmp_path / "other", files, Pairs())
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "other" / name).read_bytes() == (trained / name).read_bytes()


@pytest.mark.parametrize("place", ["", "checkpoints", "checkpoints/latest"])
def test_export_says_nothing_of_the_corpus(trained: Path, tmp_path: Path, bothways: Call, place: str) -> None:
    code, out, error = bothways("text", "export", trained / place, "--out", tmp_path / "out", "--json")
    assert code == 0, error
    result = json.loads(out)
    assert result["files"] == sorted(path.name for path in (tmp_path / "out").iterdir()) == FILES
    assert {"metrics.jsonl", "recipe.toml"} <= {*result["left_out"]}
    assert (result["architecture"], result["heads"]) == ("BertForPreTraining", ["mlm", "nsp"])
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "out").iterdir())
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest == {"kind": "exported", "config_sha256": sha256_file(tmp_path / "out" / "config.json")}
    assert result == run.text_export(trained / place, tmp_path / "out", overwrite=True)
    _, info = transformers.BertForPreTraining.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    again = package.load(tmp_path / "out")
    expected = package.load(trained / place)
    assert all(torch.equal(one, expected.state_dict()[name]) for name, one in again.state_dict().items())


def test_what_transformers_has_not_is_not_exported(tmp_path: Path, fails: Callable[..., str], chain: Chain) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    form = FORMS["tiny_classifier"]
    save_run(ours, form.build(), PretrainConfig(), {}, side_files=side_files(tmp_path))
    said = fails("text", "export", ours, "--out", tmp_path / "out")
    assert 'got one with encoder.norm "pre", encoder.qkv_bias false, text.type_vocab_size 0, text.norm false, ' in said
    assert 'train with encoder.preset = "bert" to export' in said
    assert "a run of ours needs no import" in fails("text", "import", ours, "--out", tmp_path / "out")
    for command in ("import", "export"):
        said = fails("text", command, chain.pretrained, "--out", tmp_path / "out")
        assert "expected a text model, got one of EEG" in said


@pytest.mark.parametrize("layout", ["transformers", "ours"])
def test_commands_of_eeg_say_that_it_is_of_text(
    trained: Path, tmp_path: Path, fails: Callable[..., str], chain: Chain, layout: str
) -> None:
    place = trained if layout == "transformers" else next((trained / "checkpoints").glob("step-*"))
    start = ["--data", chain.store, "--labels", chain.labels, "--out", tmp_path / "out"]
    for command in (
        ["finetune", "--from", place, *start],
        ["compare", "--from", place, *start],
        ["evaluate", place],
        ["predict", place, chain.data, "--out", tmp_path / "out"],
        ["embed", place, chain.store, "--out", tmp_path / "out.parquet"],
        ["probe", place],
    ):
        said = fails("eeg", *command)
        assert "text" in said, said
        assert str(place) in said
    if layout == "transformers":
        with pytest.raises(UserError, match=r"expected a run on EEG, got a run on text \(bert\); `bothways text` and"):
            load_config_of(place)
        (tmp_path / "theirs").mkdir()
        save_bert(tmp_path / "theirs", transformers.BertModel)
        with pytest.raises(UserError, match=r"theirs: expected a run on EEG, got a folder that transformers saved \(b"):
            load_config_of(tmp_path / "theirs")


# Cases -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["b73_tied", "b73_tied_stored_twice", "b74_no_prefix", "b74_with_prefix", "b75_gamma_beta", "b77_vocab_padded"],
)
def test_checkpoints_of_others(shared: Path, tmp_path: Path, name: str) -> None:
    listed = json.loads((shared / "cases" / "manifest.json").read_text())["cases"]
    (expected,) = [case["expect"] for case in listed if case.get("file") == f"text/{name}/model.safetensors"]
    result = run.text_import(shared / "cases" / "text" / name, tmp_path / "ours")
    report = result["load_report"]
    assert (report["unexpected"], report["reshaped"], result["body_share"]) == ([], [], 1.0)
    encoder_alone = name.startswith("b74")
    assert report["missing"] == (["heads.mlm", "heads.nsp"] if name == "b74_with_prefix" else [])
    assert result["heads"] == ([] if encoder_alone else ["mlm", "nsp"])
    assert (result["tokens"], result["vocab_size"]) == (114, expected.get("embedding_rows", 114))
    run.text_export(tmp_path / "ours", tmp_path / "back")
    kind = transformers.BertModel if encoder_alone else transformers.BertForPreTraining
    assert not any("decoder" in key for key in load_file(tmp_path / "back" / "model.safetensors"))
    ids, tolerance = torch.tensor([expected["input_ids"]]), {"rtol": 0.0, "atol": expected["tol"]}
    for place in (tmp_path / "ours", tmp_path / "back"):
        model = package.load(place)
        theirs, info = kind.from_pretrained(place, output_loading_info=True)
        assert not any(info.values())
        with torch.no_grad():
            output = model({"input_ids": ids}, with_losses=False)
            found = theirs.eval()(input_ids=ids, output_hidden_states=True)
            pooled = model.pooler(output.rows.cls())[0]
        for cls in (output.rows.cls()[0], found.hidden_states[-1][0, 0]):
            torch.testing.assert_close(cls[:4], torch.tensor(expected["hidden_first_token"]), **tolerance)
        if "pooled" in expected:
            torch.testing.assert_close(pooled[:4], torch.tensor(expected["pooled"]), **tolerance)
        if not encoder_alone:
            assert model.tokenizer is not None
            scores = model.tokenizer.named(output.predictions["mlm"])
            assert scores.argmax(1).tolist() == expected["mlm_argmax"]
            torch.testing.assert_close(output.predictions["mlm"], found.prediction_logits[0], **tolerance)
        if "nsp" in expected:
            torch.testing.assert_close(output.predictions["nsp"][0], torch.tensor(expected["nsp"]), **tolerance)


def test_a_padded_vocabulary_goes_along_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    reference = save_bert(tmp_path / "theirs", transformers.BertForMaskedLM, vocab_size=80)
    result = run.text_import(tmp_path / "theirs", tmp_path / "ours")
    assert (result["tokens"], result["vocab_size"]) == (71, 80)
    run.text_export(tmp_path / "ours", tmp_path / "back")
    table = load_file(tmp_path / "back" / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert torch.equal(table, reference.bert.embeddings.word_embeddings.weight.float())
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path / "back")) == 71


def test_old_spellings_are_written_in_the_present_one(folder: Path, tmp_path: Path) -> None:
    present = load_file(folder / "model.safetensors").keys()
    same = tmp_path / "same"
    shutil.copytree(folder, same)
    edit_weights(
        folder,
        rename=lambda name: (
            name.removeprefix("bert.").replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
        ),
        add={"embeddings.position_ids": torch.arange(20)[None]},
    )
    result = run.text_import(folder, tmp_path / "ours")
    assert result["load_report"]["unexpected"] == []
    assert load_file(tmp_path / "ours" / "model.safetensors").keys() == present
    same_outputs(tmp_path / "ours", same, "BertForPreTraining")
