"""What the EEG walkthrough says and shows, in order; every number is read from the tape or worked out from it."""

import math
from collections.abc import Mapping

import numpy as np

from bothways.walkthrough.display import Paper, numbers
from bothways.walkthrough.tape import Array, Tape

Arrays = Mapping[str, Array]


def tell(paper: Paper, tape: Tape, a: Arrays, sfreq_hz: float, patch: int, burst: slice) -> None:
    """Writes all parts."""
    names = tape.positions
    _signal(paper, a, sfreq_hz, patch, burst)
    _patches(paper, a, names, sfreq_hz, patch, burst)
    _embedding(paper, tape, a, names)
    _masking(paper, tape, a, names)
    _scores(paper, tape, a, names)
    _both_ways(paper, a, names)
    _one_weight(paper, a, names)
    _block(paper, tape, a, names)
    _reconstruction(paper, tape, a, names)
    _classifier(paper, a, names)
    _summary(paper, a)


def _signal(paper: Paper, a: Arrays, sfreq_hz: float, patch: int, burst: slice) -> None:
    eeg = a["eeg"]
    n_channels, n_samples = eeg.shape
    paper.banner(
        "A masked encoder on EEG",
        "An encoder that looks both ways learns by filling gaps: part of a recording is hidden and rebuilt from what "
        "lies before and after it. Text and EEG differ only at the two ends.",
    )
    paper.table(
        ("text", "EEG"),
        [
            ("a token is looked up in a table", "a patch is projected by a matrix"),
            ("a hidden token is named: cross-entropy", "a hidden patch is redrawn: mean squared error"),
            ("softmax over the vocabulary", "a linear reconstruction head"),
        ],
    )
    paper.step("1. The signal", "Two channels, a common 10 Hz rhythm in each, and one burst in the middle.")
    paper.line(
        f"eeg {eeg.shape}: {n_channels} channels x {n_samples} samples",
        f"rate {sfreq_hz:g} Hz, length {n_samples / sfreq_hz:.1f} s, burst at samples {burst.start}-{burst.stop}",
    )
    shown = [*range(6), None, *range(burst.start + 4, burst.start + 10)]
    rows = [
        ("...", "", "", "") if k is None else (f"{k}", f"{k / sfreq_hz:.4f}", f"{eeg[0, k]:.4f}", f"{eeg[1, k]:.4f}")
        for k in shown
    ]
    paper.table(("sample", "time (s)", "Fp1", "Fp2"), rows)
    paper.line(f"mean {eeg.mean():+.4f}, SD {eeg.std():.4f}")
    paper.text(f"It is cut into {n_samples // patch} patches of {patch} samples each: they are the tokens.")


def _patches(paper: Paper, a: Arrays, names: tuple[str, ...], sfreq_hz: float, patch: int, burst: slice) -> None:
    eeg, patches = a["eeg"], a["patches"]
    n_patches, values = patches.shape
    paper.step(
        "2. Patches",
        f"A single sample says almost nothing, and {eeg.shape[1]} of them would cost {eeg.shape[1]} x {eeg.shape[1]} "
        "scores. A patch holds the samples of all channels, side by side.",
    )
    paper.line(f"C = {len(eeg)} channels and L = {patch} samples: vectors of length {values}")
    paper.line(f"{n_patches} patches x {values} values -> patches {patches.shape}")
    p = burst.start // patch
    start, stop = p * patch, (p + 1) * patch
    paper.line(
        f"patch p{p} covers samples {start}..{stop - 1} (t = {start / sfreq_hz:.3f}s to {(stop - 1) / sfreq_hz:.3f}s)",
        f"  Fp1: {numbers(eeg[0, start:stop])}",
        f"  Fp2: {numbers(eeg[1, start:stop])}",
        f"  side by side: {numbers(patches[p])}",
    )
    apart = float(np.abs(np.ravel(eeg[:, start:stop]) - patches[p]).max())
    paper.line(f"  difference to the row of the array, at most {apart:.1e}: {paper.check(f'patch p{p}', apart, 0.0)}")
    paper.matrix("patches", patches, names[1:])
    paper.text("How active a patch is: the length of its vector.")
    energy = np.sqrt((patches**2).sum(axis=1))
    inside = [start <= k * patch < stop for k in range(n_patches) for start, stop in [(burst.start, burst.stop)]]
    paper.bars(names[1:], energy.tolist(), ["<- burst" if one else "" for one in inside])


