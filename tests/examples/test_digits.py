"""The example ``examples/digits.py``: all that a first training needs, in thirty lines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.programs import strictly

pytest.importorskip("sklearn")
pytest.importorskip("pandas")

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


def test_it_has_at_most_thirty_lines_of_code() -> None:
    _, _, code = EXAMPLE.read_text(encoding="utf-8").split('"""')

    assert len([line for line in code.splitlines() if line.strip()]) <= 30


def test_it_runs_outside_of_the_repository(tmp_path: Path, fork_server: ForkServer) -> None:
    shutil.copy(EXAMPLE, tmp_path)
    done = fork_server.run(strictly, "script", "digits.py", cwd=tmp_path)

    assert done.errors == ""
    *table, stopped, tested, read = done.output.splitlines()
    assert table[0].split() == ["step", "seconds", "loss", "accuracy", "valid", "loss", "valid", "accuracy"]
    assert stopped.startswith("EarlyStopping: 'valid/loss' was no better than 0.1")
    assert float(tested.partition("'accuracy': ")[2].rstrip("}")) > 0.95
    assert re.fullmatch(r"reads a (\d) which is a \1", read)
