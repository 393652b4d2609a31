"""`bothways text fill-mask`, `embed`, `evaluate`: equal to transformers and plain loops, and what is refused."""

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from transformers import PreTrainedModel

import bothways
from bothways import run, text
from bothways.config import TextMaskingConfig
from bothways.draws import generator
from bothways.errors import BothwaysWarning, UserError
from texts import save_bert

Call = Callable[..., tuple[int, str, str]]
TEXTS = ["the cat [MASK] on the mat", "a [MASK] and the [MASK].", "[MASK]"]
CORPUS = "The cat sat on the mat. Über the mat sat a cat!\n\nA cat. On a mat the cat sat.\n\nHi\n\n🙂\n"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PreTrainedModel]:
    folder = tmp_path_factory.mktemp("bert")
    return folder, save_bert(folder, transformers.BertForPreTraining)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text(CORPUS, encoding="utf-8")
    return tmp_path / "corpus.txt"


@pytest.mark.parametrize("targets", [None, ["mat", "cat", "Übers"]])
def test_fill_mask_equals_transformers(tmp_path: Path, targets: list[str] | None) -> None:
    save_bert(tmp_path, transformers.BertForMaskedLM)
    model = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    pipeline = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer, device="cpu")
    found = run.text_fill_mask(tmp_path, TEXTS, targets=targets, top=4)
    for one in TEXTS:
        theirs = pipeline(one, top_k=4, **({"targets": targets} if targets else {}))
        theirs = [theirs] if isinstance(theirs[0], dict) else theirs
        (ours,) = [entry["masks"] for entry in found["texts"] if entry["text"] == one]
        for mask, wanted in zip(ours, theirs, strict=True):
            assert [top["id"] for top in mask["top"]] == [top["token"] for top in wanted]
            assert [top["token"] for top in mask["top"]] == [top["token_str"].replace(" ", "") for top in wanted]
            np.testing.assert_allclose(
                [top["probability"] for top in mask["top"]], [top["score"] for top in wanted], rtol=1e-5
            )
    assert ("target_of_several_pieces" in found["notes"]) == bool(targets)


def test_ids_without_a_token_are_never_predicted(shared: Path) -> None:
    padded = shared / "cases" / "text" / "b77_vocab_padded"
    (one,) = run.text_fill_mask(padded, "the [MASK]", top=1000)["texts"]
    top = one["masks"][0]["top"]
    assert len(top) == 114
    assert max(found["id"] for found in top) < 114
    assert sum(found["probability"] for found in top) == pytest.approx(1, abs=1e-5)