def _embedding(paper: Paper, tape: Tape, a: Arrays, names: tuple[str, ...]) -> None:
    values, size = a["W_e"].shape
    paper.step(
        "3. Patch embedding", "E = patches W_e + b_e: the signal's stand-in for a table of words; b_e is 0 here."
    )
    paper.product(
        ("patches", a["patches"]), ("W_e", a["W_e"]), ("E_patch", a["E_patch"]), rows=names[1:], worked=(3, 0),
        note=f"each {values}-value patch becomes a vector of {size}",
    )  # fmt: skip
    paper.step(
        "[CLS] and places",
        "[CLS] is a vector of its own in front of the patches; it will gather what the whole recording says. "
        "Attention alone knows no order: without the position code a burst at 0.4 s and the same burst at 0.9 s would "
        "be one.",
    )
    paper.line(f"length = 1 ([CLS]) + {len(names) - 1} patches = {len(names)}")
    paper.vector("[CLS]", a["cls"])
    whole = tape["embedding.embeddings"]
    paper.elementwise(("embeddings", whole), ("PE", a["PE"]), ("Z0", a["Z0"]), names)


def _masking(paper: Paper, tape: Tape, a: Arrays, names: tuple[str, ...]) -> None:
    masked, n = list(tape.masked), len(names) - 1
    paper.step(
        "4. Masking",
        "What is hidden is what there is to learn. The chosen patches give way to one learned vector, [MASK], and keep "
        "their place. BERT on text does so with 80 % of the chosen tokens, puts a random token for 10 % and leaves "
        "10 % as they are: [MASK] never comes in later use, so the model must not rely on it.",
    )
    paper.line(f"masking {len(masked) / n:.0%} of {n} patches -> {len(masked)} positions")
    paper.vector("[MASK]", a["mask"])
    rows = [(str(i), name, "YES" if i in masked else "-", numbers(a["Z"][i], 3)) for i, name in enumerate(names)]
    paper.table(("position", "name", "masked", "what the encoder gets"), rows)
    paper.line(f"masked positions: {masked} = {', '.join(names[i] for i in masked)}")
    paper.line(
        f"targets {a['targets'].shape}: {len(masked)} patches x {a['targets'].shape[1]} values, kept for the loss"
    )


def _scores(paper: Paper, tape: Tape, a: Arrays, names: tuple[str, ...]) -> None:
    n_heads, length, d = tape["encoder.layers.0.attention.Q_heads"].shape
    paper.step(
        "5. Self-attention, both ways",
        "A = softmax(Q K^T / sqrt(d_k)), with nothing added before the softmax: no position is closed to another.",
    )
    paper.step("STEP 1: project Z to Q, K, V")
    paper.product(
        ("Z", a["Z"]), ("W_q", a["W_q"]), ("Q", a["Q"]), rows=names, note="K = Z W_k and V = Z W_v in the same way"
    )
    paper.matrix("W_k", a["W_k"])
    paper.matrix("K", a["K"], names)
    paper.matrix("W_v", a["W_v"])
    paper.matrix("V", a["V"], names)
    paper.step(f"STEP 2: split into {n_heads} heads of {d} -> ({n_heads}, {length}, {d})")
    q, k = (tape[f"encoder.layers.0.attention.{letter}_heads"] for letter in "QK")
    paper.step("STEP 3: scores = Q K^T / sqrt(d_k), head 0")
    paper.product(
        ("Q_head0", q[0]), ("K_head0^T", k[0].T), ("raw_scores", a["raw_scores"][0]), rows=names,
        right_name="K_head0^T",
    )  # fmt: skip
    paper.line(f"divided by sqrt(d_k) = {math.sqrt(d):.0f}:")
    paper.matrix("scaled_scores", a["scaled_scores"][0], names)
    weights = a["attention"][0]
    paper.step("STEP 4: softmax, with no mask before it")
    paper.matrix("attention", weights, names, decimals=4, signed=False)
    paper.line(f"row sums (each must be 1): {numbers(weights.sum(axis=1))}")
    for i, total in enumerate(weights.sum(axis=1)):
        paper.check(f"sum of attention row {i}", float(total), 1.0)
    later = weights[np.triu_indices(len(weights), 1)]
    paper.line(f"weights above the diagonal, on what comes later, all non-zero: {bool((later > 0).all())}")
    paper.line(f"the smallest of them = {later.min():.6f}; under a causal mask each would be 0")
    for head in range(1, n_heads):
        paper.step(f"The same for head {head}")
        paper.matrix(f"Q_head{head}", q[head], names)
        paper.matrix(f"K_head{head}^T", k[head].T)
        for name in ("raw_scores", "scaled_scores"):
            paper.matrix(name, a[name][head], names)
        paper.matrix("attention", a["attention"][head], names, decimals=4, signed=False)


