"""Tagging: labels on first pieces, long sentences in windows, every word trained and scored once, and back to words."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, TextConfig, TrainingConfig
from bothways.errors import UserError
from bothways.evaluation import entity_metrics
from bothways.heads import IGNORED
from bothways.model import Model
from bothways.text import (
    Sentence,
    TagSource,
    TokenEmbedding,
    Tokenizer,
    best_tags,
    load_folder,
    load_tokenizer,
    read_sentences,
    spans,
    tag_classes,
    word_probabilities,
    word_vectors,
)
from bothways.text.tokenizer import SPECIAL, bert_tokenizer
from bothways.training import Source, train
from corpora import LETTERS, PIECES, write_tokenizer
from texts import save_bert

CLASSES = ["O", "B-x", "I-x"]
UNK, CLS, SEP = 1, 2, 3


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A word of n letters is n tokens."""
    return load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def sentence(words: str | list[str], tags: str | None = None, line: int = 1) -> Sentence:
    words = words.split(" ") if isinstance(words, str) else words
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    offsets = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends)]
    return Sentence(words, tags.split() if tags else None, "a.conll", line, " ".join(words), offsets)


def of_sizes(sizes: list[int]) -> Sentence:
    return sentence([(LETTERS * 4)[i % 26 : i % 26 + n] for i, n in enumerate(sizes)], " ".join(["B-x"] * len(sizes)))


def model_for(tokenizer: Tokenizer, classes: list[str], seed: int = 0, length: int = 32) -> Model:
    encoder = EncoderConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0.0
    )
    config = ModelConfig(
        encoder=encoder,
        text=TextConfig(vocab_size=tokenizer.size, max_position_embeddings=length),
        heads={"position": HeadConfig(kind="position", classes=tuple(classes))},
    )
    model = Model(config, TokenEmbedding(config))
    model.initialise(seed)
    return model.eval()


def whole(source: TagSource) -> dict[str, Any]:
    ids = np.arange(len(source))
    return source.batch(ids, np.zeros_like(ids))


def test_the_label_is_on_the_first_piece(shared: Path) -> None:
    (one,) = read_sentences(shared / "cases" / "text" / "b65_subwords.json").sentences
    pieces = ["north", "##ton", "blew", "in", "dog", "##land", "!"]
    vocab = {token: i for i, token in enumerate([*SPECIAL.values(), *pieces])}
    tokenizer = Tokenizer(bert_tokenizer(vocab, lowercase=True), SPECIAL)
    classes = ["O", "B-LOC"]
    source = TagSource([one], tokenizer, classes, 16)
    batch = whole(source)
    assert [tokenizer.token(i) for i in batch["input_ids"][0].tolist()] == ["[CLS]", *pieces, "[SEP]"]
    assert batch["position_labels"].tolist() == [[IGNORED, 1, IGNORED, 0, 0, 1, IGNORED, 0, IGNORED]]
    (found,) = word_probabilities(model_for(tokenizer, classes), source)
    assert [len(tags) for tags in best_tags([found], classes)] == [5]
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


def test_batches_are_padded_and_named(letters: Tokenizer) -> None:
    source = TagSource([sentence("a bc", "O B-x"), sentence("d", "B-y", 4), sentence("é")], letters, CLASSES, 9)
    assert isinstance(source, Source)
    batch = source.batch(np.array([1, 0]), np.array([0, 3]))
    a = PIECES.index("a")
    assert batch["input_ids"].tolist() == [[CLS, a + 3, SEP, 0, 0], [CLS, a, a + 1, PIECES.index("##c"), SEP]]
    assert batch["attention_mask"].tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert batch["position_labels"].tolist() == [[IGNORED] * 5, [IGNORED, 0, 1, IGNORED, IGNORED]]
    assert source.names(np.array([1, 0])) == ["a.conll:4", "a.conll:1"]
    assert source.notes == {
        "unknown_tags": ["1 words have a tag that is no class (B-y: 1); none is trained on"]
    }  # and none of the sentence that has no tags
    assert source.lengths.tolist() == [5, 3, 3]


