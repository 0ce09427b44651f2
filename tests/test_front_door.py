from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

import train_manager

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "Book",
    "Endless",
    "Extensible",
    "Extension",
    "Fixtures",
    "InMemory",
    "InputError",
    "Interleaved",
    "NonFiniteLoss",
    "Objective",
    "Rows",
    "Schedule",
    "SeededDataLoader",
    "SkipBatch",
    "SkipStage",
    "Together",
    "TrainManager",
    "TrainManagerError",
    "TrainResult",
    "Watcher",
    "WeightedLosses",
    "__version__",
    "add_loss",
    "always",
    "at_most",
    "diagnose",
    "every",
    "exponentially",
    "fixture",
    "groups",
    "lr_finder",
    "modifies",
    "not_a_hook",
    "once",
    "periodically",
    "priority",
    "provides",
    "recorded",
    "rehearse",
    "report_loss",
    "scheduled",
    "staged",
    "summary",
    "tune",
    "when",
    "with_parameters",
]

WITHOUT_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy", "tqdm"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, NoTorch())
"""


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_public_names_are_these() -> None:
    assert sorted(train_manager.__all__) == PUBLIC


def test_each_public_name_can_be_had() -> None:
    assert [name for name in PUBLIC if getattr(train_manager, name, None) is None] == []


def test_an_editor_is_shown_each_public_name_before_it_is_read() -> None:
    code = (
        "import train_manager as tm, train_manager.extensions as e; print({*tm.__all__} <= {*dir(tm)}, 'EMA' in dir(e))"
    )

    assert python(code) == "True True\n"


def test_an_editor_is_shown_public_names_only() -> None:
    code = (
        "import train_manager as tm, train_manager.extensions as e;"
        "print(sorted({*dir(tm)} - {*tm.__all__}), {*dir(e)} == {*e.__all__})"
    )

    assert python(code) == "['errors', 'extensions'] True\n"


def test_the_train_manager_comes_through_the_front_door() -> None:
    from train_manager import TrainManager
    from train_manager.manager import TrainManager as TheSame

    assert TrainManager is TheSame


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'train_manager' has no attribute 'TrainManger'"):
        getattr(train_manager, "TrainManger")  # noqa: B009


@pytest.mark.parametrize("module", ["torch", "numpy", "tqdm", "asyncio"])
def test_importing_the_library_does_not_import(module: str) -> None:
    assert python(f"import sys, train_manager; print({module!r} in sys.modules)") == "False\n"


def test_the_core_runs_where_torch_cannot_be_imported() -> None:
    code = """
from train_manager import Extensible, Extension

class Watcher(Extension):
    def post_step(self, x):
        print("x is", x)

with Extensible([Watcher()]).staged("step", {"x": 1}):
    pass
try:
    import torch
except ImportError:
    print("and torch is not there")
"""
    assert python(WITHOUT_TORCH + code) == "x is 1\nand torch is not there\n"


def test_every_package_folder_is_built() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    packages = set(setup["options"]["packages"].split())
    folders = {init.parent.relative_to(ROOT) for init in (ROOT / "train_manager").rglob("__init__.py")}
    mapped = (init.parent.relative_to(ROOT) for init in (ROOT / "extensions").rglob("__init__.py"))
    folders |= {Path("train_manager") / folder for folder in mapped}
    assert packages == {".".join(folder.parts) for folder in folders}


def test_an_editable_install_is_found_by_tools_that_only_read_paths(tmp_path: Path) -> None:
    """Type checkers follow the entries of ``sys.path``, and no import hooks."""
    code = "import sys; print(*sys.path, sep='\\n')"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert str(ROOT) in done.stdout.splitlines()
