"""A page with embeddings as points in the plane: PCA and t-SNE, and what can be said of them without looking."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from bothways.errors import UserError

MOST_POINTS = 2000
MOST_GROUPS = 11
"""With a colour and form of their own; the others share one."""
UNGROUPED = "(none)"
FEWEST = 10
"""Points below which t-SNE has nothing to arrange."""


def map_page(
    points: Float32[np.ndarray, "n D"], groups: Sequence[str | None], colour: str, what: str, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Makes a page for `write_report`, and what is told of it.

    Args:
        points: embeddings of some windows.
        groups: label, person or file of each; None = no label, which is drawn and is no group.
        colour: which of them.
        what: what they are, for the title.
        seed: of t-SNE.

    Returns:
        The page, and `windows`, `ungrouped` (how many of them have no group), `colour`, `same_neighbour` (of those with
        a group, the share whose nearest other one, in all D dimensions, is of the same) and `by_chance` (that of a
        neighbour drawn blindly); both None where fewer than two have one.

    Raises:
        UserError: fewer than three windows.
    """
    if len(points) < 3:
        raise UserError(
            f"--plot: expected three windows or more, got {len(points)}; leave it out, or shorten --stride-s"
        )
    scaled = StandardScaler().fit_transform(points.astype(np.float64))
    pca = PCA(2, svd_solver="full").fit(scaled)
    names = np.array([name or UNGROUPED for name in groups])
    grouped = np.array([name is not None for name in groups])
    counts, n = Counter(names[grouped].tolist()), int(grouped.sum())
    same = chance = None
    if n > 1:
        nearest = NearestNeighbors(n_neighbors=1).fit(scaled[grouped]).kneighbors(return_distance=False)[:, 0]
        same = float((names[grouped] == names[grouped][nearest]).mean())
        chance = sum(k * (k - 1) for k in counts.values()) / (n * (n - 1))
    ungrouped = len(points) - n
    said = {
        "windows": len(points), "ungrouped": ungrouped, "colour": colour, "same_neighbour": same, "by_chance": chance
    }  # fmt: skip
    shares = [f"PC {i + 1} ({share:.0%} of the variance)" for i, share in enumerate(pca.explained_variance_ratio_)]
    kept = [name for name, _ in counts.most_common(MOST_GROUPS)] + [UNGROUPED] * (ungrouped > 0)
    note = (
        f"The nearest neighbour of a window is of the same {colour} in {same:.0%} (by chance {chance:.0%}), seen in "
        "all dimensions. Windows of one recording are alike, whatever their label."
        if same is not None
        else f"There are too few windows with a {colour} to say who is near whom."
    ) + (f" {ungrouped} windows without a {colour} are drawn and not counted." if ungrouped else "")
    sections = [_section("PCA", pca.transform(scaled), shares, names, kept, note)]
    if len(points) >= FEWEST:
        perplexity = min(30.0, (len(points) - 1) / 3)
        plane = TSNE(2, init="pca", perplexity=perplexity, random_state=seed).fit_transform(scaled.astype(np.float32))
        axes = ["t-SNE 1", "t-SNE 2"]
        text = "Who is near whom; distances between heaps and their sizes mean little (van der Maaten, Hinton 2008)."
        sections.append(_section("t-SNE", plane, axes, names, kept, text))
    else:
        sections[0]["caption"] += f" No t-SNE: {len(points)} windows are too few."
    return {
        "title": "Embeddings",
        "subtitle": f"{what}: {len(points)} windows, {len(counts)} different {colour}s",
        "sections": sections,
    }, said


def _section(
    title: str,
    plane: Float[np.ndarray, "n 2"],
    axes: Sequence[str],
    names: np.ndarray,
    kept: Sequence[str],
    caption: str,
) -> dict[str, Any]:
    series = []
    for name in sorted(kept):
        at = plane[names == name]
        series.append({"label": name, "x": at[:, 0], "y": at[:, 1]})
    others = plane[~np.isin(names, kept)]
    if len(others):
        n = len(set(names.tolist()) - set(kept))
        series.append({"label": f"{n} others", "x": others[:, 0], "y": others[:, 1]})
    return {
        "kind": "scatter", "title": title, "x_label": axes[0], "y_label": axes[1], "series": series, "caption": caption,
    }  # fmt: skip
