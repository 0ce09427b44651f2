"""What hooks read of the loop: how far it is, and where the present call ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

from tests.support.training import At, Values, make_batches
from train_manager import InputError, TrainManager
from train_manager.errors import StageError
from train_manager.extensions import Accumulate
from train_manager.testing import tiny_manager


def fail() -> None:
    raise ValueError("in a hook")


def test_a_call_knows_its_end_before_its_first_hook() -> None:
    ends = Values("pre_train", "start_step", "end_step")
    tm = tiny_manager(ends)
    with tm.run():
        tm.train_steps(1)
        tm.train_epochs(2)

    assert ends.seen == [(0, 1), (1, 6)]


def test_an_epoch_that_is_ended_brings_the_end_nearer() -> None:
    ends = Values("pre_train_step_batch", "end_step")
    stop = At("post_train_step_batch", lambda train_manager, step_num: step_num == 1 and train_manager.end_epoch())
    tiny_manager(ends, stop, epochs=2).train()

    assert ends.seen == [6, 4, 4, 4]


def test_the_end_of_a_call_that_has_failed_is_where_it_failed() -> None:
    fails = At("pre_train_step_batch", lambda step_num: fail() if step_num == 1 else None)
    tm = tiny_manager(fails)
    with tm.run():
        with pytest.raises(ValueError, match="in a hook"):
            tm.train()

        assert (tm.step_num, tm.end_step) == (1, 1)


def test_a_window_is_not_ended_by_the_end_of_a_call_that_has_failed() -> None:
    tm = tiny_manager(Accumulate(2), train_data=make_batches(4))
    tm.add_extension(At("pre_train_step_batch", lambda step_num: fail() if step_num == 0 else None), "fails")
    ends = Values("pre_train_step_batch", "update_ends")
    with tm.run():
        with pytest.raises(ValueError, match="in a hook"):
            tm.train_steps(1)
        tm.remove_extension("fails")
        tm.add_extension(ends)
        for batch in make_batches(2):
            tm.train_on_batch(batch)

    assert ends.seen == [False, True]


def test_a_sole_optimizer_is_called_optimizer() -> None:
    tm = tiny_manager()

    assert tm.optimizers == {"optimizer": tm.optimizer}


@pytest.mark.parametrize("method", ["backward", "step", "closure", "update"])
def test_what_is_done_with_a_batch_needs_one(method: str) -> None:
    tm = tiny_manager()
    arguments: list[Any] = [] if method in ("step", "closure") else [None]
    with tm.run(), pytest.raises(StageError) as caught:
        getattr(tm, method)(*arguments)

    assert str(caught.value).splitlines()[0] == f"{method}() was called, but no batch is being trained on"


class Named(TrainManager):
    """Updates under a name."""

    name: str | None = None

    def train_batch(self) -> None:
        self.update(self.forward(), self.name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "critic",
            "there is no optimizer 'critic'; the optimizers are 'first' and 'last'\n"
            "  name one: update(..., optimizer='first')",
        ),
        (
            None,
            "update() needs the name of an optimizer; the optimizers are 'first' and 'last'\n"
            "  name one: update(..., optimizer='first')",
        ),
    ],
)
def test_an_optimizer_is_named_if_there_are_several(name: str | None, message: str) -> None:
    tiny = tiny_manager()
    both = {name: SGD(tiny.model[part].parameters(), lr=0.1) for name, part in (("first", 0), ("last", 2))}
    tm = Named(model=tiny.model, loss=tiny.loss, train_data=tiny.train_data, optimizer=both)
    tm.name = name
    with pytest.raises(InputError) as caught:
        tm.train()

    assert str(caught.value) == message


def test_updates_are_counted_by_optimizer() -> None:
    tiny = tiny_manager()
    both = {name: SGD(tiny.model[part].parameters(), lr=0.1) for name, part in (("first", 0), ("last", 2))}
    tm = Named(model=tiny.model, loss=tiny.loss, train_data=tiny.train_data, optimizer=both)
    tm.name = "last"
    result = tm.train()

    assert tm.optimizer_updates == {"last": 3}
    assert result.updates == tm.update_num == 3


def test_a_closure_needs_a_backward() -> None:
    with pytest.raises(StageError, match="optimizer 'optimizer' has run no backward since its last step"):
        tiny_manager(At("pre_train_step_batch", lambda train_manager: train_manager.closure())).train()


def test_the_learning_rates_are_those_of_each_optimizer() -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    groups: list[dict[str, Any]] = [{"params": [first.weight], "lr": 0.25}, {"params": [first.bias]}]
    tm = tiny_manager(
        model=nn.ModuleDict({"first": first, "second": second}),
        optimizer={"first": torch.optim.SGD(groups, lr=0.5), "second": torch.optim.SGD},
    )

    assert tm.learning_rates == {"first": (0.25, 0.5), "second": (0.001,)}


def test_the_learning_rates_follow_the_schedule() -> None:
    tm = tiny_manager(lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    tm.train()

    assert tm.learning_rates == {"optimizer": (0.25,)}
