"""Sequences for pretraining: what is paired, what is hidden, and that all of it follows from (seed, epoch, number)."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.config import SequenceConfig, TextMaskingConfig
from bothways.draws import generator
from bothways.errors import UserError
from bothways.heads import IGNORED
from bothways.masking import word_positions
from bothways.text import IS_NEXT, NOT_NEXT, Corpus, SequenceSource, can_pair, divide
from corpora import LETTERS, PIECES, make_corpus, many_documents

CLS, SEP, MASK = 2, 3, 4


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus"), many_documents())


def source(
    corpus: Corpus, *, pairs: bool = True, seed: int = 0, length: int = 24, short: float = 0.1, **masking: object
) -> SequenceSource:
    return SequenceSource(
        corpus,
        np.arange(len(corpus)),
        SequenceConfig(length=length, short=short),
        TextMaskingConfig(**masking),  # type: ignore[arg-type]
        next_sentence=pairs,
        seed=seed,
    )


def contains(corpus: Corpus, document: int, part: np.ndarray) -> bool:
    """Whether a document has these tokens in a row."""
    ids = corpus.ids[slice(*corpus.tokens_of(document))].astype(np.int64)
    return any(np.array_equal(ids[i : i + len(part)], part) for i in range(len(ids) - len(part) + 1))


@pytest.mark.parametrize("pairs", [True, False])
def test_every_sequence_is_well_formed(corpus: Corpus, pairs: bool) -> None:
    made = source(corpus, pairs=pairs)
    which = np.searchsorted(made.first_place, np.arange(len(made)), side="right") - 1
    n_sentences = np.diff(corpus.documents)
    labels: Counter[int] = Counter()
    for epoch in range(6):
        for number in range(len(made)):
            one, document = made.example(number, epoch), int(which[number])
            assert len(one.ids) == len(one.truth) == len(one.segments) == len(one.masked) <= 24
            seps = np.flatnonzero(one.truth == SEP)
            parts = np.split(one.truth[1:], seps)  # after [CLS], each with [SEP] at its end
            parts = [part[part != SEP] for part in parts if len(part)]
            assert one.truth[0] == CLS
            assert seps[-1] == len(one.truth) - 1
            assert all(len(part) for part in parts)
            assert one.segments.tolist() == [0] * (seps[0] + 1) + [1] * (len(one.truth) - seps[0] - 1)
            hideable = ~np.isin(one.truth, (CLS, SEP))
            assert not one.masked[~hideable].any()
            assert one.masked.sum() == max(1, round(0.15 * hideable.sum()))
            assert np.array_equal(one.ids[~one.masked], one.truth[~one.masked])
            assert contains(corpus, document, parts[0])
            assert len(parts) == (2 if pairs and n_sentences[document] > 1 else 1)
            labels[one.next_label] += 1
            if len(parts) == 1:
                assert one.next_label == IGNORED
            elif one.next_label == IS_NEXT:
                assert contains(corpus, document, parts[1])
            else:
                others = [d for d in range(len(corpus)) if contains(corpus, d, parts[1])]
                assert set(others) - {document}
    assert set(labels) == ({IS_NEXT, NOT_NEXT, IGNORED} if pairs else {IGNORED})
    if pairs:
        n = labels[IS_NEXT] + labels[NOT_NEXT]
        assert abs(labels[IS_NEXT] / n - 0.5) < 3 * 0.5 / np.sqrt(n)


def test_a_true_pair_is_neighbours(tmp_path: Path) -> None:
    """What follows is the very next sentence, in a document whose sentences all differ."""
    text = "\n".join(f"{one}{one}." for one in "abcdefghjk") + "\n\n" + "\n".join(f"{one}." for one in "lmnop")
    made = source(make_corpus(tmp_path, text), length=9, short=0.0)
    pairs = set()
    for epoch in range(80):
        for number in range(len(made)):
            one = made.example(number, epoch)
            if one.next_label == IS_NEXT:
                middle = int(np.flatnonzero(one.truth == SEP)[0])
                a, b = ("".join(PIECES[i] for i in part) for part in (one.truth[1:middle], one.truth[middle + 1 : -1]))
                pairs |= {(a[-2], b.lstrip("#")[0])} if len(a) > 1 else set()
    assert set(zip("abcdefghj", "bcdefghjk")) <= pairs
    assert all("abcdefghjklmnop".index(y) - "abcdefghjklmnop".index(x) == 1 for x, y in pairs)


def test_other_epochs_and_seeds_differ_and_nothing_else_does(corpus: Corpus) -> None:
    one = source(corpus)
    ids, epochs = np.array([3, 0, 7]), np.array([0, 2, 0])
    together, alone = one.batch(ids, epochs), source(corpus).batch(ids[1:2], epochs[1:2])
    n = alone["input_ids"].shape[1]
    for name in ("input_ids", "token_type_ids", "attention_mask", "mlm_labels"):
        assert together[name][1, :n].equal(alone[name][0])
    assert together["attention_mask"].sum(1).tolist()[1] == n
    assert (together["input_ids"][together["attention_mask"] == 0] == 0).all()
    assert (together["mlm_labels"][together["attention_mask"] == 0] == IGNORED).all()
    for other in (one.example(3, 1), source(corpus, seed=1).example(3, 0)):
        assert not np.array_equal(other.ids, one.example(3, 0).ids)
    assert one.names(np.array([0, len(one) - 1])) == [corpus.name(0), corpus.name(len(corpus) - 1)]


def test_an_epoch_covers_the_text(corpus: Corpus) -> None:
    """Over some epochs every sentence of every document is seen, at its beginning too."""
    made = source(corpus, pairs=False, length=16, short=0.0)
    assert len(made) == sum(max(1, round(int(n) / 14)) for n in made.n_tokens)
    seen = {tuple(made.example(number, epoch).truth[1:3]) for epoch in range(30) for number in range(len(made))}
    starts = {tuple(corpus.ids[i : i + 2].astype(int)) for i in corpus.sentences[:-1]}
    assert starts <= seen


def uneven_documents(n: int = 60) -> str:
    """Sentences and documents of many lengths, one document of them much longer, with one sentence longer than all."""
    rng = np.random.default_rng(0)

    def document(n_sentences: int) -> str:
        words = ["".join(rng.choice(list("abcdefgh"), int(rng.integers(1, 30)))) for _ in range(n_sentences)]
        return "\n".join(f"{word}." for word in words)

    return "\n\n".join([document(int(rng.integers(1, 12))) for _ in range(n)] + [document(80) + "\n" + "z" * 90 + "."])


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("uneven"), uneven_documents())


@pytest.mark.parametrize("pairs", [True, False])
def test_each_token_is_seen_about_as_often(uneven: Corpus, pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source(uneven, pairs=pairs, length=43)
    seen = np.zeros(len(uneven.ids))

    def tokens(self: Corpus, begin: int, end: int) -> np.ndarray:
        seen[begin:end] += 1
        return real(self, begin, end)

    real = Corpus.tokens
    monkeypatch.setattr(Corpus, "tokens", tokens)
    epochs = 60
    for epoch in range(epochs):
        for number in range(len(made)):
            made.example(number, epoch)
    assert 0.8 < seen.mean() / epochs < 1.1
    assert seen.min() / epochs > 0.05
    assert np.quantile(seen, 0.05) / epochs > 0.3


@pytest.mark.parametrize("short", [0.0, 0.1])
def test_no_length_tells_which_second_part_is_next(uneven: Corpus, short: float) -> None:
    """Nor whether the second part ends with a sentence."""
    made = source(uneven, length=43, short=short)
    found = [made.example(number, epoch) for epoch in range(40) for number in range(len(made))]
    found = [one for one in found if one.next_label != IGNORED]
    labels = np.array([one.next_label for one in found])
    n_a = np.array([(one.segments == 0).sum() for one in found])
    n_b = np.array([(one.segments == 1).sum() for one in found])
    assert len(labels) > 4000
    for what in (n_a, n_b, n_a + n_b, n_a / n_b):
        above = [np.array([(what[labels == label] > most).mean() for most in np.unique(what)]) for label in (0, 1)]
        assert 0.5 + np.abs(above[0] - above[1]).max() / 2 < 0.53  # of a threshold, the best accuracy
    ends = [np.mean([PIECES[one.truth[-2]] == "." for one in found if one.next_label == label]) for label in (0, 1)]
    assert abs(ends[0] - ends[1]) < 0.06


@pytest.mark.parametrize("longest", [3, 60])
def test_no_place_tells_which_second_part_is_next(
    tmp_path: Path, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next part never begins a document, and ends one as often as another, of short documents and mixed ones."""
    rng = np.random.default_rng(1)
    documents = [
        "\n".join("".join(rng.choice(list("abcdefgh"), int(n))) + "." for n in rng.integers(3, 40, int(size)))
        for size in rng.integers(1, longest, 300 if longest < 9 else 60)
    ]
    corpus = make_corpus(tmp_path, "\n\n".join(documents))
    made, calls = source(corpus, length=64), list[tuple[int, int]]()
    real = Corpus.tokens

    def tokens(self: Corpus, begin: int, end: int) -> np.ndarray:
        calls.append((begin, end))
        return real(self, begin, end)

    monkeypatch.setattr(Corpus, "tokens", tokens)
    bounds = set(corpus.sentences[corpus.documents].tolist())
    found: dict[int, list[tuple[bool, bool, int]]] = {IS_NEXT: [], NOT_NEXT: []}
    for number in range(4000):
        label = made.example(number % len(made), number // len(made)).next_label
        if label != IGNORED:
            begin, end = calls[-1]
            found[label].append((begin in bounds, end in bounds, end - begin))
    (begins, ends, sizes), (begins_2, ends_2, sizes_2) = (np.array(one).T for one in found.values())
    assert not begins.any()
    assert not begins_2.any()
    assert abs(ends.mean() - ends_2.mean()) < 0.05
    assert max(abs((sizes > most).mean() - (sizes_2 > most).mean()) for most in range(64)) < 0.09


def test_one_giant_document_has_many_others(tmp_path: Path) -> None:
    small = "\n\n".join(f"{'ab' * (1 + i % 5)}.\n{LETTERS[i]}{LETTERS[i]}.\n{LETTERS[i] * 3}." for i in range(20))
    corpus = make_corpus(tmp_path, "\n".join("zz." for _ in range(20_000)) + "\n\n" + small)
    made = source(corpus, length=24)
    found = [made.example(number, 0) for number in range(400)]
    second = Counter(tuple(one.truth[one.segments == 1]) for one in found if one.next_label == NOT_NEXT)
    assert sum(second.values()) > 100
    assert max(second.values()) < 0.3 * sum(second.values())


def test_equal_documents_are_no_others(tmp_path: Path) -> None:
    twice = make_corpus(tmp_path / "twice", "\n\n".join(["Aa.\nBb.\nCc."] * 5))
    assert "all documents are equal" in can_pair(twice, np.arange(5))
    one_more = make_corpus(tmp_path / "more", "\n\n".join(["Aa.\nBb.\nCc."] * 50 + ["Xx."]))
    made = source(one_more, length=16)
    found = [made.example(number, epoch) for number in range(len(made)) for epoch in range(4)]
    drawn = [PIECES[one.truth[one.segments == 1][0]] for one in found if one.next_label == NOT_NEXT]
    assert len(drawn) > 50
    assert set(drawn) == {"x"}


def test_a_corpus_goes_to_another_process_by_its_name(corpus: Corpus) -> None:
    sent = pickle.dumps(corpus)
    assert len(sent) < 1000
    assert np.array_equal(pickle.loads(sent).ids, corpus.ids)


def test_damage_inside_is_found_when_it_is_read(tmp_path: Path) -> None:
    made = make_corpus(tmp_path, many_documents(6))
    ids = np.load(made.path / "ids.npy")
    ids[-1] = 60_000
    np.save(made.path / "ids.npy", ids)
    damaged = source(Corpus.open(made.path))
    with pytest.raises(UserError, match="damaged"):
        [damaged.example(number, epoch) for number in range(len(damaged)) for epoch in range(9)]


def test_what_stands_in_a_hidden_tokens_place(corpus: Corpus) -> None:
    """80 % [MASK], 10 % any token of the whole vocabulary, 10 % unchanged."""
    made = source(corpus, length=128)
    kinds: Counter[str] = Counter()
    random: Counter[int] = Counter()
    for epoch in range(150):
        for number in range(len(made)):
            one = made.example(number, epoch)
            for seen, truth in zip(one.ids[one.masked], one.truth[one.masked]):
                kinds["mask" if seen == MASK else "unchanged" if seen == truth else "random"] += 1
                random[int(seen)] += seen not in (MASK, truth)
    n = sum(kinds.values())
    assert n > 20_000
    # A random token is [MASK] or its own once in len(PIECES) times.
    expected = {"mask": 0.8 + 0.1 / len(PIECES), "random": 0.1 * (1 - 2 / len(PIECES))}
    for kind, share in expected.items():
        assert abs(kinds[kind] / n - share) < 4 * np.sqrt(share * (1 - share) / n)
    assert {token for token, count in random.items() if count} == set(range(len(PIECES))) - {MASK}
    assert max(random.values()) < 3 * np.median([count for count in random.values() if count])


def test_whole_words(corpus: Corpus) -> None:
    made = source(corpus, length=64, whole_words=True)
    exact = 0
    for number in range(len(made)):
        one = made.example(number, 0)
        words, content = (~corpus.tokenizer.continues[one.truth]).cumsum(), ~np.isin(one.truth, (CLS, SEP))
        for word in np.unique(words[content]):
            assert len(set(one.masked[content & (words == word)].tolist())) == 1
        wanted = max(1, round(0.15 * content.sum()))
        assert one.masked.sum() >= 1
        exact += one.masked.sum() == wanted
    assert exact > 0.5 * len(made)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=20), st.floats(0.05, 0.9), st.integers(0, 99))
