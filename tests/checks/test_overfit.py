from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from train_manager.checks import overfit
from train_manager.checks.overfit import check_overfit
from train_manager.telling.findings import Findings


def asked(losses: Iterable[float], **options: Any) -> Findings:
    """What is told of a batch with these losses."""
    return check_overfit(iter(losses).__next__, **options)


def list_findings(found: Findings) -> list[tuple[str, str]]:
    return [(one.level, one.cure) for one in found]


def falling(first: float, by: float) -> Iterator[float]:
    return (first * by**step for step in itertools.count())


def test_a_batch_is_learned_below_a_tenth_of_its_first_loss() -> None:
    found = asked([2.0, 1.0, 0.3, 0.2, 0.19, 0.0])

    assert found.is_clean
    assert found.covered[0].text == "learned: the loss of one batch fell from 2 to 0.19 in 5 steps"


SMALL = "is the learning rate of 0.1 too small (lr_finder(tm))"


@pytest.mark.parametrize(
    ("losses", "cure"),
    [
        (itertools.repeat(2.0), f"{SMALL}? else does the loss reach the model? look for detach(), no_grad(), argmax, "),
        (falling(2.0, 1.01), "it grew: is the learning rate of 0.1 too large (lr_finder(tm)), or the sign of the"),
        (falling(2.0, 0.9998), f"{SMALL}, or a part of the model cut off?"),
        ((1 + 0.98**step for step in itertools.count()), f"{SMALL}, or a part of the model cut off?"),
    ],
    ids=["the same", "growing", "far too slow", "stuck"],
)
def test_what_was_not_learned_is_a_warning_with_what_to_look_at(losses: Iterable[float], cure: str) -> None:
    found = asked(losses, rates=[0.01, 0.1])

    assert [one.level for one in found] == ["warning"]
    assert found[0].cure.startswith(cure)


@pytest.mark.parametrize("losses", [falling(2.0, 0.998), (2 - step / 500 for step in itertools.count())])
def test_a_loss_that_still_falls_as_it_did_is_a_note(losses: Iterable[float]) -> None:
    found = asked(losses)

    assert list_findings(found) == [
        ("note", "it still falls, so that it is learned slowly; to be sure, raise the learning rate")
    ]
    assert found[0].what.startswith("one batch was not yet learned: its loss went from 2 to 1.")


def test_a_batch_that_nearly_was_learned_is_a_note() -> None:
    found = asked(falling(2.0, 0.99))

    assert list_findings(found) == [("note", "that is fine; to be sure, raise the learning rate")]
    assert found[0].what == "one batch was nearly learned: its loss went from 2 to 0.271 in 200 steps"


def test_a_loss_that_moves_by_rounding_alone_has_not_grown() -> None:
    found = asked([2.0, *itertools.repeat(2.0 + 1e-7, 199)])

    assert [one.level for one in found] == ["warning"]
    assert found[0].cure.startswith("is the learning rate too small (lr_finder(tm))? else does the loss reach")


@pytest.mark.parametrize("by", [0.9995, 1.01])
def test_losses_that_may_compete_need_not_fall_but_have_to_move(by: float) -> None:
    cure = "losses that work against each other, as those of a GAN, need not fall: look at each of them"

    assert list_findings(asked(falling(2.0, by), may_compete=True)) == [("note", cure)]
    assert [one.level for one in asked(itertools.repeat(2.0), may_compete=True)] == ["warning"]


def test_less_is_asked_of_a_loss_that_something_keeps_up() -> None:
    losses = [3.0, 2.5, *itertools.repeat(2.4, 198)]

    assert [one.level for one in asked(losses)] == ["warning"]
    assert list_findings(asked(losses, kept_up_by=lambda: ["targets between 0 and 1"])) == [
        ("note", "it fell, and what is named may keep it up")
    ]


def test_a_loss_below_zero_is_never_called_clean() -> None:
    found = asked([-1.0, *itertools.repeat(-2.0, 199)])

    assert not found.is_clean
    assert found.covered[0].text == "the first loss is -1, and a tenth of it tells nothing"


def test_too_few_steps_in_the_time_are_never_called_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overfit, "perf_counter", itertools.count(step=15).__next__)
    found = asked([2.0, 1.5, 1.0])

    assert not found.is_clean
    assert found.covered[0].text == "2 steps were done in 30 seconds, in which the loss fell to 1.5 from 2"


def test_too_few_steps_suffice_for_a_loss_that_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overfit, "perf_counter", itertools.count(step=15).__next__)

    assert [one.level for one in asked([2.0, 2.0, 2.0])] == ["warning"]
