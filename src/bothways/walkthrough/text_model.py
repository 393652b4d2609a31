"""A trained text model on one sentence or pair, step by step, from its weights alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bothways.walkthrough import heads
from bothways.walkthrough.model import Weights, encoder, layer_norm
from bothways.walkthrough.page import Walk, made
from bothways.walkthrough.tape import Array, Tape


@dataclass(frozen=True)
class Sentence:
    """One input as the model gets it: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""

    tokens: Sequence[str]
    ids: Array
    """[L], the true ids; [MASK]'s where the truth is unknown."""
    segments: Array
    """[L], 0 = A, 1 = B."""
    content: Sequence[int]
    """Positions that are no special token."""
    masked: Sequence[int]
    """Positions that are hidden."""
    mask_id: int
    vocabulary: Sequence[str]
    """The token of each id."""


def walk_text_model(config: Mapping[str, Any], weights: Weights, sentence: Sentence, causal: bool = False) -> Walk:
    """Computes a pass of a text model.

    Args:
        config: `ModelConfig.model_dump()`.
        weights: the model's `state_dict` as arrays.
        sentence: the input.
        causal: with a mask that the model does not have, to see what it would change.

    Returns:
        The walk; its steps carry the names of the model's taps.
    """
    form, text = config["encoder"], config["text"]
    # Hidden words are content too, whatever stands in their place in the text.
    content = tuple(sorted({*sentence.content, *sentence.masked}))
    tape = Tape(tuple(sentence.tokens), tuple(sentence.masked), content, causal)
    length, names = len(sentence.ids), tape.positions
    table = weights["embedding.word.weight"]
    tape.section = "embedding"
    words = tape.give("embedding.words", table[sentence.ids], rows=names)
    mask = tape.give("embedding.mask", table[sentence.mask_id])
    place = weights["embedding.position.weight"][:length]
    if text["type_vocab_size"]:
        place = place + weights["embedding.segment.weight"][sentence.segments]
    where = tape.give("embedding.place", place, rows=names)
    hidden = tape.do(
        "hide", "embedding.hidden", words, mask, masked="masked", rows=names, about="[MASK]'s own vector stands in"
    )
    x = tape.do("add", "embedding.Z0", hidden, where, about="word, position and segment added up")
    if text["norm"]:
        eps = form["layer_norm_eps"]
        x = layer_norm(tape, "embedding.Z", x, weights, "embedding.norm", eps, about="each row to mean 0, variance 1")
    h = encoder(tape, x, form, weights)
    layers = range(form["num_hidden_layers"])
    outputs: dict[str, Any] = {"H": h, "attention": [f"encoder.layers.{i}.attention.attention" for i in layers]}
    _heads(tape, config, weights, sentence, h, outputs)
    shown = " ".join(one for i, one in enumerate(names) if i in content)
    return Walk(
        "text",
        shown,
        f"{length} tokens; {len(layers)} layers of {form['hidden_size']}.",
        tape,
        made(tape),
        {"kind": "sentence", "tokens": list(names), "segments": [int(one) for one in sentence.segments]},
        outputs,
        fixed=tuple(i for i in sentence.masked if sentence.ids[i] == sentence.mask_id),
    )


def _heads(
    tape: Tape, config: Mapping[str, Any], weights: Weights, sentence: Sentence, h: str, outputs: dict[str, Any]
) -> None:
    # A pooler is shown also where no head reads it.
    pooled = heads.pool(tape, h, weights, True) if config["pooler"] else None
    for name, head in config["heads"].items():
        at, kind = f"heads.{name}", head["kind"]
        if kind == "mlm":
            tape.section = "masked language model"
            table = tape.give("embedding.word_table", weights["embedding.word.weight"].T, columns=sentence.vocabulary)
            labels = None
            if all(sentence.ids[i] != sentence.mask_id for i in sentence.masked):
                labels = tape.give("ids", sentence.ids)
            heads.masked_language_model(tape, at, h, config["encoder"], weights, table, labels, sentence.vocabulary)
            outputs["predictions"] = f"{at}.probability"
            continue
        rows = h
        if kind == "sequence" and head["pool"] != "cls":
            every = tape.do("rows", f"{at}.rows", h, which=list(range(1, len(tape.positions))), about="[CLS] left out")
            if head["pool"] == "attention":
                rows = heads.pool_by_attention(tape, at, every, weights)
            else:
                rows = tape.do(
                    "mean_rows", f"{at}.mean", every, rows=("mean",), about="the mean of the other positions"
                )
        elif kind in ("sequence", "nsp"):
            pooled = pooled or heads.pool(tape, h, weights, config["pooler"])
            rows = pooled
        classes = {"nsp": ("is next", "random"), "span": ("start", "end")}.get(kind, head["classes"])
        heads.classifier(tape, at, rows, weights, classes, probability=kind != "span")
        if kind in ("sequence", "nsp"):
            outputs["probability"] = f"{at}.probability"
    if loss := heads.total(tape, config):
        outputs["loss"] = loss
