"""No program that a repository, its user's settings or the environment name is run, and the repository stays as it is.

Each plant is proven to work: a user's git runs it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.runs.code.hostile import PLANTS, Plant, World, files_of, new_world
from tests.support.rotation import part_of
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record

some = part_of([*PLANTS], 2)
planted_one = pytest.mark.parametrize("plant", [PLANTS[name] for name in some], ids=some)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = new_world(tmp_path)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made


def planted(plant: Plant, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.plant(world)
    world.ran()  # what has run as it was planted
    for name, value in plant.environment(world).items():
        monkeypatch.setenv(name, value)


def state_of(folder: Path) -> dict[str, str]:
    """Return a hash of each file of a git folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.whole
@planted_one
def test_a_users_git_runs_what_is_planted(plant: Plant, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(plant, world, monkeypatch)

    for arguments in plant.proof:
        world.plain(*arguments, feed=plant.feed, terminal=plant.terminal)

    assert world.ran() == ["mark"]


@planted_one
def test_nothing_runs_as_code_is_recorded_and_put_back(
    plant: Plant, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(plant, world, monkeypatch)
    before = state_of(world.repository / ".git")

    record = take_code_record(world.repository, tmp_path / "train_dir", "run1")
    restored = restore_code(tmp_path / "train_dir", "run1", tmp_path / "again")

    assert world.ran() == []
    assert state_of(world.repository / ".git") == before
    assert (record["reason"], restored.problems) == (None, [])
    assert files_of(restored.root) == files_of(world.repository)
