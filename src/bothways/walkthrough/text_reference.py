"""The text walkthrough: BERT's sizes, its input, attention both ways, its two pretraining tasks, fine-tuning."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bothways.walkthrough.display import Paper
from bothways.walkthrough.page import Walk
from bothways.walkthrough.show import show
from bothways.walkthrough.tape import Array, Tape
from bothways.walkthrough.torch_draws import torch_draws


@dataclass(frozen=True)
class Sizes:
    """What the number of an encoder's parameters follows from."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    segments: int = 0
    qkv_bias: bool = True

    @property
    def head(self) -> int:
        """Columns of one head."""
        return self.hidden // self.heads

    def tables(self) -> dict[str, tuple[int, int]]:
        """Name -> shape of each embedding table."""
        rows = {"word": self.vocabulary, "position": self.positions, "segment": self.segments}
        return {name: (n, self.hidden) for name, n in rows.items() if n}

    def layer(self) -> dict[str, int]:
        """Name -> parameters of each part of one layer."""
        size, inner = self.hidden, self.inner
        qkv = size * size + size * self.qkv_bias
        return {
            "W_q": qkv,
            "W_k": qkv,
            "W_v": qkv,
            "W_o": linear_size(size, size),
            "norm_1": 2 * size,
            "W_1": linear_size(size, inner),
            "W_2": linear_size(inner, size),
            "norm_2": 2 * size,
        }


BERT_BASE = Sizes(layers=12, hidden=768, heads=12, inner=3072, vocabulary=30_522, positions=512, segments=2)
"""Devlin et al. 2019, section 3."""
SELECTED, MASKED, RANDOM = 0.15, 0.8, 0.1
"""Share of the positions that are selected; shares of these that become [MASK] and a random token (section 3.1)."""
N_TOKENS, N_SEQUENCES = 20, 10_000
WORDS = "the old dog sleeps by the fire while rain falls on the roof and the wind shakes it"
A, B = ("the", "rain", "stopped"), ("we", "left")


def linear_size(n_in: int, n_out: int) -> int:
    """Returns the parameters of a linear layer with bias."""
    return n_in * n_out + n_out


def bert_parameters(s: Sizes) -> dict[str, int]:
    """Returns the parameters of each part of a BERT: tables, layers, the embedding's norm, the pooler."""
    tables = {name: n * size for name, (n, size) in s.tables().items()}
    layers = s.layers * sum(s.layer().values())
    return {**tables, "layers": layers, "norm": 2 * s.hidden, "pooler": linear_size(s.hidden, s.hidden)}


def pair(a: Sequence[str], b: Sequence[str]) -> tuple[list[str], list[int]]:
    """Returns [CLS] a [SEP] b [SEP] and the segment of each token (Devlin et al. 2019, figure 2)."""
    return ["[CLS]", *a, "[SEP]", *b, "[SEP]"], [0] * (len(a) + 2) + [1] * (len(b) + 1)


def toy(causal: bool = False) -> Tape:
    """Records one head's attention weights for four tokens: x [4 8] -> Q, K [4 4] -> weights [4 4]."""
    drawn = torch_draws("toy")
    names = [f"pos {i}" for i in range(len(drawn["x"]))]
    tape = Tape(positions=tuple(names), content=tuple(range(len(names))), causal=causal, section="attention", layer=0)
    tape.give("x", drawn["x"], rows=names)
    tape.give("W_q", drawn["q.weight"].T)
    tape.give("W_k", drawn["k.weight"].T)
    tape.do("product", "Q", "x", "W_q", about="what each position asks for")
    tape.do("product", "K", "x", "W_k", about="what each position offers to be found by")
    tape.do("product_transposed", "raw_scores", "Q", "K", about="how well each question fits each key")
    root = math.sqrt(tape["K"].shape[1])
    tape.do("divide", "scaled_scores", "raw_scores", by=root, about="divided by the root of the length of a key")
    tape.do("softmax", "attention", "scaled_scores", causal="causal", about="each row becomes shares that sum to 1")
    return tape


def select(rng: np.random.Generator, n_tokens: int = N_TOKENS, share: float = SELECTED) -> Array:
    """Draws which positions a sequence has to predict, in order."""
    return np.sort(rng.choice(n_tokens, round(share * n_tokens), replace=False))


def actions(rng: np.random.Generator, n: int) -> Array:
    """Draws what becomes of each selected position: 0 = [MASK], 1 = a random token, 2 = as it is."""
    return np.digitize(rng.random(n), [MASKED, MASKED + RANDOM])


