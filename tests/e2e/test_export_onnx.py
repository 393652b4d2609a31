"""`bothways export onnx`, as a user types it, and the file as others read it: onnxruntime and nothing of ours."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tokenizers
import torch
import transformers

from bothways import load, run
from bothways.errors import UserError
from bothways.nn import EEGEncoder
from bothways.run import onnx_graph
from bothways.training import BEGUN
from graphs import GRAPHS, build
from people import CHANNELS, Chain, alpha_uv
from texts import save_bert

pytestmark = pytest.mark.filterwarnings("ignore::bothways.errors.BothwaysWarning")
Call = Callable[..., tuple[int, str, str]]
FEW = ["training.steps=3", "training.evaluations=1", "validation_fraction=0"]
QUICK = ["training.steps=80", "training.learning_rate=2e-3", "training.batch_size=8", "validation_fraction=0"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, transformers.BertForPreTraining)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    frames = ("{}", "a {}", "the {}", "{} sat", "a {} .", "the {} sat .")
    rows = [(frame.format(word), word) for word in ("cat", "mat") for frame in frames]
    path = tmp_path_factory.mktemp("table") / "texts.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


@pytest.fixture(scope="module")
def classifier(bert: Path, table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "classifier"
    run.text_finetune(bert, table, out, changes=QUICK)
    return out


def facts_of(path: Path) -> dict[str, Any]:
    onnx.checker.check_model(str(path))
    (found,) = [one.value for one in onnx.load(path).metadata_props if one.key == "bothways"]
    return json.loads(found)


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def read_texts(path: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """What the README shows: the tokenizer's file, and the graph."""
    facts = facts_of(path)
    tokenizer = tokenizers.Tokenizer.from_file(str(path.parent / facts["tokenizer"]["file"]))
    tokenizer.enable_padding(pad_id=facts["tokenizer"]["ids"]["pad"])
    found = tokenizer.encode_batch(texts)
    inputs = {
        "input_ids": np.array([one.ids for one in found]),
        "attention_mask": np.array([one.attention_mask for one in found]),
        "token_type_ids": np.array([one.type_ids for one in found]),
    }
    graph = session(path)
    return dict(zip((one.name for one in graph.get_outputs()), graph.run(None, inputs)))


def test_a_classifier_of_text(bothways: Call, classifier: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "cats.onnx"
    arguments = ("export", "onnx", classifier, "--out", out, "--int8", "--data", table)
    code, printed, err = bothways(*arguments)
    assert code == 0, err
    assert "Warning" not in err
    assert sorted(path.name for path in out.parent.iterdir()) == ["cats-int8.onnx", "cats.onnx", "cats.tokenizer.json"]
    for line in ("outputs: logits, probabilities", "classes: cat, mat", "accuracy: 1, int8 1, difference 0"):
        assert line in printed
    assert f"written: {out}," in printed
    texts = ["the cat sat .", "mat", "a mat"]
    found = read_texts(out, texts)
    told = run.text_predict(classifier, texts=texts)["predictions"]
    wanted = [[one["probabilities"][name] for name in ("cat", "mat")] for one in told]
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)
    small = read_texts(out.with_name("cats-int8.onnx"), texts)
    np.testing.assert_allclose(small["probabilities"], wanted, atol=0.1)
    assert (small["probabilities"] != found["probabilities"]).any()
    facts = facts_of(out)
    assert (facts["modality"], facts["task"], facts["classes"]) == ("text", "classes", ["cat", "mat"])
    assert facts["tokenizer"]["file"] == "cats.tokenizer.json"
    assert (facts["tokenizer"]["length"], facts["tokenizer"]["too_long"]) == (20, "windows")
    assert len(facts["manifest_sha256"]) == 64
    assert facts_of(out.with_name("cats-int8.onnx"))["int8"] is True
    weights = {one.name: one.data_type for one in onnx.load(out.with_name("cats-int8.onnx")).graph.initializer}
    assert weights["model.encoder.layers.0.attention.qkv.weight_Transposed_quantized"] == onnx.TensorProto.INT8
    content = out.read_bytes()
    assert not any(word in content for word in (b"padded.py", b"site-packages", bytes(tmp_path), bytes(classifier)))


