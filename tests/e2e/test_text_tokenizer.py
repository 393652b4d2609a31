"""`bothways text tokenizer`: equal ids in transformers, equal bytes each time, and what is said of the corpus."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from bothways import run
from bothways.config import TextConfig
from bothways.errors import UserError
from bothways.text import Documents, load_tokenizer

Call = Callable[..., tuple[int, str, str]]
FILES = ["corpus.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TRICKY = [
    "The cat's café, naïve Über ÀÉ: It's 3.50!", "我爱北京 cat我dog", "🙂🙂 good🙂", "", "  ", "a" * 100, "a" * 101,
    "good" * 26, "tab\tand\r\nline\x00end\u200d\ufffd", "the [MASK] sat [SEP]", "ﬁne Ⅷ İstanbul ΣΑΣ", "##ing ##",
]  # fmt: skip


def write_corpus(folder: Path, seed: int = 0) -> Path:
    """Three kinds of files with sentences of made-up words, some accented, some Chinese."""
    draw = random.Random(seed)
    syllables = [a + b for a in "bcdfglmnprst" for b in ("a", "e", "é", "i", "o", "ü")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(400)]

    def sentence() -> str:
        chosen = draw.choices(words, weights=[1 / (rank + 1) for rank in range(400)], k=draw.randint(4, 12))
        return " ".join(chosen).capitalize() + draw.choice([".", "!", " 猫。"])

    folder.mkdir(parents=True)
    documents = [[sentence() for _ in range(draw.randint(1, 6))] for _ in range(120)]
    (folder / "a.txt").write_text("\n\n".join("\n".join(one) for one in documents[:80]), encoding="utf-8")
    (folder / "b.txt").write_bytes("Déjà vu à la façade.\r\n".encode("latin-1"))
    rows = [{"text": " ".join(one)} for one in documents[80:]]
    (folder / "c.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "in")


def same_ids(folder: Path, texts: list[str]) -> None:
    """Ours, and three ways in which transformers may be asked, give the same."""
    theirs = [
        transformers.AutoTokenizer.from_pretrained(folder),
        transformers.BertTokenizerFast.from_pretrained(folder),
    ]
    size = len(theirs[0])
    ours = load_tokenizer(folder, TextConfig(vocab_size=size))
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == (0, 1, 2, 3, 4)
    for text in texts:
        ids = ours.encode(text).ids
        for one in theirs:
            assert one(text)["input_ids"] == ids
    pair = ours.encode(texts[0], texts[1])
    found = theirs[0](texts[0], texts[1])
    assert (found["input_ids"], found["token_type_ids"]) == (pair.ids, pair.type_ids)


@pytest.mark.parametrize(
    ("settings", "lowered", "stripped"),
    [
        ({}, True, True), ({"cased": True}, False, False), ({"strip_accents": False}, True, False),
        ({"cased": True, "strip_accents": True}, False, True),
    ],
)  # fmt: skip
def test_transformers_reads_equal_ids(
    corpus: Path, tmp_path: Path, settings: dict[str, Any], lowered: bool, stripped: bool
) -> None:
    result = run.text_tokenizer(corpus, tmp_path / "tok", vocab=300, **settings)
    assert result["vocab_size"] == 300
    assert sorted(path.name for path in (tmp_path / "tok").iterdir()) == FILES
    vocab = (tmp_path / "tok" / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(set(vocab)) == len(vocab) == 300
    assert vocab[:5] == SPECIAL
    letters = "".join(vocab[5:])
    assert any(map(str.isupper, letters)) is not lowered
    assert ("é" in letters) is not stripped
    same_ids(tmp_path / "tok", TRICKY)
    (tmp_path / "tok" / "tokenizer.json").unlink()  # vocab.txt and its settings say the same
    same_ids(tmp_path / "tok", TRICKY)
    (tmp_path / "tok" / "tokenizer_config.json").unlink()
    with pytest.raises(UserError, match="does not say whether its texts are lower-cased"):
        load_tokenizer(tmp_path / "tok", TextConfig(vocab_size=300))


def test_the_result(corpus: Path, tmp_path: Path) -> None:
    result = run.text_tokenizer(corpus, tmp_path / "tok", vocab=300)
    assert json.loads((tmp_path / "tok" / "corpus.json").read_text()) | {"out": str(tmp_path / "tok")} == result
    assert (result["documents"], result["empty_documents"], result["unknown"]) == (121, 0, 0)
    assert [(one["file"], one["encoding"], one["column"]) for one in result["files"]] == [
        ("a.txt", "utf-8", None), ("b.txt", "cp1252", None), ("c.jsonl", "utf-8", "text"),
    ]  # fmt: skip
    assert list(result["notes"]) == ["encoding_guessed"]
    assert result["settings"]["strip_accents"] is True
    whole = " ".join(one.text for one in Documents([corpus]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "tok")
    assert len(tokenizer(whole, add_special_tokens=False)["input_ids"]) == result["tokens"]


def test_equal_text_equal_bytes(corpus: Path, tmp_path: Path) -> None:
    """In another process, with another hash seed and other threads."""
    run.text_tokenizer(corpus, tmp_path / "one", vocab=400)
    subprocess.run(
        [sys.executable, "-m", "bothways", "text", "tokenizer", corpus, "--vocab", "400", "--out", tmp_path / "two"],
        env={**os.environ, "RAYON_NUM_THREADS": "3", "PYTHONHASHSEED": "3"}, check=True, capture_output=True,
    )  # fmt: skip
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_long_words_are_unknown(corpus: Path, tmp_path: Path) -> None:
    run.text_tokenizer(corpus, tmp_path / "tok", vocab=300)
    ours = load_tokenizer(tmp_path / "tok", TextConfig(vocab_size=300))
    assert "[UNK]" not in ours.encode("b" * 100).tokens
    assert ours.encode("ba " + "b" * 101 + " ba").tokens[2:-2] == ["[UNK]"]


def test_nothing_is_learned_from_a_word_that_is_too_long(tmp_path: Path) -> None:
    long = "".join(random.Random(0).choices("abcd", k=100_000))
    (tmp_path / "a.txt").write_text(f"{long}\nab cd ab cd abcd {'我' * 300}\n", encoding="utf-8")
    result = run.text_tokenizer(tmp_path, tmp_path / "tok", vocab=500)
    vocab = (tmp_path / "tok" / "vocab.txt").read_text(encoding="utf-8").split()
    assert vocab[5:] == [*"abcd我", "##a", "##b", "##c", "##d", "ab", "cd"]
    assert (result["tokens"], result["unknown"]) == (1 + 4 + 3 + 300, 1)


def test_rare_characters_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(map(chr, range(0x4E00, 0x4E00 + 500))) + " ab" * 50, encoding="utf-8")
    result = run.text_tokenizer(tmp_path, tmp_path / "tok", vocab=105)
    assert result["vocab_size"] <= 105
    assert (result["alphabet"], result["alphabet_left_out"]) == (48, 454)  # a, b and 46 Chinese: half of 100
    assert result["share_left_out"] == pytest.approx(454 / 600)
    assert result["unknown"] == 454
    assert "454 rare characters (75.67% of the corpus's)" in result["notes"]["rare_characters"][0]
    assert "no more pieces occur twice" in result["notes"]["small_vocabulary"][0]


def test_the_command(bothways: Call, fails: Callable[..., str], corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "in")
    arguments = ("text", "tokenizer", tmp_path / "in", "--vocab", 300, "--out", tmp_path / "tok")
    code, said, err = bothways(*arguments)
    assert code == 0
    assert "121 documents (0 empty ones left out) of 3 files in cp1252, utf-8" in said
    assert "note, encoding_guessed: b.txt: is not UTF-8; read as cp1252, which is a guess" in said
    assert "300 tokens; the corpus is " in said
    assert "MB/s" in err
    assert "already exists" in fails(*arguments)
    (tmp_path / "in" / "d.txt").write_bytes(b"\xd4\xc5\xcb\xd3\xd4")
    code, said, _ = bothways(*arguments, "--overwrite", "--json")
    assert code == 2
    assert [one["file"] for one in json.loads(said)["skipped"]] == ["d.txt"]
    assert bothways(*arguments, "--overwrite")[1].startswith("skipped d.txt: expected utf-8, but byte 0 is none")


@pytest.mark.parametrize(
    ("content", "changes", "named"),
    [
        (b"", [], ["expected documents with words, found none"]),
        (b"\xd4\xc5\xcb", [], ["expected documents with words, found none (a.txt: expected utf-8"]),
        (b"word", ["--vocab", "31"], ["expected 32 tokens or more, got 31"]),
        (b"word", ["--documents", "page"], ["expected blank, file or line, got 'page'"]),
    ],
)
def test_mistakes(bothways: Call, tmp_path: Path, content: bytes, changes: list[str], named: list[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(content)
    code, said, err = bothways("text", "tokenizer", tmp_path / "in", "--out", tmp_path / "tok", *changes)
    assert (code, said) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert all(name in err for name in named)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_speeches(shared: Path, tmp_path: Path) -> None:
    result = run.text_tokenizer(shared / "data" / "text_speeches", tmp_path / "tok", vocab=1000, documents="file")
    assert (result["documents"], result["vocab_size"], result["unknown"]) == (59, 1000, 0)
    assert [one["file"] for one in result["files"] if one["encoding"] == "cp1252"] == ["inaugural/2005-Bush.txt"]
    assert [one["file"] for one in result["left_out"]] == ["README.md"]
    text = (shared / "data" / "text_speeches" / "inaugural" / "2021-Biden.txt").read_text(encoding="utf-8")
    same_ids(tmp_path / "tok", [line[:400] for line in text.splitlines() if line][:20])


@pytest.mark.parametrize("name", ["b53_long_word.txt", "b55_emoji_cjk.txt"])
def test_cases(shared: Path, tmp_path: Path, name: str) -> None:
    """With the vocabulary of the cases, and settings that say what it is."""
    listed = json.loads((shared / "cases" / "manifest.json").read_text())["cases"]
    (expected,) = [one["expect"] for one in listed if one["file"] == f"text/{name}"]
    shutil.copy(shared / "cases" / "text" / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    size = len((tmp_path / "vocab.txt").read_text().splitlines())
    ours = load_tokenizer(tmp_path, TextConfig(vocab_size=size))
    lines = (shared / "cases" / "text" / name).read_text(encoding="utf-8").splitlines()
    found = [ours.encode(line) for line in lines]
    tokens = [one.tokens[1:-1] for one in found]
    if "tokens_per_line" in expected:
        assert [len(one) for one in tokens] == expected["tokens_per_line"]
        assert tokens[-1] == expected["last_line"]
    else:
        assert tokens == expected["tokens"]
        assert [list(place) for place in found[3].offsets[1:-1]] == expected["offsets_line4"]
        assert [list(place) for place in found[4].offsets[1:-1]] == expected["offsets_line5"]