def walk_text(paper: Paper) -> Walk:
    """Writes the whole walk; the numbers of the attention are those of the second reference."""
    paper.banner(
        "BERT on text",
        "An encoder reads a whole sentence at once. What it costs, what goes in, how it looks both ways, how it learns "
        "without labels, and how it is put to use.",
    )
    _kinds(paper)
    _sizes(paper)
    _input(paper)
    tape, causal = toy(), toy(causal=True)
    _attention(paper, tape, causal)
    masked, counts = _masking(paper)
    _next_sentence(paper)
    _fine_tuning(paper)
    names = ("x", "W_q", "W_k", "Q", "K", "raw_scores", "scaled_scores", "attention")
    arrays = {name: tape[name] for name in names} | {
        "causal_mask": np.triu(np.ones_like(tape["attention"]), 1),
        "causal_attention": causal["attention"],
        "masked_positions": masked,
        "action_counts": counts,
    }
    return Walk(
        kind="text",
        title="Attention among four tokens",
        lead="One head, four tokens with random content: each row says how much its token takes from every other. The "
        "causal mask takes away what lies to the right.",
        tape=tape,
        arrays=arrays,
        picture={"kind": "sentence", "tokens": list(tape.positions), "segments": [0] * len(tape.positions)},
        outputs={"attention": ["attention"]},
    )


def _kinds(paper: Paper) -> None:
    paper.step("1. Encoder, decoder, or both")
    paper.table(
        ("model", "parts", "looks", "made for"),
        [
            ("BERT", "encoder", "both ways", "labels: sentences, words, answers in a text"),
            ("GPT", "decoder", "to the left", "writing on"),
            ("T5, BART", "encoder, decoder", "both, then to the left", "one text into another"),
        ],
        "BERT cannot write on: it never learned to guess a word from the words before it alone. Taking a mask away "
        "does not help, for it never had one.",
    )


def _sizes(paper: Paper) -> None:
    s = BERT_BASE
    paper.step("2. What BERT-base consists of")
    paper.table(
        ("size", "number", "note"),
        [
            ("layers", f"{s.layers}", "attention and feed-forward, a layer norm after each"),
            ("hidden", f"{s.hidden}", "numbers for each position, from the embedding to the end"),
            ("heads", f"{s.heads}", f"{s.hidden} / {s.heads} = {s.head} columns each"),
            ("inner", f"{s.inner}", f"{s.inner // s.hidden} x {s.hidden}, the feed-forward layer"),
            ("positions", f"{s.positions}", "the longest sequence; the position table is learned"),
            ("vocabulary", f"{s.vocabulary:,}", "WordPieces"),
        ],
    )
    paper.step("3. Where its parameters are")
    parts, counts = s.layer(), bert_parameters(s)
    shapes = {"W_1": f"{s.hidden} x {s.inner} + {s.inner}", "W_2": f"{s.inner} x {s.hidden} + {s.hidden}"}
    square, norm = f"{s.hidden} x {s.hidden} + {s.hidden}", f"2 x {s.hidden}"
    rows = [(name, f"{n:,}", shapes.get(name, norm if "norm" in name else square)) for name, n in parts.items()]
    one = sum(parts.values())
    paper.table(("one layer", "parameters", "from"), [*rows, ("sum", f"{one:,}", "")])
    core, total = counts["word"] + counts["layers"], sum(counts.values())
    paper.line("")
    paper.table(
        ("whole model", "parameters", "from"),
        [
            ("words", f"{counts['word']:,}", f"{s.vocabulary:,} x {s.hidden}"),
            (f"{s.layers} layers", f"{counts['layers']:,}", f"{s.layers} x {one:,}"),
            ("sum so far", f"{core:,}", "the number that is often quoted"),
            ("positions", f"{counts['position']:,}", f"{s.positions} x {s.hidden}"),
            ("segments", f"{counts['segment']:,}", f"{s.segments} x {s.hidden}"),
            ("embedding norm", f"{counts['norm']:,}", norm),
            ("pooler", f"{counts['pooler']:,}", f"{square}, on [CLS]"),
            ("sum", f"{total:,}", f"about {total / 1e6:.0f} million"),
        ],
    )


