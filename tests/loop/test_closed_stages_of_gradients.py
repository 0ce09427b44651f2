"""The inner stages of a batch: the gradients of closed stages, and what else works in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

from tests.loop.closed_stages import (
    INNER,
    Looker,
    by_hand,
    manager,
    net,
    runs,
    slow,
)
from tests.support.training import At, Batch, Values, make_batches, skip_batch, weights
from train_manager import Extension, TrainManager, add_loss, modifies
from train_manager.extensions import (
    SAM,
)
from train_manager.loop.ranks import Ranks
from train_manager.model.optimizers import parameters_in
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.testing import tiny_manager

# ---- gradients -------------------------------------------------------------------------------------------------------


def test_gradients_that_the_datas_iterator_leaves_are_not_learnt_from() -> None:
    class Stains:
        def __iter__(self) -> Iterator[Batch]:
            for inputs, targets in make_batches(4):
                model(inputs).sum().backward()
                yield inputs, targets

    model = net()
    tm = manager(TrainManager, model=model, train_data=Stains())
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(model), by_hand(net(), make_batches(4) * 2))


def test_gradients_that_a_hook_of_a_module_leaves_are_not_learnt_from() -> None:
    model = net()
    model[0].register_forward_hook(lambda part, inputs, output: output.sum().backward(retain_graph=True))
    tm = manager(TrainManager, model=model)
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(model), by_hand(net(), make_batches(4) * 2))


def test_a_step_leaves_no_gradients() -> None:
    tm = manager(TrainManager)
    tm.train()

    assert runs(tm)
    assert all(parameter.grad is None for parameter in tm.model.parameters())


def test_an_own_zero_grad_of_an_optimizer_is_called() -> None:
    class Counts(SGD):
        calls = 0

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.calls += 1
            super().zero_grad(set_to_none)

    tm = manager(TrainManager, optimizer=lambda parameters: Counts(parameters, lr=0.1))
    tm.train()

    assert tm.optimizer.calls >= 8  # type: ignore[attr-defined]


class Alone(WeightedLoss):
    """Calls a function with the optimizer whose gradients are complete."""

    def __init__(self, gather: Callable[[Optimizer], None]) -> None:
        super().__init__(number=1)
        self._gather = gather

    def gather(self, optimizer: Optimizer) -> None:
        self._gather(optimizer)

    def mean_loss(self, loss: Tensor) -> Tensor:
        return loss

    def mean_gradients(self, optimizer: Optimizer) -> list[Tensor | None]:
        return [parameter.grad for parameter in parameters_in(optimizer)]


class Gathering(Extension):
    """Has a function called with the optimizer whose gradients are complete, as ``Distributed`` does."""

    def __init__(self, gather: Callable[[Optimizer], None]) -> None:
        self.joined = Ranks()
        self.joined.gradients = Alone(gather)

    def pre_run(self) -> None: ...  # an extension without a hook is a mistake


def halves(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad.mul_(0.5)


def test_gradients_are_made_one_in_closed_stages() -> None:
    tm = manager(TrainManager, Gathering(halves))
    tm.train()

    assert runs(tm)
    assert torch.equal(weights(tm.model), by_hand(net(), make_batches(4) * 2, lambda p, t: F.cross_entropy(p, t) * 0.5))


def test_gradients_are_made_one_from_the_call_on_after_which_something_does_so() -> None:
    calls: list[int] = []
    tm = manager(TrainManager)
    tm.train_steps(3)
    tm.add_extension(Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train_steps(3)

    assert calls == [3, 4, 5]


@pytest.mark.parametrize("extension", [Looker, lambda: SAM(0.05)], ids=["stages", "SAM"])
def test_gradients_are_made_one_in_open_stages_too(extension: Callable[[], Extension]) -> None:
    calls: list[int] = []
    tm = manager(TrainManager, extension(), Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train_steps(2)

    assert set(calls) == {0, 1}


def test_gradients_of_a_window_are_made_one_with_its_last_batch_only() -> None:
    calls: list[int] = []
    tm = manager(TrainManager, every_second_ends(), Gathering(lambda optimizer: calls.append(tm.step_num)))
    tm.train()

    assert calls == [1, 3, 5, 7]


def every_second_ends() -> Extension:
    def hook(step_num: int) -> bool:
        return step_num % 2 == 1

    return At("pre_train_step_batch", modifies("update_ends")(hook))


def test_a_window_of_two_batches_gathers_their_gradients() -> None:
    tm = manager(TrainManager, every_second_ends())
    tm.train()
    model = net()
    optimizer = slow(model.parameters())
    for number, (inputs, targets) in enumerate(make_batches(4) * 2):
        F.cross_entropy(model(inputs), targets).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()

    assert torch.equal(weights(tm.model), weights(model))


def test_a_batch_whose_window_continues_leaves_its_gradients() -> None:
    found: list[bool] = []
    tm = manager(TrainManager, At("pre_train_step_batch", modifies("update_ends")(lambda step_num: step_num < 2)))

    def train() -> None:
        with tm.run():
            tm.train_steps(3)
            found.extend([runs(tm), tm.open_windows == ("optimizer",), tm.model[0].weight.grad is not None])

    with pytest.warns(UserWarning, match="the run ended within a window"):
        train()

    assert found == [True] * 3


def test_the_loss_of_a_window_that_closed_stages_have_opened_can_be_computed_anew() -> None:
    def hook(train_manager: TrainManager, step_num: int, loss: Tensor) -> None:
        if step_num == 3:
            again.append((float(train_manager.closure()().detach()), float(loss.detach())))

    again: list[tuple[float, float]] = []
    update_ends = modifies("update_ends")(lambda step_num: step_num != 2)
    manager(TrainManager, At("pre_train_step_batch", update_ends), At("post_train_step_batch", hook)).train()

    assert len(again) == 1
    assert again[0][0] == again[0][1]


def test_a_hook_of_torch_at_the_step_finds_the_window_open() -> None:
    open_windows: list[tuple[str, ...]] = []
    tm = manager(TrainManager)
    tm.optimizer.register_step_pre_hook(lambda *step: open_windows.append(tm.open_windows))
    tm.train()

    assert open_windows == [("optimizer",)] * 8


def test_an_optimizer_may_compute_its_loss_anew() -> None:
    class Twice(SGD):
        def step(self, closure: Any = None) -> Any:
            losses.append(float(tm.closure()().detach()))
            return super().step(closure)

    losses: list[float] = []
    tm = manager(TrainManager, optimizer=lambda parameters: Twice(parameters, lr=0.1))
    tm.train()

    assert len(losses) == 8


# ---- what else works in closed stages -------------------------------------------------------------------------------


class Sparse(nn.Module):
    """Adds a loss in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, inputs: Tensor) -> Any:
        outputs = self.net(inputs)
        add_loss(outputs.square().mean(), "size")
        return outputs


