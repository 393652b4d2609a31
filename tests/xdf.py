"""A small XDF, written chunk by chunk as its specification has it."""

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FORMATS = {"float32": "<f4", "double64": "<f8", "int16": "<i2", "int32": "<i4"}


@dataclass
class Stream:
    """One stream: `values` are [T C], or for strings a list of lists.

    `channels` holds (label, type, unit) of each, None = the header does not describe them; `offsets` (time, value) of
    the clock; `stamped` says which samples carry their time, the others follow on at the nominal rate.
    """

    values: object
    stamps_s: object
    name: str = "amp"
    kind: str = "EEG"
    form: str = "float32"
    rate_hz: float = 250.0
    channels: Sequence[tuple[str, str, str]] | None = None
    offsets: Sequence[tuple[float, float]] = ()
    stamped: Sequence[bool] | None = None
    locations: Sequence[Sequence[float]] | None = None
    chunk: int = 100


def write_xdf(path: Path, streams: Sequence[Stream], when: str = "2024-05-06T07:08:09+0200", cut: int = 0) -> Path:
    """Writes the streams one after the other; the last `cut` bytes are lost."""
    parts = [b"XDF:", _chunk(1, None, f"<info><version>1.0</version><datetime>{when}</datetime></info>".encode())]
    parts += [_chunk(2, number, _header(stream)) for number, stream in enumerate(streams, 1)]
    for number, stream in enumerate(streams, 1):
        for time_s, value in stream.offsets:
            parts.append(_chunk(4, number, struct.pack("<dd", time_s, value)))
        n = len(stream.stamps_s)
        for start in range(0, n, stream.chunk):
            rows = [_sample(stream, i) for i in range(start, min(start + stream.chunk, n))]
            parts.append(_chunk(3, number, b"\x04" + struct.pack("<I", len(rows)) + b"".join(rows)))
    content = b"".join(parts)
    content = content[: len(content) - cut]
    path.write_bytes(gzip.compress(content) if path.suffix == ".xdfz" else content)
    return path


def bodies(content: bytes) -> list[bytes]:
    """What the chunks of a file hold, each from its tag on."""
    found, at = [], 4
    while at < len(content):
        begins = at + 1 + content[at]
        at = begins + int.from_bytes(content[at + 1 : begins], "little")
        found.append(content[begins:at])
    return found


def joined(chunks: Sequence[bytes]) -> bytes:
    """The file that has these chunks."""
    return b"XDF:" + b"".join(b"\x04" + struct.pack("<I", len(body)) + body for body in chunks)


BOUNDARY = b"\x05\x00" + bytes.fromhex("43a546dccbf5410fb30ed5467383cbe4")
"""What a recorder writes now and then, to find the next chunk by behind damage."""


def _chunk(tag: int, stream: int | None, content: bytes) -> bytes:
    body = struct.pack("<H", tag) + (b"" if stream is None else struct.pack("<I", stream)) + content
    return (b"\x01" + bytes([len(body)]) if len(body) < 256 else b"\x04" + struct.pack("<I", len(body))) + body


def _header(stream: Stream) -> bytes:
    n = len(stream.values[0]) if len(stream.values) else len(stream.channels or ("",))
    described = ""
    for i, (label, kind, unit) in enumerate(stream.channels or ()):
        place = ""
        if stream.locations is not None:
            place = "".join(f"<{axis}>{mm}</{axis}>" for axis, mm in zip("XYZ", stream.locations[i]))
            place = f"<location>{place}</location>"
        described += f"<channel><label>{label}</label><type>{kind}</type><unit>{unit}</unit>{place}</channel>"
    return (
        f"<?xml version='1.0'?><info><name>{stream.name}</name><type>{stream.kind}</type>"
        f"<channel_count>{n}</channel_count><nominal_srate>{stream.rate_hz}</nominal_srate>"
        f"<channel_format>{stream.form}</channel_format>"
        f"<desc>{f'<channels>{described}</channels>' if described else ''}</desc></info>"
    ).encode()


def _sample(stream: Stream, i: int) -> bytes:
    stamped = stream.stamped is None or stream.stamped[i]
    head = b"\x08" + struct.pack("<d", stream.stamps_s[i]) if stamped else b"\x00"
    if stream.form == "string":
        texts = [text.encode() for text in stream.values[i]]
        return head + b"".join(b"\x04" + struct.pack("<I", len(text)) + text for text in texts)
    return head + np.asarray(stream.values[i]).astype(FORMATS[stream.form]).tobytes()
