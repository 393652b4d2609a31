"""Channel names to the 10-05 system, what is no scalp EEG and why, and where each electrode lies."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float32, Float64

RENAMED = {"T3": "T7", "T4": "T8", "T5": "P7", "T6": "P8"}
"""Names of the old 10-20 system that the 10-10 system changed."""

_REFERENCES = re.compile(r"(A[12]|M[12]|A1A2|M1M2|EAR.*|LM|RM|CLE|LE|.*_EAR|[LR]AE|\$A[12]|TP9TP10)", re.IGNORECASE)
_REFERENCE_SUFFIX = re.compile(
    r"(REF\d?|LE|AR|AV|AVG|CAR|A[12]|M[12]|A1A2|M1M2|AA|LINKED|CE|VREF|G[12])", re.IGNORECASE
)
_NOT_EEG = {
    "electrocardiogram": r"ecg|ekg",
    "eye movement": r"[vhlr]?eog[lr]?|[vh]eo[lr]?|loc|roc|[lr][ul]e",
    "muscle": r"emg|chin|masseter|l?leg|r?leg",
    "trigger or status": r"status|trig|trigger|stimulus|stim|sti|events?|markers?|code|din",
    "photic stimulation": r"photic|pho|ph",
    "respiration": r"resp|flow|airflow|nasal|therm|thorax|thor|chest|abdomen|abdo|abd|snore|cpap|etco2|co2|cannula",
    "temperature": r"temp|temperature",
    "oxygen or pulse": r"sao2|spo2|osat|pulse|plet[a-z]*|pr|hr|bpm|heart",
    "skin conductance": r"gsr|eda|scl|scr",
    "movement or position": r"acc(?:el(?:erometer)?)?[xyz]?|gyro(?:scope)?[xyz]?|magn?[xyz]|q[wxyz]|mot|pos|position|"
    r"body|motion",
    "auxiliary input": r"dc|aux|misc|ana|analog|vns|ext|exg(?! channel)|light|mic|audio|sound|battery|counter|packet|"
    r"timestamp|sample(?:s|[ _]?(?:index|number|nr|no))?|index|ppg|ambient|optics|interpolated",
    "ground electrode": r"gnd|ground",
    "derived measure": r"ibi|bursts?|suppr|annotations?|delta|theta|alpha|beta|gamma|pow|cq|eq|rawcq|hsi|quality|"
    r"impedance|elements|head ?band ?on",
}
_NO_INPUT = [
    ("ground electrode", re.compile("E", re.IGNORECASE)),  # Nihon Kohden's; beside it `E1`, `E2` are eyes or a net
    ("unassigned input", re.compile(r"NA\d+", re.IGNORECASE)),  # Neuroscan's
]
"""Names that mean something only as a whole."""
_NETS = {
    "GSN-HydroCel-32": 33, "GSN-HydroCel-64_1.0": 64, "GSN-HydroCel-65_1.0": 65, "GSN-HydroCel-128": 128,
    "GSN-HydroCel-129": 129, "GSN-HydroCel-256": 256, "GSN-HydroCel-257": 257, "biosemi16": 16, "biosemi32": 32,
    "biosemi64": 64, "biosemi128": 128, "biosemi160": 160, "biosemi256": 256,
}  # fmt: skip
"""mne's templates of nets whose electrodes have numbers, and how many those are."""
_NET = re.compile(r"(?:EEG[ _.-]*)?([A-H]\d+)(?:-(?:REF|CZ|VREF))?", re.IGNORECASE)
_VERTEX = re.compile(r"Cz|VREF|Vertex Reference|REF", re.IGNORECASE)
_EYE = re.compile(r"\s*(?:(?:EEG|EOG|POL)[\s_:.-]*)?E(\d+)(?:\s*[-:/_ ]\s*(\w+))?[\s.]*", re.IGNORECASE)
_NOT_EEG_PATTERNS = [
    (reason, re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)) for reason, words in _NOT_EEG.items()
]


_UNSHOWN = ("Cc", "Zl", "Zp")


