"""What is released: an sdist and a wheel that anybody can build to the same bytes."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "build_twice.py"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the script is for a checkout")


@pytest.mark.slow
@pytest.mark.whole
def test_the_wheel_and_the_sdist_are_built_twice_to_the_same_bytes(tmp_path: Path) -> None:
    """In folders with another path, with other times, modes and order of the files, and another umask."""
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"[0-9a-f]{64} train_manager-.*\.whl\n[0-9a-f]{64} train_manager-.*\.tar\.gz\n", done.stdout)
    assert len([*tmp_path.iterdir()]) == 2


def test_what_differs_is_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    script: dict[str, Any] = runpy.run_path(str(SCRIPT))
    for name, year in (("first.whl", 2001), ("second.whl", 2023)):
        with zipfile.ZipFile(tmp_path / name, "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("same.py", (2020, 1, 1, 0, 0, 0)), "")
            wheel.writestr(zipfile.ZipInfo("late.py", (year, 1, 1, 0, 0, 0)), "")

    (told,) = script["differences"](tmp_path / "first.whl", tmp_path / "second.whl")
    assert told.startswith("late.py: ((2001, 1, 1, 0, 0, 0), ")


def test_where_setup_py_has_no_repository_the_time_is_that_of_its_files(tmp_path: Path) -> None:
    """As in an sdist, from which the wheel is built."""
    code = "import os, runpy, setuptools; setuptools.setup = lambda **given: None; runpy.run_path('setup.py'); "
    code += "print(os.environ['SOURCE_DATE_EPOCH'])"
    (tmp_path / "setup.py").write_bytes((ROOT / "setup.py").read_bytes())
    os.utime(tmp_path / "setup.py", (1_500_000_000, 1_500_000_000))
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "1500000000\n"
