"""Folders of runs with metrics, made by real trainings of some steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from train_manager import Extension
from train_manager.extensions import MetricStore, RunRecord
from train_manager.files.atomic import replace_file
from train_manager.reporting.pictures import png_of
from train_manager.runs.showing.page import report_page, run_to_show
from train_manager.testing import tiny_manager

if TYPE_CHECKING:
    from train_manager.runs.store.writer import MetricWriter

EVIL = "</script><script>alert(1)</script>"


class Writes(Extension):
    """Writes the same metrics in each step."""

    def __init__(self, scalars: Mapping[str, float] | None = None, layers: int = 0) -> None:
        self.scalars, self.layers = scalars or {}, layers

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        writer.scalars(self.scalars)
        if self.layers:
            labels = [f"model.blocks.{n} Linear" for n in range(self.layers)]
            writer.array("gradient_norms", torch.arange(1.0, self.layers + 1), labels)
            writer.array("gradient_norms_counts", torch.full((self.layers,), 4.0), labels)
            writer.array("dead_units", torch.zeros(self.layers), labels)


class ConfusesDigits(Extension):
    """Writes a matrix of two classes, a picture and a text."""

    def post_train_step_epoch(self, writer: MetricWriter, train_dir: Path) -> None:
        writer.array("confusion/valid", torch.tensor([[8.0, 2.0], [0.0, 0.0]]), ["zero", "one"])
        writer.image("hard examples", torch.zeros(4, 4))
        writer.text("notes", "well")
        replace_file(train_dir / "notes.png", b"no picture")
        writer.file("no picture", train_dir / "notes.png")
        replace_file(train_dir.parent / "outside.png", png_of(torch.zeros(4, 4)))
        writer.file("outside", train_dir.parent / "outside.png")


def trained(folder: Path, *extensions: Extension, epochs: int = 2, **given: Any) -> Path:
    """Train, and return the folder."""
    tiny_manager(MetricStore(), RunRecord(), *extensions, epochs=epochs, train_dir=folder, **given).train()
    return folder


def page_of(*folders: Path) -> str:
    """The page of some folders."""
    return report_page([run_to_show(folder) for folder in folders])