def shown(text: str) -> str:
    """A file's name, or a message with it, fit to print and store: no bytes that are not UTF-8, no control characters.

    Each of those is `�` instead.
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in _UNSHOWN else c for c in text)


@dataclass(frozen=True)
class Channel:
    """What a channel's label says.

    Attributes:
        name: the 10-05 name, `anode-cathode` for a bipolar pair, or the file's own where neither is known.
        anode: 10-05 name of the electrode; None = not known.
        cathode: 10-05 name of a bipolar pair's second electrode; None = an ordinary reference.
        left_out: why it is no scalp EEG; empty = it is.
    """

    name: str
    anode: str | None = None
    cathode: str | None = None
    left_out: str = ""


@lru_cache(maxsize=1)
def _template() -> tuple[dict[str, Float64[np.ndarray, "3"]], dict[str, str]]:
    """The 10-05 positions (head radius 1), and every accepted spelling -> canonical name."""
    from mne.channels import get_builtin_montages, make_standard_montage
    from mne.channels.montage import transform_to_head

    # mne 1.13 renamed the template; older ones know the first name only
    name = "colin27_1005" if "colin27_1005" in get_builtin_montages() else "standard_1005"
    in_head = transform_to_head(make_standard_montage(name)).get_positions()["ch_pos"]
    points = np.array(list(in_head.values()))
    centre, radius = fit_sphere(points)
    positions = {ch: (point - centre) / radius for ch, point in zip(in_head, points)}
    spellings = {ch.upper(): ch for ch in positions if not _REFERENCES.fullmatch(ch)}
    spellings |= RENAMED
    return positions, spellings


def fit_sphere(points: Float64[np.ndarray, "n 3"]) -> tuple[Float64[np.ndarray, "3"], float]:
    """Returns centre and radius of the sphere that fits best (linear least squares)."""
    design = np.c_[2 * points, np.ones(len(points))]
    solution = np.linalg.lstsq(design, (points**2).sum(1), rcond=None)[0]
    centre = solution[:3]
    return centre, float(np.sqrt(max(solution[3] + centre @ centre, 0.0)))


def scalp_name(text: str) -> str | None:
    """Returns the 10-05 name that `text` spells (any case, padding dots, T3 = T7), or None."""
    return _template()[1].get(text.strip(" .").upper())


def parse_label(label: str) -> Channel:
    """Reads one label as files have it: `EEG FP1-REF`, `Fc5.`, `T3`, `Fp1-F7`, `EKG1`, `A2-A1`.

    A second electrode that is an ear, mastoid or other common reference is taken for the reference; one on the
    scalp makes a bipolar pair. A name that nothing is known about is kept as it is.
    """
    own = shown(" ".join(label.split()))
    text = re.sub(r"^(EEG|POL|RAW)(?=[\s_:.-])[\s_:.-]*", "", own, flags=re.IGNORECASE).strip(" .")
    if re.match("EEG[a-z]", text, re.IGNORECASE) and scalp_name(_split(text[3:])[0]):
        text = text[3:]  # `EEGFp1`
    first, second = _split(text)
    anode = scalp_name(first)
    if anode is not None:
        cathode = scalp_name(second) if second else None
        if cathode == anode:
            cathode = None
        return Channel(f"{anode}-{cathode}" if cathode else anode, anode, cathode)
    if not any(character.isalnum() for character in text):
        return Channel(own, left_out="no name, not known to be scalp EEG")
    if _REFERENCES.fullmatch(first) or _REFERENCES.fullmatch(text):
        return Channel(own, left_out="reference electrode, not scalp EEG")
    for reason, pattern in _NO_INPUT:
        if pattern.fullmatch(first):
            return Channel(own, left_out=f"{reason}, not scalp EEG")
    for reason, pattern in _NOT_EEG_PATTERNS:
        if pattern.search(re.sub(r"[\d_]+", " ", text)) or pattern.search(text):
            return Channel(own, left_out=f"{reason}, not scalp EEG")
    return Channel(own)


def _split(text: str) -> tuple[str, str]:
    """Takes `Fp1-F7`, `C3:A2`, `Cz Ref`, `C4M1` apart into electrode and what follows."""
    first, *rest = re.split(r"\s*[-–:/_]\s*|\s+", text, maxsplit=1)
    if rest:
        # readers and people number channels of one name: `T8-P8-0`, `T8-P8_2`, `T8-P8 (2)`, `T8-P8#2` are `T8-P8`
        without = re.sub(r"\s*[-_.:# ]?\(?\d+\)?$", "", rest[0]) if scalp_name(rest[0]) is None else ""
        return first, without if scalp_name(first) and scalp_name(without) else rest[0]
    if scalp_name(first) is None:
        for cut in range(2, len(first) - 1):
            if _REFERENCE_SUFFIX.fullmatch(first[cut:]) and scalp_name(first[:cut]):
                return first[:cut], first[cut:]
    return first, ""


def parse_labels(labels: Sequence[str]) -> list[Channel]:
    """Reads all labels of one recording; see `parse_label`.

    A label is judged among its neighbours where it has two meanings: A1, A2, A3, … is a net's own numbering
    (BioSemi), in which A1 and A2 are no ears and O1 or P3 are no places of the 10-05 system's either. E1, E2, E3, …
    is one too (EGI), but E1 and E2 (of sleep) beside the names of the 10-20 system or against a reference are eyes.
    """
    channels = [parse_label(label) for label in labels]
    eyes = [_EYE.fullmatch(label) for label in labels]
    if {match[1] for match in eyes if match} <= {"1", "2", "3", "4"}:
        beside = any(channel.anode for channel in channels)
        channels = [
            Channel(channel.name, left_out="eye movement, not scalp EEG") if eye and (beside or eye[2]) else channel
            for eye, channel in zip(eyes, channels)
        ]
    numbered = {m[1] for label in labels if (m := re.fullmatch(r"\s*A(\d+)\s*", label))}
    if len(numbered) < 3:
        return channels
    return [
        Channel(channel.name) if re.fullmatch(r"\s*[A-H]\d+\s*", label) else channel
        for label, channel in zip(labels, channels)
    ]


def unique_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the names made unique (`T8-P8`, `T8-P8#2`, …) and those that stood more than once."""
    total, seen, unique = Counter(names), Counter[str](), []
    for name in names:
        seen[name] += 1
        new = name if seen[name] == 1 else f"{name}#{seen[name]}"
        while new != name and (new in total or new in unique):
            seen[name] += 1
            new = f"{name}#{seen[name]}"
        unique.append(new)
    return unique, [name for name, n in total.items() if n > 1]