@pytest.mark.parametrize("nothing", ["\ufe0f", "\x01", "\u200b", " ", "", "\u200d\ufe0f"])
def test_every_word_has_a_piece(letters: Tokenizer, nothing: str) -> None:
    source = TagSource([sentence(["a", nothing, "b"], "O B-x O")], letters, CLASSES, 8)
    batch = whole(source)
    assert batch["input_ids"].tolist() == [[CLS, PIECES.index("a"), UNK, PIECES.index("b"), SEP]]
    assert batch["position_labels"].tolist() == [[IGNORED, 0, 1, 0, IGNORED]]
    if letters.pieces([nothing])[0].ids == []:
        assert source.notes["words_without_pieces"] == ["1 words are nothing to the tokenizer; they are [UNK]"]


def test_windows_of_a_long_sentence(letters: Tokenizer) -> None:
    """Ten words of one token, six at a time, from every third on: the last window lies as far back as it fits."""
    source = TagSource([of_sizes([1] * 10)], letters, CLASSES, 8, 3)
    assert source.lengths.tolist() == [8, 8, 8]
    assert [source.places(i)[1].tolist() for i in range(3)] == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    assert source.places(1)[0].tolist() == [3, 4]
    labels = whole(source)["position_labels"]
    assert (labels != IGNORED).sum(1).tolist() == [5, 2, 3]
    assert source.notes == {
        "long_sentences": ["1 of 1 sentences are longer than 8 tokens; they are read in windows that overlap"]
    }
    cut = TagSource([of_sizes([1, 20, 1])], letters, CLASSES, 8)
    assert cut.notes["cut_words"] == ["1 words have more pieces than a window of 8 tokens; their ends are cut"]
    assert [cut.places(i)[1].tolist() for i in range(len(cut))] == [[0], [1], [2]]


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=60),
    length=st.integers(3, 16),
    data=st.data(),
)
def test_each_word_counts_once_where_it_sees_most(
    letters: Tokenizer, sizes: list[int], length: int, data: st.DataObject
) -> None:
    room = length - 2
    stride = data.draw(st.integers(1, room))
    source = TagSource([of_sizes(sizes), of_sizes([1])], letters, CLASSES, length, stride)
    places = [source.places(i)[1] for i in range(len(source))]
    assert all(map(len, places))
    counted = np.concatenate(places)
    assert sorted(counted.tolist()) == list(range(len(sizes) + 1))
    assert source.lengths.max() <= length
    batch = whole(source)
    assert int((batch["position_labels"] == 1).sum()) == len(sizes) + 1
    assert (batch["attention_mask"].sum(1).numpy() == source.lengths).all()
    first = np.concatenate([[0], np.cumsum(np.minimum(sizes, room))])

    def context(word: int, start: int, stop: int) -> int:
        inside = first[start] <= first[word] and first[word + 1] <= first[stop]
        return int(min(first[word] - first[start], first[stop] - first[word + 1])) if inside else -1

    spans = [(start, stop) for sentence, start, stop, _, _ in source._windows.tolist() if not sentence]
    for window, (start, stop) in enumerate(spans):
        for word in places[window]:
            mine = context(word, start, stop)
            assert mine == max(context(word, *other) for other in spans) >= 0
        ids = batch["input_ids"][window][source.places(window)[0]]
        assert ids.tolist() == [PIECES.index(LETTERS[word % 26]) for word in places[window]]


def test_720_words_for_64_positions(shared: Path, letters: Tokenizer) -> None:
    with (shared / "cases" / "text" / "b57_too_long.csv").open(newline="") as file:
        words = next(csv.DictReader(file))["text"].split()
    source = TagSource([sentence(words), sentence("a")], letters, CLASSES, 64)
    assert source.notes["long_sentences"][0].startswith("1 of 2 sentences are longer than 64 tokens")
    found, short = word_probabilities(model_for(letters, CLASSES, length=64), source)
    assert (len(words), len(found), len(short)) == (720, 720, 1)
    assert (found.sum(1) > 0.99).all()


