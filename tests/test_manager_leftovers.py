"""Nothing is left behind: no value of a step, no open data, and no half a run after an error."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.training import At, Batch, make_batches, skip_batch, stop_at, warm_up, weights
from train_manager import Extension, TrainManager
from train_manager.core.stage import Stage
from train_manager.extensions import EMA, default_extensions
from train_manager.testing import Recorder, tiny_manager


def test_an_error_leaves_a_manager_that_trains_as_a_new_one() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_train_backward(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise ValueError("in a hook")

    failed, fresh = tiny_manager(FailOnce()), tiny_manager()
    with pytest.raises(ValueError, match="in a hook"):
        failed.train()
    failed.train()
    fresh.train()

    assert torch.equal(weights(failed.model), weights(fresh.model))


def test_an_interruption_stays_one_and_leaves_the_manager_usable() -> None:
    class Interrupt(Extension):
        is_on = True

        def post_train_backward(self) -> None:
            if self.is_on:
                raise KeyboardInterrupt

    interrupt = Interrupt()
    tm = tiny_manager(interrupt)
    with pytest.raises(KeyboardInterrupt):
        tm.train()
    interrupt.is_on = False
    tm.train()

    assert tm.epoch_num == 1


class Living(Extension):
    """Which of a step's values are alive at a later hook."""

    def __init__(self, hook: str) -> None:
        self.values: dict[str, weakref.ref[Tensor]] = {}
        self.alive: list[set[str]] = []
        setattr(self, hook, self.look)

    def post_train_step_batch(self, inputs: Tensor, prediction: Tensor, loss: Tensor) -> None:
        step = {"inputs": inputs, "prediction": prediction, "loss": loss}
        self.values = {name: weakref.ref(value) for name, value in step.items()}

    def look(self) -> None:
        self.alive.append({name for name, value in self.values.items() if value() is not None})


