"""The page docs/explanation/checkpoints-under-fire.md: what `make chaos` has found, beside what other tools came to."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from benchmarks.page import machine
from benchmarks.section import table

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "checkpoints-under-fire.md"


@dataclass
class Row:
    """What was done to checkpoints, how often, and what came of it; nothing is wrong if ``faults`` is empty."""

    what: str
    times: int
    found: str
    seconds: float
    faults: Sequence[str] = ()

    def cells(self) -> list[str]:
        outcome = f"**{len(self.faults)} faults** of " + self.found if self.faults else f"0 of {self.found}"
        return [self.what, f"{self.times:,}", outcome, f"{self.seconds:.0f} s"]


TEXT: Final = """\
# Checkpoints under fire

This page shows what kills, power failures and damage did to checkpoints, here and in other tools. `make chaos` writes
it.

Measured on {date}: {machine}; Python {python}, torch {torch}, numpy {numpy}.
It took {minutes:.0f} minutes, beside other work on the same machine.

## Tests

{rows}

- **Killed while it saves.** A training saves after each step, and `kill -9` arrives at a random moment. Then the newest
  checkpoint must be the last completed save or a later one, with all its values of one step. {in_a_save} of the kills
  left a checkpoint half-written.
- **Killed trainings.** Two trainings with augmentation, dropout, a schedule, EMA and accumulated gradients are killed
  and resumed until they end. Then the state, without times, has the SHA-256 of an uninterrupted training.

## Other tools

Measured on 2026-11-20 by kills of the same kind, on two cores of Linux with ext4, Python 3.11, torch 2.13.0: a save of
8 MB after each step. "Lost" means that the tool's own resume fails, starts anew, or loads weights of another step. This
is a stress test: if a training saves each hour, few kills hit a save.

| writer                                                                        | kills | lost |
|:------------------------------------------------------------------------------|------:|-----:|
| `torch.save` over the same file                                               |   100 |   76 |
| `torch.distributed.checkpoint.save` into the same folder                      |   100 |   60 |
| the same, a new folder each time, read if it has `.metadata`                  |   100 |    0 |
| Lightning 2.6.6 `ModelCheckpoint(save_last)`, on the mount of `/tmp`          |   100 |    0 |
| the same, on another mount than `/tmp`                                        |   160 |   25 |
| Ignite 0.5.5 `Checkpoint` with `DiskSaver(atomic)`                            |   100 |    0 |
| accelerate 1.15.0 `save_state` and `load_state`                               |   100 |   36 |
| transformers 5.23.0 `Trainer`, `get_last_checkpoint`                          |    60 |   26 |
| skorch 1.4.0 `Checkpoint`; 4 of them silently mixed two steps                 |   100 |   72 |
| Keras 3.15.1 `BackupAndRestore`                                               |   100 |   82 |
| the same with `double_checkpoint=True`                                        |    60 |   10 |

The weights of a training that stopped after step 23, and resumed from the checkpoint of step 20 within an epoch, beside
those of an uninterrupted training. Without a stop, each tool's runs were identical.

|                                                           | augmentation and dropout | dropout       | neither       |
|:----------------------------------------------------------|:-------------------------|:--------------|:--------------|
| Lightning 2.6.6 with a `DataLoader`                       | different                | different     | different     |
| Lightning 2.6.6 with torchdata's `StatefulDataLoader`     | different                | different     | **identical** |
| transformers 5.23.0 `Trainer`                             | different                | **identical** | **identical** |
| Ignite 0.5.5 `Engine` and `DeterministicEngine`           | different                | different     | different     |
| Train Manager: `Checkpoints` with `SeededDataLoader`      | **identical**            | **identical** | **identical** |

The script for Ignite was not tuned by an expert.

A flipped bit in the file of a model loads without an error in 989 of 1,000 tries with
`torch.load(weights_only=True)`, in 996 with safetensors 0.8.0, and in none with a checkpoint here.
"""


def written(rows: Sequence[Row], in_a_save: int, page: Path = PAGE) -> str:
    """Write the page, and return its table."""
    shown = table(["", "times", "what went wrong", "took"], [row.cells() for row in rows])
    page.write_text(
        TEXT.format(
            date=datetime.date.today(),
            machine=machine(),
            python=platform.python_version(),
            torch=torch.__version__,
            numpy=np.__version__,
            minutes=sum(row.seconds for row in rows) / 60,
            rows=shown,
            in_a_save=in_a_save,
        ),
        encoding="utf-8",
    )
    return shown
