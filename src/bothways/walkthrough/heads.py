"""What reads the encoder's output, on a tape: each of the model's heads, its loss where the truth is known."""

from collections.abc import Mapping, Sequence
from typing import Any

from bothways.walkthrough.model import Weights, layer_norm, linear
from bothways.walkthrough.tape import Tape


def pool(tape: Tape, h: str, weights: Weights, pooler: bool) -> str:
    """[CLS], through BERT's dense layer and tanh where the model has one."""
    tape.section = "[CLS]"
    cls = tape.do("rows", "cls", h, which="cls", rows=tape.positions[:1], about="[CLS] alone is read")
    if not pooler:
        return cls
    dense = linear(tape, "pooler.dense", cls, weights, "pooler.dense", about="BERT's dense layer on [CLS]")
    return tape.do("activation", "pooler", dense, kind="tanh", about="and a tanh")


def pool_by_attention(tape: Tape, at: str, rows: str, weights: Weights) -> str:
    """One learned query asks the rows [T D]; their sum by its weights [1 D]."""
    query = tape.give(f"{at}.w_a", weights[f"{at}.query.weight"], rows=("query",))
    raw = tape.do("product_transposed", f"{at}.scores", query, rows, about="what the learned query finds in each")
    root = tape[rows].shape[1] ** 0.5
    scaled = tape.do("divide", f"{at}.scaled_scores", raw, by=root, about=f"divided by √{tape[rows].shape[1]}")
    attention = tape.do("softmax", f"{at}.attention", scaled, about="weights that add up to 1")
    return tape.do("product", f"{at}.pooled", attention, rows, rows=("pooled",), about="the positions by their weights")


def reconstruction(
    tape: Tape, at: str, h: str, head: Mapping[str, Any], weights: Weights, truth: Mapping[str, str], real: str | None
) -> None:
    """Rebuilds the patches; the loss counts hidden ones.

    Args:
        tape: what to write on.
        at: `heads.<name>`.
        h: name of the encoder's output [L D].
        head: its config.
        weights: the model's.
        truth: feature -> name of its true values [T f], a row for each position of `content`.
        real: name of an array [T F] that is 1 where a number of the truth counts; None = all do.
    """
    tape.section = "reconstruction"
    rows = tape.do("rows", f"{at}.rows", h, which="content", rows=_content(tape), about="[CLS] left out")
    guess = linear(tape, at, rows, weights, f"{at}.linear", "W_r", "b_r", about="back to the size of a patch")
    hidden = tape.do("rows", f"{at}.masked", guess, which="masked_among_content", about="of the hidden patches")
    _loss(tape, at, hidden, head, truth, real)


def cls_reconstruction(
    tape: Tape, at: str, h: str, head: Mapping[str, Any], eps: float, weights: Weights, truth: Mapping[str, str],
    real: str | None,
) -> None:  # fmt: skip
    """Rebuilds the hidden patches from [CLS] and their places alone; arguments as in `reconstruction`."""
    tape.section = "reconstruction from [CLS]"
    cls = tape.do("rows", f"{at}.cls", h, which="cls", rows=tape.positions[:1], about="[CLS] alone is read")
    dense = linear(tape, f"{at}.dense", cls, weights, f"{at}.dense", "W_d", "b_d", about="what [CLS] knows")
    where = tape.do("rows", f"{at}.place", "embedding.place", which="masked", about="where the hidden patches lie")
    both = tape.do("add", f"{at}.both", where, dense, about="the same [CLS] for every place")
    bent = tape.do("activation", f"{at}.activation", both, kind="gelu", about="GELU")
    normed = layer_norm(tape, f"{at}.norm.output", bent, weights, f"{at}.norm", eps, about="each row to mean 0, SD 1")
    guess = linear(tape, at, normed, weights, f"{at}.linear", "W_r", "b_r", about="back to the size of a patch")
    _loss(tape, at, guess, head, truth, real)


