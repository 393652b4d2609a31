"""What we save opens in transformers without a word and computes the same; TensorFlow's names open here."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertForPreTraining

from bothways import run
from bothways.config import HeadConfig, ModelConfig, TextConfig, TextPretrainConfig, load_config
from bothways.model import Model
from bothways.text import TokenEmbedding, load_folder, save_folder, tokenizer_files
from texts import VOCAB, save_bert, save_vocab, text_inputs

CLASSES = ("no", "maybe", "yes")
HEADS: dict[str, dict[str, HeadConfig]] = {
    "BertModel": {},
    "BertForMaskedLM": {"mlm": HeadConfig(kind="mlm")},
    "BertForNextSentencePrediction": {"nsp": HeadConfig(kind="nsp", weight=0.5)},
    "BertForPreTraining": {"mlm": HeadConfig(kind="mlm"), "nsp": HeadConfig(kind="nsp", weight=0.5)},
    "BertForSequenceClassification": {
        "sequence": HeadConfig(kind="sequence", classes=CLASSES, dropout=0.3, class_weights=(1.0, 2.0, 0.5))
    },
    "BertForTokenClassification": {"position": HeadConfig(kind="position", classes=CLASSES)},
    "BertForQuestionAnswering": {"span": HeadConfig(kind="span")},
}
WITHOUT_POOLER = {"BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering"}
AUTO = {
    "BertModel": "AutoModel",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
}


@pytest.fixture(autouse=True)
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """transformers' own log, which by default does not reach others."""
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def redrawn(model: Model) -> Model:
    """Fresh biases and norms are 0 and 1, and would hide a mix-up."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.2)
    return model.eval()


def saved(folder: Path, name: str, precision: torch.dtype, text: TextConfig, **encoder: Any) -> Model:
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config = ModelConfig.model_validate(
        {
            "encoder": {**sizes, "norm": "post", "final_norm": False, **encoder},
            "text": text,
            "pooler": name not in WITHOUT_POOLER,
            "heads": HEADS[name],
        }
    )
    model = redrawn(Model(config, TokenEmbedding(config)).to(precision))
    save_folder(folder, model)
    save_vocab(folder)
    return model


def opened(folder: Path, name: str) -> Any:
    """Opens a folder in transformers; every weight is there, and none is left over."""
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


@torch.no_grad()
def equal(model: Model, theirs: Any, inputs: dict[str, Tensor], tolerance: float) -> None:
    found = theirs(**inputs, output_hidden_states=True)
    real = inputs["attention_mask"].bool()
    embedded = model.embedding(inputs)
    hidden = model.encoder(embedded.hidden, embedded.attention_mask)
    pairs = {"hidden": (hidden.values, found.hidden_states[-1][real])}
    if "pooler_output" in found:
        pairs["pooler"] = (model.pooler(hidden.cls()), found.pooler_output)
    for head, one in model(inputs, with_losses=False).predictions.items():
        if head == "span":
            pairs["start"] = (one[:, 0][real], found.start_logits[real])
            pairs["end"] = (one[:, 1][real], found.end_logits[real])
        else:
            names = {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"} if len(model.heads) > 1 else {}
            logits = found[names.get(head, "logits")]
            pairs[head] = (one, logits[real] if head in ("mlm", "position") else logits)
    for ours, expected in pairs.values():
        torch.testing.assert_close(ours, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("precision", [torch.float64, torch.float32], ids=["float64", "float32"])
def test_what_is_saved_opens_in_transformers(
    tmp_path: Path, said: pytest.LogCaptureFixture, name: str, precision: torch.dtype
) -> None:
    model = saved(tmp_path, name, precision, TextConfig(vocab_size=len(VOCAB), max_position_embeddings=20))
    for kind in {name, AUTO[name]}:
        theirs = opened(tmp_path, kind)
        assert type(theirs).__name__ == name
        assert theirs.dtype == precision
        equal(model, theirs, text_inputs(), 1e-10 if precision == torch.float64 else 1e-5)
    assert [record.message for record in said.records if record.levelno >= logging.WARNING] == []
    loaded = load_folder(tmp_path)
    assert loaded.model.config == model.config
    assert loaded.report.missing == loaded.report.unexpected == []
    theirs.save_pretrained(tmp_path / "back")  # with names and tensors that are the same
    assert load_file(tmp_path / "back" / "model.safetensors").keys() == load_file(tmp_path / "model.safetensors").keys()


@pytest.mark.parametrize("name", ["AutoModel", "AutoModelForMaskedLM"])
def test_a_pretrained_model_opens_as_a_part_of_it(tmp_path: Path, name: str) -> None:
    text = TextConfig(vocab_size=len(VOCAB), max_position_embeddings=20)
    model = saved(tmp_path, "BertForPreTraining", torch.float64, text)
    theirs, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    model.heads = torch.nn.ModuleDict({"mlm": model.heads["mlm"]} if "Masked" in name else {})
    equal(model, theirs.eval(), text_inputs(), 1e-10)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu", "silu"])
def test_every_activation_and_setting_goes_along(tmp_path: Path, activation: str) -> None:
    odd = {"hidden_act": activation, "layer_norm_eps": 1e-5, "hidden_dropout_prob": 0.2, "initializer_range": 0.05}
    text = TextConfig(vocab_size=80, max_position_embeddings=11, type_vocab_size=3, pad_token_id=None)
    model = saved(tmp_path, "BertForMaskedLM", torch.float64, text, **odd)
    theirs = opened(tmp_path, "AutoModelForMaskedLM")
    equal(model, theirs, text_inputs(), 1e-10)
    assert theirs.bert.embeddings.word_embeddings.padding_idx is None
    assert theirs.config.hidden_dropout_prob == 0.2
    assert load_folder(tmp_path).model.config == model.config


@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_tokenizer_files_open_in_transformers(tmp_path: Path, lower: bool) -> None:
    save_bert(tmp_path, transformers.BertModel)
    save_vocab(tmp_path, do_lower_case=lower)
    tokenizer = load_folder(tmp_path).tokenizer
    made = tmp_path / "made"
    made.mkdir()
    for name, content in tokenizer_files(tokenizer, tmp_path).items():
        (made / name).write_text(content, encoding="utf-8")
    (made / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    (made / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    for file in ("", "vocab.txt", "tokenizer.json"):  # all, then without one of them
        kept = (made / file).read_bytes() if file else b""
        if file:
            (made / file).unlink()
        theirs, again = AutoTokenizer.from_pretrained(made), load_folder(made).tokenizer
        assert theirs.model_max_length == 20
        for pair in (("The Über cat, the [MASK]!", None), ("Über", "x [SEP] 猫")):
            expected = tokenizer.encode(*pair)
            assert theirs(*pair)["input_ids"] == expected.ids == again.encode(*pair).ids
            assert theirs(*pair)["token_type_ids"] == expected.type_ids
        if file:
            (made / file).write_bytes(kept)


def test_base_has_the_parameters_of_transformers_bert() -> None:
    encoder = load_config(TextPretrainConfig, changes=['encoder.size="base"']).encoder
    heads = {name: HeadConfig(kind=name) for name in ("mlm", "nsp")}
    with torch.device("meta"):
        config = ModelConfig(encoder=encoder, text=TextConfig(), pooler=True, heads=heads)
        ours, theirs = Model(config, TokenEmbedding(config)), BertForPreTraining(BertConfig())
    assert config.text == TextConfig(vocab_size=30522, max_position_embeddings=512, type_vocab_size=2)
    n = sum(parameter.numel() for parameter in ours.parameters())
    assert n == sum(parameter.numel() for parameter in theirs.parameters()) == 110_106_428


# TensorFlow's names ------------------------------------------------------------------------------------------------


def googles(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """transformers' name to that of google-research/bert."""
    leaf = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    for theirs, old in leaf.items():
        name = name.replace(theirs, old)
    name = name.replace("encoder.layer.", "encoder.layer_").replace("_embeddings.weight", "_embeddings")
    for head in ("cls.predictions.bias", "cls.seq_relationship.bias"):
        name = name.replace(head, head.replace("bias", "output_bias"))
    name = name.replace("cls.seq_relationship.weight", "cls.seq_relationship.output_weights")
    if name.endswith(".weight"):
        name, tensor = name.removesuffix("weight") + "kernel", tensor.t().contiguous()
    return name.replace(".", "/"), tensor


