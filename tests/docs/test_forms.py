"""What the page ``docs/how-to/forms.md`` says beside its blocks, and its block for a package that may be missing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel

from tests.test_docs import blocks, run_block
from train_manager import TrainManager
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.extensions import Checkpoints
from train_manager.testing import tiny_manager

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "forms.md"


def of_page(tmp_path: Path, heading: str) -> dict[str, Any]:
    """Run the first block of the page, whose imports the others use, and the block below a heading."""
    first, below = PAGE.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    namespace: dict[str, Any] = {"__name__": "example", "partial": partial, "SGD": SGD}
    for number, text in enumerate((first, below)):
        page = tmp_path / f"{number}.md"
        page.write_text(text.replace("```py\n", "```python\n"), encoding="utf-8")
        run_block(next(iter(blocks(page))), tmp_path / str(number) / "example.py", namespace)
    return namespace


def test_a_checkpoint_of_adapters_has_no_frozen_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tm = of_page(tmp_path, "LoRA")["tm"]
    (checkpoint,) = (tmp_path / "lora" / "checkpoints").glob("step-*3")
    saved = read_checkpoint(checkpoint, ["model"])["model"]

    assert {*saved} == {name for name in tm.model.state_dict() if ".base." not in name} != set()


def test_adapters_are_loaded_into_a_model_with_the_frozen_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_page(tmp_path, "LoRA")
    model, trained = found["model"], {name: value.clone() for name, value in found["model"].state_dict().items()}
    for adapter in (model[0].up, model[2].up):
        torch.nn.init.zeros_(adapter.weight)
    tm = TrainManager.from_checkpoint(tmp_path / "lora", model=model, optimizer=partial(SGD, lr=0.5))

    assert all(value.equal(trained[name]) for name, value in tm.model.state_dict().items())


def test_the_average_of_swa_resumes_with_the_training(tmp_path: Path) -> None:
    def make(epochs: int) -> Any:
        torch.manual_seed(0)
        tm: Any = tiny_manager(Checkpoints(resume=True), epochs=epochs, train_dir=tmp_path / "swa")
        tm.average = AveragedModel(tm.model)
        tm.add_extension(
            post_train_step_epoch=lambda train_manager, model: train_manager.average.update_parameters(model)
        )
        return tm

    make(2).train()
    resumed = make(4)
    resumed.train()

    assert resumed.average.n_averaged == 4


def test_optuna_ends_trials_early_and_in_order(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    study = of_page(tmp_path, "A sweep")["study"]
    states = [trial.state for trial in study.trials]

    assert len(states) == 10
    assert {*states} == {optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED}
