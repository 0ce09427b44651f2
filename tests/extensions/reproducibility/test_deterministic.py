from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from train_manager import Extension, TrainManager
from train_manager.extensions import Deterministic
from train_manager.extensions.reproducibility.deterministic import CUBLAS
from train_manager.testing import tiny_manager


def settings() -> dict[str, Any]:
    return {
        "mode": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "cublas": os.environ.get(CUBLAS),
    }


class Settings(Extension):
    found: dict[str, Any]

    def pre_train_step_batch(self) -> None:
        self.found = settings()


def test_all_settings_are_made_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CUBLAS, raising=False)
    seen = Settings()
    tiny_manager(Deterministic(), seen).train()
    assert seen.found == {"mode": True, "warn_only": False, "cudnn": (True, False), "cublas": ":4096:8"}


def test_with_warn_only_it_warns() -> None:
    seen = Settings()
    tiny_manager(Deterministic(warn_only=True), seen).train()
    assert (seen.found["mode"], seen.found["warn_only"]) == (True, True)


@pytest.mark.parametrize("fails", [False, True])
def test_after_the_run_all_settings_are_restored(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.delenv(CUBLAS, raising=False)
    before = settings()

    class Fails(Extension):
        def post_train_step_batch(self) -> None:
            if fails:
                raise ValueError("on purpose")

    tm = tiny_manager(Deterministic(), Fails())
    if fails:
        with pytest.raises(ValueError, match="on purpose"):
            tm.train()
    else:
        tm.train_epochs(1)
        tm.train_epochs(1)
    assert settings() == before


def test_a_mode_that_was_on_before_stays_on() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        before = settings()
        tiny_manager(Deterministic()).train()
        assert settings() == before
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_workspace_that_is_set_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUBLAS, ":16:8")
    seen = Settings()
    tiny_manager(Deterministic(), seen).train()
    assert seen.found["cublas"] == os.environ[CUBLAS] == ":16:8"


class Unpools(nn.Module):
    """A model whose forward has no deterministic form in torch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        pooled, where = nn.functional.max_pool1d(self.linear(inputs)[:, None], 2, return_indices=True)
        return nn.functional.max_unpool1d(pooled, where, [2])[:, 0]


def test_an_operation_without_a_deterministic_form_is_an_error() -> None:
    tiny_manager(model=Unpools()).train()
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        tiny_manager(Deterministic(), model=Unpools()).train()


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """A data set that draws from the random states of numpy and torch."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(np.random.rand(2), dtype=torch.float32) + torch.rand(2), torch.tensor(index % 2)


def test_workers_of_a_data_loader_draw_the_same_in_two_trainings_with_one_seed() -> None:
    def trained() -> TrainManager:
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)
        tm = tiny_manager(Deterministic(), train_data=loader, eval_data=None, seed=3, epochs=2)
        tm.train()
        return tm

    first, second = trained(), trained()
    for one, two in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert one.equal(two)


@pytest.mark.parametrize("fails", [False, True])
def test_while_it_pauses_all_settings_are_as_before_the_run(fails: bool) -> None:
    before, seen = settings(), Settings()
    tm = tiny_manager(Deterministic(), seen)
    with tm.run():
        with contextlib.suppress(ValueError), tm.phase("fast", without=["deterministic"]):
            tm.train_epochs(1)
            assert seen.found == before
            if fails:
                raise ValueError("on purpose")
        tm.train_epochs(1)
        assert seen.found["mode"] is True
    assert settings() == before
