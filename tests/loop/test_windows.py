"""The windows of optimizers: where they begin and end, and that no gradient enters a step that it is not of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import LBFGS, SGD, Optimizer

from tests.support.training import At, Values, make_batches, skip_batch, skip_stage, weights
from train_manager import Extension, InputError, TrainManager
from train_manager.errors import StageError
from train_manager.extensions import Accumulate
from train_manager.loop.windows import Windows
from train_manager.testing import tiny_manager


class Pair(nn.Module):
    """A generator and a critic of what it makes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.generator = nn.Linear(2, 2)
            self.critic = nn.Linear(2, 1)

    def forward(self, inputs: Tensor) -> Any:
        return self.critic(self.generator(inputs))


def sgd(parameters: Any) -> SGD:
    return SGD(parameters, lr=0.1, momentum=0.9)


def critic_loss(model: Any, inputs: Tensor) -> Any:
    made = model.generator(inputs).detach()
    return (model.critic(made) - model.critic(inputs)).mean() + model.critic(made).square().mean()


def generator_loss(model: Any, inputs: Tensor) -> Any:
    return -model(inputs).mean()


class Gan(TrainManager):
    """Updates the critic with each batch, and the generator with every second."""

    def __init__(self, *extensions: Extension, **options: Any) -> None:
        given: dict[str, Any] = {
            "model": Pair(),
            "optimizer": {"generator": sgd, "critic": sgd},
            "train_data": make_batches(4),
            "extensions": list(extensions),
        }
        super().__init__(**{**given, **options})

    def train_batch(self, model: Any, inputs: Tensor, batch_num: int) -> None:
        self.update(critic_loss(model, inputs), "critic")
        if batch_num % 2 == 0:
            self.update(generator_loss(model, inputs), "generator")


