"""Which warnings of torch about its graphs are kept back."""

from __future__ import annotations

import logging

from train_manager.model.graph import TooOften


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
