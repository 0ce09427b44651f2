"""Folders of runs with figures, made by real trainings of some steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from train_manager import Extension
from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.showing.report_page import report_page
from train_manager.runs.showing.shown_run import shown_run
from train_manager.testing import tiny_manager

if TYPE_CHECKING:
    from train_manager.runs.record.figure_writer import FigureWriter

EVIL = "</script><script>alert(1)</script>"


class Writes(Extension):
    """Writes the same figures in each step."""

    def __init__(self, scalars: Mapping[str, float] | None = None, layers: int = 0) -> None:
        self.scalars, self.layers = scalars or {}, layers

    def post_train_step_batch(self, writer: FigureWriter, step_num: int) -> None:
        writer.scalars(self.scalars)
        if self.layers:
            labels = [f"model.blocks.{n} Linear" for n in range(self.layers)]
            writer.array("gradient_norms", torch.arange(1.0, self.layers + 1), labels)
            writer.array("gradient_norms_counts", torch.full((self.layers,), 4.0), labels)
            writer.array("dead_units", torch.zeros(self.layers), labels)


def trained(folder: Path, *extensions: Extension, epochs: int = 2, **given: Any) -> Path:
    """Train, and return the folder."""
    tiny_manager(MetricStore(), RunRecord(), *extensions, epochs=epochs, train_dir=folder, **given).train()
    return folder


def page_of(*folders: Path) -> str:
    """The page of some folders."""
    return report_page([shown_run(folder) for folder in folders])
