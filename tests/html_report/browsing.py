"""Pages opened in a real headless browser, where there is one."""

import base64
import gzip
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine")
PATIENCE_MS = 120_000  # of a busy machine
# a figure's WebGL, drawn without a GPU
HARMLESS = re.compile(r"GPU stall due to ReadPixels")


class Visit:
    """A page that is open, and what it has complained of and asked for."""

    def __init__(self, page: Page, path: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(f"file://{path}")

    def _heard(self, message: Any) -> None:
        if not HARMLESS.search(message.text):
            self.complaints.append(message.text)

    def drawn(self) -> set[str]:
        """The figures that are drawn once all of the page has been in view."""
        for figure in self.page.locator("[data-figure]:visible").all():
            figure.scroll_into_view_if_needed()
            self.page.wait_for_function("e => e.classList.contains('js-plotly-plot')", arg=figure.element_handle())
        return set(self.page.evaluate("[...document.querySelectorAll('.js-plotly-plot')].map(e => e.id)"))

    def choose(self, trial: str) -> None:
        """Open a trial from its row."""
        self.page.locator(f"tr[data-trial='{trial}'] a").click()
        self.page.wait_for_selector("#trial-panel:not([hidden])")

    def column(self, index: int) -> list[str]:
        rows = "[...document.querySelectorAll('#all-trials tbody tr:not([hidden])')]"
        return list(self.page.evaluate(f"{rows}.map(row => row.cells[{index}].textContent)"))


@contextmanager
def browsers() -> Iterator[Any]:
    """A Chromium for the tests of a folder."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=options)


def opened(browser: Any, path: str, *, width: int = 1400, scripts: bool = True, scheme: Any = "light") -> Visit:
    """The page in a window of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, java_script_enabled=scripts, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE_MS)
    return Visit(context.new_page(), path)


def unpacked(source: str) -> str:
    """What a page packed, as its script unpacks it."""
    return gzip.decompress(base64.b85decode(source.replace(",", "<"))).decode()