class Of(TrainManager):
    """Has a function as its train_batch."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        tiny = tiny_manager()
        given = {name: getattr(tiny, name) for name in ("model", "loss", "optimizer", "train_data")}
        super().__init__(**{**given, **options})
        self.function = function

    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> Any:
        return self.function(self, model, inputs, targets)


def test_a_generators_step_leaves_no_gradient_in_the_critics() -> None:
    tm, alone = Gan(), Pair()
    critic, generator = sgd(alone.critic.parameters()), sgd(alone.generator.parameters())
    for number, (inputs, _) in enumerate(make_batches(4), start=1):
        critic.zero_grad()
        critic_loss(alone, inputs).backward()
        critic.step()
        if number % 2 == 0:
            generator.zero_grad()
            generator_loss(alone, inputs).backward()
            generator.step()
    tm.train()

    assert torch.equal(weights(tm.model), weights(alone))


def test_gradients_that_are_gathered_for_one_are_set_aside_in_the_backward_of_another() -> None:
    tm, alone = Gan(Accumulate(2)), Pair()
    critic, generator = sgd(alone.critic.parameters()), sgd(alone.generator.parameters())
    batches = make_batches(4)
    for one, other in ((batches[0], batches[1]), (batches[2], batches[3])):
        critic_loss(alone, torch.cat([one[0], other[0]])).backward()
        critic.step()
        generator.zero_grad()  # the generator's second batch is its whole window
        generator_loss(alone, other[0]).backward()
        generator.step()
        critic.zero_grad()
    tm.train()

    assert torch.allclose(weights(tm.model), weights(alone))


def test_a_backward_after_a_late_skip_begins_a_new_window() -> None:
    begins = Values("pre_train_step_batch", "batch_num", "update_begins")
    skips = At("post_train_backward", lambda batch_num: skip_batch() if batch_num == 1 else None)
    tm = tiny_manager(Accumulate(2), begins, skips, train_data=make_batches(3))
    tm.train()

    assert begins.seen == [(1, True), (2, True), (3, False)]
    assert (tm.step_num, tm.update_num) == (2, 1)


def test_a_batch_skipped_before_its_backward_leaves_the_window_open() -> None:
    begins = Values("pre_train_step_batch", "batch_num", "update_begins")
    skips = At("post_train_loss_forward", lambda batch_num: skip_batch() if batch_num == 2 else None)
    tm = tiny_manager(Accumulate(2), begins, skips, train_data=make_batches(3))
    tm.train()

    assert begins.seen == [(1, True), (2, False), (3, False)]
    assert (tm.step_num, tm.update_num) == (2, 1)


def test_a_step_that_fails_drops_its_window_also_if_the_batch_ran_no_backward() -> None:
    opened: list[tuple[str, ...]] = []
    no_backward = At("pre_train_backward", lambda batch_num: skip_stage() if batch_num == 2 else None)
    no_step = At("pre_train_optimizer_step", lambda batch_num: skip_batch() if batch_num == 2 else None)
    tm = tiny_manager(
        Accumulate(2),
        no_backward,
        no_step,
        At("pre_train_step_batch", lambda train_manager: opened.append(train_manager.open_windows)),
        train_data=make_batches(3),
    )
    tm.train()

    assert opened == [(), ("optimizer",), ()]
    assert (tm.step_num, tm.update_num) == (2, 1)


def test_a_skipped_step_ends_the_window_and_drops_its_gradients() -> None:
    left: list[bool] = []
    tm = tiny_manager(
        At("pre_train_optimizer_step", skip_stage),
        At("post_train_step_batch", lambda train_manager: left.append(has_gradients(train_manager.model))),
    )
    before = weights(tm.model)
    tm.train()

    assert left == [False] * 3
    assert torch.equal(weights(tm.model), before)
    assert (tm.step_num, tm.update_num) == (3, 0)


def has_gradients(model: nn.Module) -> bool:
    return any(parameter.grad is not None for parameter in model.parameters())


def test_a_batch_without_a_backward_opens_no_step() -> None:
    steps = Values("pre_train_optimizer_step", "batch_num")
    tm = tiny_manager(At("pre_train_backward", skip_stage), steps)
    tm.train()

    assert steps.seen == []
    assert (tm.step_num, tm.update_num) == (3, 0)


def test_an_error_drops_the_windows_of_its_batch_and_no_other() -> None:
    def fail(batch_num: int, optimizer_name: str) -> None:
        if batch_num == 2 and optimizer_name == "critic":
            raise ValueError("in a hook")

    tm = Of(
        lambda tm, model, inputs, targets: (
            tm.backward(generator_loss(model, inputs), "generator")
            if tm.fixtures["batch_num"] == 1
            else tm.backward(critic_loss(model, inputs), "critic")
        ),
        model=Pair(),
        loss=None,
        optimizer={"generator": sgd, "critic": sgd},
        extensions=[At("post_train_backward", fail)],
    )
    tm.open()
    with pytest.raises(ValueError, match="in a hook"):
        tm.train()

    model: Any = tm.model
    assert tm.open_windows == ("generator",)
    assert has_gradients(model.generator)
    with pytest.warns(UserWarning, match="within a window, so the gradients gathered for 'generator' are dropped"):
        tm.close()


def test_a_run_that_ends_drops_gradients_with_a_warning() -> None:
    tm = tiny_manager(Accumulate(2))
    with pytest.warns(UserWarning, match="within a window") as warned:
        tm.train_on_batch(make_batches(1)[0])

    assert [str(one.message) for one in warned] == [
        "the run ended within a window, so the gradients gathered for 'optimizer' are dropped "
        "(to continue in the same window, hold a run open: `with tm.run():`)"
    ]
    assert not has_gradients(tm.model)
    assert tm.open_windows == ()


def test_an_error_that_ends_the_run_drops_gradients_without_a_warning() -> None:
    fails = At("pre_train_step_batch", lambda batch_num: 1 / (2 - batch_num))
    tm = tiny_manager(Accumulate(3), fails)
    with pytest.raises(ZeroDivisionError):
        tm.train()

    assert not has_gradients(tm.model)
    assert tm.open_windows == ()


def test_a_window_that_is_open_as_an_epoch_ends_continues() -> None:
    begins = Values("pre_train_step_batch", "update_begins")
    skips = At(
        "pre_train_step_batch", lambda step_num, batch_num: skip_stage() if (step_num, batch_num) == (2, 3) else 0
    )
    tm = tiny_manager(Accumulate(3), begins, skips, epochs=2)
    tm.train()

    assert begins.seen[2:4] == [False, False]
    assert (tm.step_num, tm.update_num) == (5, 2)


def test_an_evaluation_leaves_gradients_as_it_found_them() -> None:
    tm = tiny_manager(Accumulate(2), eval_at=())
    batch = make_batches(1)[0]
    with tm.run():
        tm.train_on_batch(batch)
        before = [parameter.grad for parameter in tm.model.parameters()]
        during: list[bool] = []
        tm.add_extension(At("pre_eval_step_batch", lambda train_manager: during.append(has_gradients(tm.model))))
        tm.eval()
        tm.predict(batch[0])

        assert all(one.grad is other for one, other in zip(tm.model.parameters(), before, strict=True))
        assert None not in before
        tm.train_on_batch(batch)
    assert not any(during)


def test_two_updates_of_an_optimizer_in_one_batch_are_two_steps() -> None:
    def twice(tm: Any, model: Any, inputs: Tensor, targets: Tensor) -> None:
        tm.update(F.cross_entropy(model(inputs), targets))
        tm.update(F.cross_entropy(model(inputs), targets))

    tm, by_hand = Of(twice), tiny_manager()
    optimizer: Any = by_hand.optimizer
    for inputs, targets in tm.train_data or ():
        for _ in range(2):
            optimizer.zero_grad()
            F.cross_entropy(by_hand.model(inputs), targets).backward()
            optimizer.step()
    tm.train()

    assert torch.equal(weights(tm.model), weights(by_hand.model))
    assert tm.update_num == 6


def test_two_updates_of_an_optimizer_within_a_window_are_refused() -> None:
    def twice(tm: Any, model: Any, inputs: Tensor, targets: Tensor) -> None:
        tm.update(F.cross_entropy(model(inputs), targets))
        tm.update(F.cross_entropy(model(inputs), targets))

    with pytest.raises(StageError) as caught:
        Of(twice, extensions=[Accumulate(2)]).train()

    assert str(caught.value).splitlines() == [
        "optimizer 'optimizer' is updated twice in one batch, but its gradients are gathered over several",
        "  leave out Accumulate, or call self.backward(...) for each loss and self.step() once",
    ]


def test_several_backwards_and_one_step_are_one_update_of_their_sum() -> None:
    def parts(tm: Any, model: Any, inputs: Tensor, targets: Tensor) -> None:
        tm.backward(F.cross_entropy(model(inputs), targets))
        tm.backward(model(inputs).square().mean())
        tm.step()

    tm, by_hand = Of(parts), tiny_manager()
    optimizer: Any = by_hand.optimizer
    for inputs, targets in tm.train_data or ():
        optimizer.zero_grad()
        F.cross_entropy(by_hand.model(inputs), targets).backward()
        by_hand.model(inputs).square().mean().backward()
        optimizer.step()
    tm.train()

    assert torch.equal(weights(tm.model), weights(by_hand.model))
    assert tm.update_num == 3


def test_a_train_batch_that_returns_a_value_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        Of(lambda tm, model, inputs, targets: tm.forward()).train()

    assert str(caught.value) == "train_batch must return nothing, but returned a Tensor\n  call self.update(loss)"


# ---- functions, and optimizers that call a closure -------------------------------------------------------------------


def lbfgs(parameters: Any) -> LBFGS:
    return LBFGS(parameters, lr=0.5, max_iter=3)


def steps_by_hand(model: nn.Module, optimizer: Optimizer, batches: Any) -> Tensor:
    for inputs, targets in batches:

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Any:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss

        optimizer.step(closure)
    return weights(model)


def test_lbfgs_trains_as_in_a_loop_by_hand() -> None:
    tm, by_hand = tiny_manager(optimizer=lbfgs), tiny_manager(optimizer=lbfgs)
    expected = steps_by_hand(by_hand.model, by_hand.optimizer, by_hand.train_data)
    tm.train()

    assert torch.equal(weights(tm.model), expected)


def test_lbfgs_trains_the_same_with_a_loss_that_is_a_function() -> None:
    def update(tm: Any, model: Any, inputs: Tensor, targets: Tensor) -> None:
        tm.update(lambda: F.cross_entropy(model(inputs), targets))

    tiny, by_hand = tiny_manager(optimizer=lbfgs), tiny_manager(optimizer=lbfgs)
    tm = Of(update, model=tiny.model, optimizer=tiny.optimizer)
    expected = steps_by_hand(by_hand.model, by_hand.optimizer, by_hand.train_data)
    tm.train()

    assert torch.equal(weights(tm.model), expected)


def test_hooks_run_once_per_batch_however_often_a_closure_is_called() -> None:
    calls = [Values(f"post_{stage}", "batch_num") for stage in ("train_loss_forward", "train_backward")]
    tm = tiny_manager(*calls, optimizer=lbfgs)
    tm.train()

    assert [values.seen for values in calls] == [[1, 2, 3]] * 2
    assert tm.update_num == 3


def test_lbfgs_needs_a_function_if_the_loss_is_not_that_of_forward() -> None:
    def update(tm: Any, model: Any, inputs: Tensor, targets: Tensor) -> None:
        tm.update(F.cross_entropy(model(inputs), targets))

    tiny = tiny_manager(optimizer=lbfgs)
    with pytest.raises(InputError) as caught:
        Of(update, model=tiny.model, optimizer=tiny.optimizer).train()

    assert str(caught.value) == (
        "the loss of optimizer 'optimizer' must be computed anew, but it was given as a tensor\n"
        "  give a function: self.update(lambda: loss_of(model(inputs), targets))"
    )


def test_lbfgs_does_not_accumulate() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager(Accumulate(2), optimizer=lbfgs).train()

    assert str(caught.value) == (
        "Accumulate works on gradients before a step, but optimizer 'optimizer' (LBFGS) computes more of them in it\n"
        "  leave Accumulate out, or take an optimizer without a closure, such as AdamW"
    )


def test_a_closure_leaves_the_prediction_as_it_was() -> None:
    before = Values("pre_train_optimizer_step", "prediction")
    after = Values("post_train_optimizer_step", "prediction")
    tiny_manager(before, after, optimizer=lbfgs).train()

    assert all(one is other for one, other in zip(before.seen, after.seen, strict=True))


def test_saved_windows_open_in_their_order_in_each_process() -> None:
    # Processes that train together exchange one message for each window, so all must do so in one order.
    names = [f"optimizer {number}" for number in range(9)]
    layers = {name: nn.Linear(1, 1) for name in names}
    optimizers: dict[str, Optimizer] = {name: sgd(layer.parameters()) for name, layer in layers.items()}
    before, after = Windows(), Windows()
    for name in reversed(names):
        loss = layers[name](torch.ones(1)).sum()
        before.backward(name, optimizers[name], loss, retain_graph=False, is_modified=False, is_last=False)
    parameters = {id(weight): f"{name}.{n}" for name, layer in layers.items() for n, weight in layer.named_parameters()}
    after.load_state_dict(before.state_dict(lambda: parameters), optimizers, lambda: parameters)

    assert after.names() == before.names() == names[::-1]
