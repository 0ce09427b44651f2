"""Rows of the capabilities that come from GoMLX (G).

G16-G18 and G49: priorities, names, hooks on start, step and end, reserved names; G03, G04, G06, G32, G45: losses from
inside a model, several heads, accumulated gradients.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import Extensible, Extension, FixtureExists, HookError, TrainManager, fixture
from train_manager.extensions import Accumulate
from train_manager.losses import Losses, WeightedLosses, add_loss
from train_manager.testing import tiny_manager


class Loop(Extensible):
    """Three steps."""

    def run(self) -> int:
        with self.staged("run", {"dataset": "digits"}):
            for number in range(3):
                with self.staged("step", {"number": number}):
                    self.fixtures["loss"] = 1.0 / (number + 1)
        return number


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


class Experts(nn.Linear):
    """Adds two losses of its own to whatever it is trained for."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = super().forward(inputs)
        add_loss(outputs.square().sum(dim=1), "size")
        add_loss(torch.tensor(0.5))
        return outputs


def test_g03_losses_that_a_model_adds_inside_its_forward_are_summed() -> None:
    with Losses() as losses:
        outputs = Experts(2, 2)(torch.ones(4, 2))
    torch.testing.assert_close(losses.total(torch.tensor(1.0)), 1.5 + outputs.square().sum(dim=1).mean())


def test_g04_an_added_loss_with_a_value_for_each_example_is_reduced_to_its_mean() -> None:
    with Losses() as losses:
        add_loss(torch.tensor([1.0, 2.0, 6.0]))
    assert losses.total(None).item() == 3.0


def test_g06_the_sum_of_the_added_losses_or_none() -> None:
    with Losses() as losses:
        assert losses.added is None
        add_loss(torch.tensor(1.0), "one")
        add_loss(torch.tensor(2.0), "two")
        assert losses.added is not None
        assert losses.added.item() == 3.0


def test_g32_several_inputs_labels_and_predictions_with_a_loss_for_each_head() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind, self.size = nn.Linear(2, 2), nn.Linear(3, 1)

        def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
            return {"kind": self.kind(inputs["left"]), "size": self.size(inputs["right"]).squeeze(1)}

    generator = torch.Generator().manual_seed(0)
    inputs = {"left": torch.rand(16, 2, generator=generator), "right": torch.rand(16, 3, generator=generator)}
    targets = {"kind": (inputs["left"][:, 0] > 0.5).long(), "size": inputs["right"][:, 1]}
    loss = WeightedLosses({"kind": F.cross_entropy, "size": (F.mse_loss, 0.3)})
    tm = tiny_manager(model=Heads(), loss=loss, train_data=[(inputs, targets)] * 20, eval_data=None, epochs=10)
    before = {name: part.detach().clone() for name, part in tm.model.named_parameters()}
    first = loss(tm.model(inputs), targets).item()
    tm.train()
    assert loss(tm.model(inputs), targets).item() < 0.7 * first
    assert all(not part.equal(before[name]) for name, part in tm.model.named_parameters())


def test_g45_gradients_are_accumulated_and_steps_and_updates_counted_apart() -> None:
    """One large batch is what the window of small ones equals."""

    def trained(sizes: list[int], *extensions: Extension) -> TrainManager:
        inputs = torch.rand(16, 2, generator=torch.Generator().manual_seed(0))
        targets = (inputs.sum(dim=1) > 1).long()
        batches = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
        tm = tiny_manager(*extensions, train_data=batches, eval_data=None, epochs=3)
        tm.train()
        return tm

    accumulated, plain = trained([3, 5, 7, 1], Accumulate(4)), trained([16])
    assert (accumulated.step_num, accumulated.update_num) == (12, 3)
    for name, weights in plain.model.state_dict().items():
        torch.testing.assert_close(accumulated.model.state_dict()[name], weights, rtol=0, atol=1e-6)
