"""How often an entry is written while its run continues."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from train_manager import InputError
from train_manager.runs.record.processes import this_process
from train_manager.runs.record.renewal import AT_ONCE, Renewal
from train_manager.runs.record.run_file import read_runs


class Owner:
    """What a TrainManager is here: something that is collected."""


class Case:
    """An entry that counts its changes, under a clock that is moved by hand."""

    def __init__(self, train_dir: Path) -> None:
        self.train_dir, self.seconds, self.changes = train_dir, 1000.0, 0
        self.entry = {"id": "a", "began": "", "outcome": "completed", "process": this_process()}
        self.owner: Owner | None = Owner()
        self.renewal = Renewal(train_dir, self.entry, self.complete, self.owner, clock=lambda: self.seconds)

    def complete(self, entry: dict[str, Any], is_last: bool) -> None:
        entry["progress"] = {"changes": self.changes, "is_last": is_last}

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.changes += 1
            self.renewal.changed()

    def written(self) -> Any:
        return read_runs(self.train_dir)[0]["progress"]["changes"]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    made.renewal.open()
    return made


def test_the_first_changes_are_written_at_once(case: Case) -> None:
    for number in range(1, AT_ONCE + 1):
        case.change()
        assert case.written() == number


def test_after_them_changes_are_written_once_a_second(case: Case) -> None:
    case.change(AT_ONCE)
    seen = []
    for _ in range(40):
        case.seconds += 0.1
        case.change()
        seen.append(case.written())

    assert sorted({*seen}) == [20, 30, 40, 50, 60]


def test_changes_that_are_far_apart_are_all_written(case: Case) -> None:
    for number in range(1, 3 * AT_ONCE):
        case.seconds += 1.5
        case.change()
        assert case.written() == number


def test_what_is_left_is_written_as_the_owner_goes(case: Case) -> None:
    case.change(AT_ONCE + 5)
    assert case.written() == AT_ONCE
    case.owner = None
    gc.collect()

    assert read_runs(case.train_dir)[0]["progress"] == {"changes": AT_ONCE + 5, "is_last": True}


def test_nothing_is_written_as_the_owner_goes_if_nothing_is_left(case: Case) -> None:
    case.change()
    (case.train_dir / "run.json").unlink()
    case.owner = None
    gc.collect()

    assert not (case.train_dir / "run.json").exists()


def test_an_entry_that_was_refused_is_not_written_as_the_owner_goes(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    case = Case(tmp_path)
    with pytest.raises(InputError):
        case.renewal.open()
    (tmp_path / "run.json").unlink()
    case.owner = None
    gc.collect()

    assert not (tmp_path / "run.json").exists()


def test_it_writes_where_it_began_also_if_the_program_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = Case(Path("runs"))
    monkeypatch.chdir("/")
    case.renewal.open()

    assert (tmp_path / "runs" / "run.json").exists()
