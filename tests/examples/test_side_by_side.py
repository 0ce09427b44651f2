"""One training, written in four ways, with the same result to the last bit; a page of the docs shows two of the files.

``python tests/examples/test_side_by_side.py`` writes the files into the page.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.programs import code

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "side_by_side"
PAGE = ROOT / "docs" / "explanation" / "side-by-side.md"
SHOWN = re.compile(r"(\]\(\.\./\.\./examples/side_by_side/(\w+\.py)\)[^\n]*\n\n```py\n)(.*?)```\n", re.DOTALL)

NEEDS = {"bare_loop": "torch", "lightning_loop": "lightning", "ignite_loop": "ignite", "train_manager_loop": "torch"}

TRAIN = """
import sys, torch, digits, {loop} as written
model = digits.network()
written.train(model, *digits.loaders())
torch.save(model.state_dict(), sys.argv[1])
"""

Trained = tuple[str, dict[str, torch.Tensor]]  # the printed text, and the weights


def trained(loop: str, folder: Path, server: ForkServer) -> Trained:
    """Train in a process of its own, because the other toolkits change settings of logging and of warnings."""
    weights = folder / "weights.pt"
    done = server.run(code, TRAIN.format(loop=loop), str(weights), cwd=folder, PYTHONPATH=str(FOLDER))
    assert done.code == 0, done.errors
    return done.output, torch.load(weights, weights_only=True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Trained:
    pytest.importorskip("sklearn")
    return trained("bare_loop", tmp_path_factory.mktemp("bare"), fork_server)


@pytest.mark.slow
@pytest.mark.whole
def test_the_bare_loop_learns_to_read_and_stops_early(bare: Trained) -> None:
    lines = bare[0].splitlines()
    losses = [float(line.split()[4].rstrip(",")) for line in lines]
    assert 4 < len(lines) < 30
    assert min(losses) == losses[-4]
    assert float(lines[-4].split()[-1].rstrip("%")) > 95


@pytest.mark.slow
@pytest.mark.whole  # tests/test_manager_bit_for_bit.py has the claim of a smaller training
@pytest.mark.parametrize("loop", [name for name in NEEDS if name != "bare_loop"])
def test_each_way_ends_with_the_weights_and_prints_the_lines_of_the_bare_loop(
    loop: str, bare: Trained, tmp_path: Path, fork_server: ForkServer
) -> None:
    if importlib.util.find_spec(NEEDS[loop]) is None:
        pytest.skip(f"{NEEDS[loop]} is not installed")
    printed, weights = trained(loop, tmp_path, fork_server)

    assert printed == bare[0]
    assert len(weights) == 4
    assert all(torch.equal(one, other) for one, other in zip(weights.values(), bare[1].values(), strict=True))


def test_the_page_shows_the_bare_loop_and_ours_and_names_the_others() -> None:
    page = PAGE.read_text()
    shown = {name: text for _, name, text in SHOWN.findall(page)}
    of_files = {name: (FOLDER / name).read_text() for name in ("bare_loop.py", "train_manager_loop.py")}
    assert shown == of_files, f"run: python {__file__}"
    assert all(f"](../../examples/side_by_side/{name}.py)" in page for name in NEEDS)


def test_the_page_has_the_number_of_lines_of_each_file() -> None:
    page = PAGE.read_text()
    for name in NEEDS:
        count = lines_of(FOLDER / f"{name}.py")
        assert re.search(rf"^\| `{name}.py` \| {count} \|", page, re.MULTILINE), f"{name}.py has {count} lines"


def lines_of(path: Path) -> int:
    """Return the number of lines without empty lines, the docstring, the imports and the last two."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    return len([line for line in lines[:-2] if not line.startswith(('"""', "import ", "from "))])


def write_page() -> None:
    """Write the present files into the blocks that show them."""
    PAGE.write_text(SHOWN.sub(lambda match: f"{match[1]}{(FOLDER / match[2]).read_text()}```\n", PAGE.read_text()))


if __name__ == "__main__":
    write_page()
