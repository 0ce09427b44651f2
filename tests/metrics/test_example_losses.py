from __future__ import annotations

import torch

from train_manager.metrics.example_losses import FULL, ExampleLosses


def test_means_and_deviations_are_those_of_all_losses_also_if_batches_were_read_between() -> None:
    losses, given = ExampleLosses(), torch.rand(3 * FULL, 5, generator=torch.Generator().manual_seed(0))
    for values in given:
        losses.append("train", torch.arange(5), values, None)

    found = sorted(losses.hardest(5))
    torch.testing.assert_close(torch.tensor([one.loss for one in found]), given.mean(0))
    torch.testing.assert_close(torch.tensor([one.variability for one in found]), given.std(0, correction=0))
    assert {(one.epochs, one.forgotten, one.learned) for one in found} == {(3 * FULL, None, None)}


def test_forgetting_is_from_right_to_wrong_and_not_before_the_first_time_right() -> None:
    losses = ExampleLosses()
    for right in ([0, 1], [1, 0], [0, 0], [1, 1], [0, 1]):
        losses.append("train", torch.tensor([0, 1]), torch.zeros(2), torch.tensor(right).bool())

    assert [(one.number, one.forgotten) for one in sorted(losses.hardest(2))] == [(0, 2), (1, 1)]


def test_an_example_that_was_not_seen_is_not_shown() -> None:
    losses = ExampleLosses()
    losses.append("train", torch.tensor([1000]), torch.ones(1), None)

    assert [one.number for one in losses.hardest(10)] == [1000]


def test_a_state_that_is_loaded_continues_with_equal_numbers() -> None:
    first, second = ExampleLosses(), ExampleLosses()
    batches = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    for number, values in enumerate(batches):
        if number == 2:
            second.load_state_dict(first.state_dict())
        for losses in (first, second) if number >= 2 else (first,):
            losses.append("train", torch.arange(3), values, values > 0.5)

    assert first.hardest(3) == second.hardest(3)
