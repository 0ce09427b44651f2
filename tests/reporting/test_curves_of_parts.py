from __future__ import annotations

import torch

from train_manager.metrics.deferred import DeferredScalars
from train_manager.reporting.curves import PartCurves


def test_each_part_has_a_curve_of_its_own_by_batch_and_by_epoch() -> None:
    parts = PartCurves()
    for epoch in (1, 2):
        parts.begin_epoch()
        for step in (1, 2):
            parts.append(
                {"a": torch.tensor(float(step)), "b": torch.tensor(10.0 * epoch)}, step=2 * epoch + step - 2, examples=8
            )
        parts.end_epoch(epoch)
    assert (parts.curves["a"]["batch"].x, parts.curves["a"]["batch"].y) == ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])
    assert (parts.curves["b"]["epoch"].x, parts.curves["b"]["epoch"].y) == ([1.0, 2.0], [10.0, 20.0])


def test_a_part_that_comes_only_in_some_steps_has_points_there() -> None:
    parts = PartCurves()
    parts.append({}, step=1, examples=8)
    parts.append({"rare": torch.tensor(3.0)}, step=2, examples=8)
    parts.take()
    assert (parts.curves["rare"]["batch"].x, parts.curves["rare"]["example"].x) == ([2.0], [16.0])


def test_no_more_than_a_thousand_values_are_deferred() -> None:
    parts = PartCurves()
    for step in range(DeferredScalars.limit):
        parts.append({"a": torch.tensor(1.0)}, step, examples=1)
    assert len(parts.curves["a"]["batch"].x) > 0


def test_it_goes_on_from_its_state() -> None:
    parts, other = PartCurves(), PartCurves()
    parts.append({"a": torch.tensor(1.0)}, step=1, examples=1)
    other.load_state_dict(parts.state_dict())
    for curves in (parts, other):
        curves.append({"a": torch.tensor(3.0)}, step=2, examples=3)
        curves.end_epoch(1)
    assert other.state_dict() == parts.state_dict()
    assert other.curves["a"]["epoch"].y == [2.5]
