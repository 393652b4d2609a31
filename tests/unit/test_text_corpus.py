"""The corpus on disk: what it holds, that it is the same whoever made it, and that damage is found."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bothways import making, run
from bothways.config import SequenceConfig, TextMaskingConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.text import Corpus, Documents, SequenceSource, is_corpus, load_tokenizer, prepare_corpus, preparing
from bothways.text.tokenizer import SPECIAL, bert_tokenizer
from bothways.workers import Lost
from corpora import PIECES, make_corpus, many_documents, write_tokenizer

A, B, IN_B, STOP, WHY = (PIECES.index(piece) for piece in ("a", "b", "##b", ".", "?"))


def arrays(corpus: Corpus) -> dict[str, list[int]]:
    return {name: np.asarray(getattr(corpus, name)).tolist() for name in ("ids", "sentences", "documents", "places")}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_stored(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, "\n Ab. Bb b.\n\n\u200d\n\nAb?\nBb.\n")
    # "\u200d" alone is taken out by BERT's cleaning: a document without a token is none.
    assert arrays(corpus) == {
        "ids": [A, IN_B, STOP, B, IN_B, B, STOP, A, IN_B, WHY, B, IN_B, STOP],
        "sentences": [0, 3, 7, 10, 13],
        "documents": [0, 2, 4],
        "places": [[0, 2], [0, 6]],
    }
    assert corpus.ids.dtype == np.uint16
    assert corpus.head["totals"] == {
        "tokens": 13, "unknown": 0, "special": 0, "sentences": 4, "documents": 2, "next_pairs": 2, "empty_documents": 1,
    }  # fmt: skip
    assert (len(corpus), corpus.name(1), corpus.tokens_of(1)) == (2, f"{tmp_path}/text.txt:6", (7, 13))
    assert corpus.tokenizer.encode("a b").ids == [2, A, B, 3]
    assert corpus.equal_documents() == 0
    assert make_corpus(tmp_path / "twice", "Ab.\n\nBb.\n\nAb.").equal_documents() == 1


def test_a_large_vocabulary_takes_wider_ids(tmp_path: Path) -> None:
    pieces = [*PIECES, *(f"w{i}" for i in range(70_000))]
    folder = write_tokenizer(tmp_path / "t")
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "a.txt").write_text("w69999 a")
    corpus, _ = prepare_corpus(Documents([tmp_path / "a.txt"]), load_tokenizer(folder), tmp_path / "c")
    assert (corpus.ids.dtype, corpus.ids.tolist()) == (np.uint32, [len(pieces) - 1, A])


SENTENCES = st.lists(
    st.text(alphabet="abAB .,?é猫🙂\u0301[]SEPsep#\t\x00", max_size=12) | st.just("a[SEP]b"), max_size=80
)


@given(SENTENCES)
def test_sentences_that_are_joined_have_the_ids_that_they_have_alone(sentences: list[str]) -> None:
    tokenizer = bert_tokenizer({token: i for i, token in enumerate(PIECES)}, lowercase=True)
    tokenizer.add_special_tokens(list(SPECIAL.values()))
    ids, lengths = preparing._encoded(tokenizer, sentences)
    alone = [tokenizer.encode(one, add_special_tokens=False).ids for one in sentences]
    assert lengths.tolist() == [len(one) for one in alone]
    assert ids.tolist() == [i for one in alone for i in one]


def test_special_tokens_in_the_text_are_said(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, "A [SEP] b. A [MASK].\n\nBb [UNK].")
    assert (corpus.head["totals"]["special"], corpus.head["totals"]["unknown"]) == (2, 1)
    assert "written in the text, 2 times" in corpus.head["notes"]["special_tokens"][0]


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Documents, Path]:
    """Some files that make several chunks, and a tokenizer."""
    monkeypatch.setattr(preparing, "CHUNK_CHARACTERS", 300)
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / f"{i}.txt").write_text(many_documents(10 + i))
    return Documents([tmp_path / "in"]), write_tokenizer(tmp_path / "tokenizer")


def test_the_same_corpus_whoever_makes_it(several: tuple[Documents, Path], tmp_path: Path) -> None:
    documents, folder = several
    tokenizer = load_tokenizer(folder)
    one, _ = prepare_corpus(documents, tokenizer, tmp_path / "one")
    assert len(list(documents)) == len(one) == 46
    two, reused = prepare_corpus(documents, tokenizer, tmp_path / "two", workers=2)
    assert reused == 0
    assert files(one.path) == files(two.path)
    assert not list(tmp_path.glob(".*"))


def test_a_stopped_call_goes_on(
    several: tuple[Documents, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, folder = several
    tokenizer, real, made = load_tokenizer(folder), preparing.make_chunk, 0

    def some(chunk: preparing.Chunk) -> preparing.Made:
        nonlocal made
        made += 1
        if made == 4:
            raise KeyboardInterrupt
        return real(chunk)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "make_chunk", some)
        with pytest.raises(KeyboardInterrupt, match=r"run it again, it goes on after the [3-6] chunks"):
            prepare_corpus(documents, tokenizer, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    whole, _ = prepare_corpus(documents, tokenizer, tmp_path / "whole")
    found, reused = prepare_corpus(documents, tokenizer, tmp_path / "out")
    assert 3 <= reused <= 6  # some may have been under way
    assert files(found.path) == files(whole.path)


def test_changed_text_is_tokenised_anew(
    several: tuple[Documents, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, folder = several
    tokenizer = load_tokenizer(folder)

    def broken(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "_put_together", broken)
        with pytest.raises(UserError, match=r"out: cannot be written: No space left on device; make room and run it"):
            prepare_corpus(documents, tokenizer, tmp_path / "out")
    (tmp_path / "in" / "0.txt").write_text("a b c.")
    found, reused = prepare_corpus(Documents([tmp_path / "in"]), tokenizer, tmp_path / "out")
    assert reused == 0  # each chunk's documents have moved
    assert found.tokens_of(0) == (0, 4)


def test_other_settings_begin_anew(several: tuple[Documents, Path], tmp_path: Path) -> None:
    documents, folder = several
    work = making.WorkFolder(tmp_path / "out", "chunks", ".npz")
    work.path.mkdir()
    work.set_up({"other": "settings"})
    (work.done / "x.npz").write_bytes(b"")
    with pytest.warns(BothwaysWarning, match="chunks finished with other settings are done anew"):
        prepare_corpus(documents, load_tokenizer(folder), tmp_path / "out")


def test_a_lost_process_stops_all(
    several: tuple[Documents, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents, folder = several
    gone = Lost("killed by SIGKILL")
    monkeypatch.setattr(preparing, "work", lambda _, chunks, *__: ((chunk, gone) for chunk in chunks))
    with pytest.raises(UserError, match=r"chunk 0: the process that worked on it ended .* use fewer --workers"):
        prepare_corpus(documents, load_tokenizer(folder), tmp_path / "out", workers=2)


def test_nothing_to_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected documents with words that the tokenizer knows, found none"):
        make_corpus(tmp_path, "\u200d\n\n  \n")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("damage", ["cut", "head", "other", "version", "gone"])
def test_damage_is_found(tmp_path: Path, damage: str) -> None:
    corpus = make_corpus(tmp_path, "a b. b.\n\na.")
    head = corpus.path / "store.json"
    values = json.loads(head.read_text())
    if damage == "cut":
        whole = (corpus.path / "ids.npy").read_bytes()
        (corpus.path / "ids.npy").write_bytes(whole[:-2])
    elif damage == "head":
        head.write_text(json.dumps(values | {"totals": values["totals"] | {"tokens": 3}}))
    elif damage == "other":
        np.save(corpus.path / "sentences.npy", np.array([0, 3]))
    elif damage == "version":
        head.write_text(json.dumps(values | {"format_version": 9}))
    else:
        (corpus.path / "ids.npy").unlink()
    with pytest.raises(UserError, match=r"prepare (it|the corpus) anew|found none; check the path"):
        Corpus.open(corpus.path)
    assert is_corpus(corpus.path) is (damage != "gone")


def test_ids_beyond_the_vocabulary_are_damage(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path, "Ab b. Bb.\n\nAa.")
    with (corpus.path / "ids.npy").open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\xff\xff")
    with pytest.raises(UserError, match="the corpus is damaged"):
        Corpus.open(corpus.path).check()
    changed = make_corpus(tmp_path / "changed", "Ab b. Bb.\n\nAa.")
    with (changed.path / "ids.npy").open("r+b") as file:
        file.seek(-2, 2)
        file.write(bytes([A, 0]))
    with pytest.raises(UserError, match=r"the ids of .*text\.txt:3 are not those that were written"):
        Corpus.open(changed.path).check()
    made = make_corpus(tmp_path / "places", "Abb.\nBb.\n\nAa.")
    np.save(made.path / "sentences.npy", made.sentences[[0, 2, 1, 3]])
    damaged = Corpus.open(made.path)
    with pytest.raises(UserError, match="its places do not grow"):
        damaged.check()
    for name, array in {
        "places": np.array([[9, 1], [0, 3]]), "documents": np.array([0, 9, 3]),
    }.items():  # fmt: skip
        other = make_corpus(tmp_path / f"wrong-{name}", "Abb.\nBb.\n\nAa.")
        np.save(other.path / f"{name}.npy", array)
        with pytest.raises(UserError, match="the corpus is damaged"):
            run.text_show(other.path)


def test_text_that_the_tokenizer_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="words that the tokenizer knows, found none; check the corpus"):
        make_corpus(tmp_path / "none", "🙂 猫")
    half = make_corpus(tmp_path / "half", "A cat sat. 猫 🙂 🙂")
    assert "of the tokens are [UNK]" in half.head["notes"]["unknown_words"][0]
    (tmp_path / "t.csv").write_text("one,two\na,b\n")
    tokenizer = load_tokenizer(write_tokenizer(tmp_path / "t"))
    with pytest.raises(UserError, match=r"found none \(.*t.csv: .*--column NAME\)"):
        prepare_corpus(Documents([tmp_path / "t.csv"]), tokenizer, tmp_path / "c")


def test_what_was_made_of_text_is_not_read_as_text(tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path / "in", "Ab b. Bb.")
    (tmp_path / "in" / "manifest.json").write_text("{}")  # a name that data sets have, too
    documents = Documents([tmp_path / "in"])
    assert [one.file for one in documents] == ["text.txt"]
    assert {one["file"] for one in documents.left_out} == {"corpus", "tokenizer", "manifest.json"}
    with pytest.raises(UserError, match="expected text, got a corpus, run, model or tokenizer"):
        Documents([corpus.path])


@pytest.mark.parametrize("content", [b"", b"PK"])
def test_a_broken_chunk_is_made_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    assert preparing._counts(tmp_path / "x.npz") is None


def test_tokenizers_of_other_kinds(tmp_path: Path) -> None:
    """BPE has no mark of what goes on with a word."""
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}, [])
    )
    made.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert not tokenizer.continues.any()
    (tmp_path / "a.txt").write_text("a a. a\n\na a a")
    corpus, _ = prepare_corpus(Documents([tmp_path / "a.txt"]), tokenizer, tmp_path / "c")
    masking = TextMaskingConfig(whole_words=True)
    with pytest.raises(UserError, match=r"masking\.whole_words needs WordPiece"):
        SequenceSource(corpus, np.arange(2), SequenceConfig(), masking, next_sentence=False, seed=0)


def words(text: str) -> list[str]:
    """A splitter of somebody else's."""
    return text.split()


