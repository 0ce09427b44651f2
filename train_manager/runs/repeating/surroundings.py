"""What differs around two runs: seed, parameters, data, environment, code; in words, for what their figures do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from train_manager.runs.code.differences import code_differences
from train_manager.runs.record import environment, fingerprint
from train_manager.runs.record.differences import Difference, differing

Entry = Mapping[str, Any]
MOST: Final = 12  # differences of a kind that are told
NO_SEED: Final = "no seed was recorded: give TrainManager(seed=0), or seed the program before it makes the model"
NOT_DETERMINISTIC: Final = (
    "an operation that is not deterministic, or a value that no seed governs, as the time, or the order of a set or of "
    "the files in a folder; the extension Deterministic() finds the operations"
)


def differences_around(one: Entry, other: Entry) -> Iterator[str]:
    """Yield what differs between two entries of ``run.json``.

    >>> list(differences_around({"seed": 0, "parameters": {"epochs": 2}}, {"seed": 1, "parameters": {"epochs": 2}}))
    ['seed: 0 there, 1 here']
    """
    yield from _told("seed", differing({"": one.get("seed")}, {"": other.get("seed")}, "{}"))
    yield from _told("parameter", differing(_parameters(one), _parameters(other), "{}"))
    if "made" in one and "made" in other:  # which an older record has not
        yield from _told("parameter", differing(one["made"], other["made"], "{}"))
    yield from _told("data", _of_data(one.get("data") or {}, other.get("data") or {}))
    if one.get("outcome") == other.get("outcome") == "completed":
        yield from _told("progress", differing(one.get("progress") or {}, other.get("progress") or {}, "{}"))
    yield from _told("environment", environment.differences(_environment(one), _environment(other)))


def code_around(one: tuple[Path, Entry], other: tuple[Path, Entry]) -> Iterator[str]:
    """Yield where the code of two runs differs; of each the train_dir and the code record."""
    found = code_differences(one, other)
    yield from _told("code", found.files)
    reasons = {record.get("reason") for _, record in (one, other)}
    told_once = {f"of the {word} run: {reason}" for word in ("first", "second") for reason in reasons}
    problems = [problem for problem in found.problems if len(reasons) > 1 or problem not in told_once]
    yield from (f"code: {problem}" for problem in problems)


def causes_of(entry: Entry, around: Sequence[str]) -> Iterator[str]:
    """Yield what else may explain that the figures of a run differ.

    >>> list(causes_of({"seed": 0}, ["code: train.py line 1: - lr = 0.1 + lr = 0.2"]))
    []

    Args:
        entry: of the recorded run.
        around: what differs around it.
    """
    seeds = (entry.get("environment") or {}).get("seeds") or {}
    is_seeded = entry.get("seed") is not None or environment.chosen_seed(seeds) is not None
    if not is_seeded and not any(one.startswith(("code", "parameter")) for one in around):
        yield NO_SEED
    if not around:
        yield NOT_DETERMINISTIC


def _parameters(entry: Entry) -> dict[str, Any]:
    """Return the constructor's parameters without the train_dir, which is another one each time."""
    parameters = json.loads(json.dumps(entry.get("parameters") or {}, default=str))
    arguments = parameters.get("arguments", parameters)
    return {name: value for name, value in arguments.items() if name not in ("train_dir", "seed")}


def _environment(entry: Entry) -> dict[str, Any]:
    """Return the environment without where packages are installed from: a copy of the repository lies elsewhere."""
    found = dict(entry.get("environment") or {})
    found.pop("editable", None)
    found["variables"] = {key: value for key, value in (found.get("variables") or {}).items() if key != "PYTHONPATH"}
    return found


def _of_data(one: Entry, other: Entry) -> Iterator[Difference]:
    yield from fingerprint.differences(one.get("train_data"), other.get("train_data"), "train_data")
    sets = one.get("eval_data") or {}, other.get("eval_data") or {}
    for name in {**sets[0], **sets[1]}:
        yield from fingerprint.differences(sets[0].get(name), sets[1].get(name), f"eval_data {name}")


def _told(kind: str, found: Iterator[Any] | Sequence[Any]) -> Iterator[str]:
    texts = [" ".join(str(one).split()) for one in found]
    yield from (f"{kind}: {text}" for text in texts[:MOST])
    if len(texts) > MOST:
        yield f"{kind}: {len(texts) - MOST} more"
