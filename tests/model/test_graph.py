"""What torch looks at before it calls a graph, and which of its warnings are kept back."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from train_manager.model.graph import TooOften, _may_change


@pytest.mark.parametrize(
    ("kind", "name", "is_looked_at"),
    [
        ("CLOSURE_MATCH", "G['__import_torch_dot_nn_dot_modules_dot_linear'].F.linear", False),
        ("CLOSURE_MATCH", "G['__import_train_manager_dot_model_dot_arithmetic']._step_adam", False),
        ("BUILTIN_MATCH", "G['__builtins_dict___2']['zip']", False),
        ("CLOSURE_MATCH", "G['__import_my_dot_model'].activation", True),
        ("CONSTANT_MATCH", "G['torch'].backends.mha", True),
        ("TENSOR_MATCH", "model._modules['0']._parameters['weight']", True),
    ],
)
def test_before_a_call_all_is_looked_at_but_functions_of_libraries(kind: str, name: str, is_looked_at: bool) -> None:
    assert _may_change([SimpleNamespace(guard_type=kind, name=name)]) == [is_looked_at]


def run() -> None:
    """Take the place of a function that becomes a graph."""


def test_the_warning_of_a_graph_is_kept_back_and_that_of_a_function_of_a_program_is_shown() -> None:
    too_often, code = TooOften(), run.__code__
    too_often.functions.add(ours := f"'run' ({code.co_filename}:{code.co_firstlineno})")

    def is_shown(function: str) -> bool:
        told = ("recompile_limit", 8, function, "0/7: model.k == 8.0    # in forward\nUser stack trace:", "a page")
        return too_often.filter(logging.LogRecord("torch", logging.WARNING, "", 0, "%s %s %s %s %s", told, None))

    assert (is_shown(ours), is_shown("'step' (train.py:3)")) == (False, True)
    assert too_often.change == "model.k == 8.0 # in forward"
