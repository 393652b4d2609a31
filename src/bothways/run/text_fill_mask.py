"""`bothways text fill-mask`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bothways import text
from bothways.errors import UserError
from bothways.run.text_model import TextModel, needs_mlm, open_model


def text_fill_mask(
    model: str | Path,
    texts: str | Sequence[str] = (),
    *,
    file: str | Path | None = None,
    top: int = 5,
    targets: Sequence[str] | None = None,
    column: str | None = None,
    encoding: str | None = None,
) -> dict[str, Any]:
    """Predicts what stands in each [MASK] of texts; equal to transformers' pipeline fill-mask.

    Ids that name no token are never predicted.

    Args:
        model: a run pretrained on text, or a BERT that transformers saved, with its head for hidden tokens.
        texts: one or several, each with one or several masks as the model writes them.
        file: more of them: each line of a text file, or row of a table, is one.
        top: how many tokens are returned for each mask.
        targets: score these words only, of all probabilities. As in transformers' pipeline a word of several pieces is
            scored by its first, and a note says so.
        column: of a table, the text's name.
        encoding: of the file; if none, it is found.

    Returns:
        `model`, `texts` (of each `text`, `file` and `line` if it is from one, `masks`: `start` and `stop` in the text
        and `top`: `token`, `id`, `probability`; `filled`: the text with the most probable of these in each mask),
        `targets` (of each `word`, `token`, `id`, `pieces`), `notes` (code -> messages), `load_report`.

    Raises:
        UserError: no such model, one without the head, a text without a mask or longer than the model, no texts.
    """
    if top < 1:
        raise UserError(f"top: expected 1 or more, got {top}")
    asked: list[dict[str, Any]] = [{"text": one} for one in ([texts] if isinstance(texts, str) else texts)]
    if file is not None:
        lines = text.Documents([file], "line", column, encoding)
        asked += [{"text": one.text, "file": one.file, "line": one.line} for one in lines]
        if lines.skipped:
            raise UserError(f"{file}: {lines.skipped[0]['reason']}")
    if not asked:
        raise UserError("expected a text with a mask, got none; give one, or a --file of them")
    opened = open_model(model)
    needs_mlm(opened)
    encoded = [_encode(opened.tokenizer, one, place) for place, one in enumerate(asked, 1)]
    words, notes = _targets(opened.tokenizer, targets)
    ids = torch.tensor([word["id"] for word in words]) if targets is not None else None
    for place, found in _predicted(opened, encoded):
        asked[place] |= _told(opened.tokenizer, asked[place]["text"], encoded[place], found, ids, top)
    return {
        "model": str(opened.folder), "texts": asked, "targets": words, "notes": notes,
        "load_report": opened.report.as_dict(),
    }  # fmt: skip


def _encode(tokenizer: text.Tokenizer, one: dict[str, Any], place: int) -> text.Encoding:
    """Splits a text, which must have a mask."""
    where = f"{one['file']}, line {one['line']}" if "file" in one else f"text {place}"
    try:
        encoding = tokenizer.encode(one["text"])
    except UserError as problem:
        raise UserError(f"{where}: {problem}") from None
    if tokenizer.mask_id not in encoding.ids:
        shown = one["text"] if len(one["text"]) <= 60 else one["text"][:60] + "…"
        raise UserError(
            f"{where}: expected {tokenizer.mask_token} where a word is to be found, got {shown!r}; write it there"
        )
    return encoding


def _targets(
    tokenizer: text.Tokenizer, targets: Sequence[str] | None
) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Returns the token by which each word is scored, and what is to be said of that."""
    words: dict[int, dict[str, Any]] = {}
    notes: dict[str, list[str]] = {}
    for word in targets or ():
        token_id, pieces = tokenizer.find(word), 1
        if token_id is None:
            found = tokenizer.pieces([word])[0].ids
            if not found:
                raise UserError(f"targets: expected words, got {word!r}; leave it out")
            token_id, pieces = found[0], len(found)
        token = tokenizer.token(token_id)
        if token_id == tokenizer.unk_id:
            notes.setdefault("unknown_target", []).append(f"{word!r} has no token and is scored as {token}")
        elif pieces > 1:
            notes.setdefault("target_of_several_pieces", []).append(
                f"{word!r} is {pieces} pieces and is scored by the first, {token!r}"
            )
        if token_id in words:
            same = words[token_id]["word"]
            notes.setdefault("same_token", []).append(f"{word!r} is the token of {same!r}, and is scored with it")
        words.setdefault(token_id, {"word": word, "token": token, "id": token_id, "pieces": pieces})
    if targets is not None and not words:
        raise UserError("targets: expected words, got none; leave --targets out to have all tokens")
    return list(words.values()), notes


def _predicted(opened: TextModel, encoded: Sequence[text.Encoding]) -> Iterator[tuple[int, Float[Tensor, "m V"]]]:
    """Yields each text's place, and the logarithms of the probabilities of all tokens at its masks."""
    device = next(opened.model.parameters()).device
    lengths = [len(one.ids) for one in encoded]
    for chosen in text.by_length(lengths, text.most_tokens(device)):
        batch = text.padded([encoded[i].ids for i in chosen], opened.tokenizer.pad_id, device)
        masked = batch["input_ids"] == opened.tokenizer.mask_id
        with torch.inference_mode():
            scores = opened.tokenizer.named(text.mlm_scores(opened.model, batch, masked))
        yield from zip(chosen.tolist(), scores.log_softmax(1).cpu().split(masked.sum(1).tolist()))


def _told(
    tokenizer: text.Tokenizer,
    written: str,
    encoding: text.Encoding,
    log_probabilities: Float[Tensor, "m V"],
    targets: Int[Tensor, " t"] | None,
    top: int,
) -> dict[str, Any]:
    masks, filled, end = [], "", 0
    places = [place for place, token_id in enumerate(encoding.ids) if token_id == tokenizer.mask_id]
    for place, row in zip(places, log_probabilities):
        of = row if targets is None else row[targets]
        best = of.topk(min(top, len(tokenizer), len(of))).indices
        ids = (best if targets is None else targets[best]).tolist()
        found = [{"token": tokenizer.token(i), "id": i, "probability": float(row[i].exp())} for i in ids]
        start, stop = encoding.offsets[place]
        mask = written[start:stop]
        filled += (
            written[end:start]
            + mask[: len(mask) - len(mask.lstrip())]
            + str(found[0]["token"]).removeprefix(tokenizer.prefix)
        )
        end = stop
        masks.append({"start": start, "stop": stop, "top": found})
    return {"masks": masks, "filled": filled + written[end:]}
