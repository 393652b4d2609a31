"""Folders made to harm: each is refused in one line, in 5 s and 200 MB, and nothing of it is executed."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bothways.config import FinetuneConfig
from bothways.training import save_run
from models import FORMS
from texts import save_bert

MOST_S, MOST_MB = 5.0, 200.0
Harm = Callable[[Path], Any]
EEG_FILES = ("config.json", "model.safetensors", "manifest.json", "recipe.toml")
TEXT_FILES = ("config.json", "model.safetensors", "vocab.txt")

# Loads each folder in a process that has imported everything before, and says how long it took (time of the processor,
# which others may use, too), how far the peak of its memory rose above what it held, and what came of it.
LOADER = """
import json, signal, sys, time
from pathlib import Path
import bothways, bothways.run
from bothways.config import FinetuneConfig
from bothways.errors import UserError
from bothways.training import load_recipe

def kb(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))

def open_for_finetune(folder):
    # The run is looked at before the store, and there is none: an error that names the store means it was taken.
    bothways.run.finetune(folder, "/no store", "events", "/no store either")

def late(*_):
    raise TimeoutError("still loading")

signal.signal(signal.SIGALRM, late)
for folder, opener in json.load(sys.stdin):
    before = kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    start = time.process_time()
    signal.alarm(20)
    try:
        open_for_finetune(folder) if opener == "finetune" else bothways.load(folder)
        if "manifest.json" in folder or "recipe.toml" in folder:
            load_recipe(Path(folder), FinetuneConfig)
        told = ["loaded", ""]
    except BaseException as problem:
        told = [type(problem).__name__, str(problem)]
    signal.alarm(0)
    print(json.dumps([time.process_time() - start, (kb("VmHWM") - before) / 1024, *told]), flush=True)
"""


class Harmful:
    """What a pickle runs when it is opened."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.canary,)


def edit_json(name: str, change: Callable[[dict[str, Any]], Any]) -> Harm:
    def harm(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return harm


def nested(**values: Any) -> Harm:
    """Sets values of the config by `table__key`."""

    def change(config: dict[str, Any]) -> None:
        for name, value in values.items():
            *tables, key = name.split("__")
            table = config
            for one in tables:
                table = table[one]
            table[key] = value

    return edit_json("config.json", change)


def content(name: str, new: bytes) -> Harm:
    return lambda folder: (folder / name).write_bytes(new)


def instead(name: str, make: Callable[[Path], Any]) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return harm


def both(*harms: Harm) -> Harm:
    return lambda folder: [harm(folder) for harm in harms]


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 2**30)


def raw_header(text: bytes, numbers: int = 0) -> Harm:
    return content("model.safetensors", len(text).to_bytes(8, "little") + text + bytes(numbers))


def header(numbers: int = 0, **tensors: Any) -> Harm:
    return raw_header(json.dumps(tensors).encode(), numbers)


