"""The playground: what its Python side answers, here and in Python for the browser under node, and the page itself.

`make playground` installs Python for the browser; what needs it is skipped without.
"""

from __future__ import annotations

import functools
import http.server
import importlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "playground"
PYODIDE = ROOT / "build" / "npm" / "node_modules" / "pyodide"
EXAMPLES = {path.stem[2:]: path.read_text() for path in sorted((FOLDER / "examples").glob("*.py"))}
ASKED = [
    *((action, program) for action in ("run", "check", "explain") for program in EXAMPLES.values()),
    ("run", "print('a line without an end', end='')"),
]

LOOP = """\
from train_manager import Extensible


class Worker(Extensible):
    def work(self):
        with self.staged("work"):
            pass
"""

with_pyodide = pytest.mark.skipif(not PYODIDE.exists(), reason="Pyodide is not in build/npm: run `make playground`")
with_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")


@pytest.fixture
def answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], dict[str, Any]]:
    """Ask the Python side of the page, in this interpreter."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.chdir(tmp_path)
    playground = importlib.import_module("playground")

    def ask(action: str, program: str) -> dict[str, Any]:
        well = playground.answer(action, program)
        printed = capsys.readouterr()
        return {"well": well, "out": printed.out.splitlines(), "error": printed.err.splitlines()}

    return ask


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page, made from the sources as they are."""
    folder = tmp_path_factory.mktemp("playground")
    make_playground().build(folder)
    return folder


@pytest.fixture(scope="module")
def address(page: Path) -> Iterator[str]:
    """Where the page is served, on a free port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(page))) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def make_playground() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("make_playground")
    finally:
        sys.path.remove(str(FOLDER))


def test_the_first_example_learns(answer: Callable[[str, str], dict[str, Any]]) -> None:
    assert answer("run", EXAMPLES["stages_and_hooks"])["out"][-1] == "y = 2.96 * x"


def test_the_first_example_has_no_mistake(answer: Callable[[str, str], dict[str, Any]]) -> None:
    told = answer("check", EXAMPLES["stages_and_hooks"])

    assert told == {"well": True, "out": ["training.check() has found no mistake in the hooks."], "error": []}


def test_the_tree_of_the_first_example_is_explained(answer: Callable[[str, str], dict[str, Any]]) -> None:
    told = answer("explain", EXAMPLES["stages_and_hooks"])

    assert "train_step" in told["out"]
    assert "│  post   1. PrintLoss.post_train_step of extension 'print_loss'; reads loss" in told["out"]
    assert "└─ update" in told["out"]


def test_misspelt_hooks_are_told_with_the_names_that_were_meant(answer: Callable[[str, str], dict[str, Any]]) -> None:
    told = answer("check", EXAMPLES["misspelt_hooks"])

    assert told["out"] == []
    assert told["error"][0].startswith("train_manager.errors.CheckError: 3 mistakes in the hooks of Training")
    meant = [line.split("'")[1].removeprefix("post_") for line in told["error"] if "did you mean" in line]
    assert meant == ["train_step", "loss", "gradient"]


@pytest.mark.parametrize(
    ("example", "told"),
    [
        ("a_fixture_that_has_died", "which is not alive at post_train_step"),
        ("an_order_that_nobody_gave", "both modify 'gradient' at pre_update, and nothing says which is first"),
    ],
)
def test_the_mistake_of_an_example_is_told(
    example: str, told: str, answer: Callable[[str, str], dict[str, Any]]
) -> None:
    assert told in "".join(answer("check", EXAMPLES[example])["error"])


def test_the_cure_that_an_example_names_cures_it(answer: Callable[[str, str], dict[str, Any]]) -> None:
    assert answer("check", EXAMPLES["an_order_that_nobody_gave"].replace("# priority", "priority"))["well"]


def test_an_error_shows_the_lines_of_the_program_only(answer: Callable[[str, str], dict[str, Any]]) -> None:
    program = f"{LOOP}\n    def pre_work(self):\n        1 / 0\n\n\nWorker().work()\n"

    told = answer("run", program)

    files = [line for line in told["error"] if "File " in line]
    assert files == [
        f'  File "example.py", line {n}, in {name}' for n, name in ((13, "<module>"), (6, "work"), (10, "pre_work"))
    ]


def test_a_program_that_cannot_be_compiled_is_told_its_line(answer: Callable[[str, str], dict[str, Any]]) -> None:
    assert '  File "example.py", line 1' in answer("check", "def broken(:\n")["error"]


def test_a_program_without_an_extensible_is_told_so(answer: Callable[[str, str], dict[str, Any]]) -> None:
    assert "Add a line such as: training = Training()" in answer("explain", LOOP)["error"][0]


def test_a_program_that_was_changed_in_place_is_read_anew(answer: Callable[[str, str], dict[str, Any]]) -> None:
    hook = "\n    def pre_wrok(self):\n        pass\n\n\nworker = Worker()\n"
    assert not answer("check", LOOP + hook)["well"]

    assert answer("check", LOOP.replace('"work"', '"wrok"') + hook)["well"]


def test_the_torch_that_is_not_there_is_told(answer: Callable[[str, str], dict[str, Any]]) -> None:
    told = answer("run", "raise ModuleNotFoundError(\"No module named 'torch'\")")

    assert told["error"][-1].endswith("need PyTorch, which does not run in a browser.")


def test_the_end_of_a_program_is_not_the_end_of_the_page(answer: Callable[[str, str], dict[str, Any]]) -> None:
    assert answer("run", "raise SystemExit(1)")["error"][-1] == "SystemExit: 1"


@pytest.mark.slow
@with_node
@with_pyodide
def test_python_in_the_browser_answers_as_python_here(answer: Callable[[str, str], dict[str, Any]], page: Path) -> None:
    done = subprocess.run(
        ["node", str(Path(__file__).with_name("answers_under_node.mjs")), str(page)],
        input=json.dumps(ASKED),
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr[-1000:]
    assert [without_marks(told) for told in json.loads(done.stdout)] == [
        without_marks(answer(*asked)) for asked in ASKED
    ]


def without_marks(told: dict[str, Any]) -> dict[str, Any]:
    """Leave out the lines of ^^^^ below a line of source, which each Python draws in its own way."""
    return {**told, "error": [line for line in told["error"] if line.strip(" ~^")]}


def test_without_npm_the_page_says_that_it_was_built_without_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = make_playground()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(script, "PYODIDE", tmp_path / "not there")

    assert script.main([str(tmp_path / "page")]) == 0

    assert capsys.readouterr().err == "The playground has no editor: npm is missing; it comes with Node.js\n"
    index = json.loads((tmp_path / "page" / "parts" / "index.json").read_text())
    assert index == {"left_out": "This copy of the page was built without Python."}


@with_pyodide
def test_a_page_that_the_site_has_made_stays_and_gets_what_it_loads(tmp_path: Path) -> None:
    html = tmp_path / "playground" / "index.html"
    html.parent.mkdir()
    html.write_text("made by the site")

    make_playground().on_post_build(SimpleNamespace(site_dir=str(tmp_path)))

    assert html.read_text() == "made by the site"
    assert (html.parent / "parts" / "pyodide.mjs").exists()


def test_the_lock_file_holds_a_hash_of_each_package_and_names_no_host() -> None:
    text = (FOLDER / "package-lock.json").read_text()
    _, *packages = json.loads(text)["packages"].values()

    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert "://" not in text


@pytest.fixture(scope="module")
def visit(address: str) -> Iterator[Visit]:
    """Open the page in Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is missing")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield Visit(browser.new_page(), address)
        browser.close()


