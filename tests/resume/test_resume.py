"""A training that was ended at a step continues, in new objects, to the same bits as one that never ended."""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.resume import of_data, of_extensions, of_programs, of_recipes  # noqa: F401  # they fill TRAININGS
from tests.resume.of_data import Augmented
from tests.resume.resuming import differences, end_of, saved_every_step, stopped_and_resumed, whole
from tests.resume.trainings import TRAININGS, Training
from tests.support.fork_server import ForkServer
from tests.support.rotation import in_turn, part_of, places_of
from tests.support.training import At
from train_manager import SeededDataLoader, TrainManager, every

pytestmark = [
    pytest.mark.filterwarnings("ignore:train.. has nothing to do"),
    pytest.mark.filterwarnings("ignore:the loss .Weighted. has 2 parameters"),
    pytest.mark.filterwarnings("ignore:train_data .DataLoader. does not tell its position"),
]

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync costs nothing


@cache
def whole_of(name: str) -> dict[str, Any]:
    return whole(TRAININGS[name])


def places(name: str) -> list[tuple[str, int]]:
    """Steps to fail at: early, in the middle, late; before a step, and right after it."""
    last = whole_of(name)["counts"]["step_num"]
    return [
        ("pre_train_step_batch", last // 3),
        ("post_train_step_batch", last // 2 + 1),
        ("pre_train_step_batch", last - 1),
    ]


@pytest.mark.parametrize(("number", "name"), [*enumerate(TRAININGS)], ids=TRAININGS)
def test_it_resumes_to_the_same_bits(number: int, name: str) -> None:
    for hook, at in places_of(number, places(name)):
        with TemporaryDirectory(dir=MEMORY) as folder:
            resumed = end_of(stopped_and_resumed(TRAININGS[name], Path(folder), at, hook))

        assert differences(whole_of(name), resumed) == [], f"failed at {hook} {at}"


SAVES: list[dict[str, Any]] = [
    {"save_at": ("epoch", "end", "best")},
    {"in_background": True},
    {"save_at": every(3), "keep": 1},
]


@pytest.mark.parametrize(
    ("name", "options"),
    in_turn(["dropout_and_shuffled_in_memory", "windows_over_the_ends_of_epochs", "phases"], SAVES),
)
def test_so_it_does_whenever_and_however_it_saves(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    resumed = stopped_and_resumed(TRAININGS[name], tmp_path, whole_of(name)["counts"]["step_num"] - 2, **options)

    assert differences(whole_of(name), end_of(resumed)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(0, 2), *(pytest.param(2, n, marks=pytest.mark.whole) for n in (0, 1))])
def test_the_number_of_workers_may_be_another_one_after_a_resume(before: int, after: int, tmp_path: Path) -> None:
    def with_workers(count: int) -> Training:
        loader = SeededDataLoader(Augmented(), batch_size=8, shuffle=True, num_workers=count)
        return Training(lambda: {"train_data": loader}, TrainManager.train, TrainManager)

    resumed = stopped_and_resumed(with_workers(before), tmp_path, 6, then=with_workers(after))

    assert differences(whole_of("seeded_data_loader_with_augmentation"), end_of(resumed)) == []


KILLED = ["all_recipes_at_once", "nested_phases", "two_optimizers", "wrapper_of_a_loader_with_a_generator"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("name", part_of(KILLED, 3))
def test_so_it_does_if_the_process_is_killed(name: str, fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(killed, name, str(tmp_path), whole_of(name)["counts"]["step_num"] * 2 // 3)
    assert child.wait() == -signal.SIGKILL, child.errors
    resumed = TRAININGS[name].make(saved_every_step(resume=True), train_dir=tmp_path)
    TRAININGS[name].program(resumed)

    assert differences(whole_of(name), end_of(resumed)) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("ends", ["stopped", "killed"])
@pytest.mark.parametrize("name", ["what_extensions_hold", "what_a_run_makes_after_an_evaluation"])
def test_what_extensions_hold_resumes_from_each_step(name: str, ends: str, fork_server: ForkServer) -> None:
    for at in part_of(range(2, whole_of(name)["counts"]["step_num"]), 3):
        with TemporaryDirectory(dir=MEMORY) as folder:
            if ends == "stopped":
                resumed = stopped_and_resumed(TRAININGS[name], Path(folder), at, "post_train_step_batch")
            else:
                assert fork_server.start(killed, name, folder, at).wait() == -signal.SIGKILL
                resumed = TRAININGS[name].make(saved_every_step(resume=True), train_dir=folder)
                TRAININGS[name].program(resumed)

        assert differences(whole_of(name), end_of(resumed)) == [], f"{ends} at {at}"
        assert not resumed.findings


def killed(name: str, folder: str, at: int) -> None:
    def kill(step_num: int) -> None:
        if step_num == at:
            os.kill(os.getpid(), signal.SIGKILL)

    training = TRAININGS[name]
    training.program(training.make(saved_every_step(), At("pre_train_step_batch", kill), train_dir=folder))
