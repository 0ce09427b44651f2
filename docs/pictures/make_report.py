"""Make docs/pictures/report-light.png and report-dark.png: the upper part of the page about a run.

Needs a run of the demo, playwright and a Chromium:

    make demo && pip install playwright
    python docs/pictures/make_report.py runs/digits-1
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from train_manager import write_report

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1100, 900


def main() -> None:
    run = Path(sys.argv[1]) if sys.argv[1:] else Path("runs/digits-1")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page = write_report(run, Path(folder, "report.html"))
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            shown = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
            shown.goto(page.absolute().as_uri())
            shown.wait_for_timeout(500)  # the plots are drawn as they come into view
            shown.screenshot(path=HERE / f"report-{scheme}.png")
        browser.close()


if __name__ == "__main__":
    main()