def test_fill_mask_by_the_command(bothways: Call, fails: Callable[..., str], bert: tuple, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the [MASK]\n\nMy [MASK], a [MASK].\n")
    code, out, _ = bothways("text", "fill-mask", bert[0], "--file", lines, "--top", 2, "--json")
    found = json.loads(out)["texts"]
    assert (code, [(one["line"], len(one["masks"])) for one in found]) == (0, [(1, 1), (3, 2)])
    assert [(mask["start"], mask["stop"]) for mask in found[1]["masks"]] == [(3, 9), (13, 19)]
    assert found[1]["filled"].startswith("My ")
    assert bothways("text", "fill-mask", bert[0], "the [MASK]", "--targets", "cat,mat")[0] == 0
    assert "text 1: expected [MASK]" in fails("text", "fill-mask", bert[0], "the cat")
    assert "longer than the model's 20" in fails("text", "fill-mask", bert[0], "a " * 30 + "[MASK]")
    assert "got none" in fails("text", "fill-mask", bert[0])
    save_bert(tmp_path / "bare", transformers.BertModel)
    for command in (("fill-mask", tmp_path / "bare", "[MASK]"), ("evaluate", tmp_path / "bare", lines)):
        assert "expected a model with a head for hidden tokens" in fails("text", *command)


def their_mean(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model.bert(torch.tensor([ids])).last_hidden_state[0].mean(0).numpy()


def test_vectors_equal_transformers_in_order(bert: tuple[Path, PreTrainedModel]) -> None:
    folder, theirs = bert
    model = bothways.load(folder)
    assert model.tokenizer is not None
    texts = ["the cat", "", "a cat sat on the mat, a cat!", "猫", "the mat", "b" * 12]
    ids = [model.tokenizer.encode(one).ids for one in texts]
    np.testing.assert_allclose(model.embed(texts), [their_mean(theirs, one) for one in ids], atol=1e-5)
    with torch.no_grad():
        firsts = [theirs.bert(torch.tensor([one])).last_hidden_state[0, 0].numpy() for one in ids]
    np.testing.assert_allclose(model.embed(texts, pool="cls"), firsts, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(model.embed(texts, normalise=True), axis=1), 1, rtol=1e-5)
    assert model.embed([]).shape == (0, 24)


def test_long_texts_are_windows_or_cut(bert: tuple[Path, PreTrainedModel]) -> None:
    """40 tokens with room for 18: windows of 13, 13 and 14."""
    folder, theirs = bert
    model = bothways.load(folder)
    assert model.tokenizer is not None
    words = ("the cat sat on a mat . " * 6).split()[:40]
    pieces = model.tokenizer.pieces([" ".join(words)])[0].ids
    parts = [pieces[:13], pieces[13:26], pieces[26:]]
    wanted = sum(len(one) / 40 * their_mean(theirs, [2, *one, 3]) for one in parts)
    with pytest.warns(BothwaysWarning, match="1 of 2 texts are longer"):
        found = model.embed(["the", " ".join(words)])
    np.testing.assert_allclose(found[1], wanted, atol=1e-5)
    with pytest.warns(BothwaysWarning, match="only their beginnings"):
        found = text.embed(model, model.tokenizer, [" ".join(words)], too_long="cut")
    np.testing.assert_allclose(found[0], their_mean(theirs, [2, *pieces[:18], 3]), atol=1e-5)


def test_embed_writes_the_same_in_each_form(
    bothways: Call, bert: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pools of two; an empty row shifts nothing."""
    monkeypatch.setattr("bothways.text.batching.POOL", 2)
    table = tmp_path / "t.csv"
    table.write_text('text,n\nthe cat,1\n,2\na mat,3\n"on the mat",4\n')
    for ending in ("parquet", "npy", "npz"):
        for again in ([], ["--overwrite"]):
            assert bothways("text", "embed", bert[0], table, "--out", tmp_path / f"v.{ending}", *again)[0] == 0
    wanted = bothways_vectors(bert[0], ["the cat", "a mat", "on the mat"])
    rows = pq.read_table(tmp_path / "v.parquet").to_pydict()
    assert rows["line"] == [1, 3, 4]
    assert rows["tokens"] == [2, 2, 3]
    assert set(rows["file"]) == {str(table)}
    np.testing.assert_allclose(rows["vector"], wanted, atol=1e-6)
    assert pq.ParquetFile(tmp_path / "v.parquet").num_row_groups == 2
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), wanted, atol=1e-6)
    with (tmp_path / "v.csv").open() as lines:
        assert [row["line"] for row in csv.DictReader(lines)] == ["1", "3", "4"]
    with np.load(tmp_path / "v.npz") as arrays:
        np.testing.assert_allclose(arrays["vectors"], wanted, atol=1e-6)
        assert arrays["line"].tolist() == [1, 3, 4]
        assert arrays["files"][arrays["file"]].tolist() == [str(table)] * 3


def bothways_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    return bothways.load(folder).embed(texts)


def test_embed_refuses(fails: Callable[..., str], bert: tuple, corpus: Path, tmp_path: Path) -> None:
    def refused(*options: object, data: Path = corpus) -> str:
        return fails("text", "embed", bert[0], data, *options)

    assert "expected FILE.parquet" in refused("--out", tmp_path / "v.txt")
    (tmp_path / "v.npz").write_bytes(b"mine")
    assert "already exists" in refused("--out", tmp_path / "v.npz")
    assert "not a file that bothways wrote" in refused("--out", tmp_path / "v.npz", "--overwrite")
    assert "pool: expected mean or cls" in refused("--out", tmp_path / "v.npy", "--pool", "max")
    assert "expected 3 to 20 tokens" in refused("--out", tmp_path / "v.npy", "--length", 21)
    (tmp_path / "empty.txt").write_text("\n")
    assert not (tmp_path / "v.npy").exists()
    with pytest.raises(UserError, match="found none"):
        run.text_embed(bert[0], tmp_path / "empty.txt", tmp_path / "w.npy")
    assert not (tmp_path / "w.npy").exists()


def test_too_long_is_counted(bert: tuple, shared: Path, tmp_path: Path) -> None:
    long = shared / "cases" / "text" / "b57_too_long.csv"
    with pytest.warns(BothwaysWarning, match="1 of 2 texts"):
        found = run.text_embed(bert[0], long, tmp_path / "v.npy")
    assert found["too_long"] == {"documents": 1, "rule": "windows"}


def test_lines_are_documents(corpus: Path) -> None:
    assert [one.line for one in text.Documents([corpus], "line")] == [1, 3, 5, 7]


# Evaluation --------------------------------------------------------------------------------------------------------


def test_scores_equal_transformers(bert: tuple[Path, PreTrainedModel]) -> None:
    folder, theirs = bert
    model, tokenizer, _ = text.load_folder(folder)
    model.double()
    texts = [one.ids for one in tokenizer.pieces(["the cat sat on the mat.", "Hi", "über 🙂 mats, a cat"])]
    wanted = []
    hidden = []
    for place, ids in enumerate(texts):
        framed = torch.tensor([[2, *ids, 3]])
        total = 0.0
        for at in range(1, len(ids) + 1):
            if ids[at - 1] == tokenizer.unk_id:
                continue
            with torch.no_grad():
                masked = framed.index_fill(1, torch.tensor([at]), 4)
                total += float(theirs(masked).prediction_logits[0, at].log_softmax(0)[ids[at - 1]])
        wanted.append(total)
        masking, rng = TextMaskingConfig(ratio=0.3), generator("t", 0, 0, place)
        hidden.append(text.hide([np.array(ids)], -100, tokenizer, tokenizer.ordinary, masking, rng))
    np.testing.assert_allclose(text.pseudo_log_likelihoods(model, tokenizer, texts), wanted, rtol=1e-10)
    scored = text.score(model, tokenizer, hidden)
    for place, one in enumerate(hidden):
        with torch.no_grad():
            logits = theirs(torch.from_numpy(one.ids)[None]).prediction_logits
        loss = torch.nn.functional.cross_entropy(logits[0], torch.from_numpy(np.where(one.masked, one.truth, -100)))
        np.testing.assert_allclose(scored.loss[scored.sequence == place].mean(), float(loss), rtol=1e-10)


def test_exactly_as_many_tokens_are_hidden(bert: tuple[Path, PreTrainedModel]) -> None:
    _, tokenizer, _ = text.load_folder(bert[0])
    ids, masking = np.array([60] * 1000 + [tokenizer.unk_id]), TextMaskingConfig()
    one = text.hide([ids], -100, tokenizer, tokenizer.ordinary, masking, generator("t", 0))
    assert one.masked.sum() == 150
    assert not one.masked[[0, 1001, 1002]].any()
    shown = one.ids[one.masked]
    assert 0.7 < (shown == tokenizer.mask_id).mean() < 0.9
    unknown = text.hide([ids[-1:]], -100, tokenizer, tokenizer.ordinary, masking, generator("t", 0))
    assert not unknown.masked.any()


def test_evaluate_by_the_command(bothways: Call, fails: Callable[..., str], bert: tuple, corpus: Path) -> None:
    code, out, err = bothways("text", "evaluate", bert[0], corpus, "--json")
    found = json.loads(out)
    assert code == 0, err
    assert found == run.text_evaluate(bert[0], corpus)
    assert found["documents"] == 4
    assert found["mlm"]["hidden"] == sum(one["hidden"] for one in found["by_file"])
    assert found["mlm"]["perplexity"] == pytest.approx(math.exp(found["mlm"]["loss"]))
    pseudo = found["pseudo_perplexity"]
    assert (pseudo["sentences"], pseudo["words"]) == (5, 25)
    assert 1 < pseudo["per_token"] < pseudo["per_word"]
    assert found["next_sentence"]["accuracy"]["n"] == 2
    assert found["next_sentence"]["next"] == 1
    assert found["unknown_share"] == pytest.approx(1 / found["tokens"])
    code, out, _ = bothways("text", "evaluate", bert[0], corpus, "--n", 2)
    assert code == 0
    assert "pseudo-perplexity of 2 of 5 sentences" in out
    corpus.write_text("🙂\n\n🙂🙂\n")
    with pytest.raises(UserError, match="expected documents with words"):
        run.text_evaluate(bert[0], corpus)
    assert "ratio: expected between 0 and 1" in fails("text", "evaluate", bert[0], corpus, "--ratio", 0)


def test_very_short_texts_are_finite(bert: tuple, shared: Path) -> None:
    found = run.text_evaluate(bert[0], shared / "cases" / "text" / "b56_very_short.txt", documents="line")
    assert math.isfinite(found["mlm"]["loss"])
    assert found["mlm"]["hidden"] >= found["documents"] // 2


def test_pairs_are_half_of_other_documents() -> None:
    stretches = [text.Stretch(bytes([i]), [[10 * i], [10 * i + 1], [10 * i + 2]]) for i in range(10)]
    drawn = text.draw_pairs(stretches, stretches, 4, generator("t", 0))
    assert drawn is not None
    assert drawn.labels.sum() == 5
    for a, b, label in zip(drawn.a, drawn.b, drawn.labels):
        assert (b[0] == a[-1] + 1) == (label == 0)
        assert (a[0] // 10 != b[0] // 10) == bool(label)
    equal = [text.Stretch(b"a", [[1], [2]])] * 3
    assert text.draw_pairs(equal, equal, 4, generator("t", 0)) is None
    alone = text.Stretch(b"b", [[3]])
    drawn = text.draw_pairs(equal, [*equal, alone], 4, generator("t", 0))
    assert drawn is not None
    assert {tuple(b) for b, label in zip(drawn.b, drawn.labels) if label} == {(3,)}
    # Their lengths are those of what they replace.
    rng = generator("t", 1)
    long = [text.Stretch(bytes([i]), [[i] * int(rng.integers(1, 9)) for _ in range(6)]) for i in range(200)]
    drawn = text.draw_pairs(long, long, 64, generator("t", 0))
    assert drawn is not None
    sizes, labels = np.array([len(a) + len(b) for a, b in zip(drawn.a, drawn.b)]), np.array(drawn.labels)
    assert max(abs((sizes[labels == 1] > most).mean() - (sizes[labels == 0] > most).mean()) for most in range(64)) < 0.2


def test_a_model_of_eeg_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a model"):
        run.text_fill_mask(tmp_path, "[MASK]")
