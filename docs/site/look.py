"""Look at the built site in a browser: every page on a desktop and a phone, light and dark; print what is wrong.

Needs playwright and a Chromium, which no extra installs:

    make docs && python docs/site/look.py [folder for pictures]

An error in the console, a request to another host, and a page that is wider than the screen are wrong.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).resolve().parents[2] / "site"
SCREENS = {"desktop": (1280, 1500, "light"), "dark": (1280, 1500, "dark"), "phone": (390, 844, "light")}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None: ...


@contextmanager
def served() -> Iterator[str]:
    """Serve the site, and yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def look(page: Page, address: str, path: str) -> list[str]:
    """Open a page and return what is wrong with it."""
    wrong: list[str] = []
    page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    page.goto(address + path, wait_until="load")
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        wrong.append("wider than the screen")
    return [text for text in wrong if not text.startswith(address)]


def main() -> int:
    pictures = Path(sys.argv[1]) if sys.argv[1:] else None
    paths = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("index.html"))
    found = 0
    with served() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, (width, height, scheme) in SCREENS.items():
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            for path in paths:
                page = context.new_page()
                for text in look(page, address, path):
                    found += 1
                    print(f"{path} ({name}): {text}")
                if pictures is not None:
                    page.screenshot(path=pictures / f"{path.replace('/', '-')}-{name}.png")
                page.close()
    print(f"{len(paths)} pages on {len(SCREENS)} screens: {found} things are wrong")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
