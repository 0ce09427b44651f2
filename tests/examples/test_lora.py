"""The example ``examples/lora.py``, with the adapters of peft; ``make adapters`` installs it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkpointing import path_of, steps_in
from tests.support.training import weights
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.errors import CheckpointError

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated", "ignore::DeprecationWarning"
)


@pytest.fixture
def example() -> Any:
    return pytest.importorskip("examples.lora")


def test_its_checkpoints_hold_the_adapters_alone(example: Any, tmp_path: Path) -> None:
    example.training(tmp_path / "run", epochs=1).train()
    names = read_checkpoint(path_of(tmp_path / "run", 8), ["model"])["model"]

    assert len(names) == 8
    assert all(".lora_" in name for name in names)


def test_it_resumes_to_the_same_bits_also_from_the_mirror(example: Any, tmp_path: Path) -> None:
    (whole := example.training(tmp_path / "whole", epochs=3)).train()
    example.training(tmp_path / "run", epochs=1).train()
    example.training(tmp_path / "run", epochs=2).train()
    shutil.rmtree(tmp_path / "run")
    (resumed := example.training(tmp_path / "run", epochs=3)).train()

    assert steps_in(tmp_path / "run") == [24]
    assert weights(resumed.model).equal(weights(whole.model))


def test_another_base_is_refused(example: Any, tmp_path: Path) -> None:
    example.training(tmp_path / "run", epochs=1).train()
    with pytest.raises(CheckpointError, match=r"16 of the 21 tensors that it leaves out differ, the first is base_mod"):
        example.training(tmp_path / "run", epochs=2, seed=1).train()


def test_it_says_how_much_was_saved(example: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example.EPOCHS = 1
    example.main([str(tmp_path / "run")])

    assert re.fullmatch(r"loss \d\.\d\d, 5 kB of weights saved of \d+ kB\n", capsys.readouterr().out)
