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

Processes killed at random moments and at each line of a save, power failures, files that were changed by chance and on
purpose: what became of the checkpoints. `make chaos` has written this page, and writes it anew.

Measured on {date}: {machine}; Python {python}, torch {torch}, numpy {numpy}.
It took {minutes:.0f} minutes, beside other work on the same machine.

## What was done

{rows}

- **Killed while it saves.** A training saves 0.5 MB after each step, so that a save is in flight most of the time; each
  checkpoint has its step written into all weights and into the optimizer. `kill -9` comes at a random moment. Then each
  checkpoint in the folder is read, the newest one must be the last one that was told to be saved or a later one, all of
  it must be of one step, and the same folder goes on to the next kill from there. {in_a_save} of the kills left a
  checkpoint half-written. `train_dir` is on the mount of the folder for temporary files, and on another one.
- **Killed trainings.** The digits of scikit-learn, shifted at random and with noise, shuffled; an MLP with dropout,
  AdamW, a cosine schedule, EMA, gradients gathered over three batches and clipped. Each training is killed at random
  moments and started again until it has come to its end. Then SHA-256 sums of its weights, optimizer, EMA, schedules,
  counters, random states, position in the data and history, without times, are those of a training that ran through.
- **Killed at each line** of the code that writes a checkpoint; the next save is then done beside what was left.
- **Power failures.** What is asked of the disk is recorded; then disks are made that forgot any part of what was not
  synced, and kept any part of the rest. That is harsher than the journal of a usual file system.
- **Changed files.** Bytes of checkpoints and of files of weights are changed, left out or doubled, and the sums in
  the manifest computed anew, as only somebody would who means harm. Each file is opened in a process of its own with
  little memory: it is read, or refused with a `CheckpointError`; no process dies. Files with code in them, of which
  none is run, are in `tests/checkpoints/test_hostile_files.py`.

A part of each runs with the tests, at each change: `tests/chaos`, `tests/resume` and `tests/checkpoints`.

## What others came to

Measured on 2026-11-20 by kills of the same kind, on two cores of Linux with ext4, Python 3.11, torch 2.13.0: a save of
8 MB after each step. "Lost" means that the tool's own way to go on fails, begins from nothing,
or gives weights that do not belong to the step. A save in flight most of the time makes this a test of stress: in a
training that saves each hour, few kills come in a save.

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

Stopped after step 23, resumed from the checkpoint of step 20, in the middle of an epoch; then all weights compared with
a training that ran through, bit for bit. Each tool's own runs repeated themselves exactly.

|                                                           | augmentation and dropout | dropout       | neither       |
|:----------------------------------------------------------|:-------------------------|:--------------|:--------------|
| Lightning 2.6.6 with a `DataLoader`                       | different                | different     | different     |
| Lightning 2.6.6 with torchdata's `StatefulDataLoader`     | different                | different     | **identical** |
| transformers 5.23.0 `Trainer`                             | different                | **identical** | **identical** |
| Ignite 0.5.5 `Engine` and `DeterministicEngine`           | different                | different     | different     |
| Train Manager: `Checkpoints` with `SeededDataLoader`      | **identical**            | **identical** | **identical** |

The last row is what `tests/resume` and `tests/chaos` hold. The script for Ignite was a short one, not tuned by anybody
who knows it well.

Files that were damaged by chance, and load as if nothing was wrong:

| damage                         | tries | `torch.load(weights_only=True)` | safetensors 0.8.0 | a checkpoint here |
|:-------------------------------|------:|--------------------------------:|------------------:|------------------:|
| one bit flipped                | 1,000 |                             989 |               996 |                 0 |
| cut off                        |   300 |                               0 |                 0 |                 0 |
| a page of 4 KiB zeroed         |   300 |                             225 |               295 |                 0 |

Here the manifest has a SHA-256 of each file; `tests/checkpoints/test_checkpoint_damage.py` holds the last column.
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