class Fresh:
    """Makes each batch when its turn comes, and keeps none."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Batch]:
        return ((x.clone(), y.clone()) for x, y in make_batches(4))


class FreshSized(Fresh):
    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("hook", ["pre_train_step_batch", "pre_train_model_forward", "pre_eval"])
@pytest.mark.parametrize("data", [Fresh(), FreshSized()])
def test_no_value_of_a_step_is_alive_in_the_next_step_or_evaluation(hook: str, data: Iterable[Batch]) -> None:
    living = Living(hook)
    tiny_manager(living, train_data=data, epochs=2).train()

    assert set().union(*living.alive) == set()


@pytest.mark.parametrize("data", [Fresh(), FreshSized()])
def test_no_value_of_a_step_is_alive_at_the_end_of_an_epoch(data: Iterable[Batch]) -> None:
    """Not even the last batch, unlike after a ``for`` loop."""
    living = Living("post_train_step_epoch")
    tiny_manager(living, train_data=data).train()

    assert living.alive == [set()]


def test_no_value_of_a_step_is_alive_after_the_run() -> None:
    living = Living("post_train")
    tiny_manager(living, train_data=Fresh()).train()
    living.look()

    assert living.alive[-1] == set()


def test_a_manager_that_is_dropped_is_collected() -> None:
    tm = tiny_manager(Recorder())
    tm.train()
    gone = weakref.ref(tm)
    del tm
    gc.collect()

    assert gone() is None


class Closing:
    """Three batches, and whether the pass over them was closed."""

    is_closed = False

    def __iter__(self) -> Iterator[Batch]:
        try:
            yield from make_batches(3)
        finally:
            self.is_closed = True


def test_the_data_is_closed_when_a_run_stops() -> None:
    data = Closing()
    tiny_manager(stop_at("post_train_step_batch"), train_data=data).train()

    assert data.is_closed


def test_training_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tiny_manager(lr_schedule=warm_up, epochs=2).train()


# ---- copies ------------------------------------------------------------------------------------------------------


def copied(tm: TrainManager, how: str) -> TrainManager:
    made: TrainManager = copy.deepcopy(tm) if how == "deepcopy" else pickle.loads(pickle.dumps(tm))
    return made


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_trains_on_batches_without_targets(how: str) -> None:
    tm = tiny_manager(train_data=[torch.ones(4, 2)] * 2, eval_data=None, loss=_penalty)
    assert copied(tm, how).train().steps == 2


def _penalty(prediction: torch.Tensor) -> torch.Tensor:
    return prediction.square().mean()


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_an_error_in_a_copy_says_at_which_stage(how: str) -> None:
    tm = copied(tiny_manager(train_data=[(torch.ones(4, 3), torch.ones(4))], eval_data=None), how)
    with pytest.raises(RuntimeError) as caught:
        tm.train()
    path = "run > train > train_step_epoch > train_step_batch > train_model_forward"
    assert caught.value.__notes__[0] == f"at stage {path}"


def test_a_manager_is_copied_in_a_hook_of_its_own() -> None:
    copies: list[TrainManager] = []

    class Copies(Extension):
        def post_train_step_epoch(self, train_manager: TrainManager) -> None:
            copies.append(copy.deepcopy(train_manager))

    tiny_manager(Copies(), epochs=1).train()
    assert copies[0].train_epochs(1).steps == 3


def test_a_forward_pass_that_is_left_half_way_collects_no_losses_afterwards() -> None:
    left: list[Any] = []
    tm = tiny_manager(eval_data=None, epochs=1)
    tm.model.register_forward_pre_hook(lambda *_: skip_batch())
    tm.add_extension(pre_train_step_batch=lambda train_manager: left.append(train_manager._collector.losses))
    tm.train()
    assert left == [None] * 3


def test_a_shallow_copy_counts_its_steps_for_itself() -> None:
    tm = tiny_manager()
    tm.train_steps(2)
    other = copy.copy(tm)

    other.train_steps(1)

    assert (tm.step_num, other.step_num) == (2, 3)
    assert (tm.start_step, other.start_step) == (0, 2)


def test_the_loss_of_an_evaluation_is_not_kept_while_a_run_is_held() -> None:
    losses: list[weakref.ref[Tensor]] = []
    tm = tiny_manager(At("post_eval_step_batch", lambda loss: losses.append(weakref.ref(loss))))
    with tm.run():
        tm.eval()
        gc.collect()

        assert [loss() for loss in losses] == [None, None]


class WithOwnHook(TrainManager):
    def pre_train_step_batch(self, step_num: int) -> None: ...

    def train_batch(self, inputs: Any) -> None:
        self.update(self.forward())


@pytest.mark.parametrize("kind", [TrainManager, WithOwnHook])
def test_a_training_that_nothing_refers_to_any_more_is_freed_without_a_collection(kind: type[TrainManager]) -> None:
    def trained() -> TrainManager:
        tm = kind(
            model=nn.Linear(2, 2),
            loss=nn.functional.cross_entropy,
            optimizer=torch.optim.SGD,
            train_data=make_batches(3),
            eval_data=make_batches(1),
            extensions=default_extensions(files=False),
        )
        tm.train()
        return tm

    trained()  # the first import of a module leaves frames behind
    assert is_freed_at_once(trained)


def test_a_model_that_an_extension_keeps_is_freed_with_its_manager() -> None:
    def trained() -> TrainManager:
        tm = tiny_manager(EMA(0.9))
        tm.train()
        return tm

    trained()
    assert is_freed_at_once(trained)


def is_freed_at_once(make: Callable[[], TrainManager]) -> bool:
    """Return whether a model goes with its manager, without a garbage collection."""
    gc.disable()
    try:
        tm = make()
        model = weakref.ref(tm.model)
        del tm
        return model() is None
    finally:
        gc.enable()


class CtrlCAtTheEndOfTheRun:
    """Raises one KeyboardInterrupt at a call of the core, counted from the one that ends the stage ``run``."""

    def __init__(self, at_call: int) -> None:
        self.left, self.ends = at_call, False

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or "/train_manager/core/" not in frame.f_code.co_filename.replace("\\", "/"):
            return
        is_end = frame.f_code is Stage.__exit__.__code__ and frame.f_locals["self"].name == "run"
        self.ends = self.ends or is_end
        self.left -= self.ends
        if self.ends and not self.left:
            sys.settrace(None)
            raise KeyboardInterrupt


def test_ctrl_c_at_the_first_or_last_lines_of_the_end_of_a_run_leaves_no_run_half_open() -> None:
    class Holds(Extension):
        held = 0

        def around_run(self) -> Iterator[None]:
            self.held += 1
            try:
                yield
            finally:
                self.held -= 1

    for at_call in range(1, 1000):
        tm, previous = tiny_manager(holds := Holds()), sys.gettrace()
        tracer = CtrlCAtTheEndOfTheRun(at_call)
        sys.settrace(tracer)
        try:
            tm.eval()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(previous)
        assert (tm.fixtures.path, holds.held) == ((), 0), at_call
        if tracer.left > 0:
            break
        tm.eval()
    assert at_call > 10
