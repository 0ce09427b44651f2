"""Run folders that are made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.runs.code.repositories import an_entry
from train_manager.runs.code.record import VERSION


def entry(run: str = "ab12cd34ef56ab78", *, began: str = "2026-05-01T12:00:00+00:00", **more: Any) -> dict[str, Any]:
    """What its file tells of a run of 75 s."""
    return {
        "id": run,
        "manager": 1,
        "began": began,
        "ended": began.replace(":00:00", ":01:15"),
        "outcome": "completed",
        "reason": None,
        "error": None,
        "process": {"pid": 1, "host": "elsewhere", "started": "x"},
        "goes_on_from": None,
        "command": {"kind": "script", "script": "/home/me/train.py", "arguments": ["python", "train.py"]},
        "environment": {"python": "3.11.7", "packages": {"torch": "2.13.0"}, "threads": {"torch": 1}},
        "seed": 0,
        "parameters": parameters(),
        "data": {"train_data": {"kind": "InMemory", "length": 10}},
        "progress": {"epochs": 2, "steps": 20, "updates": 20, "samples": 640},
        "metrics": {"loss": 0.5, "valid/loss": 0.25},
        **more,
    }


def parameters(**given: Any) -> dict[str, Any]:
    """Recorded constructor parameters."""
    optimizer = {"$callable": "torch.optim:AdamW", "arguments": {"lr": given.pop("lr", 0.1)}}
    return {"$object": "train_manager:TrainManager", "arguments": {"epochs": 2, "optimizer": optimizer, **given}}


def write_runs(train_dir: Path, *entries: dict[str, Any]) -> Path:
    """Make a train_dir with these runs."""
    train_dir.mkdir(parents=True, exist_ok=True)
    for one in entries:
        content = {"schema": "train-manager/run", "version": 1, **one}
        (train_dir / f"run-{one['id']}.json").write_text(json.dumps(content))
    return train_dir


def write_code(train_dir: Path, run: str, **repository: Any) -> None:
    """Add a code record: of a repository that is not there any more."""
    whole = an_entry(**{"path": "/gone", "commit": "18afa3f" + "0" * 33, **repository})
    (train_dir / "code").mkdir(exist_ok=True)
    record: dict[str, Any] = {"schema": "train-manager/code", "version": VERSION, "run": run, "reason": None}
    record["repositories"] = [whole]
    (train_dir / "code" / f"{run}.json").write_text(json.dumps(record))