def _input(paper: Paper) -> None:
    tables = BERT_BASE.tables()
    paper.step("4. Three tables make the input", "Each position is the sum of three rows, one of each table.")
    about = {"word": "which token", "position": "where it stands", "segment": "whether it belongs to A (0) or B (1)"}
    rows = [(name, f"{n:,} x {size}", f"{n * size:,}", about[name]) for name, (n, size) in tables.items()]
    total = sum(n * size for n, size in tables.values())
    paper.table(("table", "size", "parameters", "row chosen by"), [*rows, ("sum", "", f"{total:,}", "")])
    paper.step("5. [CLS] A [SEP] B [SEP]", "For A of n tokens and B of m tokens:")
    paper.table(
        ("token", "position", "segment", "what it is for"),
        [
            ("[CLS]", "0", "0", "stands for the sequence; heads for the whole read it"),
            ("A_1 ... A_n", "1 ... n", "0", "the first text"),
            ("[SEP]", "n+1", "0", "ends it"),
            ("B_1 ... B_m", "n+2 ... n+m+1", "1", "the second text"),
            ("[SEP]", "n+m+2", "1", "ends it; the length is n+m+3"),
        ],
    )
    tokens, segments = pair(A, B)
    n, m = len(A), len(B)
    paper.line("", f"An example with n = {n}, m = {m}:")
    paper.table(
        ("position", "token", "segment"),
        [(str(i), token, str(segment)) for i, (token, segment) in enumerate(zip(tokens, segments))],
    )
    separators = [i for i, token in enumerate(tokens) if token == "[SEP]"]
    for name, by_rule, found in (
        ("first [SEP], n+1", n + 1, separators[0]),
        ("last [SEP], n+m+2", n + m + 2, separators[1]),
        ("tokens of segment 0, n+2", n + 2, segments.count(0)),
        ("tokens of segment 1, m+1", m + 1, segments.count(1)),
    ):
        paper.line(
            f"{name} = {by_rule} | from the example: {found} | {paper.check(name, float(by_rule), float(found))}"
        )


def _attention(paper: Paper, tape: Tape, causal: Tape) -> None:
    paper.banner(
        "Attention: softmax(Q K^T / sqrt(d_k))",
        "Four tokens of 8 numbers, one head of 4 columns; tokens and weights are random. First without a mask, as in "
        "BERT. Then with the causal mask, as in GPT: scores above the diagonal become minus infinity.",
    )
    paper.matrix("x", tape["x"], rows=tape.positions)
    show(paper, tape)
    both, left = tape["attention"], causal["attention"]
    paper.step("causal mask", "1 = blocked: the position lies after the row's own.")
    paper.matrix("causal_mask", np.triu(np.ones_like(both), 1), tape.positions, tape.positions, 0, signed=False)
    paper.line("")
    paper.text("The same scores under the mask:")
    show(paper, causal, causal.steps[-1:])
    paper.step("both beside each other")
    paper.table(
        ("row", "above 0, both ways", "above 0, causal", "share that lies ahead"),
        [
            (name, f"{(both[i] > 0).sum()}", f"{(left[i] > 0).sum()}", f"{both[i, i + 1 :].sum():.4f}")
            for i, name in enumerate(tape.positions)
        ],
        "The last row has nothing ahead of it, so the mask does not change it.",
    )
    for j in range(both.shape[1]):
        paper.check(f"last row, column {j}", left[-1, j], both[-1, j])
    i = 1  # the first row that shares its weight out and loses something
    paper.text(f"Row {i} under the mask is row {i} without it, cut after the diagonal and divided by what is left:")
    paper.line(f"  {both[i, 0]:.6f} / ({both[i, 0]:.6f} + {both[i, 1]:.6f})")
    paper.result(f"causal[{i},0]", both[i, 0] / (both[i, 0] + both[i, 1]), left[i, 0])


