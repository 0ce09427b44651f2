"""The place of a process, as its environment says it."""

from __future__ import annotations

import pytest

from train_manager import InputError
from train_manager.data.shares import Place
from train_manager.distribution.environment import read_environment
from train_manager.extensions import Distributed
from train_manager.testing import tiny_manager

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_process_reads_its_place(environment: pytest.MonkeyPatch) -> None:
    found = read_environment()

    assert found is not None
    assert found.place == Place(1, 2)
    assert found.address == ("node1", 29500)


@pytest.mark.parametrize(("rank", "of_torchrun", "hosts"), [("0", "", True), ("1", "", False), ("0", "True", False)])
def test_rank_0_has_the_store_unless_torchrun_has_it(
    environment: pytest.MonkeyPatch, rank: str, of_torchrun: str, hosts: bool
) -> None:
    environment.setenv("RANK", rank)
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", of_torchrun)
    found = read_environment()

    assert found is not None
    assert found.hosts_store is hosts
    assert found.store_ends_with == ("torchrun" if of_torchrun else "rank 0")


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("RANK", "one", "RANK must be a whole number, but is 'one'"),
        ("MASTER_PORT", None, "MASTER_PORT must be a whole number, but is None"),
        ("MASTER_ADDR", None, "MASTER_ADDR is not set"),
    ],
)
def test_a_variable_that_is_missing_is_named(
    environment: pytest.MonkeyPatch, name: str, value: str | None, what: str
) -> None:
    if value is None:
        environment.delenv(name)
    else:
        environment.setenv(name, value)
    with pytest.raises(InputError) as info:
        Distributed()

    cure = "start the program with torchrun, or leave WORLD_SIZE unset"
    assert str(info.value).split("\n")[:2] == [f"the environment variable {what}", f"  {cure}"]


def test_a_world_of_one_process_trains_alone(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WORLD_SIZE", "1")
    environment.setenv("RANK", "0")
    tm = tiny_manager(Distributed())
    result = tm.train_steps(2)

    assert tm.ranks.place == Place(0, 1)
    assert result.steps == 2
