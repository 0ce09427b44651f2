"""What `make` says where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Without the variables of an outer make, in which these tests may run: a make in a make also prints its folder.
ALONE = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}


def test_make_pages_fails_without_a_browser_and_names_the_command_that_installs_one(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make is not None

    done = subprocess.run([make, "pages", "OK="], cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    assert done.returncode != 0
    assert "There is no browser: apt-get install chromium" in done.stderr.splitlines()


PROGRAM = """#!/bin/sh
case "$*" in
"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$0" .venv/bin/uv ;;
*torch==*) [ ! -e broken ] || { echo 'no room on the disk'; exit 1; } ;;
*train_manager.demo) echo 'the demo' ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that a set-up reads, and a Python that installs nothing."""
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "constraints.txt").write_text("torch==2.0\n")
    (tmp_path / "python").write_text(PROGRAM)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make_demo(clone: Path) -> subprocess.CompletedProcess[str]:
    make = shutil.which("make")
    assert make is not None
    return subprocess.run(
        [make, "demo", f"PYTHON={clone}/python"], cwd=clone, env=ALONE, capture_output=True, text=True
    )


def test_the_first_make_says_what_it_sets_up_and_the_next_one_nothing(clone: Path) -> None:
    first, next_one = make_demo(clone), make_demo(clone)

    assert first.stdout.splitlines() == [
        "Setting up .venv, once:",
        "  an environment ",
        "  torch==2.0, which is 200 MB or more ",
        "  the tools ",
        "the demo",
    ]
    assert next_one.stdout == "the demo\n"


def test_a_set_up_that_fails_shows_why(clone: Path) -> None:
    (clone / "broken").touch()

    failed = make_demo(clone)

    assert failed.returncode != 0
    assert failed.stderr.splitlines()[:3] == ["no room on the disk"] * 2 + ["The set-up failed; see above."]


@pytest.mark.whole  # three seconds of waiting
def test_in_a_terminal_a_set_up_shows_that_it_is_alive(clone: Path) -> None:
    make, slow = shutil.which("make"), PROGRAM.replace("*torch==*) ", "*torch==*) sleep 3; ")
    assert make is not None
    (clone / "python").write_text(slow)
    ours, its = os.openpty()

    subprocess.run([make, "demo", f"PYTHON={clone}/python"], cwd=clone, stdout=its, stderr=its, check=True)

    os.close(its)
    assert "200 MB or more ." in os.read(ours, 9999).decode()
    os.close(ours)
