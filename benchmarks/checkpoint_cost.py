"""What a checkpoint costs: written with hash and sync, beside torch.save; checked and read, beside torch.load.

python -m benchmarks checkpoint_cost
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import torch

from benchmarks.measure import interleaved, ratios, spread
from benchmarks.section import Claim, Section, table
from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import name_of
from train_manager.checkpoints.copies import copy_state
from train_manager.checkpoints.verification import verify
from train_manager.files.background import Background

PARTS: Final = 10  # tensors
WRITES: Final = {"torch.save": "torch.save", "torch.save, synced": "torch.save", "a checkpoint": "torch.save"}
WAITS: Final = {"a copy of the state": "a copy of the state", "in the background, the wait": "a copy of the state"}
READS: Final = {"torch.load": "torch.load", "the check of a checkpoint": "torch.load", "check and read": "torch.load"}
RESUMES: Final = {"all files read and hashed": "all files read and hashed", "a resume": "all files read and hashed"}
QUICK: dict[str, Any] = {"rounds": 1, "megabytes": 5}

TEXT: Final = """\
Wall time of a state of {megabytes} MB in {parts} tensors on the CPU, and the ratio to torch. A checkpoint is
hashed (SHA-256) while it is written, and waits until the disk has it; `torch.save` does neither. With
`in_background=True` the training waits for a copy of the state only. Reading a checkpoint checks each byte;
`torch.load` does not. A resume finds the newest sound checkpoint and reads it. All files are read from the memory of
the system.

{table}

The checkpoint has {overhead} bytes more than its tensors.
"""


def section(rounds: int = 5, megabytes: int = 100) -> Section:
    """Measure."""
    state = {"model": {f"layer{n}.weight": torch.rand(megabytes * 1_000_000 // 4 // PARTS) for n in range(PARTS)}}
    with TemporaryDirectory() as name:
        folder = Path(name)
        saved, written = folder / "x.pt", write_checkpoint(folder / "kept", name_of(1), state, {})
        torch.save(state, saved)
        assert read_checkpoint(written)["model"]["layer3.weight"].equal(state["model"]["layer3.weight"])
        tensors = sum(tensor.nbytes for tensor in state["model"].values())
        overhead = sum(file.stat().st_size for file in written.iterdir()) - tensors
        measured = interleaved(_cases(folder, state, saved, written), rounds)
    rows = [
        [case, spread(measured[case]).times(1e3).shown(0), ratios(measured[case], measured[to]).shown(2)]
        for case, to in {**WRITES, **WAITS, **READS, **RESUMES}.items()
    ]
    claim = ratios(measured["a checkpoint"], measured["torch.save, synced"]).median
    resume = ratios(measured["a resume"], measured["all files read and hashed"]).median
    wait = ratios(measured["in the background, the wait"], measured["a copy of the state"]).median
    text = TEXT.format(megabytes=megabytes, parts=PARTS, table=table(["", "ms", "ratio"], rows), overhead=overhead)
    claims = [
        Claim("a checkpoint over torch.save with a sync", claim, must=1.5, goal=1.3),
        Claim("a resume over reading and hashing all files once", resume, must=1.6, goal=1.3),
        Claim("the wait for a checkpoint in the background, over a copy of the state", wait, must=1.1, goal=1.05),
    ]
    return Section("A checkpoint", text, claims, on_page=False)


def _cases(folder: Path, state: Any, saved: Path, written: Path) -> dict[str, Callable[[], float]]:
    new, checkpoint = folder / "new.pt", folder / "new"

    def save_synced() -> None:
        with new.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    return {
        "torch.save": lambda: _seconds(lambda: torch.save(state, new), new),
        "torch.save, synced": lambda: _seconds(save_synced, new),
        "a checkpoint": lambda: _seconds(lambda: write_checkpoint(folder, checkpoint.name, state, {}), checkpoint),
        "a copy of the state": lambda: _seconds(lambda: copy_state(state)),
        "in the background, the wait": lambda: _wait(folder, state, checkpoint),
        "torch.load": lambda: _seconds(lambda: torch.load(saved, weights_only=True)),
        "the check of a checkpoint": lambda: _seconds(lambda: verify(written)),
        "check and read": lambda: _seconds(lambda: read_checkpoint(written)),
        "all files read and hashed": lambda: _seconds(lambda: _hash_all(written)),
        "a resume": lambda: _seconds(lambda: _resume(written.parent)),
    }


def _hash_all(checkpoint: Path) -> None:
    for file in checkpoint.iterdir():
        hashlib.sha256(file.read_bytes()).hexdigest()


def _resume(checkpoints: Path) -> None:
    folder = CheckpointFolder(checkpoints)
    folder.read(folder.find("last"))


def _wait(folder: Path, state: Any, made: Path) -> float:
    """Seconds until the run continues, while a thread writes."""
    writing = Background(lambda copy: write_checkpoint(folder, made.name, copy, {}))
    seconds = _seconds(lambda: writing.submit(copy_state(state)))
    writing.join()
    shutil.rmtree(made)
    return seconds


def _seconds(run: Callable[[], object], made: Path | None = None) -> float:
    """Seconds on the clock; what was made is removed, and nobody before has left the disk work to do."""
    os.sync()
    before = perf_counter()
    run()
    seconds = perf_counter() - before
    if made is not None and made.is_dir():
        shutil.rmtree(made)
    elif made is not None:
        made.unlink()
    return seconds
