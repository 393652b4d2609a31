"""The encoder, its front ends and its heads, step by step on a tape; for a single sequence without padding.

Weights go by the names of the PyTorch model's `state_dict`, forms by the names of its config, steps by the names of
its taps. A PyTorch linear layer keeps its matrix as [out in]; here it is shown as [in out], so that rows multiply it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bothways.walkthrough.tape import Array, Tape

Weights = Mapping[str, Array]


def linear(
    tape: Tape, name: str, x: str, weights: Weights, at: str, matrix: str = "W", bias: str = "b", about: str = "",
    columns: Sequence[str] | None = None,
) -> str:  # fmt: skip
    """Records x @ W + b with the layer `at`; its matrix and bias are kept as `<at's room>.<matrix>` and `<bias>`."""
    room = at.rpartition(".")[0]
    w = tape.give(f"{room}.{matrix}", weights[f"{at}.weight"].T, columns=columns)
    b = tape.give(f"{room}.{bias}", weights[f"{at}.bias"]) if f"{at}.bias" in weights else None
    return tape.do("product", name, x, w, b, about=about, columns=columns)


def layer_norm(tape: Tape, name: str, x: str, weights: Weights, at: str, eps: float, about: str = "") -> str:
    """Layer norm with the weights of `at`."""
    scale = tape.give(f"{at}.weight", weights[f"{at}.weight"])
    shift = tape.give(f"{at}.bias", weights[f"{at}.bias"])
    return tape.do("layer_norm", name, x, scale, shift, eps=eps, about=about)


def attention(tape: Tape, at: str, x: str, form: Mapping[str, Any], weights: Weights) -> str:
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2); returns the name of the concatenated heads."""
    size, n_heads = form["hidden_size"], form["num_attention_heads"]
    split = {}
    tape.section = "attention"
    for i, letter in enumerate("QKV"):
        part = slice(i * size, (i + 1) * size)
        w = tape.give(f"{at}.W_{letter.lower()}", weights[f"{at}.qkv.weight"][part].T)
        bias = weights.get(f"{at}.qkv.bias")
        b = None if bias is None else tape.give(f"{at}.b_{letter.lower()}", bias[part])
        full = tape.do("product", f"{at}.{letter}", x, w, b, about=_ABOUT[letter])
        split[letter] = tape.do("split_heads", f"{at}.{letter}_heads", full, n_heads=n_heads, about=_ABOUT["heads"])
    raw = tape.do("product_transposed", f"{at}.raw_scores", split["Q"], split["K"], about=_ABOUT["raw_scores"])
    root = float(np.sqrt(size // n_heads))
    scaled = tape.do("divide", f"{at}.scaled_scores", raw, by=root, about=_ABOUT["scaled_scores"])
    weight = tape.do("softmax", f"{at}.attention", scaled, causal="causal", about=_ABOUT["attention"])
    heads = tape.do("product", f"{at}.head_outputs", weight, split["V"], about=_ABOUT["head_outputs"])
    return tape.do("concat_heads", f"{at}.concat", heads, about=_ABOUT["concat"])


def feed_forward(tape: Tape, at: str, x: str, name: str, form: Mapping[str, Any], weights: Weights) -> str:
    """Two layers with an activation between them, gated where the form says so (Shazeer 2020)."""
    tape.section = "feed-forward"
    kind = form["hidden_act"]
    first = "gate" if form["gated"] else "up"
    letters = ("W_gate", "b_gate") if form["gated"] else ("W_1", "b_1")
    pre = linear(tape, f"{at}.pre_activation", x, weights, f"{at}.{first}", *letters, about=_ABOUT["pre_activation"])
    if form["gated"]:
        gate = tape.do("activation", f"{at}.gate", pre, kind=kind, about=_ABOUT["gate"])
        up = linear(tape, f"{at}.up", x, weights, f"{at}.up", "W_1", "b_1", about=_ABOUT["up"])
        inner = tape.do("multiply", f"{at}.post_activation", gate, up, about=_ABOUT["gated"])
    else:
        inner = tape.do("activation", f"{at}.post_activation", pre, kind=kind, about=_ABOUT["post_activation"])
    return linear(tape, name, inner, weights, f"{at}.down", "W_2", "b_2", about=_ABOUT["ffn_output"])


def block(tape: Tape, at: str, x: str, form: Mapping[str, Any], weights: Weights) -> str:
    """Attention and feed-forward, each with a residual sum and a layer norm after or before it."""
    eps, pre_norm = form["layer_norm_eps"], form["norm"] == "pre"

    def norm(name: str, values: str, which: str) -> str:
        return layer_norm(tape, name, values, weights, f"{at}.{which}", eps, about=_ABOUT["norm"])

    tape.section = "attention"
    inputs = norm(f"{at}.norm_1.output", x, "norm_1") if pre_norm else x
    concat = attention(tape, f"{at}.attention", inputs, form, weights)
    attended = linear(
        tape, f"{at}.attention_output", concat, weights, f"{at}.attention.output", "W_o", "b_o",
        about=_ABOUT["attention_output"],
    )  # fmt: skip
    tape.section = "add & norm"
    residual = tape.do("add", f"{at}.residual_1", x, attended, about=_ABOUT["residual"])
    z1 = norm(f"{at}.Z1", residual, "norm_2" if pre_norm else "norm_1")
    fed = feed_forward(tape, f"{at}.feed_forward", z1, f"{at}.ffn_output", form, weights)
    tape.section = "add & norm"
    if pre_norm:
        return tape.do("add", f"{at}.output", residual, fed, about=_ABOUT["residual"])
    second = tape.do("add", f"{at}.residual_2", z1, fed, about=_ABOUT["residual"])
    return norm(f"{at}.output", second, "norm_2")


def encoder(tape: Tape, x: str, form: Mapping[str, Any], weights: Weights) -> str:
    """All blocks, and the norm after them where the form has one; returns the name of the output H.

    Args:
        tape: what to write on.
        x: name of the embedded positions [L D].
        form: the fields of `config.EncoderConfig`.
        weights: the model's `state_dict` as arrays.
    """
    for layer in range(form["num_hidden_layers"]):
        tape.layer = layer
        x = block(tape, f"encoder.layers.{layer}", x, form, weights)
    tape.layer = None
    if form["norm"] == "pre" and form["final_norm"]:
        tape.section = "encoder output"
        x = layer_norm(
            tape,
            "encoder.final_norm.output",
            x,
            weights,
            "encoder.final_norm",
            form["layer_norm_eps"],
            about=_ABOUT["norm"],
        )
    return x


def sinusoids(length: int, size: int) -> Array:
    """Position code [length size]: sines in even columns, cosines in odd ones (Vaswani et al. 2017, section 3.5)."""
    code = np.zeros((length, size))
    for column in range(size):
        angle = np.arange(length) / 10000.0 ** ((column - column % 2) / size)
        code[:, column] = np.cos(angle) if column % 2 else np.sin(angle)
    return code


_ABOUT = {
    "Q": "what each position asks for",
    "K": "what each position offers to be found by",
    "V": "what each position hands over",
    "heads": "the columns are shared out among the heads",
    "raw_scores": "how well each question fits each key",
    "scaled_scores": "divided by √d_k, so that scores of long vectors stay moderate",
    "attention": "each row becomes shares that sum to 1; nothing is hidden, before or after",
    "head_outputs": "each position's mean of all values, by its shares",
    "concat": "the heads side by side",
    "attention_output": "W_o mixes the heads",
    "residual": "added to what came in",
    "norm": "each row to mean 0 and variance 1, then scaled and shifted",
    "pre_activation": "each position by itself, into the wider layer",
    "post_activation": "the activation decides what goes on",
    "gate": "the activation of the gate",
    "up": "what the gate acts on",
    "gated": "gate times content",
    "ffn_output": "back to the width of the encoder",
}
