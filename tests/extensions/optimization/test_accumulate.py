from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.extensions.optimization.gan import Gan, gan_batches, gan_manager
from tests.extensions.optimization.gan import assert_same_weights as assert_same_gan
from tests.support.checkpointing import interrupted
from tests.support.host_reads import HostReads
from train_manager import Extension, InputError, SkipBatch, SkipStage, TrainManager, every, modifies
from train_manager.errors import CheckError, StageError
from train_manager.extensions import Accumulate, Checkpoints
from train_manager.testing import tiny_manager

Batch = tuple[Tensor, Tensor]


def batches(*sizes: int) -> list[Batch]:
    """Return batches of these sizes, of the same examples for all sizes."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(sum(sizes), 2, generator=generator)
    targets = (inputs.sum(dim=1) > 1).long()
    return list(zip(inputs.split(list(sizes)), targets.split(list(sizes)), strict=True))


def trained(*extensions: Extension, data: Iterable[Any], epochs: int = 2, **options: Any) -> TrainManager:
    tm = tiny_manager(*extensions, train_data=data, eval_data=None, epochs=epochs, **options)
    tm.train()
    return tm


def assert_same_weights(one: TrainManager, other: TrainManager, tolerance: float = 1e-6) -> None:
    for first, second in zip(one.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=tolerance)


class AtStep(Extension):
    """Call a function in one hook of one batch of the training, counted from 1."""

    priority = 50

    def __init__(self, hook: str, number: int, do: Callable[[TrainManager], None]) -> None:
        def act(train_manager: TrainManager) -> None:
            self.number += 1
            if self.number == number:
                do(train_manager)

        self.number = 0
        setattr(self, hook, act)


def skip_batch(train_manager: TrainManager) -> None:
    raise SkipBatch


def skip_stage(train_manager: TrainManager) -> None:
    raise SkipStage


def fail(train_manager: TrainManager) -> None:
    raise ValueError("on purpose")


@pytest.mark.parametrize(
    ("small", "large"),
    [((4, 4, 4, 4), (8, 8)), ((5, 3, 1, 7), (8, 8)), ((1, 7, 5), (8, 5)), ((16,), (16,))],
    ids=["equal", "unequal", "ragged last window", "a window of one"],
)
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_the_batches_of_a_window_equal_one_large_batch(
    small: Sequence[int], large: Sequence[int], optimizer: type[torch.optim.Optimizer]
) -> None:
    make = lambda parameters: optimizer(parameters, lr=0.1)  # type: ignore[call-arg]  # noqa: E731
    accumulated = trained(Accumulate(2), data=batches(*small), optimizer=make)
    plain = trained(data=batches(*large), optimizer=make)
    assert_same_weights(accumulated, plain)
    assert accumulated.update_num == plain.update_num == 2 * len(large)
    assert accumulated.step_num == 2 * len(small)


def test_a_window_of_one_batch_is_the_plain_training_to_the_bit() -> None:
    sizes = (5, 3, 7)
    assert_same_weights(trained(Accumulate(1), data=batches(*sizes)), trained(data=batches(*sizes)), tolerance=0)


def test_the_size_of_a_batch_may_be_a_tensor_which_is_not_read_on_the_host() -> None:
    class OnDevice(TrainManager):
        def get_true_batch_size(self, inputs: Tensor) -> Any:
            return torch.tensor(len(inputs))

    tm = tiny_manager()
    accumulated = OnDevice(
        model=tm.model, loss=tm.loss, optimizer=tm.optimizer, train_data=batches(5, 3), extensions=[Accumulate(2)]
    )
    with HostReads() as reads:
        accumulated.train()
    assert reads.count == 0
    assert_same_weights(accumulated, trained(data=batches(8), epochs=1))


def test_a_backward_loss_that_another_hook_modifies_is_accumulated() -> None:
    class Double(Extension):
        @modifies("backward_loss")
        def pre_train_backward(self, backward_loss: Tensor) -> Tensor:
            return 2 * backward_loss

    assert_same_weights(trained(Double(), Accumulate(2), data=batches(5, 3)), trained(Double(), data=batches(8)))


# ---- data of unknown length ----------------------------------------------------------------------------------------


class Pulled:
    """Data that does not know its length, and counts how far it was read."""

    def __init__(self, *sizes: int) -> None:
        self.batches = batches(*sizes)
        self.count = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.count += 1
            yield batch


def test_of_data_of_unknown_length_it_asks_one_ahead_only_where_the_window_would_continue() -> None:
    data = Pulled(4, 4, 4, 4)
    ahead: list[int] = []
    watch = Extension.of(post_train_step_batch=lambda batch_num: ahead.append(data.count - batch_num))
    trained(Accumulate(2), watch, data=data, epochs=1)
    assert ahead == [1, 0, 1, 0]


def test_the_last_window_of_data_of_unknown_length_may_be_shorter() -> None:
    accumulated = trained(Accumulate(2), data=Pulled(1, 7, 5))
    assert accumulated.update_num == 4
    assert_same_weights(accumulated, trained(data=batches(8, 5)))


class Logged(Extension):
    """Keep the loss of each update."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def post_train_optimizer_step(self, update_loss: Tensor) -> None:
        self.seen.append(update_loss.item())


