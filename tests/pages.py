"""Walks for the page to show and to compute again: a sentence, tokens of channels, and every operation there is."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bothways.walkthrough import Sentence, Walk, Window, walk_eeg_model, walk_text_model
from bothways.walkthrough.tape import ACTIVATIONS, Tape
from models import CHANNELS, FORMS, SIGNAL

SENTENCES = ("the cat sat on the warm mat", "it did not want to move at all")
TOKENS = ["[CLS]", *(word for one in SENTENCES for word in [*one.split(), "[SEP]"])]


def replay(tape: Tape, masked: Sequence[int], causal: bool) -> Tape:
    """Runs the same steps in another state of the tape."""
    again = Tape(tape.positions, tuple(masked), tape.content, causal)
    made = {step.name for step in tape.steps}
    for name in tape.arrays.keys() - made:
        again.give(name, tape.arrays[name])
    for step in tape.steps:
        options = dict(step.options)
        if step.operation == "hide" and set(masked) != set(tape.masked):
            options.pop("instead", None)
        again.do(step.operation, step.name, *step.inputs, **options)
    return again


def sentence_walk(layers: int = 2, size: int = 24, words: int = 30) -> Walk:
    """A small BERT with random weights on a pair of sentences; its matrices are too large for tables."""
    rng = np.random.default_rng(0)
    length = len(TOKENS)
    weights = {
        "embedding.word.weight": rng.normal(size=(words, size)),
        "embedding.position.weight": rng.normal(size=(length, size)),
        "embedding.segment.weight": rng.normal(size=(2, size)),
        "heads.mlm.bias": rng.normal(size=words),
    }

    def dense(at: str, n_in: int, n_out: int) -> None:
        weights[f"{at}.weight"] = rng.normal(0, n_in**-0.5, (n_out, n_in))
        weights[f"{at}.bias"] = rng.normal(0, 0.1, n_out)

    def norm(at: str) -> None:
        weights[f"{at}.weight"], weights[f"{at}.bias"] = rng.normal(1, 0.1, size), rng.normal(0, 0.1, size)

    for layer in range(layers):
        at = f"encoder.layers.{layer}"
        dense(f"{at}.attention.qkv", size, 3 * size)
        dense(f"{at}.attention.output", size, size)
        dense(f"{at}.feed_forward.up", size, 4 * size)
        dense(f"{at}.feed_forward.down", 4 * size, size)
        norm(f"{at}.norm_1")
        norm(f"{at}.norm_2")
    for at in ("embedding.norm", "heads.mlm.norm"):
        norm(at)
    dense("heads.mlm.dense", size, size)
    dense("heads.nsp.linear", size, 2)
    config: dict[str, Any] = {
        "encoder": {
            "hidden_size": size, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 4 * size,
            "hidden_act": "gelu", "gated": False, "norm": "post", "final_norm": False, "layer_norm_eps": 1e-12,
        },
        "text": {"type_vocab_size": 2, "norm": True},
        "pooler": False,
        "heads": {"mlm": {"kind": "mlm", "weight": 1.0}, "nsp": {"kind": "nsp", "classes": None, "weight": 1.0}},
    }  # fmt: skip
    sentence = Sentence(
        tokens=TOKENS,
        ids=rng.integers(0, words - 1, length),
        segments=np.array([0] * 9 + [1] * 9),
        content=[i for i, token in enumerate(TOKENS) if not token.startswith("[")],
        masked=[5, 12],
        mask_id=words - 1,
        vocabulary=[f"word{i}" for i in range(words)],
    )
    return walk_text_model(config, weights, sentence)


def channels_walk() -> Walk:
    """Three channels with a token for each patch of each channel, rebuilt by one product; one patch is no token."""
    rng = np.random.default_rng(2)
    tokens = [(channel, patch) for channel in range(3) for patch in range(6) if (channel, patch) != (1, 2)]
    names = ("[CLS]", *(f"C{channel} p{patch}" for channel, patch in tokens))
    tape = Tape(names, masked=(3, 9), content=tuple(range(1, len(names))))
    signal = tape.give("signal", np.cumsum(rng.normal(size=(3, 60)), axis=1))
    patches = tape.do("cut", "patches", signal, size=10)
    kept = tape.do("rows", "kept", patches, which=[channel * 6 + patch for channel, patch in tokens], rows=names[1:])
    whole = tape.do("prepend", "whole", tape.give("cls", rng.normal(size=10)), kept, rows=names)
    hidden = tape.do("hide", "hidden", whole, tape.give("mask", rng.normal(size=10)), masked="masked")
    mixed = tape.do("product", "mixed", tape.give("mix", rng.normal(0, 0.3, (len(names),) * 2)), hidden, rows=names)
    tape.do("rows", "rebuilt", mixed, which="content", rows=names[1:])
    picture = {
        "kind": "signal", "signal": tape["signal"], "unit": "µV", "sfreq_hz": 20.0, "start_s": 4.0,
        "ch_names": ["C0", "C1", "C2"], "patch_samples": 10, "tokens": [list(token) for token in tokens],
    }  # fmt: skip
    return Walk("eeg", "A token for each channel", "Three.", tape, tape.arrays, picture, {"reconstruction": "rebuilt"})


def model_walk(name: str) -> Walk:
    """A model of ours on one window; some of its hidden patches are replaced by others, some keep their content."""
    form = FORMS[name]
    window = {key: tensor[0].numpy() for key, tensor in form.batch().items()}
    window["replacement"][:] = window["masked"].argmax()  # a real one
    fields = ("signals", "log_scale_uv", "positions", "patch_mask", "baseline", "masked", "action", "replacement")
    doubles = [window[one].astype(float) if window[one].dtype.kind == "f" else window[one] for one in fields]
    weights = {key: tensor.double().numpy() for key, tensor in form.build().state_dict().items()}
    return walk_eeg_model(form.config.model_dump(), weights, Window("x.edf", 0.0, SIGNAL.sfreq_hz, CHANNELS, *doubles))


def operations_walk() -> Walk:
    """Each operation in each of its forms, on small random numbers."""
    rng = np.random.default_rng(1)
    names = tuple(f"p{i}" for i in range(5))
    tape = Tape(names, masked=(1, 3), content=(1, 2, 3, 4))
    tape.section = "every operation"
    for name, shape in {
        "a": (5, 4), "b": (4, 3), "c": (5, 4), "row": (4,), "column": (5, 1), "vector": (4,), "bias": (3,),
        "square": (5, 5), "stack": (2, 5, 3), "stack_b": (2, 5, 3), "stack_square": (2, 5, 5), "flat": (4, 4),
        "signal": (2, 12), "scale": (5, 1), "tokens": (6, 2),
    }.items():  # fmt: skip
        tape.give(name, rng.normal(size=shape))
    tape.give(
        "wide", np.array([[-30.0, -7.0, -3.6, -3.5, -2.4, -0.3, -1e-9, 0.0, 1e-9, 0.7, 2.6, 3.6, 5.5, 9.0, 40.0]])
    )
    tape.give("labels", np.array([0.0, 2.0, 1.0, 3.0, 3.0]))
    tape.give("real", (rng.random((5, 4)) < 0.6).astype(float))
    tape.give("unreal", np.zeros((5, 4)))
    cases: list[tuple[Any, ...]] = [
        ("product", "a", "b"), ("product", "a", "b", "bias"), ("product", "stack_square", "stack"),
        ("product", "a", "vector"), ("product", "square", "stack"), ("product_transposed", "a", "flat"),
        ("product_transposed", "stack", "stack_b"), ("add", "a", "c"), ("add", "a", "row"), ("add", "a", "column"),
        ("add", "stack", "bias"), ("subtract", "a", "c"), ("multiply", "a", "real"), ("divide", "a", "c"),
        ("divide", "a", {"by": 3.0}), ("divide", "a"), ("softmax", "square"),
        ("softmax", "stack_square", {"causal": True}),
        ("softmax", "stack_square", {"causal": "causal"}), ("layer_norm", "a", "row", "vector", {"eps": 1e-5}),
        *(("activation", "wide", {"kind": kind}) for kind in ACTIVATIONS), ("split_heads", "a", {"n_heads": 2}),
        ("concat_heads", "stack"), ("prepend", "row", "a"), ("prepend", "flat", "a"),
        ("rows", "a", {"which": "masked"}),
        ("rows", "a", {"which": "content"}), ("rows", "a", {"which": "cls"}), ("rows", "a", {"which": [4, -1, 0, 0]}),
        ("rows", "flat", {"which": "masked_among_content"}), ("rows", "labels", {"which": "masked"}),
        ("columns", "a", {"start": 1, "stop": 3}), ("columns", "a", {"start": 2, "stop": 99}),
        ("join", "a", "column", "square"),
        ("mean_rows", "a"), ("cut", "signal", {"size": 3}), ("cut", "signal", {"size": 4, "together": True}),
        ("regroup", "tokens", {"n_channels": 2}), ("log_power", "a", "scale", {"floor": 1e-4}),
        ("hide", "a", "row", {"masked": "masked"}), ("hide", "a", "row", {"masked": "masked", "instead": [4, -1]}),
        ("error", "a", "c"), ("error", "a", "c", {"kind": "smooth_l1"}), ("error", "a", "c", "real", {"kind": "mse"}),
        ("error", "a", "c", "real", {"kind": "smooth_l1"}), ("error", "a", "c", "unreal", {"kind": "mse"}),
        ("cross_entropy", "a", "labels"), ("mean", "a"),
        ("weighted_sum", "a", "c", "real", {"weights": [0.5, -2.0, 1.0]}),
    ]  # fmt: skip
    for number, (operation, *inputs) in enumerate(cases):
        options = inputs.pop() if isinstance(inputs[-1], dict) else {}
        tape.do(operation, f"{number}.{operation}", *inputs, about=f"{operation}, case {number}", **options)
    none = tape.do("rows", "none", "a", which=[])
    tape.do("mean", "mean_of_none", none)
    picture = {"kind": "sentence", "tokens": list(names), "segments": [0] * len(names)}
    return Walk("text", "Every operation", "Each in each of its forms.", tape, tape.arrays, picture)
