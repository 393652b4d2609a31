"""The classifier walkthrough: a tiny pre-norm encoder, every number of one forward pass, and its fine-tuning."""

import numpy as np

from bothways.walkthrough.classifier_training import fine_tune, logits, loss_and_gradients
from bothways.walkthrough.display import Paper
from bothways.walkthrough.model import attention, encoder, linear
from bothways.walkthrough.page import Walk
from bothways.walkthrough.show import show
from bothways.walkthrough.tape import Array, Tape
from bothways.walkthrough.text_reference import BERT_BASE, Sizes, bert_parameters, linear_size
from bothways.walkthrough.torch_draws import torch_draws

TINY = Sizes(layers=2, hidden=32, heads=4, inner=128, vocabulary=100, positions=16, qkv_bias=False)
N_CLASSES, EPOCHS, SHOWN_EPOCHS, GOAL = 2, 30, (0, 9, 19, 29), 0.3
FORM = {
    "hidden_size": TINY.hidden, "num_hidden_layers": TINY.layers, "num_attention_heads": TINY.heads,
    "intermediate_size": TINY.inner, "hidden_act": "gelu", "gated": False, "norm": "pre", "final_norm": False,
    "layer_norm_eps": 1e-5,
}  # fmt: skip
Weights = dict[str, Array]


def walk_classifier(paper: Paper) -> Walk:
    """Writes the whole walk; sizes, shapes and losses are those of the second reference."""
    weights, data = torch_draws("classifier"), torch_draws("data")
    ids, labels = data["ids"], data["labels"]
    paper.banner(
        "A tiny classifier",
        "An encoder of two layers reads ten tokens and gives them one of two labels. Layer norm comes before each part "
        "(pre-norm), and none follows the last layer. The texts are random: it can only learn them by heart.",
    )
    _parameters(paper, weights)
    module = _module(paper)
    tape = record(weights, ids[0], int(labels[0]))
    _forward(paper, tape)
    scores = _batch(paper, weights, ids, tape)
    losses = _training(paper, weights, ids, labels)
    _beside_bert(paper, weights)
    arrays = {
        "ids": ids,
        "labels": labels,
        **module,
        **{step.name: tape[step.name] for step in tape.steps},
        "logits_of_three": scores,
        "losses": np.array(losses),
    }
    return Walk(
        kind="classifier",
        title="A tiny classifier reads ten tokens",
        lead="Two layers, four heads. The label is read from the first position, which here stands for [CLS].",
        tape=tape,
        arrays=arrays,
        picture={"kind": "sentence", "tokens": list(tape.positions), "segments": [0] * len(tape.positions)},
        outputs={
            "loss": "loss",
            "probability": "probability",
            "attention": [f"encoder.layers.{layer}.attention.attention" for layer in range(TINY.layers)],
            "H": f"encoder.layers.{TINY.layers - 1}.output",
        },
    )


def record(weights: Weights, ids: Array, label: int) -> Tape:
    """Records the forward pass of one sequence [L] and its loss."""
    tokens = [f"t{one}" for one in ids]
    tape = Tape(positions=tuple(tokens), content=tuple(range(1, len(ids))), section="embedding")
    for table, which in (("word", ids.tolist()), ("position", list(range(len(ids))))):
        tape.give(f"embedding.{table}", weights[f"embedding.{table}.weight"])
        tape.do(
            "rows", f"embedding.{table}_rows", f"embedding.{table}", which=which, rows=tokens,
            about=f"the row of each {'token' if table == 'word' else table}",
        )  # fmt: skip
    z0 = tape.do("add", "embedding.Z0", "embedding.word_rows", "embedding.position_rows", about="what goes in")
    output = encoder(tape, z0, FORM, weights)
    tape.section = "classification"
    cls = tape.do("rows", "cls", output, which="cls", rows=["[CLS]"], about="the first position stands for all")
    classes = [f"class {k}" for k in range(N_CLASSES)]
    scores = linear(
        tape, "logits", cls, weights, "heads.sequence.linear", about="a score for each class", columns=classes
    )
    tape.do("softmax", "probability", scores, about="scores become probabilities")
    tape.give("label", np.array([label]))
    tape.do("cross_entropy", "loss", scores, "label", about="small where the true class has a high probability")
    return tape


