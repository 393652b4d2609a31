"""A trained EEG model on one window of a recording, step by step, from its weights alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bothways.walkthrough import heads
from bothways.walkthrough.model import Weights, encoder, sinusoids
from bothways.walkthrough.page import Walk, made
from bothways.walkthrough.patches import embed
from bothways.walkthrough.tape import Array, Tape

FLOOR_UV2_HZ = 1e-4
"""Added to the power density before its logarithm."""
N_WAVES = 4
"""Octaves of the waves that code an electrode's place."""
MASK, RANDOM = 1, 2
"""What stands in a hidden position's place: [MASK], or another position's content; else its own."""


@dataclass(frozen=True)
class Window:
    """One window as the model gets it; C channels, N patches, G = C or 1 groups of tokens."""

    file: str
    start_s: float
    sfreq_hz: float
    ch_names: Sequence[str]
    signals: Array
    """[C S], in robust SDs of each channel."""
    log_scale_uv: Array
    """[C], log10 of the SD in microvolts."""
    positions: Array
    """[C 2 3], anode and cathode; NaN = unknown or none."""
    patch_mask: Array
    """[C N], True = real."""
    baseline: Array | None = None
    """[C F], the subject's resting log spectrum."""
    masked: Array | None = None
    """[G N], True = hidden; None = nothing is."""
    action: Array | None = None
    """[G N]."""
    replacement: Array | None = None
    """[G N], flat index of the token whose content stands there where the action is RANDOM."""


def walk_eeg_model(config: Mapping[str, Any], weights: Weights, window: Window, causal: bool = False) -> Walk:
    """Computes a pass of a model of ours.

    Args:
        config: `ModelConfig.model_dump()`.
        weights: the model's `state_dict` as arrays.
        window: the input.
        causal: with a mask that the model does not have, to see what it would change.

    Returns:
        The walk; its steps carry the names of the model's taps.
    """
    patches, form = config["patches"], config["encoder"]
    together = patches["tokens"] == "all_channels"
    real: Array = window.patch_mask
    if together:
        real = np.any(real, axis=0, keepdims=True)  # [G N]
    tokens = list(zip(*np.nonzero(real)))
    names = token_names(real, None if together else window.ch_names)
    place_of = {(int(g), int(n)): i + 1 for i, (g, n) in enumerate(tokens)}
    hidden = [place_of[int(g), int(n)] for g, n in tokens if window.masked is not None and window.masked[g, n]]
    tape = Tape(("[CLS]", *names), tuple(hidden), tuple(range(1, len(tokens) + 1)), causal)
    features = _features(tape, patches, weights, window, together, [int(g) * real.shape[1] + int(n) for g, n in tokens])
    tape.section = "patches"
    vectors = tape.do(
        "join", "embedding.patches", *features.values(), rows=names, about="the features of a patch side by side"
    )
    z = embed(tape, vectors, weights, _places(config, weights, window, tokens), _instead(window, tokens, place_of))
    h = encoder(tape, z, form, weights)
    outputs = _heads(tape, config, weights, window, h, features, together, tokens)
    return Walk(
        "eeg",
        f"{window.file}, {window.start_s:g} s",
        f"{window.signals.shape[1] / window.sfreq_hz:g} s of {len(window.ch_names)} channels, {len(tokens)} tokens; "
        f"{form['num_hidden_layers']} layers of {form['hidden_size']}.",
        tape,
        made(tape),
        {
            "kind": "signal",
            "signal": _drawn(window),
            "unit": "robust SD",
            "sfreq_hz": window.sfreq_hz,
            "start_s": window.start_s,
            "ch_names": list(window.ch_names),
            "patch_samples": window.signals.shape[1] // real.shape[1],
            "tokens": [[None if together else int(g), int(n)] for g, n in tokens],
        },
        outputs,
    )


def token_names(real: Array, ch_names: Sequence[str] | None) -> list[str]:
    """Returns what each real token [G N] is called: its patch, and its channel where a token has one."""
    return [f"p{n}" if ch_names is None else f"{ch_names[g]} p{n}" for g, n in zip(*np.nonzero(real))]


