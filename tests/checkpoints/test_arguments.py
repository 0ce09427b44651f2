"""When ``Checkpoints`` are saved and where a training resumes, as a user says it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from train_manager import (
    InputError,
    every,
)
from train_manager.extensions import Checkpoints


def made(**arguments: Any) -> Callable[[], Checkpoints]:
    return lambda: Checkpoints(**arguments)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (made(save_at="epochs"), "save_at takes 'epoch', 'end', 'best' and one schedule, but has 'epochs'"),
        (made(save_at=100), "save_at takes 'epoch', 'end', 'best' and one schedule, but has 100"),
        (made(save_at=(every(2), every(3))), "save_at takes one schedule, but has several"),
        (made(resume="yes"), "resume must be True, False or 'fresh', but is 'yes'"),
        (made(at="best"), "at='best' says where to resume, but resume is False"),
        (made(keep=0), "keep must be a whole number of at least 1, but is 0"),
        (made(monitor="loss"), "monitor must name a set of eval_data and a metric, but is 'loss'"),
    ],
)
def test_an_invalid_argument_is_an_error(make: Callable[[], Checkpoints], told: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).splitlines()[0] == told


@pytest.mark.parametrize(
    ("make", "cure"),
    [
        (made(save_at=100), "save_at=every(100) saves after each 100 steps"),
        (made(resume="runs/a"), "Checkpoints(resume=True, at='runs/a')"),
        (made(resume=Path("runs/a")), "Checkpoints(resume=True, at='runs/a')"),
        (made(resume="auto"), "Checkpoints(resume=True) resumes"),
        (made(keep="all"), "keep=None keeps all"),
    ],
)
def test_its_cure_is_the_argument_that_was_meant(make: Callable[[], Checkpoints], cure: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert caught.value.cure == cure