def pieces(**places: str) -> Harm:
    def harm(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "one.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return harm


def tensor(shape: list[int], start: int, stop: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [start, stop]}


def pickles(canary: Path) -> Iterator[tuple[str, bytes]]:
    for protocol in (0, 2, 4):
        yield f"pickle {protocol}", pickle.dumps(Harmful(canary), protocol)
    torch.save(Harmful(canary), canary.with_name("torch"))
    yield "torch", canary.with_name("torch").read_bytes()


NOT_FILES: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "10 GB": sparse,
}
BOMBS = {
    "deep": b"[" * 10**6,
    "deep enough": b'{"encoder":' * 900 + b"1" + b"}" * 900,
    "wide": b"[" + b"[]," * 10_000_000 + b"[]]",
    "small and wide": b'{"encoder": [' + b"[]," * 20_000 + b"[]]}",
    "words": b"[" + b'"ab",' * 5_000_000 + b'""]',
    "digits": b'{"encoder": ' + b"9" * 10**6 + b"}",
    "keys": b'{"encoder":{' + b",".join(b'"k%d":1' % i for i in range(6_000)) + b"}}",
    "nothing": b" " * 5 * 10**7,
}
HUGE = 10**9
EEG_LIES: dict[str, Harm] = {
    "hidden_size": nested(encoder__hidden_size=HUGE, encoder__num_attention_heads=1),
    "hidden_size that fits": nested(encoder__hidden_size=10**5),
    "beyond 64 bits": nested(encoder__hidden_size=2 * 10**30),
    "layers": nested(encoder__num_hidden_layers=10**6),
    "intermediate_size": nested(encoder__intermediate_size=HUGE),
    "max_patches": nested(patches__max_patches=HUGE),
    "patch_s": nested(patches__patch_s=1e6),
    "patch_s without end": nested(patches__patch_s=1e300, signal__sfreq_hz=1e300),
    "sfreq_hz": nested(signal__sfreq_hz=1e9),
    "spectrum": nested(signal__sfreq_hz=1e6, signal__band_hz=[1, 4e5], patches__spectrum_hz=[1, 4e5]),
    "channels": nested(patches__tokens="all_channels", patches__ch_names=[f"{i}" for i in range(10**4)]),
    "classes": nested(heads__sequence__classes=[f"{i}" for i in range(10**4)]),
    "features": nested(heads__reconstruction__features={"samples": HUGE}),
    "heads": nested(heads={f"{i}": {"kind": "span"} for i in range(5_000)}),
    "a head of text": nested(heads__sequence={"kind": "mlm"}),
    "a pooler": nested(pooler=True),
}
TEXT_LIES: dict[str, Harm] = {
    "hidden_size": nested(hidden_size=HUGE, num_attention_heads=1),
    "layers": nested(num_hidden_layers=10**6),
    "one tensor of many layers": both(
        nested(num_hidden_layers=10**6), header(4, **{"bert.encoder.layer.999999.x": tensor([1], 0, 4)})
    ),
    "a layer of many digits": header(4, **{f"bert.encoder.layer.{'9' * 5_000}.x": tensor([1], 0, 4)}),
    "tensorflow's names": header(4, **{f"bert/encoder/layer_{'9' * 5_000}/x/kernel": tensor([1], 0, 4)}),
    "tensorflow's names, long": header(4, **{"bert/" + "layer_1/_._" * 100_000 + "/kernel:0": tensor([1], 0, 4)}),
    "tensorflow's names, twice": header(8, **{"bert/x/bias": tensor([1], 0, 4), "y/bert/x/beta:0": tensor([1], 4, 8)}),
    "our table": nested(bothways={"heads": {"sequence": {"classes": ["LABEL_0", "LABEL_1"], "x" * 10**5: 1}}}),
    "no weights": both(nested(vocab_size=HUGE, hidden_size=HUGE, num_attention_heads=1), header()),
    "intermediate_size": nested(intermediate_size=HUGE),
    "vocab_size": nested(vocab_size=HUGE),
    "positions": nested(max_position_embeddings=HUGE),
    "segments": nested(type_vocab_size=HUGE),
    "id2label": nested(id2label={f"{i}": "x" for i in range(10**5)}),
}
HEADERS: dict[str, Harm] = {
    "absurd size": header(8, t=tensor([10**12, 10**12], 0, 8)),
    "absurd offsets": header(8, t=tensor([2], 0, 8 * 10**15)),
    "negative": header(8, t=tensor([-2], -8, 0)),
    "overlap": header(12, t=tensor([2], 0, 8), u=tensor([2], 4, 12)),
    "absurd length": content("model.safetensors", (2**63).to_bytes(8, "little") + b"{}"),
    "wide": raw_header(b"[" + b"[]," * 8_000_000 + b"1]"),
    "small and wide": raw_header(b"[" + b"[]," * 1_300_000 + b"1]"),
    "deep": raw_header(b"[" * 10**6),
}  # fmt: skip
INDEXES: dict[str, Harm] = {
    "up": pieces(a="../secret.safetensors"),
    "absolute": pieces(a="/etc/passwd"),
    "folder": pieces(a="."),
    "link": both(pieces(a="two.safetensors"), instead("two.safetensors", lambda path: path.symlink_to("/etc/passwd"))),
    **{kind: both(pieces(a="two.safetensors"), instead("two.safetensors", make)) for kind, make in NOT_FILES.items()},
}  # fmt: skip