def _parameters(paper: Paper, weights: Weights) -> None:
    paper.step("1. Parameters")
    s, one = TINY, TINY.layer()
    tables = {name: (n * size, f"{n} x {size}") for name, (n, size) in s.tables().items()}
    qkv, norm = f"{s.hidden} x {s.hidden}", f"2 x {s.hidden}"
    sources = {"W_o": f"{qkv} + {s.hidden}", "W_1": f"{s.hidden} x {s.inner} + {s.inner}"}
    sources |= {"W_2": f"{s.inner} x {s.hidden} + {s.hidden}", "norm_1": norm, "norm_2": norm}
    rows = [(name, f"{n:,}", sources.get(name, f"{qkv}, no bias")) for name, n in one.items()]
    paper.table(("one layer", "parameters", "from"), [*rows, ("sum", f"{sum(one.values()):,}", "")])
    paper.line("")
    layers, head = s.layers * sum(one.values()), linear_size(s.hidden, N_CLASSES)
    counts = {
        "embedding.word": tables["word"],
        "embedding.position": tables["position"],
        "encoder": (layers, f"{s.layers} layers x {sum(one.values()):,}"),
        "heads": (head, f"{s.hidden} x {N_CLASSES} + {N_CLASSES}"),
    }
    total = sum(n for n, _ in counts.values())
    paper.table(
        ("component", "parameters", "from"),
        [*((name, f"{n:,}", source) for name, (n, source) in counts.items()), ("sum", f"{total:,}", "")],
    )
    for name, (n, _) in {**counts, "": (total, "")}.items():
        stored = sum(array.size for at, array in weights.items() if at.startswith(name))
        what = name or "all"
        paper.line(
            f"{what}: {n:,} by the sizes | in the weights: {stored:,} | {paper.check(what, float(n), float(stored))}"
        )


def _module(paper: Paper) -> Weights:
    """Self-attention alone on two sequences of six positions."""
    drawn = torch_draws("module")
    x = drawn["x"]
    tapes = [Tape() for _ in x]
    for tape, one in zip(tapes, x):
        tape.give("x", one)
        attention(tape, "attention", "x", FORM, drawn)
        linear(tape, "output", "attention.concat", drawn, "attention.output", "W_o", "b_o", about="W_o mixes the heads")
    share = np.stack([tape["attention.attention"] for tape in tapes])
    output = np.stack([tape["output"] for tape in tapes])
    paper.banner(
        "2. Self-attention alone",
        f"Input {x.shape}: {len(x)} sequences, {x.shape[1]} positions. Its weights are drawn for this part alone.",
    )
    first = tapes[0]
    show(paper, first, [step for step in first.steps if step.operation in ("softmax", "concat_heads")])
    show(paper, first, first.steps[-1:])
    paper.step("what was to be shown")
    ahead = share[..., *np.triu_indices(share.shape[-1], 1)]
    paper.line(
        f"output {output.shape}",
        f"attention {share.shape}: sequences, heads, rows, columns",
        f"weights above the diagonal: {ahead.size}, of these 0: {(ahead == 0).sum()}, smallest {ahead.min():.4f}",
    )
    paper.vector("sums of the rows (sequence 0, head 0)", share[0, 0].sum(axis=-1))
    worst = share.sum(axis=-1).ravel()[np.abs(share.sum(axis=-1) - 1).argmax()]
    paper.line(
        f"sum furthest from 1 of all {share[..., 0].size} rows: {worst:.6f} {paper.check('row sum', 1.0, worst)}"
    )
    return {"module.x": x, "module.attention": share, "module.output": output}


