"""What differs around a run and its reproduction, as a comparison of the two finds it; and what else may be a cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.runs.comparing.compare_runs import compare_runs
from train_manager.runs.comparing.comparison import Comparison
from train_manager.runs.record.environment import OF_SKLEARN, chosen_seed

MOST: Final = 12  # differences of a kind that are listed
LONGEST: Final = 80  # characters of a value

# Rows that differ from run to run and change no result: folders, names of files, and variables of a job.
_JOB: Final = (
    *OF_SKLEARN,
    *("SLURM_", "TORCHELASTIC_", "MASTER_", "TRAIN_MANAGER_", "VIRTUAL_ENV", "TORCHINDUCTOR_CACHE", "PYTHONPATH"),
)
OF_EACH_RUN: Final = {
    "parameter": ("train_dir",),
    "environment": ("command", "editable", "patterns", *(f"variables.{name}" for name in _JOB)),
    "data": ("resumes from",),  # the reproduction runs from the beginning
}

NO_SEED: Final = "no seed was recorded: give TrainManager(seed=0), or seed the program before it makes the model"
NOT_DETERMINISTIC: Final = (
    "an operation that is not deterministic, or a value that no seed governs, as the time, or the order of a set or of "
    "the files in a folder; the extension Deterministic() finds the operations"
)


def differences_around(there: tuple[Path, str], here: tuple[Path, str], *, code: bool) -> list[str]:
    """Return what differs between a run that was recorded there and its reproduction here, a line for each.

    Args:
        there: the train_dir, and the run_id.
        here: those of the reproduction.
        code: whether the code is compared too.
    """
    found = compare_runs(f"{train_dir}#{run_id}" for train_dir, run_id in (there, here))
    return [
        *_rows("parameter", found.parameters),
        *_rows("data", found.data),
        *_rows("environment", found.environment),
        *(_code(found) if code else ()),
    ]


def causes_of(entry: Mapping[str, Any], around: Sequence[str]) -> Iterator[str]:
    """Yield further causes that may explain a difference in the metrics of a run.

    >>> list(causes_of({"seed": 0}, ["code: train.py line 1: - lr = 0.1 + lr = 0.2"]))
    []

    Args:
        entry: of the recorded run.
        around: what differs around it.
    """
    # The program may have called torch.manual_seed itself, in place of the argument `seed`.
    seeds = (entry.get("environment") or {}).get("seeds") or {}
    is_seeded = entry.get("seed") is not None or chosen_seed(seeds) is not None
    if not is_seeded and not any(one.startswith(("code", "parameter")) for one in around):
        yield NO_SEED
    if not around:
        yield NOT_DETERMINISTIC


def _rows(kind: str, rows: Mapping[str, tuple[str | None, ...]]) -> list[str]:
    shown = {name: [*map(_short, cells)] for name, cells in rows.items() if not name.startswith(OF_EACH_RUN[kind])}
    # An empty dict is a row, "none", and one that is not empty has rows of other names: both are "none" in a row.
    return _list(kind, [f"{name} {there} there, {here} here" for name, (there, here) in shown.items() if there != here])


def _code(found: Comparison) -> list[str]:
    files = found.files[0]
    if files is None:
        return ["code: not compared, as it was not recorded of both"]
    return _list("code", [*map(str, files.files), *files.problems])


def _short(value: str | None) -> str:
    text = "none" if value is None else value
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _list(kind: str, texts: Sequence[str]) -> list[str]:
    more = len(texts) - MOST
    return [*(f"{kind}: {' '.join(text.split())}" for text in texts[:MOST]), *([f"{kind}: {more} more"] * (more > 0))]
