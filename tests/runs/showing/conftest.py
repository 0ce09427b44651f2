from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


def settle(page: Page) -> None:
    """Wait until what is seen is drawn: its observers are called after a frame."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))))")


@pytest.fixture(scope="module")  # not for longer: it keeps an event loop running in this thread
def browser() -> Iterator[Any]:
    """A Chromium that the machine has."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page in the browser; at the end, nothing was asked of any host, and nothing was said in the console."""
    said: list[str] = []
    pages = []

    def open_(text: str, width: int = 1280, scheme: str = "light", settles: bool = True) -> Page:
        file = tmp_path / "opened.html"
        file.write_text(text)
        page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        page.goto(file.as_uri())
        if settles:
            settle(page)
        pages.append(page)
        return page

    yield open_
    for page in pages:
        page.close()
    assert said == []
