"""Text models from folders: what is loaded, what is said of the rest, and each refusal with its message."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from bothways.config import PretrainConfig, TextConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.text import load_folder, load_tokenizer, to_transformers
from bothways.training import save_run
from models import FORMS
from texts import VOCAB, edit_json, edit_weights, save_bert, save_vocab

Change = Callable[[Path], Any]
TEXT = TextConfig(vocab_size=len(VOCAB), max_position_embeddings=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A BERT for masked words and the next sentence."""
    save_bert(tmp_path, transformers.BertForPreTraining)
    return tmp_path


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A BERT that tells three classes apart."""
    labels = {0: "no", 1: "maybe", 2: "yes"}
    save_bert(tmp_path, transformers.BertForSequenceClassification, id2label=labels, classifier_dropout=0.3)
    return tmp_path


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    """A tokenizer of the tokenizers library beside its settings."""
    save_vocab(tmp_path)
    inner = load_tokenizer(tmp_path, TEXT)._tokenizer
    inner.enable_truncation(4)
    inner.enable_padding(length=30)
    inner.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").unlink()
    return tmp_path


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        load_folder(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def config(**values: Any) -> Change:
    return lambda folder: edit_json(folder / "config.json", **values)


def weights(**changes: Any) -> Change:
    return lambda folder: edit_weights(folder, **changes)


def settings(**values: Any) -> Change:
    return lambda folder: edit_json(folder / "tokenizer_config.json", **values)


def replace(file: str, content: bytes | None) -> Change:
    return lambda folder: (folder / file).unlink() if content is None else (folder / file).write_bytes(content)


def index(weight_map: Any) -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "one.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def eight_bit(folder: Path) -> None:
    name = "bert.embeddings.word_embeddings.weight"
    edit_weights(folder, add={name: load_file(folder / "model.safetensors")[name].to(torch.int8)})


def nan(folder: Path) -> None:
    edit_weights(folder, add={"bert.embeddings.LayerNorm.weight": torch.full((24,), torch.nan)})


DECODER = "cls.predictions.decoder"
REFUSED: dict[str, tuple[Change, str]] = {
    "no config": (replace("config.json", None), "expected a model (a folder with config.json), found none"),
    "config list": (replace("config.json", b"[]"), "config.json: expected a JSON object, got list"),
    "config cut": (replace("config.json", b'{"a'), "config.json: expected JSON"),
    "model type": (config(model_type="roberta"), 'expected model_type "bert", got "roberta"; only BERT encoders'),
    "relative": (
        config(position_embedding_type="relative_key"),
        'expected position_embedding_type "absolute", got "relative_key"',
    ),
    "decoder": (config(is_decoder=True), "expected is_decoder false, got true"),
    "cross": (config(add_cross_attention=True), "expected add_cross_attention false, got true"),
    "activation": (config(hidden_act="mish"), "hidden_act: expected one of gelu, "),
    "no activation": (config(hidden_act=...), "expected BERT's settings, found no hidden_act"),
    "no sizes": (config(hidden_size=..., vocab_size=...), "found no hidden_size, vocab_size"),
    "heads": (config(num_attention_heads=5), "hidden_size 24 is not a multiple of num_attention_heads 5"),
    "size": (config(hidden_size=32), "hidden_size: expected 24 as in the weights, got 32"),
    "rows": (config(vocab_size=500), "vocab_size: expected 71 as in the weights, got 500"),
    "pad": (config(pad_token_id=500), "pad_token_id: expected one below vocab_size 71, got 500"),
    "untied": (config(tie_word_embeddings=False), "tie_word_embeddings: expected true, got false; only tied"),
    "no weights": (replace("model.safetensors", None), "expected weights in model.safetensors, found none"),
    "pickle": (pickled, "found only pytorch_model.bin, a pickle that can run code; load it with transformers"),
    "cut": (replace("model.safetensors", b"\xff" * 20), "expected safetensors, but the file is damaged"),
    "no map": (index({}), "expected a weight_map of names to files, found none"),
    "list of weights": (index(["a"]), "expected a weight_map of names to files, found none"),
    "path": (index({"a": "../one.safetensors"}), "expected names of files beside it, got '../one.safetensors'"),
    "absolute": (index({"a": "/etc/passwd"}), "expected names of files beside it, got '/etc/passwd'"),
    "backslash": (index({"a": "..\\one.safetensors"}), "expected names of files beside it, got '..\\\\one"),
    "parent": (index({"a": ".."}), "expected names of files beside it, got '..'"),
    "no piece": (index({"a": "two.safetensors"}), "two.safetensors: expected a file here, found none"),
    "not in it": (index({"a": "one.safetensors"}), "names 1 weights that no file holds (first: a)"),
    "other names": (
        weights(rename=lambda name: f"gpt.{name}"),
        "save the model without the wrapper that names it gpt.…",
    ),
    "a layer too many": (
        config(num_hidden_layers=1),
        "unexpected: bert.encoder.layer.1.attention.output.LayerNorm.bias, ",
    ),
    "a layer short": (weights(drop=["bert.encoder.layer.1.output"]), "expected all 29 tensors"),
    "part of a head": (weights(drop=["cls.predictions.transform.dense"]), "do not belong together"),
    "other head": (
        weights(add={"cls.seq_relationship.weight": torch.ones(3, 24)}),
        "reshaped: heads.nsp.linear.weight",
    ),
    "pooler": (weights(drop=["bert.pooler"]), "the nsp head reads the pooler, which the weights lack"),
    "decoder weight": (
        weights(add={f"{DECODER}.weight": torch.ones(71, 24)}),
        f"expected {DECODER}.weight to equal embeddings.word_embeddings.weight; only tied MLM decoders",
    ),
    "decoder bias": (
        weights(add={f"{DECODER}.bias": torch.ones(71)}),
        f"expected {DECODER}.bias to equal cls.predictions.bias; only tied MLM decoders",
    ),
    "eight bits": (eight_bit, "weight embedding.word.weight: expected float32, got int8; load a checkpoint"),
    "nan": (nan, "expected finite numbers, got NaN or infinity"),
    "no tokenizer": (replace("vocab.txt", None), "expected tokenizer.json or vocab.txt, found neither"),
    "case": (
        settings(do_lower_case=...),
        "vocab.txt does not say whether its texts are lower-cased; add tokenizer_config.json with "
        '{"do_lower_case": true}',
    ),
    "no settings": (replace("tokenizer_config.json", None), "add tokenizer_config.json with"),
    "settings list": (
        replace("tokenizer_config.json", b"[]"),
        "tokenizer_config.json: expected a JSON object, got list",
    ),
    "japanese": (settings(tokenizer_class="BertJapaneseTokenizer"), "got BertJapaneseTokenizer with rules of its own"),
    "not basic": (settings(do_basic_tokenize=False), "with rules of its own; add a tokenizer.json"),
    "not text": (replace("vocab.txt", b"\xff\xfe"), "vocab.txt: expected UTF-8 text"),
    "no special": (replace("vocab.txt", b"[PAD]\n[UNK]\n[SEP]\na\n"), "expected the token '[CLS]', found none"),
    "no mask": (replace("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), "expected the token '[MASK]' in the vocabulary"),
    "own mask": (settings(mask_token={"content": "<m>"}), "expected the token '<m>' in the vocabulary, found none"),
    "other vocabulary": (
        replace("vocab.txt", "\n".join([*VOCAB, "more"]).encode()),
        "expected token ids below the model's vocab_size 71, got one of 71",
    ),
    "broken tokenizer": (
        replace("tokenizer.json", b"[]"),
        "tokenizer.json: expected a tokenizer of the tokenizers library",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(folder: Path, change: Change, message: str) -> None:
    change(folder)
    refused(folder, message)


CLASSIFIERS: dict[str, tuple[Change, str]] = {
    "kind": (config(architectures=["BertModel"]), "a classifier; expected architectures to name BertForSequence"),
    "no kind": (config(architectures=None), "got null; name one of them"),
    "other problem": (config(problem_type="ranking"), 'got "ranking" with 3; only such'),
    "three numbers": (config(problem_type="regression"), 'got "regression" with 3; only such'),
    "too few names": (config(id2label={"0": "no"}), "id2label: expected names for 0 to 2, got"),
    "other names": (config(id2label={"1": "a", "2": "b", "3": "c"}), "id2label: expected names for 0 to 2, got"),
    "no list": (config(id2label=["a", "b", "c"]), "id2label: expected names for 0 to 2, got"),
    "pooler": (weights(drop=["bert.pooler"]), "the sequence head reads the pooler, which the weights lack"),
}


@pytest.mark.parametrize(("change", "message"), CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_refused_classifiers(classifier: Path, change: Change, message: str) -> None:
    change(classifier)
    refused(classifier, message)


def test_a_classifier_has_its_names_and_dropout(classifier: Path) -> None:
    head = load_folder(classifier).model.config.heads["sequence"]
    assert head.classes == ("no", "maybe", "yes")
    assert head.dropout == 0.3
    edit_json(classifier / "config.json", id2label=..., classifier_dropout=None)
    head = load_folder(classifier).model.config.heads["sequence"]
    assert head.classes == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert head.dropout == 0.1


def test_the_config_is_berts(folder: Path) -> None:
    edit_json(folder / "config.json", hidden_act="gelu_new", layer_norm_eps=1e-7, attention_probs_dropout_prob=0.2)
    loaded = load_folder(folder)
    encoder, text = loaded.model.config.encoder, loaded.model.config.text
    assert (encoder.hidden_act, encoder.layer_norm_eps, encoder.norm) == ("gelu_tanh", 1e-7, "post")
    assert (encoder.hidden_dropout_prob, encoder.attention_probs_dropout_prob) == (0.1, 0.2)
    assert text == TextConfig(vocab_size=71, max_position_embeddings=20, type_vocab_size=2, pad_token_id=0)
    assert not loaded.model.training
    edit_json(folder / "config.json", layer_norm_eps=..., hidden_dropout_prob=..., attention_probs_dropout_prob=...)
    encoder = load_folder(folder).model.config.encoder
    assert (encoder.layer_norm_eps, encoder.hidden_dropout_prob, encoder.attention_probs_dropout_prob) == (
        1e-12,
        0.1,
        0.1,
    )


def test_heads_are_those_of_the_weights_and_what_is_left_is_said(folder: Path) -> None:
    assert set(load_folder(folder).model.heads) == {"mlm", "nsp"}
    edit_weights(folder, drop=["cls.seq_relationship", "bert.pooler"], add={"crf.weight": torch.ones(2)})
    loaded = load_folder(folder)
    assert set(loaded.model.heads) == {"mlm"}
    assert not loaded.model.config.pooler
    assert (loaded.report.missing, loaded.report.unexpected) == (["heads.nsp"], ["crf.weight"])
    assert loaded.report.body_share == 1.0
    edit_weights(folder, drop=["cls."])
    edit_json(folder / "config.json", architectures=["BertForQuestionAnswering"])
    assert load_folder(folder).report.missing == ["heads.span"]


def test_half_precision_is_widened(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    save_file({name: tensor.bfloat16() for name, tensor in stored.items()}, folder / "model.safetensors")
    model = load_folder(folder).model
    expected = stored["bert.embeddings.word_embeddings.weight"].bfloat16().float()
    torch.testing.assert_close(model.embedding.word.weight.detach(), expected, rtol=0, atol=0)


def test_pieces_are_put_together(folder: Path) -> None:
    whole = load_folder(folder).model.state_dict()
    index(dict.fromkeys(load_file(folder / "model.safetensors"), "one.safetensors"))(folder)
    assert all(torch.equal(tensor, whole[name]) for name, tensor in load_folder(folder).model.state_dict().items())


def save_ours(folder: Path, form: str = "text_tasks") -> dict[str, torch.Tensor]:
    model = FORMS[form].build()
    save_run(folder, model, PretrainConfig(), {})
    (folder / "vocab.txt").write_text("\n".join(VOCAB[:40]), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return model.state_dict()


@pytest.mark.parametrize("form", ["text_tasks", "bert", "tiny_classifier"])
def test_a_run_of_ours(tmp_path: Path, form: str) -> None:
    saved = save_ours(tmp_path, form)
    loaded = load_folder(tmp_path)
    assert loaded.model.config == FORMS[form].config
    assert loaded.model.state_dict().keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in loaded.model.state_dict().items())
    assert (loaded.report.missing, loaded.report.unexpected) == ([], [])
    assert loaded.tokenizer.encode("ab").tokens == ["[CLS]", "a", "##b", "[SEP]"]


def test_runs_of_ours_that_are_refused(tmp_path: Path) -> None:
    save_ours(tmp_path)
    edit_weights(tmp_path, add={"more": torch.ones(1)})
    refused(tmp_path, "weights and config do not belong together")
    save_ours(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    refused(tmp_path, "expected tokenizer.json or vocab.txt, found neither")
    save_ours(tmp_path, "eeg_channels")
    refused(tmp_path, "expected a text model, got one of EEG; give a folder of a BERT or of a run on text")
    edit_json(tmp_path / "config.json", encodr={})
    refused(tmp_path, "unknown setting 'encodr'; did you mean 'encoder")


def test_a_folder_that_is_neither(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    refused(folder, "found no hidden_size, num_hidden_layers")


def test_two_classifiers_have_one_name_at_transformers() -> None:
    with pytest.raises(
        UserError, match=r"weight heads.position.linear.weight: expected one classifier.weight, got two"
    ):
        to_transformers(FORMS["text_tasks"].build().state_dict())


def test_pieces_types_and_offsets(tmp_path: Path) -> None:
    save_vocab(tmp_path)
    tokenizer = load_tokenizer(tmp_path, TEXT)
    found = tokenizer.encode("Ünix [MASK]")
    assert tokenizer.mask_token == "[MASK]"
    assert found.tokens == ["[CLS]", "u", "##n", "##i", "##x", "[MASK]", "[SEP]"]
    assert found.offsets == [(0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (5, 11), (0, 0)]
    assert found.ids[5] == tokenizer.mask_id == 4
    pair = tokenizer.encode("the cat", "sat 猫")
    assert pair.tokens == ["[CLS]", "the", "cat", "[SEP]", "sat", "猫", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]
    assert pair.offsets[4:6] == [(0, 3), (4, 5)]
    assert tokenizer.encode("").tokens == ["[CLS]", "[SEP]"]
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id] == [0, 1, 2, 3]
    assert [tokenizer.token(i) for i in range(len(tokenizer))] == VOCAB


def test_settings_of_a_vocabulary(tmp_path: Path) -> None:
    save_vocab(tmp_path, do_lower_case=False, strip_accents=True, tokenize_chinese_chars=False)
    tokenizer = load_tokenizer(tmp_path, TEXT)
    assert tokenizer.encode("über Über 猫.").tokens == ["[CLS]", "uber", "[UNK]", "猫", ".", "[SEP]"]
    assert tokenizer.encode("a猫").tokens == ["[CLS]", "[UNK]", "[SEP]"]
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*VOCAB, "a\u2028b"]).encode())
    bigger = load_tokenizer(tmp_path, TEXT.model_copy(update={"vocab_size": 128}))
    assert [bigger.token(i) for i in range(len(bigger))] == [*VOCAB, "a\u2028b"]


def test_ids_that_name_nothing_are_never_predicted(tmp_path: Path) -> None:
    save_vocab(tmp_path)
    tokenizer = load_tokenizer(tmp_path, TEXT.model_copy(update={"vocab_size": 80}))
    scores = torch.arange(80.0).expand(2, -1)
    assert tokenizer.named(scores).argmax(1).tolist() == [70, 70]
    torch.testing.assert_close(tokenizer.named(scores)[:, :71], scores[:, :71], rtol=0, atol=0)
    for missing in (71, -1):
        with pytest.raises(UserError, match=f"expected the id of one of 71 tokens, got {missing}"):
            tokenizer.token(missing)


def test_nothing_is_cut(tokenizer_json: Path) -> None:
    tokenizer = load_tokenizer(tokenizer_json, TEXT)
    assert len(tokenizer.encode("a b c d e f").ids) == 8
    with pytest.raises(UserError, match="a text of 9 tokens is longer than the model's 8; cut it or use windows"):
        tokenizer.encode("a b c d e f g")
    with pytest.raises(UserError, match="a text of 9 tokens"):
        tokenizer.encode("a b c", "d e f")


def test_texts_that_are_refused(tmp_path: Path) -> None:
    save_vocab(tmp_path)
    with pytest.raises(UserError, match=r"expected Unicode text, got 'a.udce9' None; read it as UTF-8"):
        load_tokenizer(tmp_path, TEXT).encode("a\udce9")
    single = load_tokenizer(tmp_path, TEXT.model_copy(update={"type_vocab_size": 1}))
    with pytest.raises(UserError, match="expected one text, got a pair; the model has one segment"):
        single.encode("a", "b")


def test_a_vocabulary_that_is_not_whole_is_said(tmp_path: Path) -> None:
    save_vocab(tmp_path)
    for rows in (71, 72, 128):  # padded to a round number
        assert len(load_tokenizer(tmp_path, TEXT.model_copy(update={"vocab_size": rows}))) == 71
    for rows in (75, 208):
        with pytest.warns(BothwaysWarning, match=rf"vocab.txt: has 71 tokens, the model {rows}; check"):
            load_tokenizer(tmp_path, TEXT.model_copy(update={"vocab_size": rows}))
    (tmp_path / "vocab.txt").write_text("\n".join([*VOCAB[:6], *VOCAB[5:]]), encoding="utf-8")
    with pytest.warns(BothwaysWarning, match="vocab.txt: line 6 is there again below"):
        load_tokenizer(tmp_path, TEXT.model_copy(update={"vocab_size": 72}))


def test_a_tokenizer_and_its_settings_must_agree(tokenizer_json: Path) -> None:
    edit_json(tokenizer_json / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(UserError, match="its normalizer has lowercase True, tokenizer_config"):
        load_tokenizer(tokenizer_json, TEXT)
    (tokenizer_json / "tokenizer_config.json").unlink()
    assert load_tokenizer(tokenizer_json, TEXT).encode("Über").tokens == ["[CLS]", "uber", "[SEP]"]


def test_a_tokenizer_without_cls_and_sep_is_refused(tokenizer_json: Path) -> None:
    edit_json(tokenizer_json / "tokenizer.json", post_processor=None, padding=None)
    with pytest.raises(
        UserError, match=r"writes \[CLS\] text \[SEP\], but an empty text becomes \[\]; mend its post_pro"
    ):
        load_tokenizer(tokenizer_json, TEXT)


def test_a_written_mask_is_found_where_the_file_does_not_list_it(tokenizer_json: Path) -> None:
    edit_json(tokenizer_json / "tokenizer.json", added_tokens=[])
    assert load_tokenizer(tokenizer_json, TEXT).encode("the [MASK]").tokens == ["[CLS]", "the", "[MASK]", "[SEP]"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": 5}, "architectures: expected a list of names, got 5"),
        ({"architectures": [["x"]]}, "architectures: expected a list of names"),
        ({"vocab_size": 999_999_999_999_999}, "vocab_size: expected 71 as in the weights, got 999999999999999"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings: expected 20"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: expected 2"),
        ({"hidden_size": 4 * 10**9}, "hidden_size: expected 24"),
        ({"intermediate_size": 10**12}, "intermediate_size: expected 40"),
    ],
)
def test_absurd_settings_are_refused_before_anything_is_made(tmp_path: Path, changes: dict, said: str) -> None:
    save_bert(tmp_path, transformers.BertModel)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(UserError, match=said):
        load_folder(tmp_path)
