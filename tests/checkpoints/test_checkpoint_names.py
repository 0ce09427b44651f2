from __future__ import annotations

from pathlib import Path

import pytest

from train_manager.checkpoints.checkpoint import write_checkpoint
from train_manager.checkpoints.checkpoint_names import name_of, named_checkpoints
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError


def test_checkpoints_are_found_in_the_order_of_their_steps(tmp_path: Path) -> None:
    names = ["step-000000000002", "step-000000000010", "step-000000000010-2", "step-1000000000000"]
    for name in [*reversed(names), "superseded", ".tmp-step-000000000011-1"]:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)

    assert [path.name for path in named_checkpoints(tmp_path)] == names


def test_a_file_with_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    (tmp_path / name_of(3)).touch()

    with pytest.raises(CheckpointError, match="there is no checkpoint in"):
        named_checkpoints(tmp_path)


@pytest.mark.parametrize("step", [3, 10**12], ids=["twelve digits", "thirteen digits"])
def test_a_checkpoint_that_was_renamed_to_another_step_is_damaged(step: int, tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, name_of(step), {}, {})
    renamed = path.rename(tmp_path / name_of(step + 1))

    with pytest.raises(CheckpointError) as damaged:
        verify(renamed)

    told = f"its name says step {step + 1}, but its manifest.json says step {step}"
    assert str(damaged.value) == f"{renamed} is damaged: {told}"
