"""The EEG front end on a tape: from patch vectors to the embedded positions that the encoder reads."""

from typing import Any

from bothways.walkthrough.model import Weights, linear
from bothways.walkthrough.tape import Array, Tape


def embed(tape: Tape, patches: str, weights: Weights, place: Array, instead: tuple[int, ...] = ()) -> str:
    """Projects patches, puts [CLS] on top, hides the masked positions and adds each one's place.

    Args:
        tape: its `masked` positions are hidden.
        patches: name of the vectors [T F], a row for each position but [CLS].
        weights: `embedding.patch.weight` and so on.
        place: [L D], what is added because of where a position lies.
        instead: see `tape.hide`; row numbers of positions.

    Returns:
        The name of Z [L D].
    """
    tape.section = "patch embedding"
    content = linear(tape, "embedding.E_patch", patches, weights, "embedding.patch", "W_e", "b_e", about=_ABOUT["E"])
    tape.section = "[CLS] and places"
    cls = tape.give("embedding.cls", weights["embedding.cls"])
    mask = tape.give("embedding.mask", weights["embedding.mask"])
    where = tape.give("embedding.place", place, rows=tape.positions)
    names = tape.positions
    whole = tape.do("prepend", "embedding.embeddings", cls, content, rows=names, about=_ABOUT["cls"])
    tape.do("add", "embedding.Z0", whole, where, about=_ABOUT["place"])
    tape.section = "masking"
    options: dict[str, Any] = {"instead": list(instead)} if instead else {}
    hidden = tape.do(
        "hide",
        "embedding.hidden",
        whole,
        mask,
        rows=names,
        about=_ABOUT["fates" if instead else "mask"],
        masked="masked",
        **options,
    )
    return tape.do("add", "embedding.Z", hidden, where, about=_ABOUT["masked place"])


_ABOUT = {
    "E": "each patch becomes a vector as wide as the encoder",
    "cls": "[CLS], a learned vector of no patch, goes first",
    "place": "where a position lies is added to what it holds",
    "mask": "one learned vector, [MASK], stands in for every hidden patch",
    "fates": "[MASK], one learned vector, stands in for most hidden patches, other or their own content for the rest",
    "masked place": "a hidden patch keeps its place: the encoder knows where something is missing",
}
