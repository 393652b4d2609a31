"""The EEG walkthrough: a second of synthetic EEG through a small encoder with random weights, to the loss."""

import numpy as np

from bothways.walkthrough.display import Paper
from bothways.walkthrough.eeg_story import tell
from bothways.walkthrough.model import encoder, linear, sinusoids
from bothways.walkthrough.page import Walk
from bothways.walkthrough.patches import embed
from bothways.walkthrough.tape import Array, Tape, softmax

SFREQ_HZ = 64.0
N_CHANNELS, N_SAMPLES, PATCH = 2, 64, 8
SIZE, N_HEADS, INNER, N_MASKED = 8, 2, 16, 2
BURST = slice(24, 40)
FORM = {
    "hidden_size": SIZE, "num_hidden_layers": 1, "num_attention_heads": N_HEADS, "intermediate_size": INNER,
    "hidden_act": "relu", "gated": False, "norm": "post", "final_norm": False, "layer_norm_eps": 1e-5,
}  # fmt: skip
LAYER = "encoder.layers.0"
NAMES = {
    "eeg": "eeg", "patches": "embedding.patches", "W_e": "embedding.W_e", "E_patch": "embedding.E_patch",
    "cls": "embedding.cls", "mask": "embedding.mask", "PE": "embedding.place", "Z0": "embedding.Z0",
    "targets": "targets", "Z": "embedding.Z",
    **{f"W_{x}": f"{LAYER}.attention.W_{x}" for x in "qkv"}, "W_o": f"{LAYER}.attention.W_o",
    **{x: f"{LAYER}.attention.{x}" for x in "QKV"},
    **{x: f"{LAYER}.attention.{x}" for x in ("raw_scores", "scaled_scores", "attention", "head_outputs", "concat")},
    **{x: f"{LAYER}.{x}" for x in ("attention_output", "residual_1", "Z1", "ffn_output")},
    "W_1": f"{LAYER}.feed_forward.W_1", "pre_relu": f"{LAYER}.feed_forward.pre_activation",
    "post_relu": f"{LAYER}.feed_forward.post_activation", "W_2": f"{LAYER}.feed_forward.W_2",
    "H": f"{LAYER}.output", "W_r": "heads.reconstruction.W_r", "reconstruction": "heads.reconstruction",
}  # fmt: skip
"""The names that the walkthrough's own file uses -> those of the tape."""


def draw() -> tuple[Array, tuple[int, ...], dict[str, Array]]:
    """Draws the recording [2 64], the masked positions and the weights from one seed, in a fixed order."""
    rng = np.random.RandomState(42)
    noise = 0.05 * rng.normal(size=(N_CHANNELS, N_SAMPLES))
    t = np.arange(N_SAMPLES) / SFREQ_HZ
    alpha = np.stack([0.8 * np.sin(2 * np.pi * 10 * t), 0.6 * np.sin(2 * np.pi * 10 * t + 0.7)])
    eeg = alpha + noise
    burst = 2.4 * np.sin(2 * np.pi * 3 * t[BURST]) * np.hanning(16)
    eeg[:, BURST] += burst * np.array([[1.0], [0.8]])

    def xavier(n_in: int, n_out: int) -> Array:
        """Glorot and Bengio 2010, equation 16."""
        limit = np.sqrt(6 / (n_in + n_out))
        return rng.uniform(-limit, limit, size=(n_in, n_out))

    values = N_CHANNELS * PATCH
    w_e = xavier(values, SIZE)
    cls, mask = (rng.normal(size=SIZE) / np.sqrt(SIZE) for _ in range(2))
    n_patches = N_SAMPLES // PATCH
    masked = tuple(int(one) + 1 for one in sorted(rng.choice(n_patches, N_MASKED, replace=False)))
    w_q, w_k, w_v, w_o = (xavier(SIZE, SIZE) for _ in range(4))
    w_1, w_2 = xavier(SIZE, INNER), xavier(INNER, SIZE)
    w_r = xavier(SIZE, values)
    w_c = rng.normal(size=SIZE) / np.sqrt(SIZE)
    weights = {
        "embedding.patch.weight": w_e.T,
        "embedding.cls": cls,
        "embedding.mask": mask,
        f"{LAYER}.attention.qkv.weight": np.hstack([w_q, w_k, w_v]).T,
        f"{LAYER}.attention.output.weight": w_o.T,
        f"{LAYER}.feed_forward.up.weight": w_1.T,
        f"{LAYER}.feed_forward.down.weight": w_2.T,
        "heads.reconstruction.linear.weight": w_r.T,
        "heads.sequence.linear.weight": w_c[None],
    }
    for norm in ("norm_1", "norm_2"):
        weights |= {f"{LAYER}.{norm}.weight": np.ones(SIZE), f"{LAYER}.{norm}.bias": np.zeros(SIZE)}
    return eeg, masked, weights