def standard_positions(channels: Sequence[Channel]) -> Float32[np.ndarray, "C 2 3"]:
    """Returns anode and cathode on the template head (radius 1; x right, y front, z up); NaN = unknown or none."""
    known = _template()[0]
    positions = np.full((len(channels), 2, 3), np.nan, np.float32)
    for row, channel in zip(positions, channels):
        for place, name in enumerate((channel.anode, channel.cathode)):
            if name is not None:
                row[place] = known[name]
    return positions


def electrode_positions(channels: Sequence[Channel]) -> tuple[Float32[np.ndarray, "C 2 3"], str]:
    """Returns what `standard_positions` does and, where the channels are a whole net's by number, the net's places.

    Names such as E7 or B3 mean nothing by themselves: they are looked up only where names and count are those of
    exactly one net, which is named then ("" = none).
    """
    positions = standard_positions(channels)
    numbers = [match[1].upper() if (match := _NET.fullmatch(channel.name)) else "" for channel in channels]
    if len(channels) in (129, 257):  # counts that only EGI's nets have
        plain = [re.fullmatch(r"EEG[ _]?0*(\d+)", channel.name) for channel in channels]
        numbers = [f"E{match[1]}" if match else number for match, number in zip(plain, numbers)]
    names = [re.sub("^([A-Z])0+", r"\1", number) for number in numbers]
    vertex = [i for i, name in enumerate(names) if not name]
    top = max((int(name[1:]) for name in names if re.fullmatch(r"E\d+", name)), default=0)
    if len(vertex) == 1 and _VERTEX.fullmatch(channels[vertex[0]].name):
        names[vertex[0]] = "Cz"
    elif not vertex and top in (33, 65, 129, 257):  # the reference, at the vertex, counted with the others
        names[names.index(f"E{top}")] = "Cz"
    fits = [net for net in _NETS if len(names) == _NETS[net] and _net(net).keys() == set(names)]
    if len(fits) != 1:
        return positions, ""
    places = _net(fits[0])
    positions[:, 0] = [places[name] for name in names]
    return positions, fits[0]


@lru_cache(maxsize=16)
def _net(name: str) -> dict[str, Float64[np.ndarray, "3"]]:
    """A net's positions (head radius 1) under the names that its amplifier gives."""
    from mne.channels import make_standard_montage
    from mne.channels.montage import transform_to_head

    in_head = transform_to_head(make_standard_montage(name)).get_positions()["ch_pos"]
    points = np.array(list(in_head.values()))
    centre, radius = fit_sphere(points)
    names = list(in_head)
    if name.startswith("biosemi") and names[0] != "A1":  # the caps with 10-20 names are numbered in order
        names = [f"{'AB'[i // 32]}{i % 32 + 1}" for i in range(len(names))]
    return {own: (point - centre) / radius for own, point in zip(names, points)}


def trusted_positions(
    points: Float64[np.ndarray, "C 3"], channels: Sequence[Channel]
) -> Float32[np.ndarray, "C 2 3"] | None:
    """Returns measured electrode positions, scaled to head radius 1, where they can be trusted.

    They are trusted when at least eight lie on a sphere and those with a known name lie near where that name belongs;
    the flat positions of a screen drawing, or another frame's, fail this.

    Args:
        points: x right, y front, z up, in any unit and from any origin; NaN or zeros = none.
        channels: what is known of each.
    """
    there = np.isfinite(points).all(1) & (np.abs(points).sum(1) > 0)
    if there.sum() < 8 or any(channel.cathode for channel in channels):
        return None
    centre, radius = fit_sphere(points[there])
    if not radius > 0:
        return None
    scaled = (points - centre) / radius
    if np.abs(np.linalg.norm(scaled[there], axis=1) - 1).max() > 0.3:
        return None
    positions, _ = electrode_positions(channels)
    distance = np.linalg.norm(scaled - positions[:, 0], axis=1)[there & np.isfinite(positions[:, 0]).all(1)]
    if len(distance) < 4 or np.median(distance) > 0.35:
        return None
    positions[there, 0] = scaled[there]
    return positions
