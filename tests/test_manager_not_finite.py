"""Losses that are not finite: found at the end of an epoch, without reading one in each step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.training import At, Batch, loss_of, make_batches, stop_at
from train_manager import NonFiniteLoss, SkipBatch
from train_manager.testing import Recorder, tiny_manager


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_loss_that_is_not_finite_is_an_error_at_the_end_of_the_epoch(value: str) -> None:
    batches = make_batches(4)

    def loss(batch: Batch, prediction: Tensor, targets: Tensor) -> Tensor:
        factor = float(value) if batch is batches[1] else 1.0
        return F.cross_entropy(prediction, targets) * factor

    recorder = Recorder()
    tm = tiny_manager(recorder, loss=loss, train_data=batches)
    with pytest.raises(NonFiniteLoss) as caught:
        tm.train()

    assert str(caught.value).splitlines()[0].startswith(f"the loss was {value} in step 2, epoch 1, and not finite in ")
    assert (caught.value.epoch, caught.value.step) == (1, 2)
    assert (recorder.stages.count("train_step_batch"), tm.epoch_num, tm.fixtures.path) == (4, 0, ())


def test_a_loss_that_is_not_finite_is_an_error_also_where_the_run_is_stopped() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch"), loss=loss_of(lambda losses: losses.mean() * float("nan")))
    with pytest.raises(NonFiniteLoss, match="in step 1, epoch 1"):
        tm.train()


def test_a_batch_whose_loss_is_not_finite_can_be_skipped() -> None:
    def only_finite(loss: Tensor) -> None:
        if not loss.isfinite():
            raise SkipBatch

    batches = make_batches(3)
    batches[1] = (batches[1][0] * float("nan"), batches[1][1])
    tm = tiny_manager(At("post_train_loss_forward", only_finite), train_data=batches)
    tm.train()

    assert (tm.epoch_num, tm.step_num) == (1, 2)


def test_the_step_is_named_as_it_was_counted_then() -> None:
    tm = tiny_manager()
    with pytest.raises(NonFiniteLoss, match="nan in step 2, epoch 1"), tm.run():
        tm.train_on_batch(make_batches(1)[0])
        tm.train_on_batch((torch.full((4, 2), float("nan")), torch.zeros(4, dtype=torch.long)))
        tm.step_num = 100
