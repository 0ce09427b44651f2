"""Changes of state are logged: row F14 of the design of the learner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, TrainManager, Watcher, modifies
from train_manager.extensions import Avg, ChangeLog, ClipGradients
from train_manager.testing import tiny_manager

STEP = 4  # the first of the second epoch
PATH = "run > train > train_step_epoch > train_step_batch"


class Doubled(Extension):
    @modifies("backward_loss")
    def pre_train_backward(self, backward_loss: Tensor) -> Tensor:
        return 2 * backward_loss


class Halved(Extension):
    def post_train_model_forward(self, prediction: Tensor, step_num: int) -> None:
        if step_num + 1 == STEP:
            prediction.detach().mul_(0.5)


def test_f14_each_change_is_logged_with_who_what_old_new_stage_and_step() -> None:
    tiny_manager(Doubled(), Halved(), log := ChangeLog(), epochs=2).train()

    sets, changes = log.why("backward_loss", STEP)[1], log.why("prediction", STEP)[1]
    loss = log.why("loss", STEP)[0].new
    assert sets[:5] == (STEP, f"{PATH} > train_backward", "Doubled.pre_train_backward", "sets", "backward_loss")
    assert (sets.old, sets.new) == (loss, pytest.approx(2 * loss))
    assert changes[1:4] == (f"{PATH} > train_model_forward", "Halved.post_train_model_forward", "changes in place")
    assert changes.new == pytest.approx(changes.old / 2)
    assert str(sets) == (
        f"step 4, {PATH} > train_backward: Doubled.pre_train_backward sets: backward_loss {loss:.6g} -> {2 * loss:.6g}"
    )


def by_data(weight: Tensor) -> None:
    weight.data.mul_(2)


def by_numpy(weight: Tensor) -> None:
    weight.detach().numpy()[...] *= 2


class ChangesWeights(Extension):
    def __init__(self, change: Callable[[Tensor], None]) -> None:
        self.change = change

    def post_train_backward(self, model: nn.Module, step_num: int) -> None:
        if step_num + 1 == STEP:
            self.change(next(model.parameters()))


BODY, HOOK = "body of train_optimizer_step", "ChangesWeights.post_train_backward"


@pytest.mark.parametrize("change", [by_data, by_numpy])
def test_f14_a_change_past_the_version_counter_is_found_with_deep(change: Callable[[Tensor], None]) -> None:
    for deep, who in ((False, [BODY]), (True, [HOOK, BODY])):
        tiny_manager(ChangesWeights(change), log := ChangeLog(deep=deep), epochs=2).train()
        assert [row.who for row in log.why("weights", STEP)] == who


def test_f14_the_step_of_a_fused_optimizer_is_found_with_deep() -> None:
    for deep, who in ((False, []), (True, [BODY])):
        fused: Any = lambda parameters: torch.optim.AdamW(parameters, fused=True)  # noqa: E731
        tiny_manager(log := ChangeLog(deep=deep), optimizer=fused, epochs=2).train()
        assert [row.who for row in log.why("weights", STEP)] == who


class Silent(Watcher):
    def saw(self, stage: object, ran: object) -> None: ...


def texts(tm: TrainManager) -> dict[str, str]:
    """Return the functions of all stages that have opened."""
    return {stage: tm.explain(stage, format="code") for stage in tm._store.plans}


def calls_of_a_step(tm: TrainManager) -> list[str]:
    """Return the names of the functions that a training step calls, in their order."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        tm.train_steps(1)
    finally:
        sys.setprofile(None)
    return calls


def test_f14_without_a_watcher_the_functions_of_all_stages_are_as_before() -> None:
    tm = tiny_manager(ClipGradients(1.0), Avg("loss", weight="true_batch_size"), Doubled())
    with tm.run():
        tm.train_steps(3)
        before = texts(tm), calls_of_a_step(tm)
        tm.add_extension(Silent())
        tm.train_steps(2)
        watched = texts(tm)
        tm.remove_extension("silent")
        tm.train_steps(3)
        after = texts(tm), calls_of_a_step(tm)
    assert all("store.watch(" in text for text in watched.values())
    assert {stage: after[0][stage] for stage in before[0]} == before[0]
    assert after[1] == before[1]


def test_f14_the_weights_are_equal_with_and_without_the_log_bit_for_bit() -> None:
    found = []
    for extensions in ([], [ChangeLog()], [ChangeLog(deep=True)]):
        tm = tiny_manager(*extensions, epochs=3)
        tm.train()
        found.append([weight.tolist() for weight in tm.model.parameters()])
    assert found[0] == found[1] == found[2]


class Spoils(Extension):
    def post_train_optimizer_step(self, model: nn.Module, step_num: int) -> None:
        if step_num + 1 == STEP:
            with torch.no_grad():
                next(model.parameters())[0, 0] = torch.inf


class Raises(Extension):
    def pre_train_model_forward(self, step_num: int) -> None:
        if step_num == STEP:
            self.refuse()

    def refuse(self) -> NoReturn:
        raise ValueError("weights are not finite")


def test_f14_the_log_names_the_hook_that_has_spoilt_a_weight_before_another_raises() -> None:
    with pytest.raises(ValueError, match="not finite"):
        tiny_manager(Spoils(), Raises(), log := ChangeLog(), epochs=2).train()
    last = log.why("weights")[-1]
    assert (last.step, last.who, last.new) == (STEP, "Spoils.post_train_optimizer_step", torch.inf)
    assert str(last).endswith(f"{last.old:.6g} -> inf")
