"""The options of a learner: a file or a dict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.learner.deployment import require_exports
from train_manager.learner.description import Description, FileMistakes, Spot
from train_manager.learner.entries import (
    COUNT,
    EXTENSION,
    NAMES,
    OPTIMIZER,
    POINTS,
    SCHEDULE,
    TABLE,
    TABLES,
    TEXT,
    WHOLE,
    Entry,
    Key,
    Kind,
    as_names,
    is_among,
    read_entry,
    read_keys,
    read_tables,
)
from train_manager.learner.tasks import Task
from train_manager.loop.arguments import require_device
from train_manager.loop.eval_at import WORDS
from train_manager.telling.errors import InputError

INITIALIZERS: Final[dict[str, Callable[..., Any]]] = {
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    "orthogonal": nn.init.orthogonal_,
}

NOT_A_MODULE: Final = "is not a module of the model"

OWN_EXTENSIONS: Final = ("augment", "curriculum", "freeze")
"""The names of the extensions that keys of the files ask for."""

TASK: Final = Kind(
    "a task",
    lambda thing: isinstance(thing, type) and issubclass(thing, Task) and thing is not Task,
    given=("encoder", "augment"),
)

KEYS: Final = {
    "seed": Key(WHOLE, "determines the random numbers of the training; not the weights that `load_model` has drawn"),
    "train_dir": Key(TEXT, "the folder of checkpoints, metrics and records; a second start resumes there"),
    "device": Key(TEXT, "where the training runs, as `cuda`"),
    "initialize": Key(TEXT, f"how weights are drawn anew: {', '.join(INITIALIZERS)}"),
    "eval_at": Key(
        POINTS,
        "when the training evaluates: `start`, `epoch`, `end`, a schedule as "
        '`{ use = "every", n = 250 }`, or a list of these; never, if it is left out',
    ),
    "freeze": Key(NAMES, "modules that only self-supervised phases train"),
    "self_supervised": Key(TABLES, "the phases, one after the other"),
    "deployment": Key(TABLE, "what `deploy_model` writes, checked before the training"),
    "extension": Key(TABLE, "extensions by name, each with `use` and its arguments"),
}
"""The keys of a learner's options."""

PHASE_KEYS: Final = {
    "at": Key(TEXT, "the module that learns", required=True),
    "epochs": Key(COUNT, "the epochs of the phase", required=True),
    "batch_size": Key(COUNT, "the rows of a batch; that of the dataset, if it is left out"),
    "optimizer": Key(TABLE, "with `use` and its arguments; AdamW with a learning rate of 0.003, if it is left out"),
}
"""The keys of a phase, beside ``use`` and its arguments."""


class Phase(NamedTuple):
    """A self-supervised phase."""

    task: Entry
    at: str
    epochs: int
    batch_size: int | None
    optimizer: Entry | None


@dataclass(frozen=True)
class Options:
    """What the options of a learner say."""

    seed: int | None
    train_dir: str | None
    device: str | None
    initialize: str | None
    eval_at: tuple[str | Schedule, ...]
    freeze: list[str]
    phases: list[Phase]
    extensions: dict[str, Extension]
    deployment: dict[str, Any] | None


def read_options(given: str | Path | Mapping[str, Any], modules: list[str]) -> Options:
    """Read the options of a learner.

    Args:
        given: the path of a TOML file, or what such a file says as a dict.
        modules: the modules of the model.

    Raises:
        InputError: all mistakes in it.
    """
    mistakes = FileMistakes()
    spot = Description.read(given, "the options of the learner").root(mistakes)
    found = read_keys(spot, KEYS)
    if "initialize" in found:
        _check_word(spot.below("initialize"), INITIALIZERS)
    eval_at = tuple(_read_eval_at(spot.below("eval_at"))) if "eval_at" in found else ()
    freeze = as_names(found.get("freeze", []))
    for name in freeze:
        is_among(spot.below("freeze"), name, modules, NOT_A_MODULE)
    tables = [spot.below("self_supervised", index) for index in range(len(found.get("self_supervised", [])))]
    phases = [_read_phase(table, modules) for table in tables]
    extensions = _read_extensions(spot.below("extension")) if "extension" in found else {}
    if "device" in found:
        _check_device(spot.below("device"))
    mistakes.raise_all()
    if "deployment" in found:
        require_exports(found["deployment"])
    return Options(
        seed=found.get("seed"),
        train_dir=found.get("train_dir"),
        device=found.get("device"),
        initialize=found.get("initialize"),
        eval_at=eval_at,
        freeze=freeze,
        phases=[phase for phase in phases if phase is not None],
        extensions=extensions,
        deployment=found.get("deployment"),
    )


def _read_eval_at(spot: Spot) -> Iterator[str | Schedule]:
    """Yield what the argument ``eval_at`` of a TrainManager takes: words, and the schedules of tables."""
    points = [spot.below(index) for index in range(len(spot.value))] if isinstance(spot.value, list) else [spot]
    for point in points:
        if isinstance(point.value, str):
            _check_word(point, WORDS)
            yield point.value
        elif (entry := read_entry(point, SCHEDULE)) is not None:
            yield entry.tried()


def _read_phase(spot: Spot, modules: list[str]) -> Phase | None:
    found = read_keys(spot, PHASE_KEYS, has_arguments=True)
    task = read_entry(spot, TASK, keys=PHASE_KEYS)
    if "at" in found:
        is_among(spot.below("at"), found["at"], modules, NOT_A_MODULE)
    optimizer = read_entry(spot.below("optimizer"), OPTIMIZER) if "optimizer" in found else None
    if optimizer is not None:
        optimizer.tried([nn.Parameter(torch.zeros(1, 1))])
    if task is None or "at" not in found or "epochs" not in found:
        return None
    return Phase(task, found["at"], found["epochs"], found.get("batch_size"), optimizer)


def _read_extensions(spot: Spot) -> dict[str, Extension]:
    extensions = {}
    for name, table in read_tables(spot):
        if name in OWN_EXTENSIONS:
            table.wrong("has the name of an extension that the learner adds itself", cure="give it another name")
        entry = read_entry(table, EXTENSION)
        if entry is not None:
            extensions[name] = entry.tried()
    return extensions


def _check_word(spot: Spot, words: Collection[str]) -> None:
    if spot.value not in words:
        spot.wrong(f"is {spot.value!r:.60}, which is not known", nearest_of=words, name=spot.value)


def _check_device(spot: Spot) -> None:
    try:
        if require_device(spot.value) == torch.device("meta"):
            spot.wrong("is 'meta', which holds no numbers", cure='device = "cpu"')
    except InputError as error:
        spot.wrong(f"cannot be used: {error.what}", cure='leave it out, or write device = "cpu"')
