"""What BERT has not, what goes along in a config, TensorFlow's names, tokenizer files, weights in other formats."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

from bothways.config import TEXT_SIZES, HeadConfig, ModelConfig, TextPretrainConfig, load_config
from bothways.errors import UserError
from bothways.model import Model
from bothways.run import load_pretrained
from bothways.text import TokenEmbedding, config_to_transformers, load_folder, save_folder, tokenizer_files, unlike_bert
from bothways.text.tf_names import from_tensorflow
from bothways.weights import has_checksums
from models import FORMS
from texts import edit_json, edit_weights, save_bert, save_vocab

BERT = FORMS["bert"].config
CLASSES = ("a", "b", "c")


def changed(**parts: Any) -> ModelConfig:
    values = BERT.model_dump()
    for name, part in parts.items():
        values[name] = {**values[name], **part} if name in ("encoder", "text") else part
    return ModelConfig.model_validate(values)


def head(kind: str, **settings: Any) -> dict[str, Any]:
    return {"kind": kind, **settings}


def of(preset: str, size: str = "tiny") -> dict[str, Any]:
    changes = [f"encoder.preset={preset}", f"encoder.size={size}"]
    return load_config(TextPretrainConfig, changes=changes).encoder.model_dump()


UNLIKE: dict[str, tuple[ModelConfig, str]] = {
    "bert": (BERT, ""),
    "no heads": (changed(heads={}, pooler=False), ""),
    "eeg": (FORMS["eeg_channels"].config, "a model of EEG"),
    "pre": (changed(encoder={"norm": "pre"}), 'encoder.norm "pre"'),
    "fast": (
        changed(encoder=of("fast")),
        'encoder.norm "pre", encoder.gated true, encoder.qkv_bias false, encoder.linear_bias false',
    ),
    **{f"bert, {size}": (changed(encoder=of("bert", size)), "") for size in TEXT_SIZES},
    "segments": (changed(text={"type_vocab_size": 0}), "text.type_vocab_size 0"),
    "norm": (changed(text={"norm": False}), "text.norm false"),
    "padding": (changed(text={"pad_token_id": 40}), "text.pad_token_id 40"),
    "no padding": (changed(text={"pad_token_id": None}), ""),
    "pooler": (changed(pooler=False), "heads.nsp without a pooler"),
    "a number": (changed(heads={"number": head("number", classes=["age"])}), ""),
    "name": (changed(heads={"next": head("nsp")}), 'heads.next.kind "nsp"'),
    "pool": (changed(heads={"sequence": head("sequence", classes=CLASSES, pool="mean")}), 'heads.sequence.pool "mean"'),
    "one class": (changed(heads={"position": head("position", classes=["a"])}), "heads.position of 1 classes"),
    "two tasks": (
        changed(heads={"span": head("span"), "mlm": head("mlm")}),
        "heads span and mlm in one model",
    ),
}


@pytest.mark.parametrize(("config", "said"), UNLIKE.values(), ids=UNLIKE)
def test_what_bert_has_not(config: ModelConfig, said: str) -> None:
    assert unlike_bert(config) == said
    if said:
        with pytest.raises(UserError, match=re.escape(f"got {said}; transformers has no class for it")):
            config_to_transformers(config)


def test_config_of_transformers() -> None:
    assert config_to_transformers(BERT) == {
        "architectures": ["BertForPreTraining"],
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "vocab_size": 40,
        "max_position_embeddings": 12,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "hidden_act": "gelu",
        "tie_word_embeddings": True,
    }
    weighted = changed(heads={"sequence": head("sequence", classes=CLASSES, dropout=0.3, class_weights=(1, 2, 3))})
    values = config_to_transformers(weighted)
    assert values["architectures"] == ["BertForSequenceClassification"]
    assert values["id2label"] == {"0": "a", "1": "b", "2": "c"}
    assert values["label2id"] == {"a": 0, "b": 1, "c": 2}
    assert values["classifier_dropout"] == 0.3
    assert values["bothways"] == {"heads": {"sequence": {"classes": ["a", "b", "c"], "class_weights": [1.0, 2.0, 3.0]}}}


@pytest.mark.parametrize("form", ["bert", "tiny_classifier", "text_tasks"])
def test_a_folder_is_of_transformers_where_it_can_be(tmp_path: Path, form: str) -> None:
    model = FORMS[form].build()
    save_folder(tmp_path, model)
    save_vocab(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join((tmp_path / "vocab.txt").read_text().split("\n")[:40]))
    assert ("model_type" in json.loads((tmp_path / "config.json").read_text())) is (form == "bert")
    assert has_checksums(tmp_path / "model.safetensors")
    loaded = load_folder(tmp_path)
    assert loaded.model.config == model.config
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in loaded.model.state_dict().items())
    if form != "bert":
        with pytest.raises(UserError, match="transformers has no class for it"):
            save_folder(tmp_path, model, bare=True)


def test_given_weights_are_saved_instead(tmp_path: Path) -> None:
    model, other = FORMS["bert"].build(0), FORMS["bert"].build(1)
    save_folder(tmp_path, model, other.state_dict())
    save_vocab(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join((tmp_path / "vocab.txt").read_text().split("\n")[:40]))
    assert torch.equal(load_folder(tmp_path).model.embedding.word.weight, other.embedding.word.weight)


def test_what_bertconfig_has_no_word_for_goes_along(tmp_path: Path) -> None:
    heads = {"sequence": HeadConfig(kind="sequence", classes=CLASSES, weight=0.5, class_weights=(1.0, 2.0, 3.0))}
    config = BERT.model_copy(update={"heads": heads})
    save_vocab(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join((tmp_path / "vocab.txt").read_text().split("\n")[:40]))
    model = Model(config, TokenEmbedding(config))
    model.initialise(0)
    save_folder(tmp_path, model)
    assert load_folder(tmp_path).model.config.heads == heads
    for odd in (5, {"heads": []}, {"heads": {"sequence": 5}}):
        edit_json(tmp_path / "config.json", bothways=odd)
        assert load_folder(tmp_path).model.config.heads["sequence"].class_weights == ()
    edit_json(tmp_path / "config.json", bothways={"heads": {"sequence": {"classes": list(CLASSES), "weigth": 1}}})
    with pytest.raises(UserError, match=r"unknown setting 'heads\.sequence.weigth'"):
        load_folder(tmp_path)
    save_folder(tmp_path, model)
    edit_json(tmp_path / "config.json", id2label={"0": "x", "1": "y", "2": "z"})  # other classes: other weights
    assert load_folder(tmp_path).model.config.heads["sequence"].class_weights == ()
    save_folder(tmp_path, model, bare=True)
    assert "bothways" not in json.loads((tmp_path / "config.json").read_text())


def test_names_of_tensorflow() -> None:
    square = torch.arange(4.0).reshape(2, 2)
    names = {
        "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
        "bert/embeddings/LayerNorm/gamma": "bert.embeddings.LayerNorm.weight",
        "bert/encoder/layer_11/attention/self/query/kernel": "bert.encoder.layer.11.attention.self.query.weight",
        "bert/encoder/layer_1/output/LayerNorm/beta": "bert.encoder.layer.1.output.LayerNorm.bias",
        "cls/predictions/transform/dense/kernel": "cls.predictions.transform.dense.weight",
        "cls/predictions/output_bias": "cls.predictions.bias",
        "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
        "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
        "cls/squad/output_weights": "qa_outputs.weight",
        "output_weights": "classifier.weight",
        "output_bias": "classifier.bias",
        "tf_bert_model/bert/embeddings/position_embeddings/embeddings:0": "bert.embeddings.position_embeddings.weight",
        "bert/embeddings/token_type_embeddings/embeddings:0": "bert.embeddings.token_type_embeddings.weight",
        "tf_bert_x_1/bert/encoder/layer_._0/output/dense/bias:0": "bert.encoder.layer.0.output.dense.bias",
        "mlm___cls/predictions/bias:0": "cls.predictions.bias",
        "x/nsp___cls/seq_relationship/kernel:0": "cls.seq_relationship.weight",
        "tf_bert_for_question_answering/qa_outputs/kernel:0": "qa_outputs.weight",
        "bert/pooler/dense/kernel/adam_v": "bert/pooler/dense/kernel/adam_v",
        "global_step": "global_step",
        "kernel": "kernel",
        "other/kernel": "other/kernel",
    }
    for name, expected in names.items():
        found, renamed = from_tensorflow({name: square, "a/b": square}, "folder")
        assert renamed
        assert next(iter(found)) == expected
        turned = name.removesuffix(":0").endswith("/kernel") and not name.startswith("other")
        assert torch.equal(found[expected], square.t() if turned else square), name
    assert from_tensorflow({"output_bias": square}, "folder") == ({"output_bias": square}, False)
    with pytest.raises(UserError, match=r"folder: expected one weight bert\.pooler.dense.bias, got two"):
        from_tensorflow({"bert/pooler/dense/bias": square, "x/bert/pooler/dense/bias:0": square}, "folder")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pytorch_model.bin", "a pickle that can run code; load it with transformers where you trust it"),
        ("tf_model.h5", r"weights of TensorFlow; load it with transformers 4 (`from_pretrained(…, from_tf=True)`)"),
        ("bert_model.ckpt.index", r"a checkpoint of TensorFlow; load it with transformers 4 (`from_pretrained(…, from"),
        ("model.ckpt-1000.index", r"a checkpoint of TensorFlow; load it"),
        ("flax_model.msgpack", r"weights of Flax; load it with transformers 4 (`from_pretrained(…, from_flax=True)`)"),
    ],
)
def test_weights_in_other_formats_are_named_and_not_opened(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).mkdir()  # which cannot be read
    for config in (False, True):
        if config:
            save_bert(tmp_path, transformers.BertModel)
            (tmp_path / "model.safetensors").unlink()
        for load in (load_folder, load_pretrained):
            with pytest.raises(UserError, match=re.escape(f"found only {name}, {said}")) as caught:
                load(tmp_path)
            assert str(caught.value).endswith(", and save_pretrained writes safetensors")
            assert "\n" not in str(caught.value)


def test_other_weights_beside_safetensors_do_not_matter(tmp_path: Path) -> None:
    save_bert(tmp_path, transformers.BertModel)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    (tmp_path / "tf_model.h5").touch()
    assert load_folder(tmp_path).report.missing == []


# Tokenizer files ---------------------------------------------------------------------------------------------------


def test_files_of_a_bare_vocabulary(tmp_path: Path) -> None:
    save_bert(tmp_path, transformers.BertModel)
    files = tokenizer_files(load_folder(tmp_path).tokenizer, tmp_path)
    assert files["vocab.txt"] == (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    assert json.loads(files["tokenizer_config.json"]) == {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
        "model_max_length": 20,
    }
    assert tokenizers.Tokenizer.from_str(files["tokenizer.json"]).encode("the cat").tokens[1:-1] == ["the", "cat"]
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "tokenizer.json").write_text(files["tokenizer.json"])
    assert tokenizer_files(load_folder(tmp_path).tokenizer, tmp_path) == files  # and back


def test_a_tokenizer_with_rules_of_its_own_stays_as_it_is(tmp_path: Path) -> None:
    save_bert(tmp_path, transformers.BertModel)
    own = json.loads(tokenizer_files(load_folder(tmp_path).tokenizer)["tokenizer.json"])
    pieces = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    end = {"SpecialToken": {"id": "[SEP]", "type_id": 0}}
    special = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in (("[CLS]", 2), ("[SEP]", 3))}
    pair = [*pieces, end, end, {"Sequence": {"id": "B", "type_id": 0}}, end]
    own["post_processor"] = {
        "type": "TemplateProcessing", "single": [*pieces, end], "pair": pair, "special_tokens": special,
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(own))
    (tmp_path / "tokenizer_config.json").unlink()
    tokenizer = load_folder(tmp_path).tokenizer
    files = tokenizer_files(tokenizer, tmp_path)
    assert files["tokenizer.json"] == json.dumps(own)
    assert json.loads(files["tokenizer_config.json"])["tokenizer_class"] == "PreTrainedTokenizerFast"
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("the", "cat")["input_ids"] == tokenizer.encode("the", "cat").ids
    assert tokenizer.encode("the", "cat").tokens == ["[CLS]", "the", "[SEP]", "[SEP]", "cat", "[SEP]"]


def test_a_vocabulary_that_lines_cannot_say_is_no_vocab_txt(tmp_path: Path) -> None:
    save_bert(tmp_path, transformers.BertModel)
    own = json.loads(tokenizer_files(load_folder(tmp_path).tokenizer)["tokenizer.json"])
    (tmp_path / "vocab.txt").unlink()
    for change in ({"a\nb": 70}, {"猫": 71}):  # two lines; a gap
        own["model"]["vocab"].pop("猫", None)
        (tmp_path / "tokenizer.json").write_text(
            json.dumps({**own, "model": {**own["model"], "vocab": own["model"]["vocab"] | change}})
        )
        (tmp_path / "vocab.txt").write_bytes(b"\xff")  # which nothing reads beside a tokenizer.json
        edit_json(tmp_path / "config.json", vocab_size=72)
        edit_weights(tmp_path, add={"embeddings.word_embeddings.weight": torch.ones(72, 24)})
        assert "vocab.txt" not in tokenizer_files(load_folder(tmp_path).tokenizer, tmp_path)


@pytest.mark.filterwarnings("ignore:.*(line 6 is there again below|has 70 tokens)")
def test_a_vocabulary_with_a_line_twice_keeps_its_ids(tmp_path: Path) -> None:
    save_bert(tmp_path, transformers.BertModel)
    lines = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    (tmp_path / "vocab.txt").write_text("\n".join([*lines[:6], *lines[5:-2]]), encoding="utf-8")
    tokenizer = load_folder(tmp_path).tokenizer
    files = tokenizer_files(tokenizer, tmp_path)
    assert files["vocab.txt"] == (tmp_path / "vocab.txt").read_text(encoding="utf-8")
    theirs = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
    assert theirs.encode("the cat").ids == tokenizer.encode("the cat").ids == [2, 58, 59, 3]
