"""A checkpoint is written as a whole or not at all, and read back as it was."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.checkpoints.states import same, small_state
from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.checkpoints.tensors import read_tensors
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError

NAME = "step-000000000123"
FILES = ["manifest.json", "model.safetensors", "state.json", "state.safetensors"]


def contents(folder: Path) -> dict[str, bytes | None]:
    """All that is below a folder: files with their bytes, folders with None."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    state = small_state()

    assert same(read_checkpoint(write_checkpoint(tmp_path, NAME, state, {})), state)


def test_a_checkpoint_is_a_folder_of_four_files_and_nothing_is_beside_it(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, NAME, small_state(), {})

    assert path == tmp_path / NAME
    assert sorted(os.listdir(path)) == FILES
    assert os.listdir(tmp_path) == [NAME]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_files_of_a_checkpoint_may_be_read_by_all_that_may_read_new_files(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        path = write_checkpoint(tmp_path, NAME, small_state(), {})
    finally:
        os.umask(before)

    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o666 & ~mask}


def test_the_folder_of_checkpoints_is_made_if_it_is_missing(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "run" / "checkpoints", NAME, {}, {})

    assert read_checkpoint(path) == {}


def test_the_model_has_a_file_of_its_own_with_its_own_names(tmp_path: Path) -> None:
    state = small_state()
    path = write_checkpoint(tmp_path, NAME, state, {})

    model, others = (path / name for name in ("model.safetensors", "state.safetensors"))
    assert same(read_tensors(model.read_bytes(), model), state["model"])
    assert "optimizers.main.state.0.exp_avg" in read_tensors(others.read_bytes(), others)


def test_only_the_parts_that_are_wanted_are_read(tmp_path: Path) -> None:
    state = small_state()
    path = write_checkpoint(tmp_path, NAME, state, {})

    assert same(read_checkpoint(path, ["model", "counters"]), {part: state[part] for part in ("model", "counters")})


def test_a_part_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, NAME, {"model": {}, "random": {}}, {})

    with pytest.raises(CheckpointError) as info:
        read_checkpoint(path, ["ema"])

    assert str(info.value) == f"{path} has no part 'ema'; it has model, random"


def test_the_manifest_has_step_facts_and_what_bit_identity_depends_on(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, NAME, {}, {"metrics": {"loss": math.nan, "lr": (1, 2)}, "run_id": "a"})
    found = verify(path)

    assert {"format", "files", "time", "versions", "threads", "device", "step", "metrics", "run_id"} == set(found)
    assert (found["format"], found["step"], found["run_id"]) == (2, 123, "a")
    assert same(found["metrics"], {"loss": math.nan, "lr": (1, 2)})
    assert found["versions"]["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()


def test_the_manifest_is_json_for_other_tools_too(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, NAME, {}, {"metrics": {"loss": 0.5}})
    found = json.loads((path / "manifest.json").read_text())

    assert found["metrics"] == {"loss": 0.5}
    assert found["files"]["state.json"]["size"] == (path / "state.json").stat().st_size


def test_a_checkpoint_of_that_name_is_never_overwritten(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, NAME, small_state(1), {})
    before = contents(tmp_path)

    with pytest.raises(CheckpointError) as info:
        write_checkpoint(tmp_path, NAME, small_state(2), {})

    assert str(info.value) == (
        f"{tmp_path / NAME} is there already, and nothing is overwritten\n  give another folder, or move this one away"
    )
    assert contents(tmp_path) == before


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_an_empty_folder_or_a_dead_link_of_that_name_is_not_replaced_either(tmp_path: Path, kind: str) -> None:
    if kind == "folder":
        (tmp_path / NAME).mkdir()
    else:
        (tmp_path / NAME).symlink_to("nowhere")

    with pytest.raises(CheckpointError, match="is there already, and nothing is overwritten"):
        write_checkpoint(tmp_path, NAME, {}, {})

    assert os.listdir(tmp_path) == [NAME]


def test_a_state_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^extensions > ema is an object of type object, which"):
        write_checkpoint(tmp_path / "checkpoints", NAME, {"extensions": {"ema": object()}}, {})

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("state", "facts", "reason"),
    [
        ({"a.b": 1}, {}, "'a.b' cannot be a part of a checkpoint: it must be an identifier"),
        ({1: 1}, {}, "1 cannot be a part of a checkpoint: it must be an identifier"),
        ({}, {"step": 3}, f"the checkpoint {NAME} cannot be of step 3"),
        ({}, {"files": 3}, "'files' cannot be a fact: the manifest has an entry of that name"),
        ({}, {"weights": torch.ones(1)}, "the facts of a checkpoint hold a tensor: weights"),
        (
            {"model": {"__metadata__": torch.ones(1)}},
            {},
            "a tensor cannot be called '__metadata__', which the format keeps",
        ),
    ],
    ids=["dotted", "number", "step", "reserved", "tensor", "metadata"],
)
def test_parts_and_facts_that_do_not_fit_are_refused(tmp_path: Path, state: Any, facts: Any, reason: str) -> None:
    with pytest.raises(CheckpointError) as info:
        write_checkpoint(tmp_path, NAME, state, facts)

    assert str(info.value) == reason
    assert os.listdir(tmp_path) == []


def test_what_a_dead_process_has_left_is_not_in_the_way(tmp_path: Path) -> None:
    left = tmp_path / f".tmp-{NAME}-0f3c5b7a"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")

    verify(write_checkpoint(tmp_path, NAME, small_state(), {}))

    assert sorted(os.listdir(tmp_path)) == [left.name, NAME]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/x", ".tmp-x"])
def test_a_name_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError) as info:
        write_checkpoint(tmp_path / "checkpoints", name, {}, {})

    assert str(info.value) == f"{name!r} cannot be the name of a checkpoint: it must be a plain name"
    assert os.listdir(tmp_path) == []


def test_a_checkpoint_may_be_moved_and_called_anything_that_claims_no_step(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, NAME, {"a": 1}, {})
    path.rename(tmp_path / "my best model")

    assert read_checkpoint(tmp_path / "my best model") == {"a": 1}


def test_a_state_that_shares_memory_is_stored_once(tmp_path: Path) -> None:
    weight = torch.ones(1000)
    path = write_checkpoint(tmp_path, NAME, {"attributes": {"a": weight, "b": weight}}, {})
    back = read_checkpoint(path)["attributes"]

    assert back["a"] is back["b"]
    assert (path / "state.safetensors").stat().st_size < 5000


def test_tied_weights_of_the_model_are_there_under_each_name_for_other_programs(tmp_path: Path) -> None:
    weight = torch.rand(3)
    path = write_checkpoint(tmp_path, "tied", {"model": {"embedding": weight, "head": weight}}, {})

    assert same(load_file(path / "model.safetensors"), dict.fromkeys(("embedding", "head"), weight))