def harms(canary: Path) -> dict[str, dict[str, Harm]]:
    """Every harm, by the model that it is done to."""
    eeg: dict[str, Harm] = {}
    bert: dict[str, Harm] = {}
    for found, files in ((eeg, EEG_FILES), (bert, TEXT_FILES)):
        for name in files:
            found |= {f"{name}: {kind}": content(name, harm) for kind, harm in pickles(canary)}
            found |= {f"{name}: {kind}": instead(name, make) for kind, make in NOT_FILES.items()}
    eeg |= {f"config.json: bomb, {kind}": content("config.json", bomb) for kind, bomb in BOMBS.items()}
    eeg |= {f"manifest.json: bomb, {kind}": content("manifest.json", bomb) for kind, bomb in BOMBS.items()}
    eeg |= {f"config: {kind}": harm for kind, harm in EEG_LIES.items()}
    eeg |= {f"header: {kind}": harm for kind, harm in HEADERS.items()}
    eeg["recipe.toml: deep"] = recipe(b"a = " + b"[" * 10**5)
    eeg["recipe.toml: keys"] = recipe(b"\n".join(b"k%d = 1" % i for i in range(6_000)))
    bert |= {f"config: {kind}": harm for kind, harm in TEXT_LIES.items()}
    bert |= {f"index: {kind}": harm for kind, harm in INDEXES.items()}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        bert |= {f"{name}: bomb, {kind}": content(name, bomb) for kind, bomb in BOMBS.items()}
        bert |= {f"{name}: {kind}": content(name, harm) for kind, harm in pickles(canary)}
    typed = {kind: bomb.replace(b'{"encoder"', b'{"model_type": "bert", "encoder"', 1) for kind, bomb in BOMBS.items()}
    bert |= {f"config.json: bomb, {kind}": content("config.json", bomb) for kind, bomb in typed.items()}
    return {"eeg": eeg, "bert": bert}


def recipe(text: bytes) -> Harm:
    def harm(folder: Path) -> None:
        (folder / "recipe.toml").write_bytes(text)
        edit_json("manifest.json", lambda m: m.update(recipe_sha256=hashlib.sha256(text).hexdigest()))(folder)

    return harm


@pytest.mark.slow
def test_hostile_folders(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of memory is read from /proc")
    (tmp_path / "eeg").mkdir()
    save_run(tmp_path / "eeg", FORMS["eeg_channels"].build(), FinetuneConfig(), {"kind": "finetune"})
    edit_json("manifest.json", lambda m: m.pop("config_sha256"))(tmp_path / "eeg")  # so that any config is looked at
    save_bert(tmp_path / "bert", transformers.BertForSequenceClassification)
    canary = tmp_path / "canary"
    pickle.loads(next(pickles(canary))[1])
    assert canary.exists()  # so it would be there if one were opened
    canary.unlink()

    folders = [(tmp_path / "eeg", "load"), (tmp_path / "bert", "load"), (tmp_path / "eeg", "finetune")]
    for model, found in harms(canary).items():
        for name, harm in found.items():
            folder = tmp_path / f"{model}, {name}"
            shutil.copytree(tmp_path / model, folder)
            harm(folder)
            folders.append((folder, "load"))
            if "recipe.toml" not in name:  # which no fine-tuning reads
                folders.append((folder, "finetune"))
    done = subprocess.run(
        [sys.executable, "-c", LOADER],
        input=json.dumps([(str(folder), opener) for folder, opener in folders]),
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(folders), done.stderr
    told = dict(zip((f"{folder.name}, {opener}" for folder, opener in folders), lines))
    assert [told.pop(f"{name}, load")[2] for name in ("eeg", "bert")] == ["loaded", "loaded"]
    assert told.pop("eeg, finetune")[3].startswith("/no store: expected a prepared store")
    wrong = {
        name: (round(seconds, 1), round(mb), kind, message[:300])
        for name, (seconds, mb, kind, message) in told.items()
        if kind != "UserError" or "\n" in message or seconds > MOST_S or mb > MOST_MB or message.startswith("/no store")
    }
    assert not wrong, "\n".join(f"{name}: {what}" for name, what in wrong.items())
    assert not canary.exists()
    print(
        f"{len(told)} folders, slowest {max(t[0] for t in lines):.2f} s, most memory {max(t[1] for t in lines):.0f} MB"
    )
