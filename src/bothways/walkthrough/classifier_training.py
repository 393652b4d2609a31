"""Fine-tuning the pre-norm classifier in NumPy alone: forward, backward by the chain rule, Adam.

Each piece returns its value and a function that takes the loss's gradient of that value, keeps those of the weights
and returns that of the input. Weights go by the names of the PyTorch model's `state_dict`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bothways.walkthrough.tape import Array, softmax

Weights = Mapping[str, Array]
Gradients = dict[str, Array]
Back = Callable[[Array], Array]
_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[float])


def linear(x: Array, at: str, weights: Weights, grads: Gradients) -> tuple[Array, Back]:
    """X Wᵀ + b; x [... in], W [out in]."""
    w, b = weights[f"{at}.weight"], weights.get(f"{at}.bias")

    def back(d: Array) -> Array:
        flat = d.reshape(-1, d.shape[-1])
        grads[f"{at}.weight"] = flat.T @ x.reshape(-1, x.shape[-1])
        if b is not None:
            grads[f"{at}.bias"] = flat.sum(axis=0)
        return d @ w

    return x @ w.T + (0.0 if b is None else b), back


def layer_norm(x: Array, at: str, weights: Weights, grads: Gradients, eps: float) -> tuple[Array, Back]:
    """Each row of x [... D] to mean 0 and variance 1, scaled and shifted (Ba et al. 2016)."""
    scale, shift = weights[f"{at}.weight"], weights[f"{at}.bias"]
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    normal = centred / spread

    def back(d: Array) -> Array:
        axes = tuple(range(d.ndim - 1))
        grads[f"{at}.weight"], grads[f"{at}.bias"] = (d * normal).sum(axis=axes), d.sum(axis=axes)
        d = d * scale
        # Mean and spread hang on x too: what shifts or stretches a whole row changes nothing.
        return (d - d.mean(-1, keepdims=True) - normal * (d * normal).mean(-1, keepdims=True)) / spread

    return normal * scale + shift, back


def gelu(x: Array) -> tuple[Array, Back]:
    """X Φ(x), where Φ is the normal distribution (Hendrycks & Gimpel 2016); slope Φ(x) + x φ(x)."""
    share = (1 + _erf(x / math.sqrt(2))) / 2
    return x * share, lambda d: d * (share + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))


def attend(qkv: Array, n_heads: int) -> tuple[Array, Back]:
    """softmax(Q Kᵀ / √d) V for each head; [B L 3D] -> [B L D]."""
    b, length, _ = qkv.shape
    q, k, v = qkv.reshape(b, length, 3, n_heads, -1).transpose(2, 0, 3, 1, 4)  # each [B H L d]
    root = math.sqrt(q.shape[-1])
    share = softmax(q @ k.swapaxes(-1, -2) / root)

    def back(d: Array) -> Array:
        d = d.reshape(b, length, n_heads, -1).swapaxes(1, 2)  # [B H L d]
        d_share = d @ v.swapaxes(-1, -2)
        d_scores = share * (d_share - (d_share * share).sum(axis=-1, keepdims=True)) / root
        parts = [d_scores @ k, d_scores.swapaxes(-1, -2) @ q, share.swapaxes(-1, -2) @ d]
        return np.stack(parts).transpose(1, 3, 0, 2, 4).reshape(qkv.shape)

    return (share @ v).swapaxes(1, 2).reshape(b, length, -1), back


def block(x: Array, at: str, weights: Weights, grads: Gradients, n_heads: int, eps: float) -> tuple[Array, Back]:
    """X + attention(norm(x)), then the same with the feed-forward layers; [B L D] -> [B L D]."""
    normal, back_norm_1 = layer_norm(x, f"{at}.norm_1", weights, grads, eps)
    qkv, back_qkv = linear(normal, f"{at}.attention.qkv", weights, grads)
    heads, back_heads = attend(qkv, n_heads)
    attended, back_output = linear(heads, f"{at}.attention.output", weights, grads)
    middle = x + attended
    normal, back_norm_2 = layer_norm(middle, f"{at}.norm_2", weights, grads, eps)
    up, back_up = linear(normal, f"{at}.feed_forward.up", weights, grads)
    inner, back_gelu = gelu(up)
    down, back_down = linear(inner, f"{at}.feed_forward.down", weights, grads)

    def back(d: Array) -> Array:
        d = d + back_norm_2(back_up(back_gelu(back_down(d))))
        return d + back_norm_1(back_qkv(back_heads(back_output(d))))

    return middle + down, back


def logits(weights: Weights, ids: Array, form: Mapping[str, Any]) -> tuple[Array, Callable[[Array], Gradients]]:
    """Scores the classes of each sequence from its first position; ids [B L] -> [B k].

    Args:
        weights: by the names of the `state_dict`.
        ids: of tokens.
        form: `num_hidden_layers`, `num_attention_heads` and `layer_norm_eps`.

    Returns:
        The scores, and a function that takes the loss's gradient of them and returns that of every weight.
    """
    grads: Gradients = {}
    x = weights["embedding.word.weight"][ids] + weights["embedding.position.weight"][: ids.shape[1]]
    backs = []
    for layer in range(form["num_hidden_layers"]):
        x, back = block(
            x, f"encoder.layers.{layer}", weights, grads, form["num_attention_heads"], form["layer_norm_eps"]
        )
        backs.append(back)
    scores, back_head = linear(x[:, 0], "heads.sequence.linear", weights, grads)

    def backward(d_scores: Array) -> Gradients:
        d = np.zeros_like(x)
        d[:, 0] = back_head(d_scores)
        for back in reversed(backs):
            d = back(d)
        for table in ("word", "position"):
            grads[f"embedding.{table}.weight"] = np.zeros_like(weights[f"embedding.{table}.weight"])
        np.add.at(grads["embedding.word.weight"], ids, d)  # a token may stand in several places
        grads["embedding.position.weight"][: ids.shape[1]] = d.sum(axis=0)
        return grads

    return scores, backward


def loss_and_gradients(weights: Weights, ids: Array, labels: Array, form: Mapping[str, Any]) -> tuple[float, Gradients]:
    """The mean cross-entropy of a batch, ids [B L] and labels [B], and its gradient of every weight."""
    scores, backward = logits(weights, ids, form)
    share = softmax(scores)
    true = np.eye(scores.shape[1])[labels]
    return float(-np.log((share * true).sum(axis=1)).mean()), backward((share - true) / len(labels))


def fine_tune(
    weights: Weights, ids: Array, labels: Array, form: Mapping[str, Any], epochs: int, rate: float = 1e-3
) -> tuple[list[float], dict[str, Array]]:
    """Trains all weights by Adam (Kingma & Ba 2015, algorithm 1) on the whole data at once.

    Returns:
        The loss of each epoch before its update, and the weights after the last.
    """
    beta_1, beta_2, eps = 0.9, 0.999, 1e-8
    weights = dict(weights)
    mean = {name: np.zeros_like(array) for name, array in weights.items()}
    square = {name: np.zeros_like(array) for name, array in weights.items()}
    losses = []
    for t in range(1, epochs + 1):
        loss, grads = loss_and_gradients(weights, ids, labels, form)
        losses.append(loss)
        for name, gradient in grads.items():
            mean[name] = beta_1 * mean[name] + (1 - beta_1) * gradient
            square[name] = beta_2 * square[name] + (1 - beta_2) * gradient**2
            step = mean[name] / (1 - beta_1**t) / (np.sqrt(square[name] / (1 - beta_2**t)) + eps)
            weights[name] = weights[name] - rate * step
    return losses, weights
