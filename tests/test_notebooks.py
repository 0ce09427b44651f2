"""The notebooks: each runs from its first cell to its last, and equals its source.

``python tests/test_notebooks.py`` runs all sources and writes the notebooks anew.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]
import nbformat
import pytest
from nbclient import NotebookClient

import train_manager

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
SEEN = "02_see_a_training"
SMALL = 200_000  # bytes: the largest notebook that may be stored in git with its pictures

by_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


def read(source: Path) -> Any:
    """Return the notebook beside a source."""
    return nbformat.read(source.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call]


def cells_of(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def execute(source: Path, folder: Path) -> Any:
    """Run the notebook of a source in a folder of its own, and return it."""
    return executed(jupytext.read(source), folder)


def executed(notebook: Any, folder: Path, **options: Any) -> Any:
    """Run a notebook in a folder of its own, with the Python that runs this, and return it."""
    kernel = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    library = str(Path(train_manager.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(kernel.parents[2]))  # searched before all other folders
        patch.setenv("PYTHONPATH", os.pathsep.join([library, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMP_NUM_THREADS", "1")  # several threads wait long for each other on a busy machine
        options |= {"timeout": 100, "kernel_name": "python3", "resources": {"metadata": {"path": folder}}}
        NotebookClient(notebook, **options).execute()
    return notebook


def outputs_of(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook of this name, executed with one more cell, which asks for the title of its plot."""
    notebook = jupytext.read(FOLDER / f"{SEEN}.py")
    notebook.cells.append(nbformat.v4.new_code_cell("print(tm['boundary'].axes.get_title())"))  # type: ignore[no-untyped-call]
    return executed(notebook, tmp_path_factory.mktemp("seen"))


@by_source
def test_a_notebook_imports_what_there_is(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("train_manager"):
            module = importlib.import_module(node.module)
            assert [one.name for one in node.names if not hasattr(module, one.name)] == []


@pytest.mark.whole  # a kernel takes four seconds
@by_source
def test_a_notebook_runs_to_its_end_and_shows_pictures_and_no_warnings(source: Path, seen: Any, tmp_path: Path) -> None:
    outputs = outputs_of(seen if source.stem == SEEN else execute(source, tmp_path))
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []


@by_source
def test_a_notebook_is_the_same_as_its_source(source: Path) -> None:
    notebook = read(source)
    assert cells_of(notebook) == cells_of(jupytext.read(source)), f"run: python {__file__}"


@by_source
def test_a_notebook_is_stored_with_its_pictures_and_small(source: Path) -> None:
    assert any("image/png" in output.get("data", {}) for output in outputs_of(read(source)))
    assert source.with_suffix(".ipynb").stat().st_size < SMALL


def test_there_is_a_source_for_every_notebook() -> None:
    assert [path.stem for path in sorted(FOLDER.glob("*.ipynb"))] == [path.stem for path in SOURCES] != []


@pytest.mark.whole
def test_a_plot_of_ones_own_is_renewed_in_a_single_output(seen: Any) -> None:
    *_, trains, title = seen.cells

    assert sum("image/png" in output.get("data", {}) for output in trains.outputs) == 1
    assert title.outputs[0].text == "epoch 30\n"


def test_live_has_one_output_in_each_cell_that_trains() -> None:
    of_cells = [cell.get("outputs", []) for cell in read(FOLDER / f"{SEEN}.py").cells]
    live = [sum("<svg" in o.get("data", {}).get("text/html", "") for o in outputs) for outputs in of_cells]

    assert [count for count in live if count] == [1, 1]


INTERRUPTED = """
import signal
from train_manager import Extension
from train_manager.testing import tiny_manager

class Interrupt(Extension):
    def post_train_backward(self, train_manager, step_num):
        if step_num == 4:
            train_manager.remove_extension("interrupt")
            signal.raise_signal(signal.SIGINT)

tm = tiny_manager(Interrupt(), epochs=5)
"""


@pytest.mark.whole  # tests/test_signals.py interrupts programs
def test_a_cell_that_is_interrupted_ends_with_what_is_saved(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(source) for source in (INTERRUPTED, "tm.train()", "tm.train().steps")]  # type: ignore[no-untyped-call]

    notebook = executed(nbformat.v4.new_notebook(cells=cells), tmp_path, allow_errors=True)  # type: ignore[no-untyped-call]

    *_, traceback, steps = outputs_of(notebook)
    told = "stopped at step 4; this run has saved no checkpoint (the extension Checkpoints saves and resumes)"
    assert "\n".join(traceback["traceback"]).splitlines()[-1] == told
    assert steps["data"]["text/plain"] == "12"


def write_all() -> None:
    import tempfile

    for source in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(source, Path(folder))
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number}"  # else it is random, and every run changes the file
            cell.metadata = {}
        nbformat.write(notebook, source.with_suffix(".ipynb"))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    write_all()