class Visit:
    """A visitor of the page, and what the page did that a visitor does not see."""

    def __init__(self, tab: Any, address: str) -> None:
        self.tab = tab
        self.editor, self.output = tab.get_by_label("Program"), tab.get_by_role("log")
        self.console: list[str] = []
        self.requests: list[str] = []
        tab.on("console", lambda message: self.console.append(message.text))
        tab.on("pageerror", lambda error: self.console.append(str(error)))
        tab.on("request", lambda request: self.requests.append(request.url))
        tab.goto(address)
        tab.get_by_text("Python is ready.").wait_for(timeout=100_000)

    def press(self, button: str) -> None:
        self.tab.get_by_role("button", name=button).click()

    def reads(self, text: str) -> str:
        """Wait for a text of the output, and return all of it."""
        self.output.get_by_text(text).wait_for(timeout=100_000)
        return str(self.output.inner_text())


@pytest.mark.slow
@with_pyodide
def test_a_visitor_misspells_a_hook_and_reads_what_was_meant(visit: Visit) -> None:
    at = visit.editor.input_value().index("post_train_step(") + len("post_train_st")
    visit.editor.evaluate("(editor, at) => { editor.focus(); editor.setSelectionRange(at, at + 2) }", at)
    visit.tab.keyboard.type("pe")

    visit.press("Check")

    told = visit.reads("did you mean")
    assert re.search(r"1\. PrintLoss\.post_train_stpe .* would never run", told)
    assert re.search(r"did you mean '(post_)?train_step'\?", told)


@pytest.mark.slow
@with_pyodide
def test_a_line_that_an_error_names_is_marked_when_it_is_pressed(visit: Visit) -> None:
    visit.editor.fill("one = 1\nwrong = one / 0\ntwo = 2\n")
    visit.press("Run")
    visit.reads("ZeroDivisionError")

    visit.press('"example.py", line 2')

    assert visit.editor.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == "wrong = one / 0"


@pytest.mark.slow
@with_pyodide
def test_a_program_that_does_not_end_can_be_stopped(visit: Visit) -> None:
    visit.editor.fill("while True:\n    print('again')")
    visit.press("Run")
    visit.reads("the rest is left out")
    visit.press("Stop")
    visit.reads("Stopped.")

    visit.editor.fill("print(6 * 7)")
    visit.press("Run")

    visit.reads("42")


@pytest.mark.slow
@with_pyodide
def test_tab_indents_and_leaves_the_editor_after_escape(visit: Visit) -> None:
    visit.editor.fill("")
    visit.editor.press("Tab")
    visit.editor.press("Escape")
    visit.editor.press("Tab")

    assert visit.editor.input_value() == "    "
    assert visit.tab.evaluate("document.activeElement.textContent") == "Run"


@pytest.mark.slow
@with_pyodide
def test_a_link_holds_the_program(visit: Visit) -> None:
    visit.editor.fill("print('größer als π')")
    visit.press("Copy link")
    visit.tab.wait_for_function("location.hash.startsWith('#program=')")

    visit.tab.reload()

    visit.tab.get_by_label("Example").get_by_text("The program of the link").wait_for(state="attached")
    assert visit.editor.input_value() == "print('größer als π')"


@pytest.mark.slow
@with_pyodide
def test_the_page_asks_no_other_host_and_the_console_is_empty(visit: Visit, address: str) -> None:
    assert [request for request in visit.requests if not request.startswith(address)] == []
    assert visit.console == []
