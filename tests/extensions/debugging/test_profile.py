"""Chosen steps under the profilers of torch and of Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import Profile
from train_manager.testing import tiny_manager


class Slow(Extension):
    def post_train_step_batch(self) -> None:
        sum(range(1000))


def trained(profile: Profile, folder: Path, epochs: int = 3) -> TrainManager:
    tm = tiny_manager(profile, Slow(), epochs=epochs, train_dir=folder)
    tm.train()
    return tm


def test_a_hook_has_its_microseconds_and_its_calls(tmp_path: Path) -> None:
    profile = Profile(first=1, steps=2)
    trained(profile, tmp_path)

    microseconds, calls = profile.hooks["Slow.post_train_step_batch"]
    assert calls == 2
    assert microseconds > 0
    assert [line.split()[0] for line in profile.text().splitlines()] == ["hook", "Slow.post_train_step_batch"]


def test_a_training_that_ends_before_the_steps_do_leaves_what_there_is(tmp_path: Path) -> None:
    profile = Profile(first=2, steps=9)
    trained(profile, tmp_path, epochs=1)

    assert [file.name for file in profile.files] == ["steps_2-3.json"]


def test_an_error_ends_the_profiler(tmp_path: Path) -> None:
    def fail(step_num: int) -> None:
        if step_num == 2:
            raise RuntimeError("planned")

    profile = Profile(first=1, steps=1)
    tm = tiny_manager(profile, Extension.of(pre_train_step_batch=fail), train_dir=tmp_path)
    with pytest.raises(RuntimeError, match="planned"):
        tm.train()

    assert [file.name for file in profile.files] == ["steps_1-1.json", "steps_2-2.prof"]


@pytest.mark.parametrize("arguments", [{"first": 0}, {"steps": 0}])
def test_no_step_is_refused(arguments: dict[str, int]) -> None:
    (name,) = arguments
    with pytest.raises(InputError, match=f"^{name} must be a whole number of at least 1, but is 0$"):
        Profile(**arguments)
