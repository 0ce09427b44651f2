"""Rows of the capability list that are about the extensions which come with the library."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch

from train_manager import Extension
from train_manager.extensions import LossCurves, ProgressBar, default_extensions
from train_manager.testing import tiny_manager


def test_t12_a_training_takes_the_default_extensions(tmp_path: Path) -> None:
    tm = tiny_manager(extensions=default_extensions(), train_dir=tmp_path)
    tm.train()
    assert isinstance(tm["progress_bar"], ProgressBar)
    assert isinstance(tm["loss_curves"], LossCurves)


def test_t12_each_default_extension_is_replaceable_by_name(tmp_path: Path) -> None:
    for name in default_extensions():
        mine = Extension()
        tm = tiny_manager(extensions={**default_extensions(), name: mine}, train_dir=tmp_path)
        tm.train()
        assert tm[name] is mine


def test_t14_the_loss_is_plotted_across_epochs_batches_and_samples(tmp_path: Path) -> None:
    curves = LossCurves()
    batches = [(torch.rand(size, 2), torch.zeros(size, dtype=torch.long)) for size in (4, 4, 2)]
    tiny_manager(curves, train_data=batches, epochs=2, train_dir=tmp_path).train()
    by_epoch, by_batch, by_sample = curves.figure().axes
    training, valid = ([panel.lines[number] for panel in (by_epoch, by_batch, by_sample)] for number in (0, 1))
    assert [np.asarray(line.get_xdata()).tolist() for line in training] == [
        [1, 2],
        [1, 2, 3, 4, 5, 6],
        [4, 8, 10, 14, 18, 20],
    ]
    assert [np.asarray(line.get_xdata()).tolist() for line in valid] == [[0, 1, 2], [0, 3, 6], [0, 10, 20]]


def test_t14_the_plots_are_files_that_need_no_network(tmp_path: Path) -> None:
    tiny_manager(LossCurves(), train_dir=tmp_path).train()
    svg = (tmp_path / "plots" / "loss_curves.svg").read_text()
    assert (tmp_path / "plots" / "loss_curves.png").stat().st_size > 10_000
    assert "<script" not in svg
    assert 'href="http' not in svg


def test_t43_a_fixture_appears_in_the_progress_bar() -> None:
    terminal = io.StringIO()

    class MyFixture(Extension):
        def pre_train_step_batch(self, fixtures: dict[str, float]) -> None:
            fixtures["temperature"] = 36.6

    bar = ProgressBar(show=["loss", "temperature"], force=True, interval=0, file=terminal)
    tiny_manager(bar, MyFixture()).train()
    assert "loss=0.7" in terminal.getvalue()
    assert "temperature=36.6" in terminal.getvalue()
