"""The differences around two runs: seed, parameters, data, environment, code; in words that explain their metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.rebuilding.recorded_rows import Rows, value_rows
from train_manager.runs.code.differences import code_differences
from train_manager.runs.comparing.run_facts import fingerprint_rows
from train_manager.runs.record.environment import OF_SKLEARN, chosen_seed
from train_manager.runs.record.made_objects import parameter_rows_of
from train_manager.telling.errors import TrainManagerError

Entry = Mapping[str, Any]
MOST: Final = 12  # differences of a kind that are listed
LONGEST: Final = 80  # characters of a value
_JOB: Final = (
    *OF_SKLEARN,
    "SLURM_",
    "TORCHELASTIC_",
    "MASTER_",
    "TRAIN_MANAGER_",
    "VIRTUAL_ENV",
    "TORCHINDUCTOR_CACHE",
)
OF_THE_JOB: Final = tuple(f"variables.{name}" for name in _JOB)
"""Rows of variables that differ from run to run and change no result."""

NO_SEED: Final = "no seed was recorded: give TrainManager(seed=0), or seed the program before it makes the model"
NOT_DETERMINISTIC: Final = (
    "an operation that is not deterministic, or a value that no seed governs, as the time, or the order of a set or of "
    "the files in a folder; the extension Deterministic() finds the operations"
)


def differences_around(one: Entry, other: Entry) -> Iterator[str]:
    """Yield the differences between two entries of runs, in words.

    >>> list(differences_around({"seed": 0, "data": {"length": 2}}, {"seed": 1, "data": {"length": 2}}))
    ['seed: 0 there, 1 here']
    """
    if one.get("seed") != other.get("seed"):
        yield f"seed: {_short_text(one.get('seed'))} there, {_short_text(other.get('seed'))} here"
    try:
        yield from _list("parameter", differing(_parameters(one), _parameters(other)))
    except TrainManagerError as error:  # the record was edited, or written by another program
        yield f"parameter: not compared, as {error.what}"
    yield from _list("data", differing(*(fingerprint_rows(entry.get("data") or {}) for entry in (one, other))))
    # A run that was cut short has made less progress, which is not a difference to report.
    if one.get("outcome") == other.get("outcome") == "completed":
        yield from _list("progress", differing(*(value_rows(entry.get("progress") or {}) for entry in (one, other))))
    environments = one.get("environment") or {}, other.get("environment") or {}
    # A copy of the code has other folders, and `patterns` only names which variables were recorded.
    parts = [part for part in environments[0] if part in environments[1] and part not in ("editable", "patterns")]
    yield from _list("environment", differing(*(environment_rows(found, parts) for found in environments)))


def differing(there: Rows, here: Rows) -> list[str]:
    """Return the rows that differ between there, where a run was recorded, and here, in words.

    >>> differing({"threads.torch": "2"}, {"threads.torch": "1", "numpy": "2.1"})
    ['threads.torch 2 there, 1 here', 'numpy none there, 2.1 here']
    """
    sides = [(name, _short_text(there.get(name)), _short_text(here.get(name))) for name in {**there, **here}]
    return [f"{name} {before} there, {now} here" for name, before, now in sides if before != now]


def environment_rows(environment: Entry, parts: Iterable[str]) -> Rows:
    """Return entries of an environment as rows, without values that differ from run to run and change no result."""
    found = {part: environment.get(part) for part in parts}
    if (devices := found.get("devices")) is not None:  # only the name of a GPU is known if a run did not use it
        found["devices"] = {
            **devices,
            "gpus": ", ".join(str(gpu.get("name")) for gpu in devices.get("gpus") or ()) or None,
        }
    if (seeds := found.pop("seeds", None)) is not None and (seed := chosen_seed(seeds)) is not None:
        found["seed of torch"] = seed
    rows = value_rows({part: value for part, value in found.items() if value != {}})
    return {
        name.removeprefix("packages."): text
        for name, text in rows.items()
        if not name.startswith(OF_THE_JOB) and name != "variables.PYTHONPATH"
    }


def code_around(one: tuple[Path, Entry], other: tuple[Path, Entry]) -> Iterator[str]:
    """Yield the differences between the code of two runs, each given by its train_dir and its code record."""
    found = code_differences(one, other)
    yield from _list("code", found.files)
    reasons = {f"of the {word} run": side[1].get("reason") for word, side in (("first", one), ("second", other))}
    is_of_both = len({*reasons.values()}) == 1
    one_sided = [f"{of}: {reason}" for of, reason in reasons.items() if reason and not is_of_both]
    yield from (f"code: {problem}" for problem in [*one_sided, *found.problems])


def causes_of(entry: Entry, around: Sequence[str], inputs: Sequence[str] = ()) -> Iterator[str]:
    """Yield further causes that may explain a difference in the metrics of a run.

    >>> list(causes_of({"seed": 0}, ["code: train.py line 1: - lr = 0.1 + lr = 0.2"]))
    []

    Args:
        entry: of the recorded run.
        around: what differs around it.
        inputs: the inputs of the program that are not recorded, in words.
    """
    # The program may have called torch.manual_seed itself, in place of the argument `seed`.
    seeds = (entry.get("environment") or {}).get("seeds") or {}
    is_seeded = entry.get("seed") is not None or chosen_seed(seeds) is not None
    # Also if a parameter differs: its value may come from such an input.
    if not any(one.startswith("code") for one in around):
        yield from inputs
    if not is_seeded and not any(one.startswith(("code", "parameter")) for one in around):
        yield NO_SEED
    if not around:
        yield NOT_DETERMINISTIC


def _parameters(entry: Entry) -> Rows:
    """Return the constructor's parameters without the train_dir, which is another one each time."""
    rows = parameter_rows_of(entry)
    return {name: text for name, text in rows.items() if name not in ("train_dir", "seed")}


def _short_text(value: object) -> str:
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _list(kind: str, found: Iterator[Any] | Sequence[Any]) -> Iterator[str]:
    texts = [" ".join(str(one).split()) for one in found]
    yield from (f"{kind}: {text}" for text in texts[:MOST])
    if len(texts) > MOST:
        yield f"{kind}: {len(texts) - MOST} more"