def test_words_fit_or_the_shortest_is_hidden(sizes: list[int], ratio: float, seed: int) -> None:
    words = np.repeat(np.arange(len(sizes)), sizes)
    masked = word_positions(np.ones(len(words), dtype=bool), words, ratio, generator("test", seed))
    hidden = [bool(masked[words == i].all()) for i in range(len(sizes))]
    assert [bool(masked[words == i].any()) for i in range(len(sizes))] == hidden
    most = max(1, round(ratio * len(words)))
    left = most - int(masked.sum())
    if left < 0:
        assert [size for size, one in zip(sizes, hidden) if one] == [min(sizes)]
    else:
        assert all(size > left for size, one in zip(sizes, hidden) if not one) or left == 0


@pytest.mark.parametrize("text", ["a", "a.", "Hi there", "a\n\nb"])
def test_very_short_texts(tmp_path: Path, text: str) -> None:
    corpus = make_corpus(tmp_path, text)
    for pairs in (True, False):
        made = source(corpus, pairs=pairs)
        for epoch in range(50):
            batch = made.batch(np.arange(len(made)), np.full(len(made), epoch))
            assert ((batch["mlm_labels"] != IGNORED).sum(1) > 0).all()


def test_why_there_are_no_pairs(tmp_path: Path, corpus: Corpus) -> None:
    assert can_pair(corpus, np.arange(len(corpus))) == ""
    assert "one document" in can_pair(corpus, np.array([1]))
    single = make_corpus(tmp_path, "A cat.\n\nA dog.\n\nA cow.")
    assert "each document is one sentence" in can_pair(single, np.arange(3))


