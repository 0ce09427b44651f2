from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from train_manager.runs.code.notebook import as_script, cells_that_ran

SESSION = """
from IPython.core.interactiveshell import InteractiveShell
from train_manager.runs.code.notebook import as_script, cells_that_ran
shell = InteractiveShell.instance(user_ns={"told": lambda: print(as_script(cells_that_ran()))})
for cell in ["x = 2", "%precision 3", "x = x * 3", "x = x * 3", "1 / 0", "   ", "print(x)"]:
    shell.run_cell(cell, store_history=True)
shell.run_cell("told()", store_history=True)
"""


def body(*cells: str) -> list[str]:
    """Return the lines of cells in the script, without its head."""
    return [line for line in as_script(cells).splitlines()[2:] if line]


def test_outside_of_ipython_no_cell_has_run_and_ipython_is_not_imported() -> None:
    code = "import sys; from train_manager.runs.code import notebook as n; "
    code += "assert n.cells_that_ran() == []; assert 'IPython' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ipython_that_is_imported_without_a_shell_has_no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", sys)

    assert cells_that_ran() == []


def test_the_cells_of_a_session_are_told_in_their_order_as_often_as_they_ran() -> None:
    run = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, check=True)

    script = run.stdout[run.stdout.index("# The cells") :]
    assert [line for line in script.splitlines() if line and "%%" not in line][1:] == [
        "x = 2",
        "# only in IPython: %precision 3",
        "x = x * 3",
        "x = x * 3",
        "1 / 0",
        "print(x)",
        "told()",
    ]


def test_a_script_of_cells_runs_as_they_did() -> None:
    found: dict[str, object] = {}

    exec(
        as_script(["%matplotlib inline\nx = 2", "files = !ls\nx *= 3", "if x:\n    %time\n    !ls \\\n  -l\nx += 1"]),
        found,
    )

    assert found["x"] == 7


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("%load_ext autoreload", ["# only in IPython: %load_ext autoreload"]),
        ("!pip list", ["# only in IPython: !pip list"]),
        ("x.shape?", ["# only in IPython: x.shape?"]),
        ("files = !ls", ["# only in IPython: files = !ls"]),
        ("%%time\nx = 1", ["# only in IPython: %%time", "x = 1"]),
        ("%%bash\necho 1", ["# only in IPython: %%bash", "# only in IPython: echo 1"]),
        ("for x in y:\n    %time x", ["for x in y:", "    pass  # only in IPython: %time x"]),
        ("two words here", ["# it is not Python", "# only in IPython: two words here"]),
    ],
)
def test_what_only_ipython_runs_is_a_comment(cell: str, shown: list[str]) -> None:
    assert body(cell)[1:] == shown


def test_cells_that_await_run_as_they_did() -> None:
    texts = ["'''", '"""', r"\\n"]
    cells = ["import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x\nasync def g():\n    yield 1"]
    cells += ["task = asyncio.ensure_future(f(2))\nawait f(0)", "%time\nx = await task\nx += 1"]
    cells += ["y = [one async for one in g()]", *(f"z = await f({text!r})  # {text}" for text in texts)]
    cells += ['w = await f("""a\'\'\'b""")', "async with asyncio.Lock():\n    done = True"]
    found: dict[str, Any] = {}

    script = as_script(cells)
    exec(script, found)
    found["_loop"].close()

    assert (found["x"], found["y"], found["z"], found["w"], found["done"]) == (3, [1], texts[-1], "a'''b", True)
    assert "\nx = await task\nx += 1\n" in script


def test_a_text_that_looks_like_a_magic_stays() -> None:
    cell = 'text = """\n%time\n!ls\n"""'

    assert body(cell)[1:] == cell.splitlines()


def test_a_strange_escape_is_not_warned_of_once_more() -> None:
    cell = "x = '\\d \\\\d \\N{BULLET}'"  # warnings are errors here

    assert body(cell)[1:] == [cell]


def test_secrets_in_cells_give_way_to_stars() -> None:
    assert body('api_key = "9f8e7d6c5b4a392817"', "%env WANDB_API_KEY=9f8e7d6c5b4a392817") == [
        "# %% 1",
        'api_key = "***"',
        "# %% 2",
        "# only in IPython: %env WANDB_API_KEY=***",
    ]
