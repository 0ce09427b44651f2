"""A training that is killed between two batches, and continues in new objects from what its state was there.

The state makes its way through JSON and bytes, so that nothing of the killed training is alive in the other one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from train_manager import Extension, TrainManager
from train_manager.checkpoints.state_tree import join, split
from train_manager.checkpoints.tensors import content_of, read_tensors

TIMES = ("seconds", "call", "elapsed")  # that no two trainings have in common
END = 1 << 30  # in place of the number of a step
Training = Callable[[TrainManager], object]


class KilledError(Exception):
    """In place of a kill: everything that the training has made is thrown away."""


class Kill(Extension):
    """Take the state after every step, and end the training after one of them."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.states: dict[int, dict[str, Any]] = {}

    def post_train_step_batch(self, train_manager: TrainManager) -> None:
        train_manager.save_soon()

    def post_save_checkpoint(self, step_num: int, train_manager: TrainManager) -> None:
        self.states[step_num] = round_trip(train_manager.state_dict())
        if step_num == self.after:
            raise KilledError


class Resume(Extension):
    """Load a state, where a checkpoint is loaded."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def pre_load_checkpoint(self, train_manager: TrainManager) -> None:
        train_manager.load_state_dict(self.state)


def round_trip(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as it comes back from the files of a checkpoint."""
    tree, tensors = split(state)
    read = read_tensors(b"".join(content_of(tensors)), Path("state.safetensors"))
    back: dict[str, Any] = join(json.loads(json.dumps(tree)), read)
    return back


def states_of(tm: TrainManager, train: Training, after: int | None = None) -> dict[int, dict[str, Any]]:
    """Train to the end, or until a step after which the training is killed; return the states after each step."""
    tm.add_extension(kill := Kill(after), "kill")
    try:
        train(tm)
    except KilledError:
        return kill.states
    assert after is None, f"the training has no step {after}"
    return {**kill.states, END: round_trip(tm.state_dict())}


def resumed(make: Callable[[], TrainManager], train: Training, after: int) -> dict[int, dict[str, Any]]:
    """Kill a training after a step, resume from there in another one, and return its states."""
    state = states_of(make(), train, after)[after]
    tm = make()
    tm.add_extension(Resume(state), "resume")
    return states_of(tm, train)


def without_times(state: Any) -> Any:
    """Return a state without times and numbers of calls."""
    if isinstance(state, Mapping):
        return {name: without_times(value) for name, value in state.items() if name not in TIMES}
    return [without_times(value) for value in state] if isinstance(state, list | tuple) else state


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return where two states differ, to the bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        is_equal = one.dtype == other.dtype and one.shape == other.shape and bool(_equal(one, other).all())
        return [] if is_equal else [f"{path}: {one} != {other}"]
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        names = {**one, **other}
        found = [differences(one.get(name), other.get(name), f"{path}.{name}") for name in names]
        return [text for texts in found for text in texts]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for number, pair in pairs for text in differences(*pair, f"{path}.{number}")]
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return differences(one.tolist(), other.tolist(), path)
    is_equal = type(one) is type(other) and (one == other or (one != one and other != other))
    return [] if is_equal else [f"{path}: {one!r} != {other!r}"]


def _equal(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | ((one != one) & (other != other))


def comparable(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without times, and without the extensions of this module."""
    extensions = {name: one for name, one in state["extensions"].items() if name not in ("kill", "resume")}
    kept = {name: part for name, part in state.items() if name != "parameters"}  # which tell of those extensions too
    return cast("dict[str, Any]", without_times({**kept, "extensions": extensions}))


def state_of(tm: TrainManager) -> dict[str, Any]:
    """Return the state of a training as it comes back from files, without times."""
    return comparable(round_trip(tm.state_dict()))


def assert_resumes(make: Callable[[], TrainManager], train: Training, steps: Iterable[int]) -> None:
    """Assert that a training that is killed after any of some steps goes through the states of an uninterrupted one."""
    whole = states_of(make(), train)
    for after in steps:
        found = resumed(make, train, after)
        assert found.keys() == {step for step in whole if step > after}
        for step, state in found.items():
            wrong = differences(comparable(whole[step]), comparable(state))
            assert not wrong, f"killed after step {after}, after step {step}:\n" + "\n".join(wrong)
