"""Which encoding a text file is in: read in pieces, decided on the whole file, and never by replacing characters."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from bothways.errors import UserError
from bothways.files import readable

_PIECE = 2**20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; that of UTF-32 begins with that of UTF-16."""
_MOST_FOREIGN = 0.3
"""Of the letters of a text in a Western language, the share that may lie beyond ASCII."""


def find_encoding(path: Path) -> str:
    """Returns the encoding of a text file as Python names it.

    By its byte order mark; else UTF-8 if all of it is; else UTF-16 if every other byte is 0; else `cp1252`, or
    `latin-1` where a byte means nothing in it. These last two are a guess: any byte is some character of them.

    Raises:
        UserError: the file cannot be read, is no text, is UTF-8 with a damaged place, or is in an encoding that cannot
            be told.
    """
    with readable(path) as file:
        head = file.read(_PIECE)
    for mark, name in _MARKS:
        if head.startswith(mark):
            check_encoding(path, name)
            return name
    zeros = [head[start::2].count(0) / max(len(head[start::2]), 1) for start in (0, 1)]
    if max(zeros) > 0.3 and min(zeros) < 0.01:
        name = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        check_encoding(path, name)
        return name
    if head.count(0) > 1 + len(head) / 500:
        raise UserError(f"{path}: expected text, got bytes that are none (zeros); give a text file")
    try:
        check_encoding(path, "utf-8")
    except UserError as problem:
        return _western(path, str(problem))
    return "utf-8"


def check_encoding(path: Path, encoding: str) -> None:
    """Checks that all of a file can be decoded.

    Raises:
        UserError: it cannot; the message names the place.
    """
    decoder, at = codecs.getincrementaldecoder(encoding)(), 0
    for piece in _pieces(path):
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(piece, final=not piece)
        except UnicodeError as problem:  # of UTF-16 without a mark it says no place
            place, reason = at - held + getattr(problem, "start", 0), getattr(problem, "reason", problem)
            raise UserError(
                f"{path}: expected {encoding}, but byte {place:,} is none ({reason}); name its encoding: "
                "--encoding NAME, or save it as UTF-8"
            ) from None
        at += len(piece)


def _western(path: Path, problem: str) -> str:
    """Decides on what is not UTF-8.

    Args:
        path: the file.
        problem: why it is not.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    whole = broken = ascii_letters = foreign = 0
    undefined = False
    for piece in _pieces(path):
        text = decoder.decode(piece, final=not piece)
        lost = text.count("�")
        broken += lost
        whole += len(text) - len(text.encode("ascii", "ignore")) - lost
        high = len(piece) - len(piece.decode("ascii", "ignore"))
        foreign += high
        ascii_letters += sum(map(str.isalpha, piece.decode("ascii", "ignore")))
        undefined |= any(byte in piece for byte in b"\x81\x8d\x8f\x90\x9d")
    if whole > broken:
        raise UserError(f"{problem} (the rest of the file is UTF-8: it may be damaged or cut)")
    if foreign > _MOST_FOREIGN * (foreign + ascii_letters):
        raise UserError(problem)
    return "latin-1" if undefined else "cp1252"


def _pieces(path: Path) -> Iterator[bytes]:
    """Yields a file's bytes, and at its end an empty piece."""
    with readable(path) as file:
        while piece := file.read(_PIECE):
            yield piece
    yield b""
