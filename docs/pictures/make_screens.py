"""Make the pictures of what is on a screen, each light and dark: a terminal, a notebook, a report and a comparison.

All of them show trainings that this script runs, for a minute. It needs a Chromium and an extra:

    pip install -e ".[pictures]"
    python docs/pictures/make_screens.py                       all
    python docs/pictures/make_screens.py terminal notebook     some
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from torch import nn
from torch.utils.data import TensorDataset

from train_manager import SeededDataLoader, TrainManager
from train_manager.demo import accuracy, convolution, digits
from train_manager.extensions import Metrics, default_extensions
from train_manager.tools import write_report

HERE = Path(__file__).parent
WIDTH, SCALE = 1000, 1.5  # of a page in points, and the pixels of each
COLUMNS, LINES = 84, 30  # of the terminal
COLORS = {"light": ("#ffffff", "#1b1f24", "#d8dee4"), "dark": ("#14181d", "#e6edf3", "#343c45")}
CELLS = f"""\
import sys; sys.path.insert(0, {str(HERE)!r})
from make_screens import training
tm = training(lr=3e-3, epochs=8)
###
from train_manager.extensions import Live

tm.add_extension(Live())
tm.train()
"""


def main() -> None:
    """Make those that are named, or all."""
    pictures: dict[str, Callable[[], Iterator[tuple[str, Any]]]]
    pictures = {"terminal": terminal, "notebook": notebook, "report": report, "comparison": comparison}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in sys.argv[1:] or pictures:
            for scheme, page in pictures[name]():
                photograph(browser, page, name, scheme)
        browser.close()


def training(lr: float, epochs: int, folder: Path | None = None) -> TrainManager:
    """Return the training of the demo, with another learning rate."""
    torch.manual_seed(0)
    images, held_out_images, labels, held_out_labels = digits()
    layers = [convolution(1, 32), convolution(32, 64), convolution(64, 128)]
    return TrainManager(
        model=nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(128, 10)),
        loss=nn.functional.cross_entropy,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=lr),
        epochs=epochs,
        train_data=SeededDataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, seed=0),
        eval_data={"held out": [(held_out_images, held_out_labels)]},
        extensions=[default_extensions(files=folder is not None), Metrics(accuracy)],
        train_dir=folder,
    )


# ---- the pages that are photographed ------------------------------------------------------------------------------


def terminal() -> Iterator[tuple[str, str]]:
    """The demo in a terminal, in the middle of an epoch."""
    command = [sys.executable, "-m", "train_manager.demo"]
    screens = [screen for screen in shown(typed(command)) if re.search(r"epoch [89]: +[2-9]\d%", screen)]
    text = html.escape(f"$ python -m train_manager.demo\n{screens[-1]}")
    for scheme, (paper, ink, line) in COLORS.items():
        look = f"background: {paper}; color: {ink}; border: 1px solid {line}; border-radius: 8px; padding: 18px 22px"
        font = "font: 15px/1.45 'DejaVu Sans Mono', monospace; margin: 0; width: max-content"
        yield (
            scheme,
            f'<!doctype html><body style="margin: 0; background: {paper}"><pre style="{look}; {font}">{text}</pre>',
        )


def notebook() -> Iterator[tuple[str, str]]:
    """The table and the picture below a cell that trained."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text.strip()) for text in CELLS.split("###")])
    ExecutePreprocessor(timeout=300).preprocess(made)
    made.cells = made.cells[1:]
    for scheme in COLORS:
        yield scheme, HTMLExporter(theme=scheme).from_notebook_node(made)[0]


def report() -> Iterator[tuple[str, Path]]:
    """The page about a run of the demo."""
    run = Path("runs/digits-1")
    if not run.exists():
        typed([sys.executable, "-m", "train_manager.demo"])
    page = write_report(run, Path("report.html"))
    yield from ((scheme, page) for scheme in COLORS)


def comparison() -> Iterator[tuple[str, Path]]:
    """The page about three runs that differ in their learning rate."""
    runs = []
    for name, lr in {"lr-0.0003": 3e-4, "lr-0.003": 3e-3, "lr-0.03": 3e-2}.items():
        runs.append(Path("runs", name))
        training(lr, epochs=8, folder=runs[-1]).train()
    page = write_report(runs, Path("comparison.html"))
    yield from ((scheme, page) for scheme in COLORS)


# ---- a terminal ----------------------------------------------------------------------------------------------------


def typed(command: list[str]) -> str:
    """Run a command in a terminal, and return all that it wrote there."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ["PYTHONWARNINGS"] = "ignore::UserWarning"  # the record's, of a commit that is nowhere else yet
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    written = b""
    try:
        while some := os.read(terminal, 65536):
            written += some
    except OSError:  # the child has closed it
        os.waitpid(child, 0)
    return written.decode()


def shown(written: str) -> Iterator[str]:
    """Yield what the terminal shows after each line and each move of the cursor."""
    lines, row = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[A)", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part == "\x1b[A":
            row -= 1
        elif part != "\r":  # which every text here follows: it is written over the line
            lines[row] = part + lines[row][len(part) :]
            yield "\n".join(lines).rstrip()


# ---- photographs ---------------------------------------------------------------------------------------------------


def photograph(browser: Browser, page: str | Path, name: str, scheme: str) -> None:
    """Write a picture of a page; of a report as much as ends with its first row of curves."""
    view = {"width": WIDTH, "height": 1200}
    context = browser.new_context(viewport=view, color_scheme=scheme, device_scale_factor=SCALE, offline=True)
    tab = context.new_page()
    if isinstance(page, Path):
        tab.goto(page.absolute().as_uri())
    else:
        tab.set_content(page)
    tab.wait_for_timeout(500)  # the plots are drawn as they come into view
    left, top, right, bottom = area(tab, name)
    file = HERE / f"{name}-{scheme}.png"
    tab.screenshot(path=file, full_page=True, clip={"x": left, "y": top, "width": right - left, "height": bottom - top})
    Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
    context.close()


def area(tab: Page, name: str) -> tuple[float, float, float, float]:
    """Return the left, upper, right and lower edge of what a picture shows."""

    def box(selector: str) -> Any:
        return tab.locator(selector).first.bounding_box()

    if name in ("terminal", "notebook"):
        found = box("pre" if name == "terminal" else "main")
        return 0, 0, found["x"] + found["width"], found["y"] + found["height"]
    plot = box(".plot >> nth=1")
    top = 0 if name == "report" else box("h2:has-text('Curves')")["y"] - 16
    return 0, top, WIDTH, plot["y"] + plot["height"] + 16


if __name__ == "__main__":
    main()
