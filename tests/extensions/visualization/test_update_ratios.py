"""Updates beside weights."""

from __future__ import annotations

import pytest
import torch

from tests.extensions.visualization.test_watchers import two_optimizers
from train_manager import InputError
from train_manager.extensions import FreezeModules, UpdateRatios
from train_manager.testing import tiny_manager


def test_they_are_what_a_step_has_changed() -> None:
    ratios, tm = UpdateRatios(every=1), tiny_manager()
    before = [weight.detach().clone() for weight in tm.model[0].parameters()]
    tm.add_extension(ratios)
    tm.train_steps(1)
    after = [weight.detach() for weight in tm.model[0].parameters()]

    moved = torch.cat([(one - other).flatten() for one, other in zip(after, before, strict=True)]).norm()
    expected = moved / torch.cat([one.flatten() for one in before]).norm()
    assert ratios.series["update_ratios"].rows[0].mean[0].item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_layer_that_is_not_updated_is_nan() -> None:
    ratios = UpdateRatios(every=1)
    tiny_manager(ratios, FreezeModules("0")).train()

    assert repr(ratios.series["update_ratios"].rows[0].mean[0].item()) == "nan"


def test_the_steps_of_each_optimizer_are_counted_apart() -> None:
    ratios = UpdateRatios(every=2)
    two_optimizers(ratios).train()

    steps = {name: [row.step for row in columns.rows] for name, columns in ratios.series.items()}
    assert steps == {"update_ratios/first": [2, 4, 6, 8], "update_ratios/last": [2, 4, 6, 8]}


def test_weights_are_copied_in_the_steps_that_are_looked_at_only() -> None:
    ratios = UpdateRatios(every=4)
    tiny_manager(ratios, epochs=3).train()

    assert [row.step for row in ratios.series["update_ratios"].rows] == [4, 8]


def test_a_number_below_1_is_refused() -> None:
    with pytest.raises(InputError) as error:
        UpdateRatios(every=0)
    assert str(error.value) == "every must be a whole number of at least 1, but is 0"