def test_a_run_of_eeg(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    out = tmp_path / "eyes.onnx"
    code, printed, err = bothways(
        "export", "onnx", chain.finetuned, "--out", out, "--int8", "--data", chain.store, "--json"
    )
    assert code == 0, err
    result = json.loads(printed)
    assert result["largest_difference"] < 1e-4
    assert result["data"]["largest_difference"] < 1e-4
    assert result["data"]["metrics"]["float"]["n"] == chain.results["evaluate"]["model"]["n"]
    figures = result["data"]["figures"]["balanced_accuracy"]
    assert figures["float"] == pytest.approx(chain.results["evaluate"]["model"]["balanced_accuracy"])
    assert figures["difference"] == figures["int8"] - figures["float"]
    assert result["int8"]["agreement"] > 0.9
    facts = facts_of(out)
    assert (facts["modality"], facts["task"], facts["window_s"]) == ("eeg", "classes", 3.0)
    assert (facts["signal"]["sfreq_hz"], facts["patches"]["patch_samples"]) == (200.0, 200)
    # Of EEG the front end is in float32: of a spectrum int8 would leave little.
    weights = {one.name: one.data_type for one in onnx.load(result["int8"]["out"]).graph.initializer}
    assert weights["model.embedding.spectrum.waves"] == onnx.TensorProto.FLOAT
    # Raw signal by way of EEGEncoder, of other lengths and fewer channels than anything that was trained on.
    model = load(chain.finetuned)
    for names, seconds in ((CHANNELS, 5), (CHANNELS[:1], 1)):
        encoder = EEGEncoder(chain.finetuned, names, sfreq_hz=200, unit="uV")
        X = torch.from_numpy(alpha_uv("closed", 1, len(names), seconds)).float()[None]
        batch = encoder.batch(X)
        inputs = {name: batch[name].numpy() for name in facts["inputs"]}
        logits, _ = session(out).run(None, inputs)
        with torch.no_grad():
            wanted = model(batch, with_losses=False).predictions["sequence"]
        np.testing.assert_allclose(logits, wanted, atol=1e-4)


def test_what_cannot_be_exported(
    fails: Callable[..., str], classifier: Path, tmp_path: Path, table: Path, bert: Path
) -> None:
    out = tmp_path / "a.onnx"
    assert "expected a name that ends in .onnx" in fails("export", "onnx", classifier, "--out", tmp_path / "a.bin")
    assert "expected a model (a folder with config.json), found none" in fails("export", "onnx", tmp_path, "--out", out)
    (tmp_path / "stopped").mkdir()
    (tmp_path / "stopped" / BEGUN).write_text("{}")
    assert "the run is not finished" in fails("export", "onnx", tmp_path / "stopped", "--out", out)
    said = fails("export", "onnx", bert, "--out", out, "--data", table)
    assert "--data measures labels, but the file tells hidden_tokens; leave it out" in said
    said = fails("export", "onnx", classifier, "--out", out, "--vectors", "--data", table)
    assert "the file tells vectors" in said
    for name in ("a.onnx", "a-int8.onnx", "a.tokenizer.json"):
        (tmp_path / name).write_text("mine")
        assert f"{name}: already exists" in fails("export", "onnx", classifier, "--out", out, "--int8")
        (tmp_path / name).unlink()
    out.mkdir()
    assert "expected a file to write, got a folder" in fails("export", "onnx", classifier, "--out", out, "--overwrite")


@pytest.mark.parametrize("name", ["onnx", "onnxruntime.quantization", "onnxscript"])
def test_the_extra_is_named(
    name: str, fails: Callable[..., str], classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    said = fails("export", "onnx", classifier, "--out", tmp_path / "a.onnx")
    assert "exporting needs onnx, onnxruntime and onnxscript" in said
    assert said.endswith("`pip install 'bothways[onnx]'`")


def test_a_file_that_differs_is_not_written(classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = onnx_graph.Session.__call__

    def wrong(self: onnx_graph.Session, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: one + 2e-3 for name, one in real(self, batch).items()}

    monkeypatch.setattr(onnx_graph.Session, "__call__", wrong)
    with pytest.raises(UserError, match=r"differs from the model by 2\.0e-03 on drawn inputs, .*nothing is written"):
        run.export_onnx(classifier, tmp_path / "new" / "a.onnx")
    assert not (tmp_path / "new").exists()


def test_differences() -> None:
    """Counted by 1 or the largest number; no number has to be none in both."""
    model = build(GRAPHS["text tags"])
    nan, inf = float("nan"), float("inf")
    one = {"logits": torch.tensor([[1.0, nan, -inf]])}
    assert onnx_graph.difference(one, one, model) == 0
    assert onnx_graph.difference({"logits": torch.tensor([[1.5, nan, -inf]])}, one, model) == 0.5
    assert onnx_graph.difference({"logits": torch.tensor([[1.0, 2.0, -inf]])}, one, model) == inf
    large = {"logits": torch.tensor([[100.0]])}
    assert onnx_graph.difference({"logits": torch.tensor([[101.0]])}, large, model) == pytest.approx(0.01)
