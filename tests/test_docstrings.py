from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def modules() -> list[str]:
    files = {  # a glob does not follow the link train_manager/extensions in all versions of Python
        *(path.relative_to(ROOT) for path in (ROOT / "train_manager").rglob("*.py")),
        *(Path("train_manager") / path.relative_to(ROOT) for path in (ROOT / "extensions").rglob("*.py")),
    }
    with_examples = [path for path in files if ">>> " in (ROOT / path).read_text(encoding="utf-8")]
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in with_examples)


LONG = ("train_manager.trials.rehearse", "train_manager.extensions.reproducibility.code_record")  # a second each


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.whole] * (one in LONG)) for one in modules()])
def test_the_examples_in_the_docstrings_run_as_printed(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    core = importlib.import_module("train_manager.core.extensible")
    assert doctest.testmod(core).attempted > 3
