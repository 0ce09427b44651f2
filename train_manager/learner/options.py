"""The options of a learner: a file or a dict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.learner.deployment import require_exports
from train_manager.learner.description import Description, KeyPath, Mistakes
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
    read_entry,
    read_keys,
    read_tables,
    require_name,
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
    description, mistakes = Description.read(given, "the options of the learner"), Mistakes()
    found = read_keys(description, (), description.tree, KEYS, mistakes)
    if "initialize" in found:
        _check_word(description, ("initialize",), found["initialize"], INITIALIZERS, mistakes)
    eval_at = _read_eval_at(description, found.get("eval_at", []), mistakes)
    freeze = as_names(found.get("freeze", []))
    for name in freeze:
        require_name(description, ("freeze",), name, modules, "not a module of the model", mistakes)
    tables = enumerate(found.get("self_supervised", []))
    phases = [_read_phase(description, index, table, modules, mistakes) for index, table in tables]
    extensions = _read_extensions(description, found.get("extension", {}), mistakes)
    if "device" in found:
        _check_device(description, found["device"], mistakes)
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


def _read_eval_at(description: Description, given: Any, mistakes: Mistakes) -> tuple[str | Schedule, ...]:
    """Return what the argument ``eval_at`` of a TrainManager takes: words, and the schedules of tables."""
    several = isinstance(given, list)
    points: list[str | Schedule] = []
    for index, point in enumerate(given if several else [given]):
        path = ("eval_at", index) if several else ("eval_at",)
        if isinstance(point, str):
            _check_word(description, path, point, WORDS, mistakes)
            points.append(point)
        elif (entry := read_entry(description, path, point, SCHEDULE, mistakes)) is not None:
            points.append(entry.tried(mistakes))
    return tuple(points)


def _read_phase(
    description: Description, index: int, table: Mapping[str, Any], modules: list[str], mistakes: Mistakes
) -> Phase | None:
    path = ("self_supervised", index)
    found = read_keys(description, path, table, PHASE_KEYS, mistakes, has_arguments=True)
    task = read_entry(description, path, table, TASK, mistakes, keys=PHASE_KEYS)
    if "at" in found:
        require_name(description, (*path, "at"), found["at"], modules, "not a module of the model", mistakes)
    optimizer = None
    if "optimizer" in found:
        optimizer = read_entry(description, (*path, "optimizer"), found["optimizer"], OPTIMIZER, mistakes)
        if optimizer is not None:
            optimizer.tried(mistakes, [nn.Parameter(torch.zeros(1, 1))])
    if task is None or "at" not in found or "epochs" not in found:
        return None
    return Phase(task, found["at"], found["epochs"], found.get("batch_size"), optimizer)


def _read_extensions(description: Description, given: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Extension]:
    extensions = {}
    for name, table in read_tables(description, ("extension",), given, mistakes):
        if name in OWN_EXTENSIONS:
            what = "has the name of an extension that the learner adds itself"
            mistakes.add(description, ("extension", name), what, cure="give it another name")
        entry = read_entry(description, ("extension", name), table, EXTENSION, mistakes)
        if entry is not None:
            extensions[name] = entry.tried(mistakes)
    return extensions


def _check_word(description: Description, path: KeyPath, word: str, words: Collection[str], mistakes: Mistakes) -> None:
    if word not in words:
        mistakes.add(description, path, f"is {word!r:.60}, which is not known", nearest_of=words, name=word)


def _check_device(description: Description, device: str, mistakes: Mistakes) -> None:
    what, cure = "is 'meta', which holds no numbers", 'device = "cpu"'
    try:
        if require_device(device) != torch.device("meta"):
            return
    except InputError as error:
        what, cure = f"cannot be used: {error.what}", 'leave it out, or write device = "cpu"'
    mistakes.add(description, ("device",), what, cure=cure)
