from __future__ import annotations

from typing import Any

import pytest

from train_manager import Extensible, Extension, modifies
from train_manager.core.hooks import read_hooks
from train_manager.core.plan import Plans
from train_manager.core.store import Store
from train_manager.errors import OrderError, StageError


def test_a_stage_cannot_have_the_name_of_the_hooks_of_every_stage() -> None:
    with pytest.raises(StageError) as error, Extensible().staged("stage"):
        pass
    assert str(error.value) == (
        "a stage cannot be called 'stage', the name of the hooks of every stage\n"
        "  take another name, like 'train_step_batch'"
    )


@pytest.mark.parametrize("name", ["train step", "train-step", "1st", "", 1])
def test_a_stage_name_must_be_an_identifier(name: Any) -> None:
    with pytest.raises(StageError) as error, Extensible().staged(name):
        pass
    assert str(error.value) == (
        f"a stage cannot be called {name!r}: hooks are named after it, so it must be an identifier\n"
        "  take another name, like 'train_step_batch'"
    )


def test_a_refused_stage_name_leaves_nothing_open() -> None:
    extensible = Extensible()
    with pytest.raises(StageError), extensible.staged("not a name", {"x": 1}):
        pass
    assert extensible.fixtures["stage"] is None
    assert dict(extensible.fixtures) == {}


class Doubles(Extension):
    """Modifies a fixture at many stages."""

    def __init__(self) -> None:
        for stage in "abcdefghij":
            setattr(self, f"pre_stage_{stage}", modifies("x")(lambda x: 2 * x))


def test_of_mistakes_at_several_stages_that_of_the_first_hook_is_refused() -> None:
    first, *_ = hooks = [hook for owner in "ab" for hook in read_hooks(Doubles(), owner)]
    with pytest.raises(OrderError, match=f"at pre_{first.stage}, and nothing says which is first"):
        Plans(Store({})).use(hooks, [])
