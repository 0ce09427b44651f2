"""The folder for the files of extensions: the one that the user gives, or its replacement in a repeated run.

The environment variables of a repeated run are read here, as a TrainManager is made, and nowhere else.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from train_manager.telling.errors import InputError

TRAIN_DIR: Final = "TRAIN_MANAGER_TRAIN_DIR"
"""An environment variable: the folder in place of the train_dir that the program gives its first TrainManager.

The second one gets ``<folder>-2``, and so on. A TrainManager without a train_dir stays without.
"""
OF: Final = "TRAIN_MANAGER_TRAIN_DIR_OF"
"""An environment variable: the one train_dir whose place that folder takes; each other one gets a folder beside it.

So the processes of a program, which all get these variables, write into folders of their own if they did so before.
"""

STEPS: Final = "TRAIN_MANAGER_STEPS"
"""An environment variable: ``2:100`` stops the run of the second TrainManager with a train_dir after 100 steps.

If ``TRAIN_MANAGER_TRAIN_DIR_OF`` is set, it must also be the one with that train_dir; each other one trains to its end.
"""

_numbers: Iterator[int] = itertools.count(1)  # of the TrainManagers of this process that have a train_dir


class TrainDir(NamedTuple):
    """The folder of a TrainManager, and what else a repeated run asks of it."""

    path: Path | None
    number: int | None  # in this process: 1 for the first TrainManager with a folder; None without a folder
    step_limit: int | None  # the number of steps after which its run stops; None if it trains to its end


def train_dir_of(value: Path | str | None) -> TrainDir:
    """Return the folder of a TrainManager, and its number and limit of steps.

    Raises:
        InputError: the value is not a path, or a variable is invalid.
    """
    given = require_train_dir(value)
    if given is None:
        return TrainDir(None, None, None)
    number, of = next(_numbers), os.environ.get(OF)
    # Compared as absolute paths: the variable comes from a process with perhaps another working folder.
    path = os.path.abspath(given)
    is_meant = path == of if of else True
    return TrainDir(_in_its_place(given, path, number, of), number, _step_limit(number) if is_meant else None)


def _in_its_place(given: Path, path: str, number: int, of: str | None) -> Path:
    if not (instead := os.environ.get(TRAIN_DIR)):
        return given
    if path == of or (number == 1 and not of):
        return Path(instead)
    # The hash of the path is the same in each process of the program; a number would depend on the order.
    return Path(f"{instead}-{sha256(os.fsencode(path)).hexdigest()[:8] if of else number}")


def _step_limit(number: int) -> int | None:
    text = os.environ.get(STEPS)
    if not text:
        return None
    of, _, steps = text.partition(":")
    if not (of.isdecimal() and steps.isdecimal()):
        cure = f"give the number of a TrainManager and that of its steps: {STEPS}=1:100"
        raise InputError(f"{STEPS} is {text!r:.60}", name=STEPS, cure=cure)
    return int(steps) if number == int(of) else None


def require_train_dir(value: Path | str | None) -> Path | None:
    """Return the argument ``train_dir`` as a path, with ``~`` replaced."""
    if not (value is None or isinstance(value, str | os.PathLike)):
        cure = 'give a path: train_dir="runs/first"'
        raise InputError(f"train_dir must be a path, but is {value!r:.60}", name="train_dir", cure=cure)
    return None if value is None else Path(value).expanduser()


def make_train_dir(path: Path) -> None:
    """Make the folder if it does not exist.

    Raises:
        InputError: a file or a link that leads to nothing is in the way.
    """
    # mkdir() would say that a file is in the way, where the folder behind a link is missing (an unmounted disk).
    dangling = next((one for one in (path, *path.parents) if one.is_symlink() and not one.exists()), None)
    if dangling is not None:
        what = f"train_dir {str(path)!r} leads through the link {str(dangling)!r} to {os.readlink(dangling)!r}, "
        cure = "mount or make that folder, or give another train_dir"
        raise InputError(f"{what}which is not there", name="train_dir", cure=cure)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        what = f"train_dir must be a folder, but a file is in the way: {str(path)!r}"
        raise InputError(what, name="train_dir", cure="give the path of a folder") from error
