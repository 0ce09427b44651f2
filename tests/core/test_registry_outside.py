"""Extensions of installed packages; the packages here are really there, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOURCE = """
from train_manager import Extension

class GradNoise(Extension):
    def pre_step(self, x):
        print("noise at", x)

class NoExtension:
    pass
"""

# `import *` would import torch.
NAMES = "from train_manager import Extensible; from train_manager.errors import ExtensionNotFound, HookError"

POINTS = """[train_manager.extensions]
grad_noise = grad_noise:GradNoise
wrong = grad_noise:NoExtension
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder as pip leaves it behind."""
    (tmp_path / "grad_noise.py").write_text(SOURCE)
    info = tmp_path / "grad_noise-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: grad-noise\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return tmp_path


def printed(folder: Path, code: str) -> str:
    """What a fresh interpreter prints that finds packages in this folder."""
    setup = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(folder)!r}]\n{NAMES}\n"
    done = subprocess.run([sys.executable, "-c", setup + code], capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


def test_an_extension_of_another_package_is_added_by_its_name(installed: Path) -> None:
    code = """
extensible = Extensible()
added = extensible.add_extension("grad_noise")
with extensible.staged("step", {"x": 3}):
    pass
print(list(extensible.extensions), added is extensible["grad_noise"])
"""
    assert printed(installed, code) == "noise at 3\n['grad_noise'] True\n"


def test_it_can_be_given_another_name(installed: Path) -> None:
    code = "extensible = Extensible(); extensible.add_extension('grad_noise', 'noise'); print(*extensible.extensions)"
    assert printed(installed, code) == "noise\n"


def test_an_unknown_name_is_refused_with_the_near_one(installed: Path) -> None:
    code = """
try:
    Extensible().add_extension("grad_nose")
except ExtensionNotFound as error:
    print(error)
"""
    assert printed(installed, code) == (
        "no installed package offers an extension 'grad_nose'\n  did you mean 'grad_noise'?\n"
    )


def test_what_is_no_extension_is_refused(installed: Path) -> None:
    code = """
try:
    Extensible().add_extension("wrong")
except HookError as error:
    print(str(error).splitlines()[-1])
"""
    assert printed(installed, code).startswith(
        "  give objects of Extension classes in place of <grad_noise.NoExtension"
    )