def test_another_splitter(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b. c")
    folder = write_tokenizer(tmp_path / "t")
    told = run.text_prepare(tmp_path / "a.txt", tmp_path / "c", folder, split=words)
    assert (told["sentences"], told["next_pairs"], told["tokens"]) == (3, 2, 4)
    assert (
        Corpus.open(tmp_path / "c").head["settings"]["sentences"].partition(" ")[0].endswith("test_text_corpus.words")
    )


@pytest.mark.parametrize(
    ("name", "documents", "sentences", "pairs"),
    [("b50_blank_after_every_sentence.txt", 6, 6, 0), ("b51_one_sentence_documents.txt", 5, 6, 1)],
)
def test_documents_of_the_cases(
    shared: Path, tmp_path: Path, name: str, documents: int, sentences: int, pairs: int
) -> None:
    folder = write_tokenizer(tmp_path / "t")
    told = run.text_prepare(shared / "cases" / "text" / name, tmp_path / "c", folder)
    assert (told["documents"], told["sentences"], told["next_pairs"]) == (documents, sentences, pairs)


def test_pieces_of_the_cases(shared: Path, tmp_path: Path) -> None:
    """B53 and B55: very long words, emoji and Chinese, with BERT's vocabulary."""
    cases = shared / "cases"
    expected = {
        case["case"]: case["expect"]
        for case in json.loads((cases / "manifest.json").read_text())["cases"]
        if (case.get("file") or "").startswith(("text/b53", "text/b55"))
    }
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "vocab.txt").write_bytes((cases / "text" / "vocab.txt").read_bytes())
    (tmp_path / "t" / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    for case, file in (("B53", "b53_long_word.txt"), ("B55", "b55_emoji_cjk.txt")):
        lines = (cases / "text" / file).read_text(encoding="utf-8").splitlines()
        (tmp_path / f"{case}.txt").write_text("\n\n".join(lines), encoding="utf-8")
        run.text_prepare(tmp_path / f"{case}.txt", tmp_path / case, tmp_path / "t")
        corpus = Corpus.open(tmp_path / case)
        found = [
            [corpus.tokenizer.token(int(i)) for i in corpus.ids[slice(*corpus.tokens_of(d))]]
            for d in range(len(corpus))
        ]
        if case == "B53":
            assert [len(one) for one in found] == expected[case]["tokens_per_line"]
            assert found[-1] == expected[case]["last_line"]
            assert corpus.head["totals"]["unknown"] == sum(one.count("[UNK]") for one in found) > 0
        else:
            assert found == expected[case]["tokens"]


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_makes_the_same_corpus(several: tuple[Documents, Path], tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    documents, folder = several
    tokenizer = load_tokenizer(folder)
    here, _ = prepare_corpus(documents, tokenizer, tmp_path / "here")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        there, _ = prepare_corpus(documents, tokenizer, tmp_path / "there", dask=cluster.scheduler_address)
    assert files(here.path) == files(there.path)
    with pytest.raises(UserError, match="no Dask scheduler answers"):
        prepare_corpus(documents, tokenizer, tmp_path / "nowhere", dask="tcp://127.0.0.1:9")
