"""Whole trainings with each toolkit, a file each: as people use it, and as bare as it gets.

A file has ``usual(problem, epochs)`` and ``bare(problem, epochs)``, which train a model on one of ``problems.py`` with
an evaluation after each epoch, and return it. ``usual`` shows the loss and the accuracy as the toolkit does by itself,
or by a line or two; ``bare`` leaves out all that can be left out. ``tuned`` has tricks that change the arithmetic.
``measured.py`` runs one of these files in a process of its own.
"""

from __future__ import annotations

import ast
import inspect
from types import ModuleType
from typing import Final

TOOLS: Final = {  # as it is called -> as it is installed; None: it is here
    "plain": None,
    "Train Manager": None,
    "Ignite": "pytorch-ignite",
    "torchtnt": "torchtnt",
    "accelerate": "accelerate",
    "skorch": "skorch",
    "fastai": "fastai",
    "Lightning": "lightning",
    "transformers": "transformers",
    "Keras": "keras",
}
FORMS: Final = ("usual", "bare", "tuned")


def module_of(tool: str) -> str:
    """The file of a toolkit.

    >>> module_of("Train Manager")
    'benchmarks.programs.with_train_manager'
    """
    return f"benchmarks.programs.with_{tool.lower().replace(' ', '_')}"


def lines_of(module: ModuleType, form: str) -> int:
    """How many lines a user writes for a training: functions and classes of its file without the other forms."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    kinds = (ast.FunctionDef, ast.ClassDef)
    written = [
        node for node in ast.parse(source).body if isinstance(node, kinds) and node.name not in {*FORMS} - {form}
    ]
    return sum(bool(line.strip()) for node in written for line in lines[node.lineno - 1 : node.end_lineno])