def keras(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """transformers' name to that of its TF class, as its files of weights have them."""
    for theirs, old in {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}.items():
        name = name.replace(theirs, old)
    for table in ("position", "token_type"):
        name = name.replace(f"{table}_embeddings.weight", f"{table}_embeddings.embeddings")
    if name.endswith(".weight") and "word_embeddings" not in name:
        name, tensor = name.removesuffix("weight") + "kernel", tensor.t().contiguous()
    name = name.replace("cls.predictions", "mlm___cls.predictions")
    name = name.replace("cls.seq_relationship", "nsp___cls.seq_relationship").replace(".", "/")
    return f"tf_bert_for_pre_training/{name.replace('encoder/layer/', 'encoder/layer_._')}:0", tensor


def without_class(name: str, tensor: Tensor) -> tuple[str, Tensor]:
    """The same in safetensors, where the class's part is left out."""
    name, tensor = keras(name, tensor)
    return name.partition("/")[2], tensor


@pytest.mark.parametrize("rename", [googles, keras, without_class])
def test_tensorflows_names_give_the_same_outputs(
    tmp_path: Path, rename: Callable[[str, Tensor], tuple[str, Tensor]]
) -> None:
    bert = tmp_path / "bert"
    bert.mkdir()
    reference = save_bert(bert, BertForPreTraining, hidden_size=8, intermediate_size=8)  # square: shapes tell nothing
    stored = dict(rename(name, tensor) for name, tensor in load_file(bert / "model.safetensors").items())
    assert all("/" in name for name in stored)
    slots = {f"{name}/adam_m": tensor.clone() for name, tensor in stored.items() if "query/kernel" in name}
    slots["global_step"] = torch.tensor(7)
    save_file(stored | slots, bert / "model.safetensors")
    loaded = load_folder(bert)
    assert sorted(loaded.report.unexpected) == sorted(slots)
    assert loaded.report.missing == []
    assert loaded.report.line().startswith(
        "loaded 38 tensors (100% of embedding and encoder); renamed from TensorFlow; unexpected: "
    )
    equal(loaded.model.double(), reference, text_inputs(), 1e-10)
    result = run.text_import(bert, tmp_path / "copy")
    assert result["names"] == "TensorFlow"
    equal(loaded.model, opened(tmp_path / "copy", "BertForPreTraining").double(), text_inputs(), 1e-10)
