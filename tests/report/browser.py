"""A real browser without a window: opens a page from disk, and writes down all that it says and asks for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LONG = 90_000  # milliseconds that anything may take on a busy machine
DRAWN = ".mark"


class Visit:
    """One page that was opened: the page, what it logged, what it asked for, what it popped up."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.logged: list[str] = []
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        page.on("console", lambda message: self.logged.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.logged.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", self._dialog)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    @property
    def outside(self) -> list[str]:
        """Requests for anything but the file itself and what it made itself."""
        return [url for url in self.asked[1:] if not url.startswith(("data:", "blob:"))]

    def marks(self) -> dict[str, int]:
        """How many marks each chart shows."""
        count = "(all, drawn) => all.map((one) => [one.dataset.draw, one.querySelectorAll(drawn).length])"
        return dict(self.page.eval_on_selector_all("[data-draw]", count, DRAWN))

    def colours(self) -> tuple[str, str]:
        """Of the paper, and of the words in a chart."""
        paper = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        ink = self.page.evaluate("getComputedStyle(document.querySelector('.plot text.tick')).fill")
        return paper, ink

    def until(self, expression: str) -> None:
        """Wait until something is true in the page, which by its policy may not ask itself."""
        for _ in range(LONG // 100):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"never true: {expression}")

    def download(self, selector: str) -> bytes:
        """What a button saves."""
        with self.page.expect_download(timeout=LONG) as saved:
            self.page.click(selector)
        return Path(saved.value.path()).read_bytes()


@contextmanager
def running() -> Iterator[Any]:
    """A browser; the test is skipped where there is none."""
    driver = pytest.importorskip("playwright.sync_api", reason="the browser driver is not installed")
    place = next(filter(None, map(shutil.which, NAMES)), None)
    if place is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=list(FLAGS), timeout=LONG)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(browser: Any, path: Path, **looks: Any) -> Iterator[Visit]:
    """Open a page from disk in a fresh profile; `looks` are width, theme and so on."""
    context = browser.new_context(accept_downloads=True, **looks)
    try:
        found = Visit(context.new_page())
        found.page.set_default_timeout(LONG)
        found.page.goto(path.as_uri())
        if looks.get("java_script_enabled", True):
            found.page.wait_for_selector("html[data-ready]", state="attached")
        yield found
    finally:
        context.close()