def _masking(paper: Paper) -> tuple[Array, Array]:
    paper.banner("Pretraining 1: masked words", f"{SELECTED:.0%} of the positions are selected and predicted.")
    masked = select(np.random.default_rng(42))
    n_selected = len(masked)
    paper.line(
        f"np.random.default_rng(42).choice({N_TOKENS}, {n_selected}, replace=False), sorted: {masked.tolist()}",
        f"{n_selected} of {N_TOKENS} = {n_selected / N_TOKENS:.0%}",
    )
    paper.step("what becomes of a selected position")
    rng = np.random.default_rng(0)
    n = n_selected * N_SEQUENCES
    counts = np.bincount(actions(rng, n), minlength=3)
    all_counts = [*counts.tolist(), N_SEQUENCES * N_TOKENS - n]
    expected = [MASKED * n, RANDOM * n, (1 - MASKED - RANDOM) * n, (1 - SELECTED) * N_SEQUENCES * N_TOKENS]
    what = (
        ("[MASK]", f"{MASKED:.0%} of {SELECTED:.0%}", "the word itself has to be guessed"),
        ("random token", f"{RANDOM:.0%} of {SELECTED:.0%}", "no word that is seen can be trusted blindly"),
        ("as it is", f"{1 - MASKED - RANDOM:.0%} of {SELECTED:.0%}", "as in fine-tuning, which has no [MASK]"),
        ("not selected", f"{1 - SELECTED:.0%}", "context; no loss here"),
    )
    paper.table(
        ("input", "share", "expected", "drawn", "why"),
        [(name, share, f"{e:,.0f}", f"{c:,}", why) for (name, share, why), c, e in zip(what, all_counts, expected)],
        f"Drawn for {N_SEQUENCES:,} sequences of {N_TOKENS} tokens ({n:,} selected positions) with seed 0.",
    )
    seed = next(seed for seed in range(1000) if len(set(actions(np.random.default_rng(seed), n_selected))) == 3)
    paper.step("on a sentence", f"Seed {seed}, the first with which three positions meet three different fates.")
    rng = np.random.default_rng(seed)
    drawn = actions(rng, n_selected)
    words, sentence = sorted(set(WORDS.split())), ["[CLS]", *WORDS.split(), "[SEP]"]
    shown, rows = list(sentence), []
    for i, action in zip(masked.tolist(), drawn.tolist()):
        shown[i] = ("[MASK]", words[rng.integers(len(words))], sentence[i])[action]
        rows.append((str(i), sentence[i], what[action][0], shown[i], sentence[i]))
    paper.text("Before: " + " ".join(sentence), "Input: " + " ".join(shown))
    paper.table(("position", "word", "fate", "input", "target"), rows)
    paper.text("The random token comes from the words of the sentence; BERT takes it from its whole vocabulary.")
    paper.step("why no causal mask", "How many words that are not selected each prediction can use:")
    known = np.ones(N_TOKENS, dtype=int)
    known[masked] = 0
    paper.table(
        ("position", "to its left", "to its right", "both ways", "causal"),
        [
            (str(i), f"{known[:i].sum()}", f"{known[i:].sum()}", f"{known.sum()}", f"{known[:i].sum()}")
            for i in masked.tolist()
        ],
        "A decoder predicts the next token at every position, from what lies before. BERT predicts few positions, each "
        "from both sides.",
    )
    paper.step("why not 40 %", "A word's neighbours tell most about it. Of the words around a selected one:")
    paper.table(
        ("selected", "hidden", "context left", "both neighbours seen"),
        [(f"{share:.0%}", *_context(round(share * N_TOKENS))) for share in (SELECTED, 0.4)],
        "More targets, but each from less context. 15 % is a finding, not a law: large models bear 40 % (Wettig et al. "
        "2023). Masks drawn anew in each epoch helped too (Liu et al. 2019, RoBERTa).",
    )
    return masked, np.array(all_counts)


def _context(n_hidden: int) -> tuple[str, str, str]:
    """Returns hidden and seen positions, and the chance that two given neighbours of a hidden one are both seen."""
    seen, others = N_TOKENS - n_hidden, N_TOKENS - 1
    return str(n_hidden), str(seen), f"{math.comb(seen, 2) / math.comb(others, 2):.4f}"


def _next_sentence(paper: Paper) -> None:
    paper.banner("Pretraining 2: next sentence", "Does B follow A? Half of the pairs do; in the others B is random.")
    n = linear_size(BERT_BASE.hidden, 2)
    paper.table(
        ("label", "name", "meaning"),
        [("0", "is next", "B came after A in the text"), ("1", "random", "B comes from elsewhere")],
        f"A linear layer ({BERT_BASE.hidden}, 2) reads the pooled [CLS]: {n:,} parameters. Later models leave this "
        "task out (Liu et al. 2019).",
    )


def _fine_tuning(paper: Paper) -> None:
    size, k_labels = BERT_BASE.hidden, 9
    total, head = sum(bert_parameters(BERT_BASE).values()), linear_size(size, 2)
    paper.banner("Fine-tuning", "A small new layer on top; then all weights learn, the old ones too.")
    paper.table(
        ("task", "layer", "reads", "k", "parameters"),
        [
            (task, layer, reads, str(k), f"{linear_size(size, k):,}")
            for task, layer, reads, k in (
                ("label of a text", f"Linear({size}, k)", "[CLS]", 2),
                ("label of a word", f"Linear({size}, k)", "each token", k_labels),
                ("start and end", f"Linear({size}, 2)", "each token", 2),
            )
        ],
        f"k = 2 for positive or negative; k = {k_labels} for the names of persons, places, organisations and others, "
        "each with a first and a further word, and no name.",
    )
    paper.line("")
    paper.text(
        f"For a label of a text, {total + head:,} parameters learn: {total:,} old and {head:,} new ones. With frozen "
        f"weights only the {head:,} would; that is cheaper and mostly worse.",
        "Learning rate: small, 2e-5 to 5e-5, for 2 to 4 epochs (Devlin et al. 2019, appendix A.3).",
    )
