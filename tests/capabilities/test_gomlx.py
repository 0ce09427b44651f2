"""Rows G07, G08, G16-G18, G45 and G49 of the capabilities.

Updates after the optimizer, priorities, names, hooks on start, step and end, losses that are not finite,
reserved names.
"""

from __future__ import annotations

import pytest
from torch import Tensor

from train_manager import (
    Extensible,
    Extension,
    FixtureExists,
    HookError,
    InputError,
    NonFiniteLoss,
    TrainManager,
    fixture,
    modifies,
)
from train_manager.constraints import max_norm, non_negative, row_norms
from train_manager.extensions import Constrain, StopOnNonFinite
from train_manager.testing import tiny_manager


class Loop(Extensible):
    """Three steps."""

    def run(self) -> int:
        with self.staged("run", {"dataset": "digits"}):
            for number in range(3):
                with self.staged("step", {"number": number}):
                    self.fixtures["loss"] = 1.0 / (number + 1)
        return number


def test_g07_a_constraint_holds_after_every_training_step_and_is_not_applied_in_evaluation() -> None:
    longest: list[float] = []
    applied: list[str] = []

    class Steps(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            longest.append(row_norms(train_manager.model.get_parameter("0.weight")).max().item())

    def short(weight: Tensor) -> Tensor:
        applied.append("step")
        return max_norm(weight, limit=0.5)

    tm = tiny_manager(Constrain(short, "0"), Steps(), epochs=4)
    tm.eval()
    assert applied == []
    tm.train()
    assert len(longest) == len(applied) == 12
    assert max(longest) < 0.5 + 1e-6


def test_g08_a_weight_has_one_constraint_and_a_second_is_refused() -> None:
    tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "2")).train()
    with pytest.raises(InputError, match=r"two Constrain extensions, .*, have the weight '0\.weight'"):
        tiny_manager(Constrain(max_norm, "0"), Constrain(non_negative, "[0-2]")).train()


def test_g16_the_lowest_priority_runs_first_and_ties_in_order_of_registration() -> None:
    log: list[str] = []

    class Named(Extension):
        def __init__(self, name: str, rank: int = 0) -> None:
            self.name = name
            self.priority = rank

        def pre_run(self) -> None:
            log.append(self.name)

    Loop([Named("a", 7), Named("b"), Named("c", -3), Named("d"), Named("e", -100)]).run()
    assert log == ["e", "c", "b", "d", "a"]


def test_g17_every_hook_has_a_name_that_errors_use() -> None:
    class Broken(Extension):
        def post_step(self, loss: float) -> None:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken") as error:
        Loop({"my_hook": Broken()}).run()
    assert error.value.__notes__ == ["in hook Broken.post_step of extension 'my_hook', at stage run > step"]


def test_g18_hooks_run_on_start_on_every_step_and_on_end() -> None:
    log: list[object] = []
    hooks = Extension.of(
        pre_run=lambda dataset: log.append(dataset),
        post_step=lambda loss: log.append(loss),
        post_run=lambda dataset: log.append(f"end of {dataset}"),
    )
    assert Loop([hooks]).run() == 2
    assert log == ["digits", 1.0, 1 / 2, 1 / 3, "end of digits"]


@pytest.mark.parametrize("hook", ["pre_run", "post_step", "post_run"])
def test_g18_an_error_of_a_hook_stops_the_loop_and_comes_out(hook: str) -> None:
    raised = ValueError(hook)

    def fails() -> None:
        raise raised

    with pytest.raises(ValueError, match=hook) as error:
        Loop([Extension.of(**{hook: fails})]).run()
    assert error.value is raised


@pytest.mark.parametrize("name", ["fixtures", "stage", "extensible", "exc_type", "exc_value", "traceback"])
def test_g49_a_fixture_with_a_reserved_name_is_refused(name: str) -> None:
    loop = Loop()
    with pytest.raises(FixtureExists, match=f"writes '{name}', which is always there and cannot be written"):
        with loop.staged("run", {name: 1}):
            pass
    with loop.staged("run"):
        with pytest.raises(FixtureExists):
            loop.fixtures.modify(name, 1)


def test_g49_a_fixture_on_demand_with_a_reserved_name_is_refused() -> None:
    class Wrong(Extension):
        @fixture("run")
        def stage(self) -> int:
            return 1

    with pytest.raises(HookError, match=r"Wrong.stage provides 'stage', which is always there"):
        Loop([Wrong()])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_g45_a_loss_that_is_not_finite_ends_the_training_after_the_hooks_of_its_step(value: float) -> None:
    """Gradients that are accumulated have a test of their own."""
    seen: list[int] = []

    class Breaks(Extension):
        @modifies("loss")
        def post_train_loss_forward(self, loss: Tensor, step_num: int) -> Tensor:
            return loss * value if step_num == 1 else loss

    tm = tiny_manager(StopOnNonFinite(check_every=1), Breaks())
    tm.add_extension(post_train_step_batch=lambda step_num: seen.append(step_num))
    with pytest.raises(NonFiniteLoss, match="in step 2"):
        tm.train()
    assert seen == [1, 2]
