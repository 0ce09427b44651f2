"""Rows G03, G04, G06-G08, G16-G18, G27, G28, G31-G37, G39, G45 and G49 of the capabilities.

Losses from inside a model, updates after the optimizer, hooks and their names, data, several heads, metrics, gradients
that are accumulated, losses that are not finite, reserved names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import (
    Endless,
    Extensible,
    Extension,
    FixtureExists,
    HookError,
    InMemory,
    InputError,
    NonFiniteLoss,
    TrainManager,
    fixture,
    modifies,
)
from train_manager.constraints import max_norm, non_negative, row_norms
from train_manager.extensions import Accumulate, Constrain, Metrics, StopOnNonFinite
from train_manager.losses import Losses, WeightedLosses, add_loss
from train_manager.testing import tiny_manager


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


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    return torch.ones(size, 2), torch.zeros(size, dtype=torch.long)


class Dataset:
    """What a dataset is there: batches, and a way back to the start. Its name is its key in ``eval_data``."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(2):
            self.log.append("batch")
            yield batch_of(4)

    def reset(self) -> None:
        self.log.append("reset")


def test_g27_a_dataset_is_reset_after_every_epoch_also_the_last() -> None:
    data = Dataset()
    tiny_manager(train_data=data, epochs=2).train()

    assert data.log == ["batch", "batch", "reset", "batch", "batch", "reset"]


def test_g27_that_data_is_of_use_is_checked_at_the_start() -> None:
    with pytest.raises(InputError, match=r"eval_data\['test'\] is a int, which cannot be iterated"):
        tiny_manager(eval_data={"test": 3})


def test_g28_the_end_of_the_data_ends_the_epoch_and_any_other_error_comes_out() -> None:
    class Breaks(Dataset):
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            yield batch_of(4)
            raise OSError("the disk is gone")

    ends, breaks = tiny_manager(train_data=Dataset()), tiny_manager(train_data=Breaks())
    ends.train()
    with pytest.raises(OSError, match="the disk is gone"):
        breaks.train()

    assert ends.step_num == 2


def test_g31_shapes_may_vary() -> None:
    tm = tiny_manager(train_data=[batch_of(4), batch_of(2), batch_of(7)])
    tm.train()

    assert tm.step_num == 3


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(4, 1)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return self.left(left), self.right(right)


def test_g32_inputs_labels_predictions_and_losses_may_be_several() -> None:
    class Heads(TrainManager):
        def model_forward(self, inputs: Any) -> Any:
            return self.model(*inputs)

    def loss(prediction: Any, targets: Any) -> Tensor:
        return F.cross_entropy(prediction[0], targets[0]) + 0.5 * F.mse_loss(prediction[1], targets[1])

    model = TwoHeads()
    before = [parameter.clone() for parameter in model.parameters()]
    batch = (torch.ones(4, 2), torch.ones(4, 4)), (torch.zeros(4, dtype=torch.long), torch.zeros(4, 1))
    Heads(model=model, loss=loss, optimizer=torch.optim.AdamW, train_data=[batch]).train()

    assert not any(old.equal(new) for old, new in zip(before, model.parameters(), strict=True))


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


def test_g33_there_may_be_no_labels() -> None:
    def smoothness(prediction: Tensor) -> Tensor:
        return prediction.diff(dim=1).abs().mean()

    tm = tiny_manager(loss=smoothness, train_data=InMemory(torch.rand(8, 2), batch_size=4), eval_data=None)
    tm.train()

    assert tm.step_num == 2


def test_g34_there_may_be_no_metrics() -> None:
    tm = tiny_manager(Metrics(train={}, eval={}, table=False))
    tm.train()

    assert list(tm.eval()["valid"]) == ["loss"]


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return (prediction.argmax(dim=1) == targets).float().mean()


def test_g35_training_shows_the_loss_then_its_moving_average_then_the_users_metrics() -> None:
    seen: list[list[str]] = []
    watch = Extension.of(post_train_step_batch=lambda metrics: seen.append(list(metrics)))
    tiny_manager(Metrics(accuracy=accuracy, table=False), watch).train()

    assert seen == [["loss", "moving_loss", "accuracy"]] * 3


def test_g36_an_evaluation_gives_the_mean_loss_then_the_users_metrics_over_each_example_once() -> None:
    """The last batch is shorter than the others."""
    inputs, targets = torch.rand(7, 2), torch.tensor([0, 1, 0, 1, 1, 1, 0])
    data = InMemory(inputs, targets, batch_size=4)
    tm = tiny_manager(Metrics(accuracy=accuracy, table=False), eval_data={"test": data})
    result = tm.eval()["test"]

    with torch.no_grad():
        prediction = tm.model(inputs)
    by_hand = {"loss": F.cross_entropy(prediction, targets).item(), "accuracy": accuracy(prediction, targets).item()}
    assert list(result) == list(by_hand)
    assert result == pytest.approx(by_hand)


def test_g37_data_without_an_end_is_not_evaluated() -> None:
    with pytest.raises(InputError, match=r"eval_data\['test'\] is a Endless without an end"):
        tiny_manager(eval_data={"test": Endless([batch_of(4)])})


def test_g39_the_metrics_of_the_training_can_be_reset() -> None:
    metrics = Metrics(accuracy=accuracy, table=False)
    tiny_manager(metrics).train()
    assert list(metrics.training) == ["loss", "moving_loss", "accuracy"]
    metrics.reset()

    assert metrics.training == {}


def test_g39_the_metrics_themselves_can_be_had() -> None:
    metrics = Metrics(train={"accuracy": accuracy}, eval={"share": accuracy})

    assert metrics.train_metrics == {"accuracy": accuracy}
    assert metrics.eval_metrics == {"share": accuracy}


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