def compute() -> tuple[Tape, dict[str, Array]]:
    """Computes everything; returns the tape, and the arrays by their names in the walkthrough's file."""
    eeg, masked, weights = draw()
    n_patches = N_SAMPLES // PATCH
    names = ("[CLS]", *(f"p{i}" for i in range(n_patches)))
    tape = Tape(names, masked, tuple(range(1, n_patches + 1)))
    tape.section = "signal"
    signal = tape.give("eeg", eeg, rows=("Fp1", "Fp2"))
    patches = tape.do(
        "cut", "embedding.patches", signal, size=PATCH, together=True, rows=names[1:],
        about="the recording in patches, the channels of each side by side",
    )  # fmt: skip
    z = embed(tape, patches, weights, sinusoids(len(names), SIZE))
    h = encoder(tape, z, FORM, weights)
    tape.section = "reconstruction"
    rows = tape.do("rows", "heads.reconstruction.rows", h, which="content", rows=names[1:], about="[CLS] left out")
    guess = linear(
        tape, "heads.reconstruction", rows, weights, "heads.reconstruction.linear", "W_r", "b_r",
        about="back to the size of a patch",
    )  # fmt: skip
    tape.section = "loss"
    errors = tape.do("error", "heads.reconstruction.error", guess, patches, kind="mse", about="mean squared error")
    counted = tape.do(
        "rows", "heads.reconstruction.masked_error", errors, which="masked_among_content",
        about="only hidden patches count: the others were handed to the encoder",
    )  # fmt: skip
    tape.do("mean", "heads.reconstruction.loss", counted, about="the loss that training lowers")
    tape.do("rows", "targets", patches, which="masked_among_content", about="the truth of the hidden patches")
    tape.section = "[CLS] classifier"
    cls = tape.do("rows", "heads.sequence.rows", h, which="cls", rows=("[CLS]",), about="[CLS] alone is read")
    logit = linear(tape, "heads.sequence", cls, weights, "heads.sequence.linear", "w_c", "b_c", about="one number")
    tape.do("activation", "heads.sequence.probability", logit, kind="sigmoid", about="as a probability")
    arrays = {name: tape[at] for name, at in NAMES.items()}
    post = arrays["post_relu"]
    targets = arrays["targets"]
    single = {
        "loss": tape["heads.reconstruction.loss"][0, 0],
        "baseline": ((targets - targets.mean()) ** 2).mean(),
        "logit": tape["heads.sequence"][0, 0],
        "p_seizure": tape["heads.sequence.probability"][0, 0],
        "relu_zeroed": int((post == 0).sum()),
    }
    arrays |= {
        "masked_positions": np.array(masked),
        "causal_attention": softmax(arrays["scaled_scores"], causal=True),
        "patch_mse": tape["heads.reconstruction.error"][:, 0],
        "w_c": tape["heads.sequence.w_c"][:, 0],
        **{name: np.asarray(value) for name, value in single.items()},
    }
    return tape, arrays


def walk_eeg(paper: Paper) -> Walk:
    """Writes the whole walkthrough on the paper and checks each hand computation."""
    tape, arrays = compute()
    tell(paper, tape, arrays, SFREQ_HZ, PATCH, BURST)
    picture = {
        "kind": "signal",
        "signal": arrays["eeg"],
        "unit": "",
        "sfreq_hz": SFREQ_HZ,
        "start_s": 0.0,
        "ch_names": ["Fp1", "Fp2"],
        "patch_samples": PATCH,
        "tokens": [[None, patch] for patch in range(N_SAMPLES // PATCH)],
    }
    outputs = {
        "H": NAMES["H"],
        "reconstruction": NAMES["reconstruction"],
        "loss": "heads.reconstruction.loss",
        "probability": "heads.sequence.probability",
        "probability_of": "seizure",
        "attention": [NAMES["attention"]],
    }
    lead = (
        "One second of two-channel EEG, cut into eight patches; two are hidden and rebuilt from both sides. "
        "The weights are random: what is shown is how it is computed, not what was learned."
    )
    return Walk("eeg", "A masked encoder on EEG", lead, tape, arrays, picture, outputs)
