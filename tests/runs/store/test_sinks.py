"""Sinks: what they need, how they are copied, and what an export sends."""

from __future__ import annotations

import copy
import pickle
from array import array
from pathlib import Path
from typing import Any

import pytest

from tests.runs.store.sinks import Keeps, counting, points_of
from tests.support.refusals import refusal
from train_manager.extensions import Checkpoints, MetricStore
from train_manager.runs.store import delivery, sinks
from train_manager.runs.store.rows import StoredArray, StoredFile, StoredRow
from train_manager.runs.store.schema import Series
from train_manager.runs.store.sinks import file_of, tagged_numbers
from train_manager.testing import tiny_manager


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a sink as long as it takes: other tests may keep the machine busy."""
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)


def fails(rows: Any) -> None:
    raise OSError("no space left on device")


# ---- what is needed --------------------------------------------------------------------------------------------------


def test_without_a_store_a_sink_is_refused_by_name(tmp_path: Path) -> None:
    told = refusal(lambda: tiny_manager(Keeps(), train_dir=tmp_path).train())

    assert "Keeps sends what MetricStore stores, but there is no MetricStore" in told
    assert "add it: extensions=[MetricStore(), Keeps()]" in told


def test_without_its_package_a_sink_names_the_extra(tmp_path: Path) -> None:
    class Missing(Keeps):
        tool, package = "missing", "no_such_package"

    with pytest.raises(ImportError) as refused:
        tiny_manager(MetricStore(), Missing(), train_dir=tmp_path).train()

    text = "Missing needs no_such_package (No module named 'no_such_package'): pip install \"train-manager[missing]\""
    assert str(refused.value).startswith(text)


# ---- copies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))])
def test_a_copy_follows_by_itself(tmp_path: Path, duplicate: Any) -> None:
    kept = Keeps()
    tm = tiny_manager(MetricStore(), kept, train_dir=tmp_path)
    with tm.run():
        tm.train_steps(1)
        copied = duplicate(kept)
    before = len(copied.rows)
    tiny_manager(MetricStore(), copied, train_dir=tmp_path / "other").train()

    assert points_of(copied.rows[before:]) == counting(tmp_path / "other")


# ---- export ----------------------------------------------------------------------------------------------------------


def test_an_export_sends_all_rows_that_count_also_those_of_the_run_that_was_resumed(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(resume="fresh"), epochs=2, train_dir=tmp_path).train()
    tm = tiny_manager(MetricStore(), Checkpoints(resume=True), epochs=3, train_dir=tmp_path)
    tm.train()
    kept = Keeps()
    count = kept.export(tmp_path)

    assert count == len(kept.rows)
    assert points_of(kept.rows) == counting(tmp_path)
    assert [(sent.mode, sent.part.run) for sent in kept.sent] == [("export", tm.run_id)]


def test_an_export_sends_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "MOST_AT_ONCE", 4)
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    sizes = list[int]()
    kept = Keeps(lambda rows: sizes.append(len(rows)))
    kept.export(tmp_path)

    assert points_of(kept.rows) == counting(tmp_path)
    assert max(sizes) == 4


def test_an_export_that_fails_closes_the_connection(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), train_dir=tmp_path).train()
    kept = Keeps(fails)
    with pytest.raises(OSError, match="no space left"):
        kept.export(tmp_path)

    assert kept.endings == [None]


@pytest.mark.parametrize(("begins", "count"), [("zz", "no"), ("", "2")])
def test_an_export_of_a_run_that_is_not_clear_names_those_there_are(tmp_path: Path, begins: str, count: str) -> None:
    made = [tiny_manager(MetricStore(), train_dir=tmp_path) for _ in range(2)]
    for tm in made:
        tm.train()
    told = refusal(lambda: Keeps().export(tmp_path, begins))

    assert f"{tmp_path} has {count} runs that begin with {begins!r}" in told
    assert f"its runs are {made[0].run_id}, {made[1].run_id}" in told


def test_the_command_of_a_sink_has_its_own_arguments(tmp_path: Path) -> None:
    class Placed(Keeps):
        def __init__(self, project: str | None = None, mode: str = "offline", folder: Path | None = None) -> None:
            super().__init__()
            self.project, self.mode, self.folder = project, mode, folder

    assert Placed().command(tmp_path) == f"train-manager export {tmp_path} --to kept"
    command = Placed("my digits", folder=Path("/events")).command(tmp_path)
    assert command == f"train-manager export {tmp_path} --to kept --with 'project=my digits' --with folder=/events"


# ---- one row ---------------------------------------------------------------------------------------------------------


def row_of(value: Any) -> StoredRow:
    return StoredRow(Series("norms", phase="head"), 3, 1, 0.0, value)


def test_a_vector_is_a_number_for_each_label_and_a_matrix_none() -> None:
    vector = StoredArray(3, 1, 0.0, (2,), array("f", [1.0, 2.0]), ("a", "b"))

    assert [*tagged_numbers(row_of(vector))] == [("head/norms/a", 1.0), ("head/norms/b", 2.0)]
    assert [*tagged_numbers(row_of(vector._replace(labels=())))] == [("head/norms/0", 1.0), ("head/norms/1", 2.0)]
    assert [*tagged_numbers(row_of(vector._replace(shape=(1, 2))))] == []


def test_a_file_in_the_train_dir_is_sent(tmp_path: Path) -> None:
    (tmp_path / "run/plots").mkdir(parents=True)
    (tmp_path / "run/plots/a.png").touch()

    found = file_of(row_of(StoredFile("plots/a.png", 1, "0" * 64)), tmp_path / "run")
    assert found == tmp_path / "run/plots/a.png"


@pytest.mark.parametrize("path", ["../secret", "{}/secret", "plots/../../secret", "link", "/etc/hostname", "gone"])
def test_a_file_outside_of_the_train_dir_is_not_sent(tmp_path: Path, path: str) -> None:
    (tmp_path / "run/plots").mkdir(parents=True)
    (tmp_path / "secret").touch()
    (tmp_path / "run/link").symlink_to("../secret")

    assert file_of(row_of(StoredFile(path.format(tmp_path), 1, "0" * 64)), tmp_path / "run") is None
