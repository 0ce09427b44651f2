from __future__ import annotations

import inspect

import pytest

from train_manager import Extension, TrainManager
from train_manager.checker.methods import Methods
from train_manager.checker.walk import stage_tree
from train_manager.core.declarations import declarations_of
from train_manager.telling.words import ForeignHook, Words
from train_manager.testing import tiny_manager
from train_manager.words.hooks import HOOKS


def is_there(here: str) -> bool:
    """Whether a counterpart exists: an argument, a hook, a method to be overridden, or a method of extensions."""
    if here.endswith("="):
        return here[:-1] in inspect.signature(TrainManager.__init__).parameters
    kind, _, stage = here.partition("_")
    overridable = declarations_of(getattr(TrainManager, here, None)).overridable
    tm = tiny_manager()  # its plans hold their store weakly
    stages = stage_tree(Methods(TrainManager), tm._registry.plans.__getitem__).stages
    return (kind in ("pre", "post") and stage in stages) or overridable or hasattr(Extension, here)


@pytest.mark.parametrize("here", sorted({known.here for known in HOOKS} - {""}))
def test_a_counterpart_is_there(here: str) -> None:
    assert is_there(here)


def test_a_name_stands_once_for_each_tool() -> None:
    names = [(known.tool, known.name) for known in HOOKS]
    assert len(names) == len(set(names))


def test_a_name_of_ignite_is_found_in_small_letters_too() -> None:
    assert Words(hooks=HOOKS).foreign_hooks("epoch_completed") == [
        ForeignHook("Ignite", "EPOCH_COMPLETED", "post_train_step_epoch")
    ]
    assert Words(hooks=HOOKS).foreign_hooks("completed") == []