def test_the_loss_of_an_update_is_the_mean_over_the_examples_of_its_window() -> None:
    small, large = Logged(), tiny_manager(train_data=batches(8, 7), epochs=1)
    losses: list[float] = []
    large.add_extension(post_train_step_batch=lambda loss: losses.append(loss.item()))
    large.train()
    tiny_manager(Accumulate(2), small, train_data=batches(5, 3, 6, 1), epochs=1).train()

    assert small.seen == pytest.approx(losses)


def test_a_batch_that_is_skipped_before_its_backward_pass_is_not_in_the_loss_of_the_update() -> None:
    class SkipsSecond(Extension):
        def pre_train_backward(self, batch_num: int) -> None:
            if batch_num == 2:
                raise SkipBatch

    logged, expected = Logged(), Logged()
    tiny_manager(Accumulate(2), SkipsSecond(), logged, train_data=batches(5, 3, 4), epochs=1).train()
    data = batches(5, 3, 4)
    tiny_manager(Accumulate(2), expected, train_data=[data[0], data[2]], epochs=1).train()

    assert logged.seen == expected.seen


def test_the_loss_of_an_update_is_the_same_after_a_resume_within_its_window(tmp_path: Path) -> None:
    whole, first, rest = Logged(), Logged(), Logged()
    tiny_manager(Accumulate(3), whole, train_data=batches(5, 3, 4), epochs=1).train()
    interrupted(tmp_path, 2, Checkpoints(every(1)), Accumulate(3), first, train_data=batches(5, 3, 4), epochs=1)
    data, saved = batches(5, 3, 4), Checkpoints(resume=True)
    tiny_manager(saved, Accumulate(3), rest, train_data=data, epochs=1, train_dir=tmp_path).train()

    assert first.seen + rest.seen == whole.seen


def test_a_state_keeps_its_losses_while_the_window_goes_on() -> None:
    states: list[Any] = []
    tm = tiny_manager(accumulate := Accumulate(3), train_data=batches(5, 3, 4), epochs=1)
    tm.add_extension(post_train_step_batch=lambda: states.append(accumulate.state_dict()["weights"]))
    tm.train()

    assert [len(weights["optimizer"]["losses"]) for weights in states[:2]] == [1, 2]
    assert states[2] == {}  # the window is over


def test_without_the_extension_the_error_names_it() -> None:
    with pytest.raises(CheckError, match=r"add the extension Accumulate\(1\) of train_manager\.extensions"):
        tiny_manager(Logged()).train()


# ---- a train_batch of your own -------------------------------------------------------------------------------------


