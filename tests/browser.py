"""Pages in a real browser, from disk, and what is asked of them."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from bothways.report import write_walkthrough
from bothways.walkthrough import Walk, as_page
from bothways.walkthrough.tape import Tape


def launch() -> Iterator[Browser]:
    """Starts the browser of the system; without one the tests are skipped, or fail where BROWSER_TESTS=required."""
    chromium = shutil.which("chromium")
    if chromium is None:
        why = "needs a chromium on the path, and there is none"
        pytest.fail(why) if os.environ.get("BROWSER_TESTS") == "required" else pytest.skip(why)
    with sync_playwright() as playwright:
        quiet = ["background-networking", "component-update", "sync", "gpu"]
        arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page in the browser, and all that it said and asked for."""

    page: Page
    walk: Walk
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def card(self, name: str) -> Locator:
        return self.page.locator(f'[data-step="{name}"]')

    def point(self, name: str, row: int, column: int) -> None:
        """Points at a cell of a step's result."""
        self.card(name).locator(f'.made td[data-cell="{row},{column}"]').hover()

    def lit(self, name: str, which: int) -> list[str]:
        """The cells that are lit in one matrix of a step."""
        cells = self.card(name).locator(".matrix").nth(which).locator("td.lit")
        return [cell.get_attribute("data-cell") or "" for cell in cells.all()]

    def figure(self, name: str) -> float:
        return number(self.page.locator(f"#figure-{name} dd").first.inner_text())

    def set(self, **state: Any) -> None:
        self.page.evaluate("state => bothways.set(state)", state)

    def legend(self) -> list[str]:
        return [entry.inner_text() for entry in self.page.locator(".key li").all() if entry.is_visible()]

    def position(self, index: int) -> Locator:
        return self.page.locator(f'.picture [data-position="{index}"]')

    def values(self) -> dict[str, np.ndarray]:
        entries = "Object.entries(bothways.values).map(([name, x]) => [name, [x.shape, Array.from(x.data)]])"
        found = self.page.evaluate(f"() => Object.fromEntries({entries})")
        return {name: np.array(data, dtype=float).reshape(shape) for name, (shape, data) in found.items()}


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@dataclass
class Opener:
    """Writes pages and opens them."""

    browser: Browser
    folder: Path
    opened: list[Opened] = field(default_factory=list)

    def __call__(self, walk: Walk, changes: dict[str, Any] | None = None, **context: Any) -> Opened:
        """Opens a walk; `changes` of the page's keys, `context` of the browser's."""
        path = self.folder / f"{len(self.opened)}.html"
        write_walkthrough(path, as_page(walk) | (changes or {}))
        one = Opened(self.browser.new_context(**context).new_page(), walk)
        one.page.on("console", lambda message: one.said.append(message.text))
        one.page.on("pageerror", lambda problem: one.said.append(str(problem)))
        one.page.on("request", lambda request: one.asked.append(request.url))
        one.page.goto(path.as_uri())
        self.opened.append(one)
        return one


def assert_equal(found: dict[str, np.ndarray], tape: Tape) -> None:
    assert found.keys() == tape.arrays.keys()
    for name, expected in tape.arrays.items():
        assert found[name].shape == expected.shape, name
        largest = max(1.0, np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-12 * largest, err_msg=name)