def _loss(
    tape: Tape, at: str, hidden: str, head: Mapping[str, Any], truth: Mapping[str, str], real: str | None
) -> None:
    """The error of each feature on the hidden patches, its mean, and their weighted sum."""
    tape.section = "loss"
    start, parts, weights = 0, [], []
    kind = {"mse": "mean squared error", "smooth_l1": "mean smooth L1 error"}[head["loss"]]
    hidden_rows = {"which": "masked_among_content"}
    for feature, size in head["features"].items():
        name, cut = f"{at}.{feature}", {"start": start, "stop": start + size}
        part = tape.do("columns", name, hidden, about=f"the {feature}", **cut)
        target = tape.do("rows", f"{name}.truth", truth[feature], about="what was hidden", **hidden_rows)
        counts = None
        if real is not None:
            counts = tape.do("columns", f"{name}.every_real", real, about="which numbers were recorded", **cut)
            counts = tape.do("rows", f"{name}.real", counts, about="of the hidden patches", **hidden_rows)
        error = tape.do(
            "error", f"{name}.error", part, target, counts, kind=head["loss"], about=f"the {kind} of each patch"
        )
        parts.append(tape.do("mean", f"{name}.loss", error, about="the mean over the hidden patches"))
        weights.append(float(head["feature_weights"].get(feature, 1.0)))
        start += size
    tape.do("weighted_sum", f"{at}.loss", *parts, weights=weights, about="the features by their weights")


def masked_language_model(
    tape: Tape, at: str, h: str, form: Mapping[str, Any], weights: Weights, table: str, labels: str | None,
    vocabulary: Sequence[str] | None,
) -> None:  # fmt: skip
    """Scores the vocabulary at the masked positions (Devlin et al. 2019, section 3.1).

    Args:
        tape: what to write on.
        at: `heads.<name>`.
        h: name of the encoder's output [L D].
        form: the encoder's config.
        weights: the model's.
        table: name of the word embedding, transposed [D V].
        labels: name of the true ids [L]; None = unknown.
        vocabulary: the token of each id.
    """
    tape.section = "masked language model"
    rows = tape.do("rows", f"{at}.rows", h, which="masked", about="hidden positions alone are read")
    dense = linear(tape, f"{at}.dense", rows, weights, f"{at}.dense", "W_d", "b_d", about="a dense layer")
    bent = tape.do("activation", f"{at}.activation", dense, kind=form["hidden_act"], about="its activation")
    eps = form["layer_norm_eps"]
    normed = layer_norm(tape, f"{at}.norm.output", bent, weights, f"{at}.norm", eps, about="each row to mean 0, SD 1")
    bias = tape.give(f"{at}.bias", weights[f"{at}.bias"])
    scores = tape.do("product", at, normed, table, bias, columns=vocabulary, about="against each word's own vector")
    tape.do("softmax", f"{at}.probability", scores, about="a probability for each word")
    if labels is not None:
        tape.section = "loss"
        truth = tape.do("rows", f"{at}.labels", labels, which="masked", about="the words that were hidden")
        each = tape.do("cross_entropy", f"{at}.error", scores, truth, about="-log of the true word's probability")
        tape.do("mean", f"{at}.loss", each, about="the mean over the hidden words")


def total(tape: Tape, config: Mapping[str, Any]) -> str | None:
    """What training lowers: the heads' losses by their weights; returns its name, None where no head has a loss."""
    losses = {f"heads.{name}.loss": float(head["weight"]) for name, head in config["heads"].items()}
    there = {name: weight for name, weight in losses.items() if name in tape.arrays}
    if not there:
        return None
    tape.section = "loss"
    return tape.do("weighted_sum", "loss", *there, weights=list(there.values()), about="what training lowers")


def classifier(
    tape: Tape, at: str, rows: str, weights: Weights, classes: Sequence[str], probability: bool = True
) -> None:
    """A linear layer on the given rows, and a softmax over the classes of each."""
    tape.section = f"{at.removeprefix('heads.')} head"
    scores = linear(tape, at, rows, weights, f"{at}.linear", "W_c", "b_c", about="a score for each", columns=classes)
    if probability:
        tape.do("softmax", f"{at}.probability", scores, about="as probabilities")


def _content(tape: Tape) -> tuple[str, ...]:
    return tuple(tape.positions[i] for i in tape.content)
