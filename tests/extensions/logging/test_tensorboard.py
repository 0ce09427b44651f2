"""TensorBoard reads back what the store has."""

from __future__ import annotations

import math
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs.store.sinks import OwnMetrics, Points, counting, kill_and_resume, needs_package, run_program
from train_manager import Extension
from train_manager.extensions import Checkpoints, MetricStore, TensorBoard
from train_manager.runs.store.writer import MetricWriter
from train_manager.testing import tiny_manager

needs_package()
pytestmark = [pytest.mark.sinks, pytest.mark.slow]

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.summary.writer import event_file_writer  # noqa: E402


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was killed and has resumed."""
    folder = tmp_path_factory.mktemp("killed")
    kill_and_resume(folder, "TensorBoard")
    return folder


def read(folder: Path) -> Any:
    kinds = dict.fromkeys(("scalars", "histograms", "images", "tensors"), 0)  # all of them
    found = EventAccumulator(str(folder), size_guidance=kinds)
    found.Reload()
    return found


def shown(train_dir: Path) -> Points:
    events = read(train_dir / "tensorboard")
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    return {tag: sorted(points) for tag, points in scalars.items()}


def stored(train_dir: Path) -> Points:
    """What counts, as numbers of 32 bits."""
    found = counting(train_dir)
    return {tag: [(step, single(value)) for step, value in points] for tag, points in found.items()}


def single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def train(folder: Path, *extensions: Extension, epochs: int = 2, resume: Any = "fresh") -> None:
    checkpoints = Checkpoints(resume=resume)
    tiny_manager(MetricStore(), TensorBoard(), checkpoints, *extensions, epochs=epochs, train_dir=folder).train()


def test_it_has_every_number_that_counts(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics())

    assert shown(tmp_path) == stored(tmp_path)
    assert shown(tmp_path)["largest"] == [(1000, 1.0), (2000, 2.0)]


def test_it_has_histograms_texts_and_pictures(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics())
    events = read(tmp_path / "tensorboard")
    weights, picture = events.Histograms("weights")[0].histogram_value, events.Images("picture")[0]

    assert (weights.min, weights.max, weights.num, weights.sum) == (0.0, 1.0, 3, 1.75)
    assert (weights.bucket_limit, weights.bucket) == ([0.5, 1.0], [1.0, 2.0])
    assert (picture.width, picture.height, picture.encoded_image_string[:4]) == (6, 4, b"\x89PNG")
    assert events.Tensors("note")[0].tensor_proto.string_val == ["größer".encode()]


def test_after_a_resume_it_has_what_counts(tmp_path: Path) -> None:
    train(tmp_path, epochs=2)
    train(tmp_path, epochs=3, resume=True)

    assert shown(tmp_path) == stored(tmp_path)


def test_after_a_training_from_the_start_in_the_same_folder_it_has_what_counts(tmp_path: Path) -> None:
    for epochs in (3, 1):
        tiny_manager(MetricStore(), TensorBoard(), epochs=epochs, train_dir=tmp_path).train()

    assert [step for step, _ in shown(tmp_path)["batch/loss"]] == [1, 2, 3]


def test_after_a_resume_steps_of_hooks_that_are_far_beyond_stay(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics(), epochs=2)
    train(tmp_path, OwnMetrics(), epochs=3, resume=True)

    assert shown(tmp_path) == stored(tmp_path)
    assert len(shown(tmp_path)["largest"]) == 3


def test_after_a_kill_and_a_resume_it_has_what_counts(killed: Path) -> None:
    assert shown(killed) == stored(killed)
    assert [step for step, _ in shown(killed)["batch/loss"]] == [*range(1, 31)]


FULL = """
import resource, sys
import torch
from train_manager import Extension, extensions
from train_manager.testing import tiny_manager

class Draws(Extension):
    def post_train_step_epoch(self, writer):
        writer.image("noise", torch.rand(3, 300, 300))

resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))  # of each file, not of all
tiny_manager(extensions.MetricStore(), extensions.TensorBoard(), Draws(), epochs=8, train_dir=sys.argv[1]).train()
"""


def test_a_file_that_takes_no_more_does_not_stop_a_program_and_is_written_anew_by_an_export(tmp_path: Path) -> None:
    full = run_program(FULL, tmp_path)
    assert full.returncode == 0, full.stderr
    assert full.stderr.count("File too large; the run continues") == 1
    assert f"metrics of {tmp_path}: train-manager export {tmp_path} --to tensorboard" in full.stderr
    TensorBoard().export(tmp_path)

    assert shown(tmp_path) == stored(tmp_path)
    assert [image.step for image in read(tmp_path / "tensorboard").Images("noise")] == [*range(3, 25, 3)]


def test_an_export_shows_what_counts_and_once(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics(), epochs=2)
    train(tmp_path, OwnMetrics(), epochs=3, resume=True)
    for _ in range(2):
        TensorBoard().export(tmp_path)

    assert shown(tmp_path) == stored(tmp_path)
    assert len(read(tmp_path / "tensorboard").Histograms("weights")) == 3


def test_an_export_right_after_a_training_is_read_after_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(event_file_writer._global_uid, "_value", 9)  # the names of one second end in 9 and in 10
    train(tmp_path, epochs=1)
    TensorBoard().export(tmp_path)
    seconds = [path.name.split(".")[3] for path in (tmp_path / "tensorboard").iterdir()]

    assert len(set(seconds)) == 2
    assert shown(tmp_path) == stored(tmp_path)


def test_an_export_brings_what_a_kill_has_kept_from_tensorboard(killed: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(killed, tmp_path / "copied", ignore=shutil.ignore_patterns("tensorboard"))
    TensorBoard().export(copied)

    assert shown(copied) == stored(killed)


def test_a_manager_that_goes_back_shows_what_counts(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), TensorBoard(), train_dir=tmp_path)
    tm.train_steps(4)
    tm.step_num = 2
    tm.train_steps(2)

    assert shown(tmp_path) == stored(tmp_path)
    assert [step for step, _ in shown(tmp_path)["batch/loss"]] == [1, 2, 3, 4]


def test_a_second_training_of_the_same_manager_is_added(tmp_path: Path) -> None:
    tm = tiny_manager(MetricStore(), TensorBoard(), OwnMetrics(), train_dir=tmp_path)
    tm.train()
    tm.train_epochs(1)

    assert shown(tmp_path) == stored(tmp_path)
    assert len(shown(tmp_path)["largest"]) == 2


def test_nan_and_infinity_are_shown_as_they_are(tmp_path: Path) -> None:
    class Writes(Extension):
        def post_train_step_epoch(self, writer: MetricWriter) -> None:
            writer.scalars({"nan": math.nan, "largest": math.inf})

    train(tmp_path, Writes(), epochs=1)

    assert math.isnan(shown(tmp_path)["nan"][0][1])
    assert shown(tmp_path)["largest"] == [(3, math.inf)]


def test_it_writes_where_it_is_told_to(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path / "events")
    tiny_manager(MetricStore(), sink, train_dir=tmp_path / "run").train()

    assert "batch/loss" in read(tmp_path / "events").Tags()["scalars"]
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_it_does_not_change_what_is_trained(tmp_path: Path) -> None:
    plain, watched = tiny_manager(epochs=2), tiny_manager(MetricStore(), TensorBoard(), epochs=2, train_dir=tmp_path)
    plain.train()
    watched.train()

    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
