"""`bothways walkthrough`: the references, trained models on one's own input, and what it answers to mistakes."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from bothways import run, text, walkthrough
from bothways.errors import UserError
from bothways.walkthrough import tape
from figures import numbers_of
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv
from recordings import write_edf
from texts import save_bert

Call = Callable[..., tuple[int, str, str]]
GOLDEN = Path(__file__).resolve().parent.parent / "golden"


@pytest.mark.parametrize("kind", ["eeg", "text", "classifier"])
@pytest.mark.parametrize("width", [80, 120])
def test_the_references(bothways: Call, kind: str, width: int) -> None:
    code, out, err = bothways("walkthrough", kind, "--width", width)
    assert (code, err) == (0, "")
    assert "\x1b" not in out  # a pipe gets no colours
    assert max(map(len, out.splitlines())) <= width
    assert "MATCH: True" in out
    assert "MATCH: False" not in out


def test_the_arrays_carry_the_names_of_the_golden_file(bothways: Call, tmp_path: Path) -> None:
    file = tmp_path / "new folder" / "arrays.json"
    code, out, _ = bothways("walkthrough", "eeg", "--json", file)
    assert code == 0
    assert out.splitlines()[-1] == f"written: {file}"
    written, golden = json.loads(file.read_text()), json.loads((GOLDEN / "eeg_walkthrough.json").read_text())
    assert written.keys() == golden.keys()
    for name, expected in golden.items():
        np.testing.assert_allclose(written[name], expected, rtol=0, atol=1e-13, err_msg=name)
    assert written["masked_positions"] == [4, 8]
    assert written["relu_zeroed"] == 61


def test_a_pretrained_run_on_a_new_recording(bothways: Call, chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    arrays, page = tmp_path / "arrays.json", tmp_path / "page.html"
    code, out, err = bothways(
        "walkthrough", "eeg", "--model", chain.pretrained, "--input", file, "--at", 3, "--json", arrays, "--html", page,
        "--layer", 1, "--head", 1, "--row", 5,
    )  # fmt: skip
    assert code == 0, err
    assert "new.edf, 3 s" in out
    assert re.search(r"All \d+ tensors are equal within 1e-09", out)
    assert "row 5 in full" not in out.split("Encoder, layer 0")[1].split("Encoder, layer 1")[0]
    shown = out.split("Encoder, layer 1")[1].split("After the encoder")[0]
    pre = shown.split(".feed_forward.pre_activation\n")[1].split("post_activation")[0]
    values = json.loads(arrays.read_text())
    row = values["encoder.layers.1.feed_forward.pre_activation"][5]
    full = pre.split("row 5 in full = ")[-1].split("]")[0]
    assert [float(number) for number in numbers_of(full)] == [round(number, 3) for number in row]
    assert "by hand: pre_activation[5,0] is row 5 of Z1 times column 0" in pre
    assert "scaled_scores[1]" in shown
    assert "scaled_scores[0]" not in shown
    assert np.shape(values["encoder.layers.1.attention.attention"])[0] == 2
    assert "heads.reconstruction.loss" in values
    assert values["positions"][:3] == ["[CLS]", "Fp1 p0", "Fp1 p1"]
    hidden = [values["positions"][place] for place in values["masked_positions"]]
    assert f"{len(hidden)} hidden: {hidden[0]}" in out
    assert not any("W_" in name or name.endswith("weight") for name in values)  # the weights lie in the run
    assert page.stat().st_size > 50_000


def test_other_positions_and_seeds_hide_other_patches(chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)

    def hidden(**options: object) -> str:
        result = run.walkthrough("eeg", model=chain.pretrained, input=file, **options)
        assert result["first_difference"] is None
        assert result["checks"]["failed"] == []
        (line,) = (line for line in result["text"].splitlines() if re.match(r"\d+ hidden: ", line))
        return line

    assert hidden(seed=1) == hidden(seed=1) != hidden(seed=2)
    assert hidden(mask=[1, 4]) == hidden(mask=["Fp1 p0", "4"])
    assert hidden(mask=[1, 4]).startswith("2 hidden: Fp1 p0, ")


def test_other_contents_than_mask_are_said(chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    out = tmp_path / "run"
    run.pretrain(
        chain.store, out,
        changes=[*TINY, *WINDOWS, "training.steps=1", "masking.mask=0.4", "masking.random=0.4", "masking.ratio=0.9"],
    )  # fmt: skip
    result = run.walkthrough("eeg", model=out, input=file, json_file=tmp_path / "a.json")
    assert result["first_difference"] is None
    assert "[MASK], one learned vector, stands in for most hidden patches" in result["text"]
    assert re.search(
        r"\d+ of them are not \[MASK\] but hold something else: Fp1 p\d \((its own|another's)", result["text"]
    )


def test_nothing_hidden_is_said_not_scored(bothways: Call, tmp_path: Path) -> None:
    for kind in (transformers.BertForMaskedLM, transformers.BertForPreTraining):
        folder = tmp_path / kind.__name__
        save_bert(folder, kind)
        code, out, err = bothways("walkthrough", "text", "--model", folder, "--input", "the cat sat")
        assert code == 0, err
        assert "No word is predicted" in out
        assert "Nothing is hidden, so there is no loss." in out
        assert "loss = 0" not in out


def test_a_finetuned_run(chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("open", 99), CHANNELS)
    result = run.walkthrough("eeg", model=chain.finetuned, input=file)
    assert result["first_difference"] is None
    assert "heads.sequence" in result["differences"]
    assert "0 hidden" in result["text"]


def test_a_transformers_bert(bothways: Call, tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    save_bert(folder, transformers.BertForPreTraining)
    page = tmp_path / "page.html"
    code, out, err = bothways(
        "walkthrough", "text", "--model", folder, "--input", "the cat [MASK] on the mat", "--pair", "the cat sat",
        "--html", page,
    )  # fmt: skip
    assert code == 0, err
    assert "what it may be" in out
    assert re.search(r"All \d+ tensors are equal", out)
    assert page.is_file()
    result = run.walkthrough("text", model=folder, input="the cat sat on the mat", mask=[3])
    loaded = text.load_folder(folder)
    found = loaded.tokenizer.encode("the cat [MASK] on the mat")
    batch = {"input_ids": torch.tensor([found.ids]), "mlm_labels": torch.tensor([[-100, -100, -100, 5, *[-100] * 4]])}
    seen = loaded.model(batch | {"nsp_labels": torch.tensor([0])})
    words = seen.predictions["mlm"][0].softmax(0).topk(5)
    said = ", ".join(f"{loaded.tokenizer.token(i)} {p:.3f}" for p, i in zip(words.values, words.indices.tolist()))
    assert said in result["text"]
    assert f"P(is next) = {seen.predictions['nsp'][0].softmax(0)[0]:.4f}" in result["text"]
    assert {"heads.mlm", "heads.mlm.loss", "heads.nsp", "pooler"} <= result["differences"].keys()


def test_a_wrong_step_ends_with_1_and_the_first_name(
    bothways: Call, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    right = tape.OPERATIONS["divide"]
    monkeypatch.setitem(tape.OPERATIONS, "divide", lambda a, b=None, by=1.0: right(a, b, by * (1 + 1e-7)))
    code, _, err = bothways("walkthrough", "eeg", "--model", chain.finetuned, "--input", file)
    assert code == 1
    assert err.splitlines()[-1] == "NumPy and the model differ, first in encoder.layers.0.attention.scaled_scores"
    code, out, err = bothways("walkthrough", "eeg")
    assert code == 1
    assert "MATCH: False" in out
    assert "hand computations differ" in err


def test_a_model_too_large_for_a_page_shows_one_layer(
    chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    monkeypatch.setattr(sys.modules["bothways.run.walkthrough"], "MOST_ON_A_PAGE", 9_000)
    result = run.walkthrough("eeg", model=chain.finetuned, input=file, html=tmp_path / "page.html", layer=1)
    assert "the page shows layer 1 alone" in result["notes"][-1]
    monkeypatch.setattr(sys.modules["bothways.run.walkthrough"], "MOST_ON_A_PAGE", 100)
    with pytest.raises(UserError, match="too large for a page"):
        run.walkthrough("eeg", model=chain.finetuned, input=file, html=tmp_path / "page2.html")
    assert not (tmp_path / "page2.html").exists()


def test_mistakes(fails: Callable[..., str], chain: Chain, tmp_path: Path) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    here = ("walkthrough", "eeg", "--model", chain.pretrained, "--input", file)
    assert "expected one of eeg, text, classifier" in fails("walkthrough", "egg")
    assert "--layer: expected --model" in fails("walkthrough", "eeg", "--layer", 0)
    assert "expected --input" in fails("walkthrough", "eeg", "--model", chain.pretrained)
    assert "has its own model" in fails("walkthrough", "classifier", "--model", chain.pretrained, "--input", "x")
    assert "--layer 9: expected 0 to 1" in fails(*here, "--layer", 9)
    assert "--row 999" in fails(*here, "--row", 999)
    assert "--head 7" in fails(*here, "--head", 7)
    assert "--at 1e+06 gives none" in fails(*here, "--at", 1e6)
    assert "--mask 0: expected a position with content" in fails(*here, "--mask", 0)
    assert "--mask x: expected a position with content" in fails(*here, "--mask", "x")
    assert "--mask: expected positions such as" in fails(*here, "--mask", "")
    assert "--at nan: expected seconds" in fails(*here, "--at", "nan")
    assert "--at inf: expected seconds" in fails(*here, "--at", "inf")
    assert "leave one out" in fails(*here, "--seed", 1, "--mask", 1)
    assert "--subject-from: expected --model" in fails("walkthrough", "eeg", "--subject-from", "parent")
    same = tmp_path / "same"
    assert "both would write" in fails("walkthrough", "eeg", "--json", same, "--html", same)
    assert "this is a folder" in fails("walkthrough", "eeg", "--html", tmp_path)
    short = write_edf(tmp_path / "short.edf", alpha_uv("closed", 9)[:, :400], CHANNELS)
    assert "trained on windows of" in fails("walkthrough", "eeg", "--model", chain.pretrained, "--input", short)
    finetuned = ("walkthrough", "eeg", "--model", chain.finetuned, "--input", file)
    assert "hides nothing" in fails(*finetuned, "--seed", 1)
    assert "the model uses no baseline" in fails(*finetuned, "--baseline", chain.baseline)
    assert "expected a text model" in fails("walkthrough", "text", "--model", chain.pretrained, "--input", "a")
    existing = tmp_path / "there.json"
    existing.write_text("mine")
    assert "there.json" in fails("walkthrough", "eeg", "--json", existing)
    assert existing.read_text() == "mine"
    assert "expected a run" in fails("walkthrough", "eeg", "--model", tmp_path / "no run", "--input", file)


def test_a_baseline_and_other_mains_and_units(chain: Chain, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "run"
    run.prepare([chain.data], store, baseline=chain.baseline)
    changes = [*TINY, *WINDOWS, "training.steps=1", "patches.baseline=true", "patches.features=['samples','spectrum']"]
    run.pretrain(store, out, changes=changes)
    named = chain.baseline.read_text().splitlines()[1].split(",")[0]
    (file,) = chain.data.rglob(Path(named).name)
    with pytest.raises(UserError, match="subtracts each person's baseline"):
        run.walkthrough("eeg", model=out, input=file)
    first = run.walkthrough("eeg", model=out, input=file, baseline=chain.baseline, json_file=tmp_path / "1.json")
    assert first["first_difference"] is None
    assert "log_spectrum_change = log_spectrum - baseline" in first["text"]

    def spectrum(**options: object) -> np.ndarray:
        target = tmp_path / f"{len(options)}{[*options]}.json"
        run.walkthrough("eeg", model=out, input=file, baseline=chain.baseline, json_file=target, **options)
        return np.array(json.loads(target.read_text())["embedding.log_spectrum"])

    assert not np.array_equal(spectrum(), spectrum(notch_hz=60.0))
    with pytest.raises(UserError, match=r"0\.0\d+ uV is not that of scalp EEG"):
        spectrum(unit="nV")


@pytest.mark.parametrize("width", [80, 100])
def test_a_model_keeps_to_the_width(chain: Chain, tmp_path: Path, width: int) -> None:
    file = write_edf(tmp_path / "new.edf", alpha_uv("closed", 99), CHANNELS)
    shown = run.walkthrough("eeg", model=chain.pretrained, input=file, width=width, row=3)["text"]
    assert max(map(len, shown.splitlines())) <= width
    save_bert(tmp_path / "bert", transformers.BertForPreTraining, max_position_embeddings=60)
    shown = run.walkthrough("text", model=tmp_path / "bert", input="the cat [MASK] on the mat " * 7, width=width)[
        "text"
    ]
    assert max(map(len, shown.splitlines())) <= width
    assert "of 36 shown" in shown or "of 44 shown" in shown  # abbreviated, and said


def test_the_walkthrough_needs_numpy_alone() -> None:
    code = (
        "import sys; from bothways import walkthrough as w; w.walk_eeg(w.Paper()); w.walk_text(w.Paper());"
        "print(sorted({'torch', 'mne', 'scipy', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert walkthrough.TOLERANCE == 1e-9


@pytest.mark.parametrize(("columns", "environment"), [(80, {}), (120, {}), (100, {"NO_COLOR": "1"})])
def test_a_terminal_gets_colours_and_its_own_width(columns: int, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-m", "bothways", "walkthrough", "text"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=kept | {"TERM": "xterm-256color"} | environment,
    )  # fmt: skip
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    assert process.wait() == 0
    shown = output.decode()
    assert ("\x1b[" in shown) == (not environment)
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    longest = max(map(len, plain.splitlines()))
    assert columns - 30 < longest <= columns
