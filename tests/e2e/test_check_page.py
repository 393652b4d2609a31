"""`eeg check --html`: the page in a real browser, from disk, and what is refused before any work."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, sync_playwright

from bothways import cli, run
from people import CHANNELS, alpha_uv
from recordings import write_edf

Call = Callable[..., tuple[int, str, str]]
CHROMIUM = shutil.which("chromium")
BAD = "sub-1_<b>bad&.edf"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    write_edf(folder / "sub-0.edf", alpha_uv("open", 0), CHANNELS)
    bad = alpha_uv("open", 1)
    bad[1] = 7
    bad[2, 2000:4000] *= 100
    onsets = [*range(20), *range(60, 70)]
    write_edf(folder / BAD, bad, [*CHANNELS[:3], "<i>x"], plus="D", onsets_s=onsets, annotations=[(3, 1, "<u>go")])
    (folder / "sub-2.edf").write_bytes(b"no")
    return folder


@pytest.fixture(scope="module")
def made(data: Path) -> Path:
    html = data.parent / f"{data.name}-page" / "check.html"
    html.parent.mkdir()
    run.check([data], html=html)
    return html


def test_one_file_that_holds_everything(data: Path, made: Path) -> None:
    html = made.read_text(encoding="utf-8")
    assert [path.name for path in made.parent.iterdir()] == ["check.html"]
    assert not re.search(r"https?://|@import|url\(|<[^>]*\ssrc=|<b>bad|<i>x|<u>go", html)
    assert "3 recordings of 2 people: 1 fine, 1 with warnings, 1 unusable." in html
    again = made.with_name("again.html")
    run.check([data], html=again)
    assert again.read_bytes() == made.read_bytes()
    again.unlink()


def test_the_result_is_the_same_with_a_page(data: Path, tmp_path: Path) -> None:
    assert run.check([data], html=tmp_path / "x.html") == run.check([data])


def test_what_is_refused(bothways: Call, fails: Callable[..., str], data: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "check.html"
    missing = f"{page}: expected a file in a folder that exists, {page.parent} does not; make it first"
    assert missing in fails("eeg", "check", data, "--html", page)
    assert not page.parent.exists()
    page.parent.mkdir()
    code, out, _ = bothways("eeg", "check", data, "--html", page)
    assert (code, out.splitlines()[-1]) == (2, f"written: {page}")  # one recording is unusable
    before = page.read_bytes()
    said = fails("eeg", "check", data, "--html", page)
    assert said == f"{page}: already exists; choose another --html, or pass --overwrite to replace it"
    page.write_bytes(b"<!doctype html>older")
    assert bothways("eeg", "check", data, "--html", page, "--overwrite", "--json")[0] == 2
    assert page.read_bytes() == before
    recording = tmp_path / "sub-9.edf"
    shutil.copy(data / "sub-0.edf", recording)
    assert "not a page" in fails("eeg", "check", data, "--html", recording, "--overwrite")


def test_json_holds_no_pictures(bothways: Call, data: Path, tmp_path: Path) -> None:
    _, out, _ = bothways("eeg", "check", data, "--html", tmp_path / "x.html", "--json")
    report = json.loads(out)
    assert all("drawing" not in recording for recording in report["recordings"])
    assert {one["name"]: (one["recordings"], one["bad"]) for one in report["electrodes"]} == {
        "Fp1": (2, 0), "Cz": (2, 1), "O1": (2, 0), "O2": (1, 0), "<i>x": (1, 0),
    }  # fmt: skip


@pytest.mark.parametrize("width", [60, 200])
def test_the_table_fits_the_terminal(bothways: Call, monkeypatch: pytest.MonkeyPatch, data: Path, width: int) -> None:
    monkeypatch.setattr(cli.out, "width", width)
    _, out, _ = bothways("eeg", "check", data)
    lines = out.splitlines()
    if width == 60:
        at = lines.index(f"{BAD}: warning")
        assert max(map(len, lines[at + 1 : at + 4])) <= width
        assert "1 gaps, 1 events" in " ".join(line.strip() for line in lines[at + 1 : at + 4])
    else:
        titles = "file status subject format channels left out Hz s gaps events uV problems"
        assert " ".join(lines[0].split()) == titles
        (row,) = (line for line in lines if line.startswith(BAD))
        assert row.split()[1:9] == ["warning", "1", "EDF+D", "4", "(1", "bad)", "200", "30"]


# --- in the browser ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_page(made: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page; nothing is fetched and nothing goes wrong, whatever a test does there."""
    if CHROMIUM is None:
        pytest.skip("needs a chromium on the path, and there is none")
    said: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        quiet = ["background-networking", "component-update", "sync", "gpu"]
        arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)

        def opened(width: int = 1440, scheme: str = "light") -> Page:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda problem: said.append(str(problem)))
            page.on("request", lambda request: asked.append(request.url))
            page.goto(made.as_uri())
            return page

        yield opened
        browser.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []


def ink(page: Page, place: int) -> np.ndarray:
    """Which pixels of a thumbnail are drawn, [height width], and their colours."""
    page.locator(f'canvas[data-recording="{place}"]').scroll_into_view_if_needed()
    page.wait_for_selector(f'canvas[data-recording="{place}"][data-drawn]')
    width, height, pixels = page.evaluate(
        'place => { const c = document.querySelector(`canvas[data-recording="${place}"]`);'
        "return [c.width, c.height, Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)]; }",
        place,
    )
    return np.array(pixels).reshape(height, width, 4)


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_draws(open_page: Callable[..., Page], width: int, scheme: str) -> None:
    page = open_page(width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".card").count() == 3
    assert page.locator("canvas").count() == 2  # the third could not be read
    good, bad = ink(page, 0), ink(page, 1)
    rows, columns = good[..., 3].shape
    drawn = good[..., 3] > 120
    assert drawn.any(0).mean() > 0.99
    bright = good[..., :3][drawn].mean()
    assert bright < 60 if scheme == "light" else bright > 190
    # the bad channel is orange throughout, the bad stretch purple, and the gap is one block of a single shade
    orange = bad[round(1.5 * rows / 4), columns // 2]
    assert orange[0] > orange[2] + 60
    purple = bad[round(2.5 * rows / 4), round(columns * 0.5)]
    assert purple[0] > purple[1] + 20 < purple[2]
    gap = bad[:, round(columns * 2 / 3 + columns / 240)]
    assert (gap == gap[0]).all()
    assert 0 < gap[0, 3] < 120
    page.close()


def test_recordings_are_found_by_state_and_by_text(open_page: Callable[..., Page]) -> None:
    page = open_page()
    page.locator(".filter input").first.focus()
    page.keyboard.press("ArrowRight")  # from all to ok
    assert page.locator(".card:visible h3").all_inner_texts() == ["sub-0.edf"]
    assert page.locator(".filter output").inner_text() == "1 of 3 shown"
    page.keyboard.press("ArrowLeft")
    page.locator(".filter [type=search]").fill("FLAT")
    assert page.locator(".card:visible h3").all_inner_texts() == [BAD]
    page.close()


def test_problems_open_by_keyboard(open_page: Callable[..., Page]) -> None:
    page = open_page()
    first = page.locator(".found summary").first
    assert first.inner_text().split() == ["Unusable", "1", "recording"]
    first.focus()
    page.keyboard.press("Enter")
    assert "not an EDF or BDF file" in page.locator(".found dd").first.inner_text()
    titles = page.locator(".found .what").all_inner_texts()
    assert titles == ["Unusable", "Gaps", "Unknown names", "Bad channels", "Bad stretches"]
    page.close()


def test_electrodes_and_amplitudes_are_told_in_words(open_page: Callable[..., Page]) -> None:
    page = open_page()
    assert page.locator(".head").get_attribute("aria-label") == (
        "Electrodes on the head seen from above: 4 electrodes with a place, 1 without; 1 are bad in some recording"
    )
    assert page.locator(".head text").all_text_contents() == ["Fp1", "Cz", "O1", "O2"]
    assert page.locator(".head .bad-ring").count() == 1
    assert "0 outside 0.1 to 500 µV" in (page.locator(".histogram").get_attribute("aria-label") or "")
    page.close()