def test_documents_that_are_kept_out(tmp_path: Path, corpus: Corpus) -> None:
    train, held_out = divide(corpus, 0.25, 0, pairs=True)
    assert (len(train), len(held_out)) == (30, 10)
    assert sorted([*train, *held_out]) == list(range(40))
    assert divide(corpus, 0.25, 1, pairs=True)[1].tolist() != held_out.tolist()
    assert [len(part) for part in divide(corpus, 0.001, 0, pairs=True)] == [38, 2]
    assert [len(part) for part in divide(corpus, 0.001, 0, pairs=False)] == [39, 1]
    assert [len(part) for part in divide(corpus, 0.0, 0, pairs=True)] == [40, 0]
    # Copies are never on both sides, and the only pair is never kept out.
    twice = make_corpus(tmp_path / "twice", "\n\n".join(["Aa.\nBb."] * 5 + ["Cc.\nDd.", "Ee.\nFf."]))
    for seed in range(6):
        train, held_out = divide(twice, 0.34, seed, pairs=False)
        assert not {int(one) for one in twice.digests[train]} & {int(one) for one in twice.digests[held_out]}
    lonely = make_corpus(tmp_path / "lonely", "A cat.\n\nA dog.\n\nA cow.\n\nA hen.\n\nA bee. A fly.")
    for seed in range(6):
        train, held_out = divide(lonely, 0.4, seed, pairs=True)
        assert can_pair(lonely, train) == ""
    one = make_corpus(tmp_path / "one", "A cat. A dog.")
    assert [len(part) for part in divide(one, 0.5, 0, pairs=False)] == [1, 0]
