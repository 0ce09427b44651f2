"""The learning rate range test, and that it leaves no trace."""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.equal_states import assert_same
from tests.support.refusals import refusal
from tests.support.training import At
from tests.trials.diagnosed import noisy, result_of
from train_manager import InputError, TrainManager, lr_finder
from train_manager.extensions import ClipGradients
from train_manager.testing import Recorder, tiny_manager
from train_manager.trials.lr_finder import Smoothed


@pytest.mark.parametrize(
    ("before", "seed"),
    [(None, None), (TrainManager.train_epoch, 3), (lambda tm: tm.train_steps(2), None)],
    ids=["at the start", "an epoch", "two steps"],
)
def test_a_training_after_it_is_to_the_bit_the_training_without_it(
    before: Callable[[TrainManager], Any] | None, seed: int | None
) -> None:
    found: list[dict[str, Any]] = []
    for looks in (False, True):
        tm = noisy(seed=seed)
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        if before is not None:
            before(tm)
        if looks:
            lr_finder(tm, steps=20, highest=0.1)
        tm.train()
        found.append(result_of(tm))

    assert_same(found[0], found[1])


def test_a_model_that_is_handed_over_in_eval_mode_is_trained_in_train_mode() -> None:
    seen: list[bool] = []
    tm = tiny_manager(At("post_train_step_batch", lambda model: seen.append(model.training)))
    tm.model.eval()
    lr_finder(tm, steps=2, keep=list(tm.extensions))

    assert seen == [True, True]
    assert not tm.model.training


def test_it_leaves_nothing_behind_after_an_error() -> None:
    def fail(step_num: int) -> None:
        if step_num == before["counts"]["step_num"] + 10:
            raise ZeroDivisionError

    tm = noisy()
    tm.train_epoch()
    before = result_of(tm)
    tm.add_extension(At("pre_train_step_batch", fail), "fails")
    with pytest.raises(ZeroDivisionError):
        lr_finder(tm, keep=["fails"])
    tm.remove_extension("fails")

    assert_same(result_of(tm), before)


def test_its_losses_are_not_of_the_epoch_of_a_loop_around_it() -> None:
    rows = []
    for looks in (False, True):
        tm = tiny_manager()
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)
        if looks:
            lr_finder(tm, steps=20, highest=1e30)  # the last loss is not finite
        with tm.run():
            tm.end_epoch()
        rows.append({**tm.history.epochs[0], "seconds": 0})

    assert rows[0] == rows[1]


def test_schedules_that_count_epochs_are_not_warned_of() -> None:
    tm = tiny_manager(lr_schedule=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lr_finder(tm, steps=5)


def test_a_model_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        lr_finder(nn.Linear(2, 2))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "lr_finder takes a TrainManager, but was given a Linear\n"
        "  tm = TrainManager(model=model, ...), then lr_finder(tm)"
    )


def test_the_rates_grow_by_the_same_factor() -> None:
    found = lr_finder(tiny_manager(), lowest=1e-3, highest=1e-1, steps=3)

    assert found.rates == pytest.approx([1e-3, 1e-2, 1e-1])


def test_the_batches_are_trained_on_with_these_rates() -> None:
    seen: list[float] = []
    tm = tiny_manager(At("pre_train_optimizer_step", lambda optimizer: seen.append(optimizer.param_groups[0]["lr"])))
    found = lr_finder(tm, lowest=1e-3, highest=1e-1, steps=5, keep=["at"])

    assert seen == found.rates


def test_groups_keep_the_ratios_of_their_rates() -> None:
    def groups(parameters: Any) -> torch.optim.Optimizer:
        first, *rest = parameters
        return torch.optim.SGD([{"params": [first], "lr": 0.1}, {"params": rest, "lr": 0.2}])

    seen: list[list[float]] = []
    tm = tiny_manager(
        At(
            "pre_train_optimizer_step", lambda optimizer: seen.append([group["lr"] for group in optimizer.param_groups])
        ),
        optimizer=groups,
    )
    lr_finder(tm, lowest=0.01, highest=1, steps=2, keep=["at"])

    assert seen == [pytest.approx([0.005, 0.01]), pytest.approx([0.5, 1.0])]


def test_it_ends_where_the_loss_diverges() -> None:
    found = lr_finder(tiny_manager(), lowest=1e-3, highest=1e6, steps=100)

    assert 10 < len(found.rates) < 100


def test_an_easy_first_batch_does_not_end_it() -> None:
    smooth = Smoothed()

    assert not any(smooth.diverges(loss) for loss in (0.1, *[1.0] * 99))


def test_it_ends_at_a_loss_that_is_not_finite() -> None:
    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        return prediction.sum() * math.nan

    tm = tiny_manager(loss=loss)
    found = lr_finder(tm)

    assert (len(found.losses), found.suggestion) == (1, None)


def test_the_suggestion_trains() -> None:
    tm = tiny_manager(epochs=20)
    suggestion = lr_finder(tm, lowest=1e-4, highest=100).suggestion
    assert suggestion is not None
    tm.optimizer.param_groups[0]["lr"] = suggestion
    result = tm.train()

    assert result.metrics["valid"]["loss"] < 0.5


def test_extensions_that_are_kept_do_not() -> None:
    tm = tiny_manager(Recorder(), ClipGradients(1.0))
    lr_finder(tm, steps=3, keep=["recorder"])

    assert tm["recorder"].stages.count("train_step_batch") == 3


def test_hooks_are_checked_in_the_training_that_follows() -> None:
    class Wrong(Recorder):
        def post_train_step_bach(self) -> None: ...

    tm = tiny_manager(Wrong())
    lr_finder(tm, steps=3)
    with pytest.raises(ValueError, match="names no stage"):
        tm.train()


def test_an_own_batch_with_several_optimizers_is_tried_by_name() -> None:
    class Two(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            self.update(model["first"](inputs).square().mean(), "first")
            self.update(model["second"](inputs).square().mean(), "second")

    model = nn.ModuleDict({"first": nn.Linear(2, 1), "second": nn.Linear(2, 1)})
    optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.1) for name, part in model.items()}
    tm = Two(model=model, optimizer=optimizers, train_data=tiny_manager().train_data)
    before = copy.deepcopy(model.state_dict())
    found = lr_finder(tm, steps=10, optimizer="second")

    assert len(found.losses) == 10
    assert_same(model.state_dict(), before)
    with pytest.raises(InputError, match=r"lr_finder\(\) needs the name of an optimizer"):
        lr_finder(tm)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lowest": 0}, "lowest must be a number above 0, but is 0"),
        ({"lowest": 1, "highest": 0.1}, "highest must be a number above 1, but is 0.1"),
        ({"steps": 1}, "steps must be a whole number of at least 2, but is 1"),
    ],
)
def test_an_invalid_argument_is_refused(options: dict[str, Any], message: str) -> None:
    assert refusal(lambda: lr_finder(tiny_manager(), **options)) == message


def test_the_figure_shows_the_losses_and_the_suggestion() -> None:
    found = lr_finder(tiny_manager(), lowest=1e-4, highest=100)
    figure = found.plot()

    assert figure.axes[0].get_xscale() == "log"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "of each batch",
        "smoothed",
        f"suggestion {found.suggestion:g}",
    ]


def test_the_time_of_a_step_is_that_of_the_training() -> None:
    tm = tiny_manager(epochs=1)
    tm.train()
    before = tm.median_step_seconds
    lr_finder(tm, steps=20)

    assert tm.median_step_seconds == before
