from __future__ import annotations

import torch

from train_manager.reporting.curves import PartCurves, PartSums


def test_each_part_has_a_curve_of_its_own_by_batch_and_by_epoch() -> None:
    parts = PartCurves()
    for epoch in (1, 2):
        of_epoch = PartSums()
        steps = (2 * epoch - 1, 2 * epoch)
        terms = [{"a": torch.tensor(float(number)), "b": torch.tensor(10.0 * epoch)} for number in (1, 2)]
        parts.take([(step, 8 * step, 8, term) for step, term in zip(steps, terms, strict=True)], of_epoch)
        parts.end_epoch(epoch, of_epoch)
    assert (parts.curves["a"]["batch"].x, parts.curves["a"]["batch"].y) == ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 1.0, 2.0])
    assert (parts.curves["b"]["epoch"].x, parts.curves["b"]["epoch"].y) == ([1.0, 2.0], [10.0, 20.0])


def test_a_part_that_comes_only_in_some_steps_has_points_there() -> None:
    parts = PartCurves()
    parts.take([(1, 8, 8, {}), (2, 16, 8, {"rare": torch.tensor(3.0)})], PartSums())
    assert (parts.curves["rare"]["batch"].x, parts.curves["rare"]["example"].x) == ([2.0], [16.0])


def test_it_resumes_from_its_state() -> None:
    parts, sums, other, other_sums = PartCurves(), PartSums(), PartCurves(), PartSums()
    parts.take([(1, 1, 1, {"a": torch.tensor(1.0)})], sums)
    other.load_state_dict(parts.state_dict())
    other_sums.load_state_dict(sums.state_dict())
    for curves, of_epoch in ((parts, sums), (other, other_sums)):
        curves.take([(2, 4, 3, {"a": torch.tensor(3.0)})], of_epoch)
        curves.end_epoch(1, of_epoch)
    assert other.state_dict() == parts.state_dict()
    assert other.curves["a"]["epoch"].y == [2.5]