def _drawn(window: Window) -> Array:
    """The signal with NaN where a patch is not real, so that it is not drawn as a flat line."""
    real = np.repeat(window.patch_mask, window.signals.shape[1] // window.patch_mask.shape[1], axis=1)
    return np.where(real, window.signals, np.nan)


def _features(
    tape: Tape, patches: Mapping[str, Any], weights: Weights, window: Window, together: bool, kept: list[int]
) -> dict[str, str]:
    """Computes each feature of each token [T f]; 0 where a channel's patch is not real."""
    n_channels, n_patches = window.patch_mask.shape
    size = window.signals.shape[1] // n_patches
    tape.section = "signal"
    signal = tape.give("signals", window.signals, rows=window.ch_names)
    every = [f"{name} p{n}" for name in window.ch_names for n in range(n_patches)]
    samples = tape.do("cut", "embedding.samples", signal, size=size, rows=every, about="each channel in patches")
    log_scale = np.repeat(window.log_scale_uv, n_patches)[:, None]  # [C·N 1]
    made: dict[str, str] = {}
    for name in patches["features"]:
        tape.section = name
        if name == "samples":
            made[name] = samples
        elif name == "spectrum":
            made[name] = _spectrum(tape, patches, weights, window, samples, log_scale, size)
        else:
            made[name] = tape.give("embedding.amplitude", log_scale - 1, rows=every)
    real = window.patch_mask.reshape(-1, 1)
    for name, feature in made.items():
        tape.section = name
        if not real.all() and together:
            counts = tape.arrays.get("embedding.real")
            if counts is None:
                tape.give("embedding.real", real.astype(float), rows=every)
            feature = tape.do(
                "multiply", f"{feature}_real", feature, "embedding.real", about="0 where nothing was recorded"
            )
        if together:
            feature = tape.do(
                "regroup", f"{feature}_together", feature, n_channels=n_channels, about="channels side by side"
            )
        if len(kept) < len(tape[feature]):
            feature = tape.do("rows", f"{feature}_kept", feature, which=kept, about="what is not real is no token")
        made[name] = feature
    return made


def _spectrum(
    tape: Tape, patches: Mapping[str, Any], weights: Weights, window: Window, samples: str, log_scale: Array, size: int
) -> str:
    low, high = patches["spectrum_hz"]
    frequencies = np.fft.rfftfreq(size, 1 / window.sfreq_hz)
    frequencies = frequencies[(frequencies >= low - 1e-9) & (frequencies <= high + 1e-9)]
    hann = np.hanning(size + 1)[:-1]
    phase = 2 * np.pi * np.outer(np.arange(size) / window.sfreq_hz, frequencies)
    waves = np.hstack([np.cos(phase), np.sin(phase)]) * hann[:, None]
    waves *= np.sqrt(2 / (window.sfreq_hz * (hann**2).sum()))
    # The model keeps them in float32, whatever it computes in.
    tape.give("embedding.waves", waves.astype(np.float32).astype(np.float64))
    tape.give("embedding.log_scale_uv", log_scale)
    parts = tape.do("product", "embedding.wave_parts", samples, "embedding.waves", about="cosine and sine parts")
    power = tape.do(
        "log_power", "embedding.log_spectrum", parts, "embedding.log_scale_uv", floor=FLOOR_UV2_HZ,
        about="log10 of the power density, in uV²/Hz",
    )  # fmt: skip
    if window.baseline is not None:
        rest = np.repeat(window.baseline, len(tape[power]) // len(window.baseline), axis=0)
        tape.give("embedding.baseline", rest, rows=tape.row_names[power])
        power = tape.do(
            "subtract", "embedding.log_spectrum_change", power, "embedding.baseline", about="less the rest's"
        )
    mean = tape.give("embedding.spectrum_mean", weights["embedding.spectrum_mean"][None])
    sd = tape.give("embedding.spectrum_sd", weights["embedding.spectrum_sd"][None])
    centred = tape.do("subtract", "embedding.spectrum_centred", power, mean, about="less the mean of the training data")
    return tape.do("divide", "embedding.spectrum", centred, sd, about="in SDs of the training data")


def _places(config: Mapping[str, Any], weights: Weights, window: Window, tokens: Sequence[tuple[Any, Any]]) -> Array:
    """Returns what each position gets because of where it lies [L D]: time, and the electrode where it has one."""
    size, n_patches = config["encoder"]["hidden_size"], window.patch_mask.shape[1]
    learned = config["patches"]["positions"] == "learned"
    time = weights["embedding.time.weight"] if learned else sinusoids(n_patches + 1, size)
    place = np.stack([time[0], *(time[int(n) + 1] for _, n in tokens)])
    if config["patches"]["tokens"] == "all_channels":
        return place
    known = ~np.isnan(window.positions).any(axis=2, keepdims=True)  # [C 2 1]
    xyz = np.nan_to_num(window.positions)
    waves = np.concatenate([xyz * (np.pi * 2**k) for k in range(N_WAVES)], axis=2)
    code = np.concatenate([xyz, np.sin(waves), np.cos(waves)], axis=2) * known  # [C 2 27]
    anode = code[:, 0] @ weights["embedding.anode.weight"].T + weights["embedding.anode.bias"]
    anode = np.where(known[:, 0], anode, weights["embedding.no_position"])
    electrodes = anode + code[:, 1] @ weights["embedding.cathode.weight"].T  # [C D]
    place[1:] += electrodes[[int(g) for g, _ in tokens]]
    return place


def _instead(
    window: Window, tokens: Sequence[tuple[Any, Any]], place_of: Mapping[tuple[int, int], int]
) -> tuple[int, ...]:
    """Returns for each hidden position whose content stands there, -1 = [MASK]'s; nothing where all are [MASK]."""
    if window.masked is None or window.action is None or window.replacement is None:
        return ()
    n_patches = window.masked.shape[1]
    instead = []
    for g, n in tokens:
        if window.masked[g, n]:
            source = divmod(int(window.replacement[g, n]), n_patches) if window.action[g, n] == RANDOM else (g, n)
            instead.append(-1 if window.action[g, n] == MASK else place_of[int(source[0]), int(source[1])])
    return () if set(instead) <= {-1} else tuple(instead)


def _moments(tape: Tape, h: str, tokens: Sequence[tuple[Any, Any]]) -> str:
    """Averages the positions of each patch's time, the electrodes'; [CLS] stays as it is."""
    if "H_moments" not in tape.arrays:
        moment = np.array([0, *(int(n) + 1 for _, n in tokens)])
        there = np.unique(moment)
        share = (moment == there[:, None]) / np.bincount(moment)[there][:, None]  # [M L]
        names = ["[CLS]", *(f"p{n}" for n in there[1:])]
        tape.give("moments", share, rows=names)
        tape.do("product", "H_moments", "moments", h, about="the mean over electrodes, moment by moment")
    return "H_moments"


def _heads(
    tape: Tape, config: Mapping[str, Any], weights: Weights, window: Window, h: str, features: Mapping[str, str],
    together: bool, tokens: Sequence[tuple[Any, Any]],
) -> dict[str, Any]:  # fmt: skip
    form = config["encoder"]
    layers = range(form["num_hidden_layers"])
    outputs: dict[str, Any] = {"H": h, "attention": [f"encoder.layers.{i}.attention.attention" for i in layers]}
    real = None
    if together and not window.patch_mask.all():
        counts = window.patch_mask.T[[int(n) for _, n in tokens]].astype(float)  # [T C]
        rebuilt = [tape[made] for name, made in features.items() if name != "amplitude"]
        repeats = [np.repeat(counts, truth.shape[1] // counts.shape[1], axis=1) for truth in rebuilt]
        real = tape.give("targets_real", np.hstack(repeats))
    for name, head in config["heads"].items():
        at, kind = f"heads.{name}", head["kind"]
        if "reconstruction" in kind and window.masked is None:
            continue
        if kind == "reconstruction":
            heads.reconstruction(tape, at, h, head, weights, features, real)
            if "samples" in head["features"]:
                # The page draws any patch, hidden or not.
                names = list(head["features"])
                start = sum(head["features"][one] for one in names[: names.index("samples")])
                stop = start + head["features"]["samples"]
                outputs["reconstruction"] = tape.do(
                    "columns", f"{at}.every_samples", at, start=start, stop=stop, about="the samples of all patches"
                )
        elif kind == "cls_reconstruction":
            heads.cls_reconstruction(tape, at, h, head, form["layer_norm_eps"], weights, features, real)
        else:
            rows = h
            whole = kind in ("sequence", "number", "several")
            if whole and head["pool"] != "cls":
                content = tape.do("rows", f"{at}.rows", h, which="content", about="[CLS] left out")
                if head["pool"] == "attention":
                    rows = heads.pool_by_attention(tape, at, content, weights)
                else:
                    rows = tape.do(
                        "mean_rows", f"{at}.mean", content, rows=("mean",), about="the mean of all positions"
                    )
            elif whole:
                rows = "pooler" if config["pooler"] else "cls"
                if rows not in tape.arrays:
                    heads.pool(tape, h, weights, config["pooler"])
            elif not together:
                rows = _moments(tape, h, tokens)
            classes = head["classes"] if kind != "span" else ("start", "end")
            heads.classifier(tape, at, rows, weights, classes, probability=kind not in ("number", "several", "span"))
            if kind == "sequence":
                outputs["probability"] = f"{at}.probability"
    if loss := heads.total(tape, config):
        outputs["loss"] = loss
    return outputs
