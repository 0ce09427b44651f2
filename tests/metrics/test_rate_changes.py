from __future__ import annotations

import torch

from train_manager.metrics.rate_changes import RateChanges


def sgd(*rates: float | torch.Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [torch.zeros(1)], "lr": rate} for rate in rates], lr=1.0)


def looking_at(**optimizers: torch.optim.Optimizer) -> RateChanges:
    """Return the rates of optimizers that have stepped once."""
    rates = RateChanges()
    rates.look(optimizers)
    for optimizer in optimizers.values():
        optimizer.step()
    return rates


def test_an_optimizer_that_has_not_stepped_has_no_rates_yet() -> None:
    rates = RateChanges()
    rates.look({"optimizer": sgd(0.5)})

    assert (rates.have_changed, rates.take()) == (False, {})


def test_a_sole_rate_is_called_lr() -> None:
    assert looking_at(optimizer=sgd(0.5)).take() == {"lr": 0.5}


def test_groups_and_optimizers_are_in_the_name_where_there_are_several() -> None:
    assert looking_at(optimizer=sgd(0.5, 0.25)).take() == {"lr/0": 0.5, "lr/1": 0.25}
    assert looking_at(g=sgd(0.5), d=sgd(0.25, 0.1)).take() == {"lr/g": 0.5, "lr/d/0": 0.25, "lr/d/1": 0.1}


def test_groups_are_called_by_their_names_if_each_has_one_of_its_own() -> None:
    optimizer = sgd(0.5, 0.25)
    for group, name in zip(optimizer.param_groups, ("*.bias", "default"), strict=True):
        group["name"] = name
    assert looking_at(optimizer=optimizer).take() == {"lr/*.bias": 0.5, "lr/default": 0.25}

    optimizer.param_groups[1]["name"] = "*.bias"
    assert looking_at(optimizer=optimizer).take() == {"lr/0": 0.5, "lr/1": 0.25}


def test_rates_that_stay_have_not_changed() -> None:
    optimizer = sgd(0.5)
    rates = looking_at(optimizer=optimizer)
    rates.take()
    rates.look({"optimizer": optimizer})
    optimizer.step()

    assert not rates.have_changed


def test_a_rate_that_is_a_tensor_changes_as_it_is_written_to() -> None:
    optimizer = sgd(torch.tensor(0.5))
    rates = looking_at(optimizer=optimizer)
    first = rates.take()["lr"]
    optimizer.param_groups[0]["lr"].mul_(0.5)
    optimizer.step()

    assert (first.item(), rates.have_changed, rates.take()["lr"].item()) == (0.5, True, 0.25)


def test_a_group_that_is_added_is_seen_at_once() -> None:
    optimizer = sgd(0.5)
    rates = looking_at(optimizer=optimizer)
    rates.take()
    optimizer.add_param_group({"params": [torch.zeros(1)], "lr": 0.25})
    optimizer.step()

    assert rates.take() == {"lr/0": 0.5, "lr/1": 0.25}


def test_forgotten_rates_are_told_again() -> None:
    rates = looking_at(optimizer=sgd(0.5))
    rates.take()
    rates.forget()

    assert rates.take() == {"lr": 0.5}


def test_a_rate_that_is_set_after_the_step_counts_with_the_next_step() -> None:
    optimizer, told = sgd(0.5), []
    rates = RateChanges(lambda: told.append(rates.take()))
    rates.look({"optimizer": optimizer})
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.25
    assert told == [{"lr": 0.5}]
    optimizer.step()

    assert told == [{"lr": 0.5}, {"lr": 0.25}]


def test_a_rate_that_is_set_for_the_step_alone_counts() -> None:
    optimizer = sgd(0.5)
    rates = looking_at(optimizer=optimizer)
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5

    assert rates.take() == {"lr": 0.25}


def test_at_its_end_nothing_of_it_is_left_in_the_optimizer() -> None:
    optimizer = sgd(0.5)
    rates = looking_at(optimizer=optimizer)
    rates.end()

    assert not optimizer._optimizer_step_pre_hooks


def test_an_optimizer_that_takes_the_place_of_another_is_watched_in_its_place() -> None:
    first, second = sgd(0.5), sgd(0.5)
    rates = looking_at(optimizer=first)
    rates.take()
    rates.look({"optimizer": second})
    second.param_groups[0]["lr"] = 0.25
    second.step()

    assert rates.take() == {"lr": 0.25}
    assert not first._optimizer_step_pre_hooks
