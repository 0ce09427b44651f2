"""Single batches in a loop of your own: ``train_on_batch``, ``eval_on_batch`` and the end of an epoch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.own_loops import Steps, Unsized, make_batches, manager, weights
from tests.support.training import At, skip_batch, skip_stage
from train_manager import Extension, NonFiniteLoss, TrainManager, periodically
from train_manager.errors import StageError
from train_manager.extensions import Accumulate
from train_manager.testing import Recorder, tiny_manager

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
