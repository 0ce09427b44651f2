"""The cells of a notebook that ran since a record was taken: a training goes on in the next cell, with its code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from train_manager.files.atomic import replace_file
from train_manager.files.strict_json import strict_json
from train_manager.runs.code.store import CODE
from train_manager.runs.code.taking import notebook_of


def renew_cells(train_dir: Path, run_id: str, cells: Sequence[str]) -> None:
    """Put other cells in the place of those of a record.

    Args:
        train_dir: the folder of the training.
        run_id: what the run is called.
        cells: the cells that ran, in their order.
    """
    path = train_dir / CODE / f"{run_id}.json"
    record = strict_json(path.read_bytes(), path.name)
    record["notebook"] = notebook_of(train_dir, run_id, cells)
    replace_file(path, json.dumps(record, indent=1).encode())