def _forward(paper: Paper, tape: Tape) -> None:
    paper.banner(
        "3. One sequence, step by step",
        f"The first of the training data: {' '.join(tape.positions)}; t17 is token number 17. The first position is "
        "read as [CLS]. Long matrices show their first 8 and last 4 rows and columns.",
    )
    show(paper, tape)


def _batch(paper: Paper, weights: Weights, ids: Array, tape: Tape) -> Array:
    paper.banner("4. Three sequences at once")
    scores, _ = logits(weights, ids[:3], FORM)
    paper.line(f"ids {ids[:3].shape} -> [CLS] ({len(scores)}, {TINY.hidden}) -> logits {scores.shape}")
    paper.matrix("logits", scores, [f"sequence {i}" for i in range(3)], tape.column_names["logits"], decimals=6)
    for k in range(N_CLASSES):
        paper.line(f"sequence 0, class {k}: computed for the batch and step by step")
        paper.result(f"logits[0,{k}]", scores[0, k], tape["logits"][0, k])
    return scores


def _training(paper: Paper, weights: Weights, ids: Array, labels: Array) -> list[float]:
    paper.banner(
        "5. Fine-tuning",
        f"All {len(ids)} sequences in each step, {EPOCHS} epochs, Adam with learning rate 1e-3; the gradients are "
        "worked out by hand in NumPy. First, one of them beside what a small change of the weight does to the loss:",
    )
    _, grads = loss_and_gradients(weights, ids, labels, FORM)
    name, at, small = "encoder.layers.0.attention.qkv.weight", (0, 0), 1e-5
    sides = []
    for sign in (1, -1):
        moved = weights[name].copy()
        moved[at] += sign * small
        sides.append(loss_and_gradients({**weights, name: moved}, ids, labels, FORM)[0])
    slope = (sides[0] - sides[1]) / (2 * small)
    # Two losses that agree in most digits: their difference over 2e-5 keeps about ten decimals.
    match = paper.check(f"gradient of {name}[0,0]", slope, grads[name][at], tolerance=1e-8)
    paper.line(
        f"weight {name}[0,0]",
        f"  (loss(w + {small:g}) - loss(w - {small:g})) / {2 * small:g} = {slope:+.8f} | gradient: "
        f"{grads[name][at]:+.8f} | {match}",
        "",
    )
    losses, _ = fine_tune(weights, ids, labels, FORM, EPOCHS)
    notes = ["<-" if epoch in SHOWN_EPOCHS else "" for epoch in range(EPOCHS)]
    paper.bars([f"epoch {epoch}" for epoch in range(EPOCHS)], losses, notes, unit=0.02)
    rises = int((np.diff(losses) >= 0).sum())
    below = next((str(epoch) for epoch, loss in enumerate(losses) if loss < GOAL), "none")
    paper.line(
        f"epochs in which the loss did not fall: {rises}",
        f"guessing costs log({N_CLASSES}) = {np.log(N_CLASSES):.4f}; first epoch below {GOAL}: {below}",
        f"last loss {losses[-1]:.4f}, below {GOAL}: {losses[-1] < GOAL}",
    )
    return losses


def _beside_bert(paper: Paper, weights: Weights) -> None:
    paper.step("6. Beside BERT-base", "The same parts; BERT has its layer norm after each, and biases throughout.")
    b, t = BERT_BASE, TINY
    paper.table(
        ("", "BERT-base", "this classifier"),
        [
            ("layers", f"{b.layers}", f"{t.layers}"),
            ("hidden", f"{b.hidden}", f"{t.hidden}"),
            ("heads / columns of each", f"{b.heads} / {b.head}", f"{t.heads} / {t.head}"),
            ("feed-forward", f"{b.inner}", f"{t.inner}"),
            (
                "parameters",
                f"{sum(bert_parameters(b).values()):,}",
                f"{sum(array.size for array in weights.values()):,}",
            ),
            ("the label is read from", "[CLS], pooled", "[CLS]"),
        ],
    )