def _both_ways(paper: Paper, a: Arrays, names: tuple[str, ...]) -> None:
    paper.step("Both ways beside one way", "The same scores through the softmax twice: as they are, and causally.")
    both, causal = a["attention"][0], a["causal_attention"][0]
    counts = [(int((both[i] != 0).sum()), int((causal[i] != 0).sum())) for i in range(len(names))]
    rows = [(name, str(n), str(m)) for name, (n, m) in zip(names, counts)]
    paper.table(("query", "non-zero weights, both ways", "non-zero weights, causal"), rows)
    for i, (n, m) in enumerate(counts):
        paper.check(f"non-zero weights of row {i}", float(n), float(len(names)))
        paper.check(f"non-zero causal weights of row {i}", float(m), float(i + 1))
    grow = ", ".join(str(m) for _, m in counts[:3])
    paper.text(
        f"Both ways every row has all {len(names)} positions; the causal rows grow {grow} ... A hidden patch in the "
        "middle is rebuilt from both sides in the first case, from the left alone in the second."
    )
    paper.matrix("causal attention", causal, names, decimals=4, signed=False)


def _one_weight(paper: Paper, a: Arrays, names: tuple[str, ...]) -> None:
    i, j = 4, 5
    d = a["Q"].shape[1] // len(a["attention"])
    q, k = a["Q"][i, :d], a["K"][j, :d]
    scores, weights = a["scaled_scores"][0], a["attention"][0]
    paper.step(
        "One attention weight by hand", "A_ij = exp(s_ij - m) / sum over j of exp(s_ij - m), m = the row's largest"
    )
    paper.line(f"query = position {i} ({names[i]}, hidden), key = position {j} ({names[j]})")
    paper.line(f"q = {numbers(q)}", f"k = {numbers(k)}", *(f"q . k = {line}" for line in paper.expand(q, k)))
    dot = float(sum(x * y for x, y in zip(q.tolist(), k.tolist())))
    paper.line(f"      = {dot:+.6f}", f"/ sqrt(d_k) = {dot:+.6f} / {math.sqrt(d):.0f} = {dot / math.sqrt(d):+.6f}")
    paper.line(
        f"in the matrix of scores: {scores[i, j]:+.6f} "
        f"{paper.check(f'scaled_scores[{i},{j}]', dot / math.sqrt(d), scores[i, j])}"
    )
    top = float(scores[i].max())
    powers = [math.exp(s - top) for s in scores[i].tolist()]
    total = sum(powers)
    paper.line(f"softmax of row {i}, m = {top:.6f}")
    paper.table(
        ("j", "name", "s_ij", "s - m", "exp", "/ sum", "array"),
        [
            (str(c), names[c], f"{s:.6f}", f"{s - top:.6f}", f"{e:.6f}", f"{e / total:.6f}", f"{weights[i, c]:.6f}")
            for c, (s, e) in enumerate(zip(scores[i].tolist(), powers))
        ],
    )
    for c, power in enumerate(powers):
        paper.check(f"attention[{i},{c}]", power / total, weights[i, c])
    paper.line(f"sum = {total:.6f}, all weights together {sum(p / total for p in powers):.10f}")
    worst = max(abs(p / total - w) for p, w in zip(powers, weights[i].tolist()))
    paper.line(f"difference to the row of the array, at most {worst:.1e}: {paper.check('attention row', worst, 0.0)}")