@pytest.mark.parametrize(
    ("length", "stride", "classes", "message"),
    [
        (2, None, CLASSES, "length: expected 3 tokens or more"),
        (8, 0, CLASSES, "stride: expected 1 to 6 tokens"),
        (8, 7, CLASSES, "stride: expected 1 to 6 tokens"),
        (8, 3, [], "as classes, got none"),
        (8, 3, ["O", "O"], "expected tags that differ"),
    ],
)
def test_what_cannot_be_is_refused(
    letters: Tokenizer, length: int, stride: int | None, classes: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        TagSource([sentence("a")], letters, classes, length, stride)


def test_probabilities_equal_transformers(tmp_path: Path) -> None:
    """Of sentences of different lengths, in order; each word's is that of its first piece."""
    theirs = save_bert(tmp_path, transformers.BertForTokenClassification, num_labels=3).float()
    loaded = load_folder(tmp_path)
    lines = ["the cat sat on a mat", "猫 !", "sitting cats", "the mat , the cat"]
    source = TagSource([sentence(line) for line in lines], loaded.tokenizer, ["a", "b", "c"], 20)
    found = word_probabilities(loaded.model, source)
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    for line, ours in zip(lines, found, strict=True):
        encoded = tokenizer(line.split(), is_split_into_words=True, return_tensors="pt")
        word_ids = encoded.word_ids()
        firsts = [word_ids.index(word) for word in range(len(line.split()))]
        with torch.no_grad():
            wanted = theirs(**encoded).logits[0, firsts].softmax(1)
        np.testing.assert_allclose(ours, wanted, atol=1e-5)
    assert word_probabilities(loaded.model, TagSource([], loaded.tokenizer, ["a", "b", "c"], 20)) == []


def test_the_heads_linear_layer_makes_probabilities_of_vectors(letters: Tokenizer) -> None:
    """Word by word, in windows, too."""
    source = TagSource([of_sizes([1, 2, 3] * 6), of_sizes([4]), of_sizes([]), of_sizes([2, 1])], letters, CLASSES, 12)
    assert len(source) > 4
    model, told = model_for(letters, CLASSES), []
    vectors = word_vectors(model, source, told.append)
    assert (vectors.shape, sum(told)) == ((21, 32), len(source))
    with torch.no_grad():
        found = model.heads["position"].linear(torch.from_numpy(vectors)).softmax(1)
    np.testing.assert_allclose(found, np.concatenate(word_probabilities(model, source)), atol=1e-6)


def test_a_few_sentences_are_learned(letters: Tokenizer) -> None:
    """To the last word, one of them in windows: which letter begins a word, and what stands before it, decides."""
    made = [
        sentence("ab cd ef a", "B-x I-x O B-x"),
        sentence("cd a cd cd", "O B-x I-x I-x"),
        sentence("ef ef cd a ef cd ef a cd ef ef a cd ef", "O O O B-x O O O B-x I-x O O B-x I-x O"),
    ]
    classes = tag_classes(made)
    assert classes == CLASSES
    source = TagSource(made, letters, classes, 16, 6)
    assert len(source) > 3
    model = model_for(letters, classes)
    train(
        model,
        source,
        TrainingConfig(steps=120, batch_size=4, learning_rate=3e-3, log_every=60, precision="float32"),
        title="tagging",
        unit="sentences",
    )
    found = best_tags(word_probabilities(model, source), classes)
    assert found == [one.tags for one in made]
    assert entity_metrics([one.tags or [] for one in made], found)["micro"]["f1"] == 1.0


def test_every_parameter_gets_a_gradient(letters: Tokenizer) -> None:
    model = model_for(letters, CLASSES)
    output = model(whole(TagSource([sentence("ab c", "B-x O"), sentence("d", "I-x")], letters, CLASSES, 8)))
    model.loss(output.losses).backward()
    assert output.losses["position"].count == 3
    silent = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]
    assert silent == []


def test_spans_are_in_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("🙂 In  New\tYork, Ann.\n", encoding="utf-8")
    (one,) = read_sentences(tmp_path / "a.txt", tagged=False).sentences
    found = spans(["O", "O", "B-LOC", "I-LOC", "O", "I-PER", "O"], one)
    assert found == [
        {
            "type": "LOC", "text": "New\tYork", "start": 6, "stop": 14, "words": ["New", "York"], "first_word": 2,
            "stop_word": 4,
        },
        {"type": "PER", "text": "Ann", "start": 16, "stop": 19, "words": ["Ann"], "first_word": 5, "stop_word": 6},
    ]  # fmt: skip
    assert json.loads(json.dumps(found)) == found
    with pytest.raises(ValueError, match="expected 7 tags, got 1"):
        spans(["O"], one)
