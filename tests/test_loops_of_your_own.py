"""Training by steps, by epochs and by batches, from a loop of the user's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, TensorDataset

from tests.support.training import At, Batch, skip_batch, skip_stage
from train_manager import Endless, Extension, InputError, NonFiniteLoss, TrainManager, periodically
from train_manager.errors import StageError
from train_manager.extensions import Accumulate
from train_manager.testing import Recorder, tiny_manager


class Steps(Extension):
    """The first input of each batch that was trained on, and the steps done at each evaluation."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.evals: list[int] = []

    def post_train_step_batch(self, inputs: Tensor) -> None:
        self.seen.append(inputs[0, 0].item())

    def pre_eval(self, step_num: int) -> None:
        self.evals.append(step_num)


class Unsized:
    """Four batches, without a length."""

    def __iter__(self) -> Iterator[Batch]:
        yield from make_batches(4)


def make_batches(n: int) -> list[Batch]:
    return [(torch.full((2, 2), float(number)), torch.tensor([0, 1])) for number in range(n)]


def shuffled() -> DataLoader[Any]:
    x = torch.rand(30, 2, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(x, (x.sum(dim=1) > 1).long()), batch_size=8, shuffle=True)


def manager(*extensions: Extension, **options: Any) -> TrainManager:
    """With everything that a loop could get wrong: momentum, dropout, batch norm, a schedule, shuffled data."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2))
    given: dict[str, Any] = {
        "model": model,
        "optimizer": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
        "train_data": shuffled(),
        "lr_schedule": lambda optimizer: ExponentialLR(optimizer, gamma=0.7),
        "seed": 3,
    }
    return tiny_manager(*extensions, **{**given, **options})


def weights(tm: TrainManager) -> Tensor:
    """All parameters and buffers."""
    return torch.cat([value.detach().flatten().double() for value in tm.model.state_dict().values()])


# ---- train_steps -------------------------------------------------------------------------------------------------


def test_five_steps_and_five_are_ten_bit_for_bit() -> None:
    at_once, in_turn = manager(), manager()
    at_once.train_steps(10)
    in_turn.train_steps(5)
    in_turn.train_steps(5)

    assert torch.equal(weights(in_turn), weights(at_once))
    assert (in_turn.step_num, in_turn.epoch_num) == (at_once.step_num, at_once.epoch_num) == (10, 2)


def test_steps_are_those_of_epochs_bit_for_bit() -> None:
    by_steps, by_epochs = manager(epochs=3), manager(epochs=3)
    by_steps.train_steps(12)
    by_epochs.train()

    assert torch.equal(weights(by_steps), weights(by_epochs))


def test_an_epoch_that_was_left_unfinished_is_the_first_of_the_next_call_bit_for_bit() -> None:
    in_turn, at_once = manager(epochs=3), manager(epochs=3)
    in_turn.train_steps(5)
    in_turn.train()
    at_once.train()

    assert in_turn.epoch_num == 3
    assert torch.equal(weights(in_turn), weights(at_once))


def test_an_evaluation_between_does_not_move_the_data() -> None:
    in_turn, at_once = manager(), manager()
    in_turn.train_steps(5)
    in_turn.eval()
    in_turn.train_steps(5)
    at_once.train_steps(10)

    assert torch.equal(weights(in_turn), weights(at_once))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("data", [make_batches(4), Unsized()])
def test_steps_continue_where_the_last_call_left_the_data(data: Any, held: bool) -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=data)
    if held:
        with tm.run():
            tm.train_steps(3)
            tm.train_steps(3)
    else:
        tm.train_steps(3)
        tm.train_steps(3)

    assert steps.seen == [0, 1, 2, 3, 0, 1]


def test_epochs_end_and_begin_on_the_way_and_are_evaluated() -> None:
    steps, recorder = Steps(), Recorder()
    tm = tiny_manager(steps, recorder)
    tm.train_steps(7)

    assert (tm.step_num, tm.epoch_num) == (7, 2)
    assert steps.evals == [0, 3, 6]
    assert recorder.stages.count("train_step_epoch") == 3


def test_an_epoch_that_ends_with_the_steps_is_over() -> None:
    steps = Steps()
    tm = tiny_manager(steps)
    tm.train_steps(3)

    assert (tm.epoch_num, steps.evals) == (1, [0, 3])


def test_data_that_is_cut_into_epochs_continues_too() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=make_batches(4), steps_per_epoch=3)
    tm.train_steps(2)
    tm.train_steps(3)

    assert (steps.seen, tm.epoch_num) == ([0, 1, 2, 3, 0], 1)


def test_data_without_an_end_can_be_trained_on_by_steps() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=Endless(make_batches(4)))
    tm.train_steps(7)

    assert (tm.step_num, tm.epoch_num, steps.evals) == (7, 0, [0])


def test_no_steps_train_nothing() -> None:
    tm = tiny_manager()
    tm.train_steps(0)

    assert (tm.step_num, tm.epoch_num) == (0, 0)


def test_skipped_batches_are_not_among_the_steps() -> None:
    tm = tiny_manager(
        At("post_train_model_forward", lambda fixtures: skip_batch() if len(fixtures["inputs"]) == 8 else None)
    )
    tm.train_steps(4)

    assert (tm.step_num, tm.epoch_num) == (4, 1)


@pytest.mark.parametrize(
    "skip", [At("pre_train_step_batch", skip_batch), At("pre_train_step_epoch", skip_stage)], ids=["batches", "epochs"]
)
def test_three_epochs_without_a_step_are_an_error_where_steps_are_counted(skip: Extension) -> None:
    tm = tiny_manager(skip)
    with pytest.raises(StageError) as caught:
        tm.train_steps(1)

    assert str(caught.value).splitlines()[0] == (
        "3 epochs went by without a step, so the steps asked for would never be done"
    )
    assert str(caught.value).splitlines()[-1] == "  does a hook skip every batch, or every epoch?"
    assert tm.fixtures.path == ()


def test_a_stop_ends_the_steps_and_drops_the_rest_of_the_epoch() -> None:
    steps = Steps()
    tm = tiny_manager(
        steps,
        At(
            "post_train_step_batch",
            lambda train_manager, step_num: train_manager.stop("enough") if step_num == 2 else None,
        ),
        train_data=make_batches(4),
    )
    result = tm.train_steps(9)
    tm.train_steps(2)

    assert (result.stopped, result.steps) == ("enough", 2)
    assert steps.seen == [0, 1, 0, 1]


def test_an_error_drops_the_rest_of_the_epoch() -> None:
    def fail_at_two(step_num: int) -> None:
        if step_num == 2:
            raise ValueError("in a hook")

    steps = Steps()
    tm = tiny_manager(steps, At("post_train_step_batch", fail_at_two), train_data=make_batches(4))
    with pytest.raises(ValueError, match="in a hook"):
        tm.train_steps(3)
    tm.train_steps(2)

    assert steps.seen[-2:] == [0, 1]


def test_other_data_is_begun_from_its_start() -> None:
    steps = Steps()
    tm = tiny_manager(steps, train_data=make_batches(4))
    tm.train_steps(2)
    tm.train_data = make_batches(4)
    tm.train_steps(1)

    assert steps.seen == [0, 1, 0]


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "2"])
def test_a_number_of_steps_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager().train_steps(wrong)

    assert str(caught.value) == f"n must be a whole number of at least 0, but is {wrong!r}"


# ---- train_epoch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_epochs_of_a_loop_of_ones_own_are_those_of_train_bit_for_bit(held: bool) -> None:
    own, whole = manager(epochs=3), manager(epochs=3)
    if held:
        with own.run():
            for _ in range(3):
                own.train_epoch()
    else:
        for _ in range(3):
            own.train_epoch()
    whole.train()

    assert torch.equal(weights(own), weights(whole))


def test_such_an_epoch_is_not_evaluated() -> None:
    steps = Steps()
    tm = tiny_manager(steps)
    tm.train_epoch()
    tm.train_epoch()

    assert (tm.epoch_num, steps.evals) == (2, [])


def test_a_loop_of_ones_own_evaluates_when_it_likes() -> None:
    steps = Steps()
    tm = tiny_manager(steps)
    with tm.run():
        for epoch in range(4):
            tm.train_epoch()
            if epoch % 2:
                tm.eval()

    assert steps.evals == [6, 12]


def test_an_evaluation_that_a_hook_asks_for_is_done_in_such_an_epoch() -> None:
    steps = Steps()
    soon = At(
        "post_train_step_batch", lambda train_manager, step_num: train_manager.eval_soon() if step_num == 1 else None
    )
    tiny_manager(steps, soon).train_epoch()

    assert steps.evals == [1]


# ---- train_on_batch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [False, True])
def test_batches_of_a_loop_of_ones_own_are_those_of_train_bit_for_bit(held: bool) -> None:
    own, whole = manager(lr_schedule=None, epochs=3), manager(lr_schedule=None, epochs=3)
    if held:
        with own.run():
            for _ in range(3):
                for batch in own.train_data or ():
                    own.train_on_batch(batch)
    else:
        own.train_epochs(0)  # which opens the first run, and so seeds, before the data is shuffled
        for _ in range(3):
            for batch in own.train_data or ():
                own.train_on_batch(batch)
    whole.train()

    assert torch.equal(weights(own), weights(whole))


def test_it_returns_the_loss_without_its_graph() -> None:
    tm = tiny_manager()
    inputs, targets = make_batches(1)[0]
    expected = F.cross_entropy(tm.model(inputs), targets)
    loss = tm.train_on_batch((inputs, targets))

    assert loss is not None
    assert loss.equal(expected)
    assert not loss.requires_grad


def test_it_returns_nothing_where_a_hook_skips_the_batch() -> None:
    tm = tiny_manager(At("post_train_loss_forward", skip_batch))

    assert tm.train_on_batch(make_batches(1)[0]) is None
    assert tm.step_num == 0


def test_hooks_run_and_steps_are_counted_but_no_epoch_moves() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    with tm.run():
        tm.train_on_batch(make_batches(1)[0])
        tm.train_on_batch(make_batches(1)[0])

    assert recorder.stages[2:7] == [
        "train_step_batch",
        "train_model_forward",
        "train_loss_forward",
        "train_backward",
        "train_optimizer_step",
    ]
    assert (recorder.stages.count("run"), recorder.stages.count("train"), recorder.stages.count("eval")) == (1, 0, 0)
    assert (tm.step_num, tm.update_num, tm.epoch_num, tm.samples_seen) == (2, 2, 0, 4)


def test_no_training_data_is_needed() -> None:
    tm = tiny_manager(train_data=None, eval_data=None)
    tm.train_on_batch(make_batches(1)[0])

    assert tm.step_num == 1


def test_it_trains_in_train_mode_with_gradients_and_leaves_both_as_they_were() -> None:
    seen: list[tuple[bool, bool]] = []
    tm = tiny_manager(
        At(
            "post_train_model_forward",
            lambda train_manager: seen.append((train_manager.model.training, torch.is_grad_enabled())),
        )
    )
    tm.model.eval()
    with torch.no_grad():
        tm.train_on_batch(make_batches(1)[0])
        assert not torch.is_grad_enabled()

    assert seen == [(True, True)]
    assert not any(module.training for module in tm.model.modules())


def test_evaluation_and_training_on_batches_take_turns() -> None:
    own, whole = manager(lr_schedule=None), manager(lr_schedule=None)
    with own.run():
        for batch in own.train_data or ():
            own.train_on_batch(batch)
            own.eval()
    whole.train()

    assert torch.equal(weights(own), weights(whole))


def test_a_loss_that_is_not_finite_is_told_as_the_run_ends() -> None:
    tm = tiny_manager()
    bad = make_batches(1)[0][0] * float("nan"), make_batches(1)[0][1]
    with pytest.raises(NonFiniteLoss, match="the loss was nan in step 2, epoch 1"), tm.run():
        tm.train_on_batch(make_batches(1)[0])
        tm.train_on_batch(bad)
    assert tm.step_num == 2


def test_gradients_that_were_there_before_are_not_learnt_from() -> None:
    clean, stained = tiny_manager(), tiny_manager()
    stained.model(torch.ones(1, 2)).sum().backward()
    for tm in (clean, stained):
        tm.train_on_batch(make_batches(1)[0])

    assert torch.equal(weights(clean), weights(stained))


def test_a_hook_cannot_train_on_a_batch() -> None:
    tm = tiny_manager(At("post_train_step_batch", lambda train_manager, batch: train_manager.train_on_batch(batch)))
    with pytest.raises(StageError, match="cannot be called inside stage 'train'"):
        tm.train()


def test_an_optimizer_is_needed() -> None:
    with pytest.raises(InputError, match="there is no optimizer to train with"):
        tiny_manager(optimizer=None).train_on_batch(make_batches(1)[0])


# ---- eval_on_batch -----------------------------------------------------------------------------------------------


def test_a_batch_is_evaluated_as_a_set_of_its_own() -> None:
    names: list[str] = []
    tm = tiny_manager(At("pre_eval_step_epoch", lambda datasource_name: names.append(datasource_name)))
    batch = make_batches(1)[0]

    assert tm.eval_on_batch(batch) == tiny_manager(eval_data=[batch]).eval()["eval"]
    assert names == ["batch"]


def test_it_learns_nothing() -> None:
    tm = manager()
    before = weights(tm)
    tm.eval_on_batch(make_batches(1)[0])

    assert torch.equal(weights(tm), before)
    assert (tm.step_num, tm.samples_seen) == (0, 0)


def test_an_evaluation_that_a_hook_skips_has_no_results() -> None:
    assert tiny_manager(At("pre_eval", skip_stage)).eval_on_batch(make_batches(1)[0]) == {}


def test_a_batch_cannot_be_evaluated_while_another_is_alive() -> None:
    tm = tiny_manager(At("post_train_step_batch", lambda train_manager, batch: train_manager.eval_on_batch(batch)))
    with pytest.raises(StageError, match="cannot be called inside stage 'train_step_batch'"):
        tm.train()


# ---- end_epoch ---------------------------------------------------------------------------------------------------


def end_after(step: int) -> Extension:
    return At(
        "pre_train_backward",
        lambda train_manager, step_num: train_manager.end_epoch() if step_num == step - 1 else None,
    )


def test_an_epoch_can_be_ended_after_a_step() -> None:
    steps = Steps()
    tm = tiny_manager(steps, end_after(2), train_data=make_batches(3), epochs=2)
    tm.train()

    assert steps.seen == [0, 1, 0, 1, 2]
    assert (tm.epoch_num, steps.evals) == (2, [0, 2, 5])


def test_an_epoch_that_is_ended_with_its_last_step_is_ended_once() -> None:
    steps = Steps()
    tm = tiny_manager(steps, end_after(3), train_data=make_batches(3), epochs=2)
    tm.train()

    assert steps.seen == [0, 1, 2] * 2
    assert tm.epoch_num == 2


def test_the_schedule_is_stepped_after_an_epoch_that_was_ended() -> None:
    tm = manager(end_after(2))
    tm.train()

    assert tm.lr_schedule.last_epoch == 1


def test_a_loss_that_is_not_finite_is_told_though_an_epoch_follows() -> None:
    tm = tiny_manager()
    broken = torch.full((4, 2), float("nan")), torch.zeros(4, dtype=torch.long)
    with pytest.raises(NonFiniteLoss), tm.run():
        tm.train_on_batch(broken)
        tm.train_epoch()


def test_an_evaluation_of_one_batch_is_no_part_of_a_training() -> None:
    seen: list[bool] = []
    tm = tiny_manager(Extension.of(post_eval=lambda standalone_eval: seen.append(standalone_eval)))
    tm.eval_on_batch(tm.train_data[0])  # type: ignore[index]  # a list
    assert seen == [True]


def test_a_piece_of_an_epoch_is_not_taken_for_its_length() -> None:
    totals: list[int | None] = []
    watcher = Extension.of(post_train_step_epoch=lambda train_manager: totals.append(train_manager.progress.total))
    tm = tiny_manager(watcher, train_data=Unsized())
    tm.train_steps(2)
    tm.train_epochs(3)
    assert totals == [2, None, 10, 10]


def test_gradients_of_a_batch_that_has_failed_are_no_part_of_the_next_one() -> None:
    def loss_of(tm: TrainManager, *, fails: bool) -> list[Tensor]:
        batch, other = tm.train_data[0], tm.train_data[1]  # type: ignore[index]
        with tm.run():
            if fails:
                tm.add_extension(Extension.of(post_train_backward=lambda: 1 / 0), "failing")
                with pytest.raises(ZeroDivisionError):
                    tm.train_on_batch(other)
                tm.remove_extension("failing")
            tm.train_on_batch(batch)
        return [parameter.detach().clone() for parameter in tm.model.parameters()]

    for one, other in zip(loss_of(tiny_manager(), fails=True), loss_of(tiny_manager(), fails=False), strict=True):
        assert one.equal(other)


def test_the_last_batch_of_an_epoch_of_ones_own_can_be_said() -> None:
    tm, other = tiny_manager(Accumulate(2), epochs=2), tiny_manager(Accumulate(2))
    tm.train()
    batches: Any = other.train_data
    with other.run():
        for _ in range(2):
            for number, batch in enumerate(batches, start=1):
                other.train_on_batch(batch, last_batch=number == len(batches))
    assert (other.step_num, other.update_num) == (tm.step_num, tm.update_num) == (6, 4)
    for one, two in zip(tm.model.parameters(), other.model.parameters(), strict=True):
        assert one.equal(two)


def test_a_copy_that_is_made_within_an_epoch_trains_on() -> None:
    tm = tiny_manager()
    tm.train_steps(2)
    other = copy.deepcopy(tm)
    assert other.train_epochs(1).steps == 3


def test_a_batch_trains_submodules_that_were_in_eval_mode_as_train_does() -> None:
    def trained(by_batch: bool) -> list[Tensor]:
        tm = tiny_manager(model=nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
        torch.manual_seed(0)
        for parameter in tm.model.parameters():
            nn.init.normal_(parameter)
        tm.model[1].eval()
        if by_batch:
            with tm.run():
                for batch in tm.train_data or ():
                    tm.train_on_batch(batch)
        else:
            tm.train_epoch()
        return [value.detach().clone() for value in tm.model.state_dict().values()]

    assert all(torch.equal(one, other) for one, other in zip(trained(True), trained(False), strict=True))


def test_the_end_of_the_last_epoch_by_a_hook_is_the_end_for_schedules() -> None:
    ran: list[int] = []

    class EndsEarly(Extension):
        def pre_train_step_batch(self, batch_num: int, train_manager: TrainManager) -> None:
            if batch_num == 2:
                train_manager.end_epoch()

        @periodically(1e9, at_end=True)
        def post_train_step_batch(self, step_num: int) -> None:
            ran.append(step_num)

    tiny_manager(EndsEarly(), epochs=2).train()

    assert ran == [4]


def test_new_data_counts_at_once_with_steps_per_epoch_too() -> None:
    seen: list[int] = []
    tm = tiny_manager(Extension.of(post_train_step_batch=lambda inputs: seen.append(len(inputs))), steps_per_epoch=2)
    batches = list(tm.train_data or ())
    with tm.run():
        tm.train_epoch()
        tm.train_data = [(inputs[:3], targets[:3]) for inputs, targets in batches]
        tm.train_epoch()

    assert seen == [16, 16, 3, 3]


def test_a_training_without_a_backward_pass_is_told_so() -> None:
    class Nothing(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
            model(inputs)

    model = nn.Linear(2, 2)
    tm = Nothing(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), train_data=[torch.zeros(1, 2)])
    text = r"train_batch has not called self.update\(loss\) in 1 batches, so hooks of train_backward and"
    with pytest.warns(UserWarning, match=text):
        tm.train()


def test_two_epochs_whose_batches_are_all_skipped_end_no_training_by_steps() -> None:
    tm = tiny_manager(At("pre_train_step_batch", lambda: skip_batch() if tm.epoch_num < 2 else None))
    tm.train_steps(2)

    assert (tm.step_num, tm.epoch_num) == (2, 2)