def _block(paper: Paper, tape: Tape, a: Arrays, names: tuple[str, ...]) -> None:
    eps = next(step.options["eps"] for step in tape.steps if step.operation == "layer_norm")
    paper.step("6. The rest of the block", "Weights times values, a residual sum and a layer norm, then two layers.")
    v = tape["encoder.layers.0.attention.V_heads"]
    paper.step("STEPS 5-7: weights @ V, heads side by side, W_o")
    for head in range(len(v)):
        paper.product(
            (f"A_head{head}", a["attention"][head]), (f"V_head{head}", v[head]),
            (f"head_output{head}", a["head_outputs"][head]), rows=names,
        )  # fmt: skip
    paper.product(
        ("concat", a["concat"]), ("W_o", a["W_o"]), ("attention_output", a["attention_output"]), rows=names,
        note="W_o mixes the heads",
    )  # fmt: skip
    paper.step("Add & norm 1")
    paper.elementwise(
        ("Z", a["Z"]), ("attention_output", a["attention_output"]), ("residual_1", a["residual_1"]), names
    )
    paper.matrix("Z1 = layer norm of residual_1", a["Z1"], names)
    _norm_by_hand(paper, "Z1", a["residual_1"], a["Z1"], eps)
    size, inner = a["W_1"].shape
    paper.step(f"Feed-forward: {size} -> {inner} -> {size}")
    paper.product(("Z1", a["Z1"]), ("W_1", a["W_1"]), ("pre_relu", a["pre_relu"]), rows=names)
    zeroed, total = int(a["relu_zeroed"]), a["post_relu"].size
    paper.line(f"ReLU turns {zeroed} of {total} into zero ({zeroed / total:.1%})")
    paper.check("zeroed by ReLU", float((a["pre_relu"] <= 0).sum()), float(zeroed))
    paper.product(("post_relu", a["post_relu"]), ("W_2", a["W_2"]), ("ffn_output", a["ffn_output"]), rows=names)
    paper.step("Add & norm 2: the encoder's output H")
    residual = tape["encoder.layers.0.residual_2"]
    paper.matrix("residual_2 = Z1 + ffn_output", residual, names)
    paper.matrix("H", a["H"], names)
    _norm_by_hand(paper, "H", residual, a["H"], eps)
    paper.text(
        f"H {a['H'].shape}: a vector for each position, made of all of them. Row 0 is [CLS], "
        f"rows 1..{len(names) - 1} are the patches in context."
    )


def _norm_by_hand(paper: Paper, name: str, before: Array, after: Array, eps: float) -> None:
    paper.line(
        f"mean of each row (must be 0): {numbers(after.mean(axis=1), 2)}",
        f"SD of each row (must be 1): {numbers(after.std(axis=1), 2)}",
    )
    row = before[0].tolist()
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    by_hand = (row[0] - mean) / math.sqrt(variance + eps)
    paper.line(f"{name}[0,0] = ({row[0]:+.6f} - {mean:+.6f}) / sqrt({variance:.6f} + {eps:.5f})")
    paper.result(f"{name}[0,0]", by_hand, after[0, 0])


def _reconstruction(paper: Paper, tape: Tape, a: Arrays, names: tuple[str, ...]) -> None:
    masked = [i - 1 for i in tape.masked]
    n, values = a["reconstruction"].shape
    patches = names[1:]
    paper.step(
        "7. Reconstruction and loss",
        "A linear head brings each output back to the size of a patch; the loss is the squared error of the hidden "
        "patches alone. The others were there to be read: to return them is to copy.",
    )
    paper.line(f"head: ({a['W_r'].shape[0]}) -> ({values}) for each of {n} patches", f"reconstruction ({n}, {values})")
    paper.product(
        ("H of the patches", a["H"][1:]),
        ("W_r", a["W_r"]),
        ("reconstruction", a["reconstruction"]),
        rows=patches,
        worked=(3, 0),
    )
    mse = a["patch_mse"]
    paper.step("Loss, on hidden patches only")
    paper.table(
        ("patch", "masked", "squared error", "counts"),
        [
            (name, "YES" if i in masked else "-", f"{mse[i]:.6f}", "YES" if i in masked else "no, it was given")
            for i, name in enumerate(patches)
        ],
    )
    hidden = mse[masked].tolist()
    paper.line(
        f"hidden patches: {', '.join(patches[i] for i in masked)}",
        f"their errors: {numbers(np.array(hidden))}",
        f"loss = their mean = ({' + '.join(f'{e:.6f}' for e in hidden)}) / {len(hidden)}",
        f"     = {sum(hidden):.6f} / {len(hidden)} = {sum(hidden) / len(hidden):.6f} "
        f"{paper.check('loss', sum(hidden) / len(hidden), float(a['loss']))}",
    )
    first = masked[0]
    guess, truth = a["reconstruction"][first], a["patches"][first]
    square = sum((x - y) ** 2 for x, y in zip(guess.tolist(), truth.tolist()))
    paper.line(
        f"{patches[first]} by hand:",
        f"  rebuilt, first 4: {numbers(guess[:4])}",
        f"  true, first 4: {numbers(truth[:4])}",
        f"  difference, first 4: {numbers((guess - truth)[:4])}",
        f"  sum of squares over {values} values = {square:.6f}",
        f"  / {values} = {square / values:.6f}",
        f"  from array = {mse[first]:.6f} {paper.check('patch_mse', square / values, mse[first])}",
    )
    flat = a["targets"].ravel().tolist()
    mean = sum(flat) / len(flat)
    match = paper.check("baseline", sum((x - mean) ** 2 for x in flat) / len(flat), float(a["baseline"]))
    paper.line(
        f"guessing the mean of the hidden patches: {float(a['baseline']):.6f} {match}",
        f"this model, its weights drawn at random: {float(a['loss']):.6f}",
    )
    paper.text("Untrained weights rebuild nothing yet; training lowers this number.")