def test_a_post_hook_of_the_batch_finds_prediction_and_loss() -> None:
    names = ("prediction", "loss", "losses", "inputs", "targets")
    seen, in_stages = Values("post_train_step_batch", *names), Values("post_train_step_batch", *names)
    manager(TrainManager, seen, model=Sparse()).train()
    manager(TrainManager, in_stages, Looker(), model=Sparse()).train()

    assert repr(seen.seen) == repr(in_stages.seen)


def test_a_loss_reads_the_counters_as_they_were_before_the_step() -> None:
    def loss(prediction: Tensor, targets: Tensor, step_num: int, update_num: int) -> Tensor:
        counts.append((step_num, update_num))
        return F.cross_entropy(prediction, targets)

    counts: list[tuple[int, int]] = []
    tm = manager(TrainManager, loss=loss, epochs=1)
    tm.train()

    assert runs(tm)
    assert counts == [(0, 0), (1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("where", ["model", "loss", "hook", "backward", "step"])
def test_a_batch_that_is_skipped_is_not_trained_on(where: str) -> None:
    def skip_third(here: str) -> None:
        if here == where and tm._progress.feed.batch_num == 3:
            skip_batch()

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        skip_third("loss")
        prediction.register_hook(lambda gradient: skip_third("backward"))
        return F.cross_entropy(prediction, targets)

    model = net()
    model.register_forward_hook(lambda *call: skip_third("model"))
    tm = manager(TrainManager, At("pre_train_step_batch", lambda: skip_third("hook")), model=model, loss=loss, epochs=1)
    tm.optimizer.register_step_pre_hook(lambda *step: skip_third("step"))
    tm.train()
    batches = make_batches(4)

    assert runs(tm)
    assert (tm.step_num, tm.update_num) == (3, 3)
    assert torch.equal(weights(model), by_hand(net(), [batches[0], batches[1], batches[3]]))


@pytest.mark.parametrize("part", range(4), ids=INNER)
def test_an_error_names_the_part_of_the_batch(part: int) -> None:
    def fail(here: int) -> None:
        if here == part and tm.step_num == 2:
            raise ValueError("torn")

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        fail(1)
        prediction.register_hook(lambda gradient: fail(2))
        return F.cross_entropy(prediction, targets)

    model = net()
    model.register_forward_hook(lambda *call: fail(0))
    tm = manager(TrainManager, model=model, loss=loss)
    tm.optimizer.register_step_pre_hook(lambda *step: fail(3))
    with pytest.raises(ValueError, match="torn") as caught:
        tm.train()

    assert runs(tm)
    assert caught.value.__notes__[0] == f"at stage run > train > train_step_epoch > train_step_batch > {INNER[part]}"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_within_the_backward_pass_leaves_no_gradients(error: type[BaseException]) -> None:
    def tear(gradient: Tensor) -> None:
        if tm.step_num == 2:
            raise error

    model = net()
    model[0].register_forward_hook(lambda part, inputs, output: output.register_hook(tear) and None)
    tm = manager(TrainManager, model=model)
    with pytest.raises(error):
        tm.train()

    assert runs(tm)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_stage_that_has_opened_late_is_explained_as_open_until_it_ends() -> None:
    class Reads(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            before, _, after = self.explain(all=True), self.fixtures["stage"], self.explain(all=True)
            seen.append(["train_loss_forward  (opened late" in text for text in (before, after)])
            return nn.functional.cross_entropy(prediction, targets)

    seen: list[list[bool]] = []
    toy = tiny_manager()
    tm = Reads(model=toy.model, optimizer=toy.optimizer, train_data=toy.train_data)
    tm.train_steps(1)

    assert seen == [[False, True]]
    assert "opened late" not in tm.explain(all=True)


def test_a_hook_that_probes_with_another_batch_leaves_the_stages_closed() -> None:
    seen: list[Any] = []
    look = At("post_train_step_batch", lambda train_manager, batch: seen.append(train_manager.probe(batch)))
    tm = tiny_manager(look)
    tm.train()

    assert "train_model_forward  (stays closed: nothing looks into it)" in tm.explain(all=True)
    assert len(seen) == 3
