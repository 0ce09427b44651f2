from __future__ import annotations

import torch

from train_manager.reporting.curves import PartCurves, PartSums


def test_each_part_has_a_curve_of_its_own_by_batch_and_by_epoch() -> None:
    parts = PartCurves()
    for epoch in (1, 2):
        of_epoch = PartSums()
        for step in (1, 2):
            parts.append(
                {"a": torch.tensor(float(step)), "b": torch.tensor(10.0 * epoch)}, step=2 * epoch + step - 2, examples=8
            )
        parts.take(of_epoch)
        parts.end_epoch(epoch, of_epoch)
    assert (parts.curves["a"]["batch"].x, parts.curves["a"]["batch"].y) == ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])
    assert (parts.curves["b"]["epoch"].x, parts.curves["b"]["epoch"].y) == ([1.0, 2.0], [10.0, 20.0])


def test_a_part_that_comes_only_in_some_steps_has_points_there() -> None:
    parts = PartCurves()
    parts.append({}, step=1, examples=8)
    parts.append({"rare": torch.tensor(3.0)}, step=2, examples=8)
    parts.take(PartSums())
    assert (parts.curves["rare"]["batch"].x, parts.curves["rare"]["example"].x) == ([2.0], [16.0])


def test_it_resumes_from_its_state() -> None:
    parts, sums, other, other_sums = PartCurves(), PartSums(), PartCurves(), PartSums()
    parts.append({"a": torch.tensor(1.0)}, step=1, examples=1)
    parts.take(sums)
    other.load_state_dict(parts.state_dict())
    other_sums.load_state_dict(sums.state_dict())
    for curves, of_epoch in ((parts, sums), (other, other_sums)):
        curves.append({"a": torch.tensor(3.0)}, step=2, examples=3)
        curves.take(of_epoch)
        curves.end_epoch(1, of_epoch)
    assert other.state_dict() == parts.state_dict()
    assert other.curves["a"]["epoch"].y == [2.5]