def _classifier(paper: Paper, a: Arrays, names: tuple[str, ...]) -> None:
    paper.step(
        "8. What [CLS] is for",
        "After pretraining the head is dropped and a classifier reads row 0: P = sigmoid(H[CLS] . w_c + b_c).",
    )
    cls, w_c, logit = a["H"][0], a["w_c"], float(a["logit"])
    paper.vector("H[CLS]", cls)
    paper.line(
        "logit = H[CLS] . w_c",
        *(f"  = {line}" if k == 0 else f"    {line}" for k, line in enumerate(paper.expand(cls, w_c))),
    )
    by_hand = float(sum(x * y for x, y in zip(cls.tolist(), w_c.tolist())))
    paper.line(f"  = {by_hand:+.6f} {paper.check('logit', by_hand, logit)}")
    p = 1 / (1 + math.exp(-by_hand))
    paper.line(
        f"P(seizure) = sigmoid({logit:+.6f}) = 1 / (1 + exp({-logit:.6f})) = {p:.6f} "
        f"{paper.check('P(seizure)', p, float(a['p_seizure']))}"
    )
    row = a["attention"][0, 0]
    paper.line("what [CLS] read, in head 0:")
    paper.bars(names, row.tolist(), unit=1 / 60)
    paper.line(f"sum = {row.sum():.6f}")
    paper.text(
        "Two recordings put the same [CLS] in and get different ones out; the difference can only have come by this "
        "row."
    )


def _summary(paper: Paper, a: Arrays) -> None:
    length = len(a["Z"])
    shape = {name: str(a[name].shape) for name in ("eeg", "patches", "E_patch", "Z0", "Z", "H", "reconstruction")}
    (n_channels, n_samples), n_patches = a["eeg"].shape, len(a["patches"])
    patch = n_samples // n_patches
    paper.step("9. Summary")
    paper.table(
        ("stage", "what is done", "shape"),
        [
            ("signal", f"{n_channels} channels x {n_samples} samples", shape["eeg"]),
            ("patches", f"{n_patches} patches of {patch} samples, channels side by side", shape["patches"]),
            ("patch embedding", "patches W_e + b_e", shape["E_patch"]),
            ("[CLS] and places", "put on top, then added", shape["Z0"]),
            ("masking", f"{len(a['masked_positions'])} positions become [MASK]", shape["Z"]),
            ("self-attention", "softmax(Q K^T / sqrt(d_k)) V, no mask", f"({length}, {length}) weights"),
            ("encoder output H", "attention and feed-forward, each with add & norm", shape["H"]),
            ("reconstruction", "H[1:] W_r + b_r", shape["reconstruction"]),
            ("loss", "squared error of the hidden patches", "one number"),
        ],
    )
    paper.table(
        ("", "one way (GPT)", "both ways (this encoder)"),
        [
            ("mask", "causal: -inf above the diagonal", "none"),
            ("context", "what came before", "what comes before and after"),
            ("task", "the next token", "what was hidden"),
            ("loss", "cross-entropy over the vocabulary", "squared error of hidden patches"),
            ("stacks", "a decoder (with an encoder, for translation)", "an encoder"),
        ],
    )
    paper.text(
        "Left out here: several layers, learned positions, the 80/10/10 rule, GELU, dropout, next-sentence prediction "
        "and training; `bothways walkthrough eeg --model RUN` shows a trained model with all of its layers."
    )