class SeveralBackwards(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for _ in range(2):
            self.backward(nn.functional.cross_entropy(self.model(inputs), targets))
        self.step()


class SeveralUpdates(TrainManager):
    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for _ in range(2):
            self.update(nn.functional.cross_entropy(self.model(inputs), targets))


class InParts(TrainManager):
    """Runs backward for each part of a batch, by its share of the examples."""

    def train_batch(self, inputs: Tensor, targets: Tensor) -> None:
        for part, labels in zip(inputs.split(3), targets.split(3), strict=True):
            loss = nn.functional.cross_entropy(self.model(part), labels)
            self.backward(loss, weight=len(part) / len(inputs))
        self.step()


def own(kind: type[TrainManager], *extensions: Extension, data: Iterable[Any]) -> TrainManager:
    tiny = tiny_manager()
    return kind(model=tiny.model, optimizer=tiny.optimizer, train_data=data, extensions=list(extensions))


def test_a_batch_counts_once_however_often_it_runs_backward() -> None:
    accumulated, plain = (
        own(SeveralBackwards, Accumulate(2), data=batches(5, 3)),
        own(SeveralBackwards, data=batches(8)),
    )
    accumulated.train()
    plain.train()
    assert accumulated.update_num == 1
    assert_same_weights(accumulated, plain)


def test_parts_of_a_batch_with_their_shares_as_weights_train_as_the_whole_batch() -> None:
    parts, whole = own(InParts, Accumulate(2), data=batches(7, 4)), trained(data=batches(11), epochs=1)
    parts.train()

    assert_same_weights(parts, whole)
    assert parts.history.epochs[-1]["loss"] == pytest.approx(whole.history.epochs[-1]["loss"])


def test_two_updates_of_one_optimizer_in_a_batch_are_refused() -> None:
    with pytest.raises(StageError) as caught:
        own(SeveralUpdates, Accumulate(2), data=batches(5, 3)).train()
    assert str(caught.value) == (
        "optimizer 'optimizer' is updated twice in one batch, but its gradients are gathered over several\n"
        "  leave out Accumulate, or call self.backward(...) for each loss and self.step() once"
    )


# ---- several optimizers --------------------------------------------------------------------------------------------


class EveryThird(TrainManager):
    """Update the critic in each batch, the generator in every third."""

    def train_batch(self, inputs: Tensor, targets: Tensor, batch_num: int) -> None:
        self.update(self.model.loss_of("critic", inputs, targets), "critic")
        if batch_num % 3 == 1:
            self.update(self.model.loss_of("generator", inputs, targets), "generator")


def test_an_optimizer_that_is_updated_in_some_batches_takes_the_mean_over_these() -> None:
    steps: list[tuple[str, int]] = []
    tm = gan_manager(Accumulate(4), kind=EveryThird, train_data=gan_batches(4))
    tm.add_extension(
        post_train_optimizer_step=lambda optimizer_name, batch_num: steps.append((optimizer_name, batch_num))
    )
    tm.train()
    assert steps == [("critic", 4), ("generator", 4)]

    gan = Gan()
    optimizers = gan.optimizers()
    for number, batch in enumerate(gan_batches(4), 1):
        for name, weight in {"critic": 4, "generator": 2}.items():
            if name == "critic" or number % 3 == 1:
                loss = gan.loss_of(name, *batch) / weight
                torch.autograd.backward(loss, inputs=list(getattr(gan, name).parameters()))
            if number % 4 == 0:
                optimizers[name].step()
                optimizers[name].zero_grad()
    assert_same_gan(tm.model, gan)


# ---- skipped batches -----------------------------------------------------------------------------------------------


def test_a_batch_that_is_skipped_before_its_backward_pass_is_not_part_of_the_window() -> None:
    skip = AtStep("post_train_loss_forward", 2, skip_batch)
    first, _, third = data = batches(5, 3, 4)
    accumulated = trained(Accumulate(2), skip, data=data, epochs=1)
    whole = tuple(torch.cat(parts) for parts in zip(first, third, strict=True))
    assert accumulated.update_num == 1
    assert_same_weights(accumulated, trained(data=[whole], epochs=1))


@pytest.mark.parametrize("hook", ["post_train_backward", "pre_train_optimizer_step"])
@pytest.mark.parametrize("rank", [-50, 50])
def test_a_batch_that_is_skipped_after_its_backward_pass_ends_the_window(hook: str, rank: int) -> None:
    skip = AtStep(hook, 2 if hook == "post_train_backward" else 1, skip_batch)
    skip.priority = rank
    accumulated = trained(Accumulate(2), skip, data=batches(5, 3, 4, 2), epochs=1)
    assert accumulated.update_num == 1
    assert_same_weights(accumulated, trained(data=batches(5, 3, 6)[2:], epochs=1))


def test_if_the_last_batch_is_skipped_the_window_continues_in_the_next_epoch() -> None:
    skip = AtStep("post_train_loss_forward", 2, skip_batch)
    first, second = data = batches(5, 3)
    accumulated = trained(Accumulate(3), skip, data=data, epochs=2)
    whole = tuple(torch.cat(parts) for parts in zip(first, first, second, strict=True))
    assert accumulated.update_num == 1
    assert_same_weights(accumulated, trained(data=[whole], epochs=1))


@pytest.mark.parametrize("rank", [-50, 50])
def test_a_batch_whose_backward_pass_is_skipped_makes_no_step(rank: int) -> None:
    skip = AtStep("pre_train_backward", 2, skip_stage)
    skip.priority = rank
    accumulated = trained(Accumulate(1), skip, data=batches(5, 3), epochs=1)
    assert accumulated.update_num == 1
    assert_same_weights(accumulated, trained(data=batches(5, 3)[:1], epochs=1))


# ---- runs that end in the middle of a window -----------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["post_train_step_batch", "post_train_backward"])
def test_an_error_in_the_middle_of_a_window_leaves_nothing_for_the_next_run(hook: str) -> None:
    fails = AtStep(hook, 1, fail)
    tm = tiny_manager(Accumulate(2), fails, train_data=batches(5, 3), eval_data=None)
    with pytest.raises(ValueError, match="on purpose"):
        tm.train()
    tm.train()
    assert tm.update_num == 1
    assert_same_weights(tm, trained(data=batches(8), epochs=1))


def test_a_stop_in_the_middle_of_a_window_leaves_nothing_for_the_next_run() -> None:
    stop = AtStep("post_train_step_batch", 1, lambda train_manager: train_manager.stop("enough"))
    tm = tiny_manager(Accumulate(2), stop, train_data=batches(5, 3), eval_data=None)
    with pytest.warns(UserWarning, match="the run ended within a window, so the gradients gathered"):
        tm.train()
    assert tm.update_num == 0
    tm.train()
    assert_same_weights(tm, trained(data=batches(8), epochs=1))


def test_a_run_whose_last_step_is_known_ends_with_an_update() -> None:
    tm = tiny_manager(Accumulate(2), train_data=batches(4, 4, 4, 4, 4), eval_data=None)
    tm.train_steps(3)
    assert (tm.step_num, tm.update_num) == (3, 2)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_an_invalid_number_of_batches_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        Accumulate(wrong)
    assert str(caught.value) == f"batches must be a whole number of at least 1, but is {wrong!r}"


def test_a_run_that_ends_within_a_window_warns_of_the_dropped_gradients() -> None:
    tm = tiny_manager(Accumulate(2))
    batches: Any = tm.train_data
    with pytest.warns(UserWarning, match="within a window") as warned:
        tm.train_on_batch(batches[0])
    assert [str(warning.message) for warning in warned] == [
        "the run ended within a window, so the gradients gathered for 'optimizer' are dropped "
        "(to continue in the same window, hold a run open: `with tm.run():`)"
    ]
