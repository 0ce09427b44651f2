"""Phases: parts of a training that are replaced for a ``with`` block, inside one run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from tests.support.training import At, Values, make_batches, stop_at, weights
from train_manager import Extension, InputError, Objective, TrainManager, modifies
from train_manager.errors import ExtensionNotFound, StageError
from train_manager.testing import Recorder, tiny_manager


def net(inputs: int = 2, outputs: int = 2, seed: int = 1) -> nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(inputs, outputs)


def sgd(parameters: Any) -> SGD:
    return SGD(parameters, lr=0.5)


# ---- what is replaced --------------------------------------------------------------------------------------------


def test_two_phases_equal_two_loops_bit_for_bit() -> None:
    batches = make_batches(4)
    first, second = net(batches[0][0].shape[1], 2), net(batches[0][0].shape[1], 2)
    tm = TrainManager(model=first, loss=F.cross_entropy, optimizer=sgd, train_data=batches, epochs=2)
    with tm.run():
        with tm.phase("other", model=second, loss=F.mse_loss, train_data=pairs(batches), epochs=3):
            tm.train()
        tm.train()

    assert torch.equal(weights(first), weights(by_hand(first.in_features, F.cross_entropy, batches, 2)))
    assert torch.equal(weights(second), weights(by_hand(first.in_features, F.mse_loss, pairs(batches), 3)))


def pairs(batches: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    return [(x, F.one_hot(y, 2).to(x.dtype)) for x, y in batches]


def by_hand(inputs: int, loss: Any, batches: Any, epochs: int) -> nn.Module:
    model = net(inputs, 2)
    optimizer = sgd(model.parameters())
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    return model


def test_what_is_replaced_is_put_back() -> None:
    tm = tiny_manager()
    names = ("model", "loss", "optimizer", "lr_schedule", "train_data", "eval_data", "epochs", "steps_per_epoch")
    before = [getattr(tm, name) for name in names]
    with tm.phase(
        "other",
        model=net(),
        loss=F.mse_loss,
        optimizer=sgd,
        lr_schedule=lambda optimizer: StepLR(optimizer, 1),
        train_data=[],
        eval_data=None,
        epochs=7,
        steps_per_epoch=2,
    ):
        inside = [getattr(tm, name) for name in names]

    assert not any(new is old for new, old in zip(inside, before, strict=True))
    assert all(getattr(tm, name) is old for name, old in zip(names, before, strict=True))


def test_an_error_in_a_phase_puts_everything_back() -> None:
    tm = tiny_manager()
    model, optimizer = tm.model, tm.optimizer
    with (
        pytest.raises(ZeroDivisionError),
        tm.run(),
        tm.phase("other", model=net(), extensions=[At("pre_eval", lambda: None)]),
    ):
        tm.train_steps(1)
        raise ZeroDivisionError

    assert (tm.model, tm.optimizer, list(tm.extensions)) == (model, optimizer, [])
    assert tm.train().epochs == 1


def test_what_is_set_inside_a_phase_ends_with_it() -> None:
    tm = tiny_manager()
    before = tm.optimizer
    with tm.phase("other"):
        tm.optimizer = sgd(tm.model.parameters())

    assert tm.optimizer is before


def test_a_called_model_of_a_phase_ends_with_it() -> None:
    tm = tiny_manager()
    with tm.phase("other"):
        tm.called_model = nn.Sequential(tm.model)
    with tm.phase("another", model=net()):
        assert tm.called_model is tm.model

    assert tm.called_model is tm.model


def test_the_modes_of_a_phases_model_are_put_back() -> None:
    model = net().eval()
    tm = tiny_manager()
    with tm.phase("other", model=model):
        tm.train_steps(1)

    assert not model.training


def test_an_objective_of_a_phase_is_its_loss() -> None:
    class Zero(Objective):
        def loss(self, prediction: Tensor) -> Tensor:
            return 0 * prediction.sum()

    tm = tiny_manager()
    before = weights(tm.model)
    with tm.phase("other", loss=Zero()):
        tm.train_steps(2)

    assert torch.equal(weights(tm.model), before)
    assert tm.objective is None


# ---- counters ----------------------------------------------------------------------------------------------------


def test_epochs_begin_at_0_and_are_put_back_while_steps_continue() -> None:
    seen = Values("post_train_step_epoch", "phase_name", "epoch_num", "step_num")
    tm = tiny_manager(seen, epochs=2)
    with tm.run():
        tm.train_epochs(1)
        with tm.phase("other", epochs=2):
            tm.train()
        tm.train()

    assert seen.seen == [(None, 1, 3), ("other", 1, 6), ("other", 2, 9), (None, 2, 12)]


def test_an_epoch_that_was_left_continues_after_the_phase() -> None:
    numbers = Values("pre_train_step_batch", "batch_num")
    tm = tiny_manager(numbers)
    with tm.run():
        tm.train_steps(2)
        with tm.phase("other"):
            tm.train_steps(1)
        tm.train()

    assert numbers.seen == [1, 2, 1, 3]


def test_a_phase_has_its_evaluation_at_the_start() -> None:
    evals = Values("post_eval", "phase_name", "step_num")
    tm = tiny_manager(evals)
    with tm.run():
        tm.train()
        with tm.phase("other"):
            tm.train()

    assert evals.seen == [(None, 0), (None, 3), ("other", 3), ("other", 6)]


def test_stop_ends_the_training_of_the_phase_only() -> None:
    tm = tiny_manager()
    with tm.run():
        with tm.phase("other", extensions=[stop_at("post_train_step_batch")]):
            result = tm.train()
        assert (result.steps, tm.stop_reason) == (1, None)
        assert tm.train().steps == 3


def test_stop_may_end_the_whole_run() -> None:
    def stop(train_manager: TrainManager) -> None:
        train_manager.stop("enough", whole_run=True)

    tm = tiny_manager()
    with tm.run():
        with tm.phase("other", extensions=[At("post_train_step_batch", stop)]):
            tm.train()
        with pytest.warns(UserWarning, match="this run was stopped"):
            assert tm.train().steps == 0
    assert tm.stop_reason == "enough"


@pytest.mark.parametrize("is_phase", [True, False])
def test_a_run_that_was_stopped_trains_in_none_of_its_later_phases(is_phase: bool) -> None:
    def stop(train_manager: TrainManager) -> None:
        train_manager.stop("enough", whole_run=is_phase)

    tm = tiny_manager()
    with tm.run():
        hook = tm.add_extension(At("post_train_step_batch", stop))
        if is_phase:
            with tm.phase("first"):
                tm.train()
        else:
            tm.train()
        tm.remove_extension(hook)
        with tm.phase("second"), pytest.warns(UserWarning, match="this run was stopped"):
            assert tm.train().steps == 0

    assert tm.step_num == 1


# ---- optimizers --------------------------------------------------------------------------------------------------


def test_a_model_without_an_optimizer_has_one_made_by_the_constructors_callable() -> None:
    model = net()
    before = weights(model)
    tm = tiny_manager()
    with tm.phase("other", model=model):
        tm.train_steps(1)

    assert not torch.equal(weights(model), before)


def test_a_ready_optimizer_of_another_model_is_refused() -> None:
    model = net()
    tm = TrainManager(model=model, loss=F.cross_entropy, optimizer=sgd(model.parameters()), train_data=[])
    with pytest.raises(InputError) as caught, tm.phase("other", model=net()):
        pass

    assert str(caught.value) == (
        "the phase has a model of its own, but the TrainManager was given a ready optimizer, which is of another\n"
        "  give the phase one: tm.phase(..., optimizer=torch.optim.AdamW)"
    )


def test_the_outer_schedule_rests_with_a_new_optimizer() -> None:
    tm = tiny_manager(lr_schedule=lambda optimizer: StepLR(optimizer, 1), epochs=1)
    with tm.run(), tm.phase("other", optimizer=sgd, epochs=2):
        tm.train()

    assert tm.lr_schedule.get_last_lr() == [0.5]


@pytest.mark.parametrize("hook", ["began", "ended"])
def test_a_window_that_is_open_as_a_phase_begins_or_ends_is_dropped_with_a_warning(hook: str) -> None:
    tm = tiny_manager(hold_windows_open())
    batch = tm.train_data[0]  # type: ignore[index]

    def train() -> None:
        if hook == "began":
            tm.train_on_batch(batch)
        with tm.phase("other"):
            if hook == "ended":
                tm.train_on_batch(batch)

    with tm.run(), pytest.warns(UserWarning, match=rf"phase 'other' {hook} within a window, so the gradients"):
        train()


def hold_windows_open() -> Extension:
    return At("pre_train_step_batch", modifies("update_ends")(lambda update_ends: False))


# ---- extensions --------------------------------------------------------------------------------------------------


def test_extensions_of_a_phase_come_and_go_with_it() -> None:
    recorder = Recorder()
    tm = tiny_manager()
    with tm.run():
        tm.train_steps(1)
        with tm.phase("other", extensions=[recorder]):
            tm.train_steps(1)
        tm.train_steps(1)

    assert (recorder.hooks.count("pre_run"), recorder.hooks.count("post_run")) == (1, 1)
    assert recorder.stages.count("train_step_batch") == 1


def test_extensions_pause_by_name() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    with tm.run():
        with tm.phase("other", without=["recorder"]):
            tm.train_steps(1)
            assert tm.paused_extensions == {"recorder"}
        assert tm.paused_extensions == set()
        tm.train_steps(1)

    assert recorder.stages.count("train_step_batch") == 1
    assert recorder.hooks.count("pre_run") == 1


def test_an_unknown_name_to_pause_opens_no_phase() -> None:
    tm = tiny_manager()
    with tm.run():
        with pytest.raises(ExtensionNotFound, match="TrainManager has no extension 'freeze'"):
            with tm.phase("other", without=["freeze"]):
                pass
        assert tm.state_dict()["program"] == []


def test_an_extension_that_an_outer_phase_pauses_stays_so_in_an_inner_one() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    with tm.run(), tm.phase("outer", without="recorder"):
        with tm.phase("inner", without="recorder"):
            pass
        tm.train_steps(1)

    assert recorder.stages.count("train_step_batch") == 0


def test_the_hooks_of_a_phase_see_its_name_and_model() -> None:
    model = net()
    seen = Values("pre_phase", "phase_name", "model")
    tm = tiny_manager(seen)
    with tm.phase("other", model=model):
        pass

    assert seen.seen == [("other", model)]


# ---- where a phase cannot open -----------------------------------------------------------------------------------


def test_a_phase_cannot_open_inside_a_training() -> None:
    def open_phase(train_manager: TrainManager) -> None:
        with train_manager.phase("other"):
            pass

    with pytest.raises(StageError) as caught:
        tiny_manager(At("post_train_step_epoch", open_phase)).train()

    assert str(caught.value).splitlines()[:3] == [
        "phase() cannot be called inside stage 'train'",
        "  open stages  run > train > train_step_epoch",
        "  open it around the call: with tm.phase(...): tm.train()",
    ]


def test_a_run_that_is_open_cannot_be_opened_again() -> None:
    tm = tiny_manager()
    tm.open()
    with pytest.raises(StageError, match="it is open already"):
        tm.open()
    tm.close()
