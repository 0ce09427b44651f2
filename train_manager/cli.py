"""The command line: ``train-manager show``, ``check`` and ``verify-resume``. The first two need no torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from train_manager._version import __version__
from train_manager.core.errors import CheckpointError, InputError, TrainManagerError
from train_manager.records.checkpoint_names import checkpoints_in, folder_in, order_of
from train_manager.records.contents import tensors_in
from train_manager.records.hashed_file import Unreadable
from train_manager.records.verification import verify
from train_manager.reporting.checkpoint_text import checkpoint_lines, reason, tensor_lines

ALL_IS_WELL: Final = 0
NOT_AS_IT_SHOULD_BE: Final = 1  # damaged, or not identical
CANNOT_BE_DONE: Final = 2  # as argparse has it
SET_ASIDE: Final = {
    ".tmp-": "left half-written by a killed process; the next training removes it",
    ".del-": "left half-deleted by a killed process; the next training removes it",
    "damaged-": "set aside, because it is damaged",
    "superseded": "set aside, because a training went on from an earlier checkpoint",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    of_script: list[str] = []
    if given[:1] == ["verify-resume"] and "--" in given:  # argparse would take them for its own after an option
        of_script, given = given[given.index("--") + 1 :], given[: given.index("--")]
    options = parser().parse_args(given, argparse.Namespace(arguments=of_script))
    try:
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ALL_IS_WELL
    except (TrainManagerError, OSError) as error:
        print(f"train-manager: {error}", file=sys.stderr)
        return CANNOT_BE_DONE
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which the reference is made from too."""
    whole = argparse.ArgumentParser(prog="train-manager", description="Look at checkpoints, and verify trainings.")
    whole.add_argument("--version", action="version", version=f"train-manager {__version__}")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")

    text = "Show what is in a checkpoint; nothing in it is executed. Exits with 1 if it is damaged."
    command = commands.add_parser("show", help="show what is in a checkpoint", description=text)
    command.set_defaults(command=show)
    text = "a checkpoint, a train_dir (its newest checkpoint), or a .safetensors file"
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=text)
    command.add_argument("--all", action="store_true", help="show all tensors of the model, not only the first 30")

    text = "Check every file of every checkpoint; nothing is changed. Exits with 1 if one is damaged."
    command = commands.add_parser("check", help="check every checkpoint of a training", description=text)
    command.set_defaults(command=check)
    command.add_argument("folder", type=Path, metavar="DIR", help="a train_dir, or one checkpoint")

    text = (
        "Run a script to its end; run it again, kill it, resume it; and compare the two ends to the bit. Each run is a "
        "process of its own, in a folder of its own in place of the script's train_dir. Exits with 1 if they differ."
    )
    command = commands.add_parser(
        "verify-resume",
        help="verify that a script resumes exactly",
        description=text,
        usage="train-manager verify-resume [options] SCRIPT [-- arguments of the script]",
    )
    command.set_defaults(command=verify_resume)
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a script that trains with a TrainManager")
    text = "save a checkpoint after this step, and kill; repeat it for more kills (default: in the middle of an epoch)"
    command.add_argument("--at", type=int, action="append", metavar="STEP", help=text)
    text = "do so many steps between the checkpoint and the kill, which are then done again (default: 0)"
    command.add_argument("--lose", type=int, default=0, metavar="STEPS", help=text)
    text = "keep the files of all runs here (default: a temporary folder, of which the logs are kept)"
    command.add_argument("--folder", type=Path, metavar="DIR", help=text)
    return whole


def show(options: argparse.Namespace) -> int:
    """Print what is in a checkpoint, or in a file of tensors."""
    path: Path = options.checkpoint
    if path.is_file():
        return _show_file(path, shows_all=options.all)
    *others, newest = checkpoints_in(path)
    print(newest if newest == path else f"{newest} (the newest of {len(others) + 1})")
    try:
        for text in checkpoint_lines(newest, shows_all=options.all):
            print(text)
    except CheckpointError as error:
        print(f"{'DAMAGED':<12}{reason(error, newest)}")
        return NOT_AS_IT_SHOULD_BE
    return ALL_IS_WELL


def _show_file(path: Path, *, shows_all: bool) -> int:
    if path.suffix != ".safetensors":
        cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
        raise InputError(f"{path} is neither a checkpoint nor a .safetensors file", cure=cure)
    print(path)
    try:
        for text in tensor_lines("tensors", tensors_in(path), shows_all=shows_all):
            print(text)
    except CheckpointError as error:
        print(f"{'DAMAGED':<12}{reason(error, path)}")
        return NOT_AS_IT_SHOULD_BE
    return ALL_IS_WELL


def check(options: argparse.Namespace) -> int:
    """Print a line for each checkpoint, and for what was set aside or left over."""
    code = ALL_IS_WELL
    for path in checkpoints_in(options.folder):
        try:
            verify(path)
        except CheckpointError as error:
            word = "unreadable" if isinstance(error, Unreadable) else "damaged"
            print(f"{path.name}  {word}: {reason(error, path)}")
            code = NOT_AS_IT_SHOULD_BE
        else:
            print(f"{path.name}  sound")
        sys.stdout.flush()  # of large checkpoints, each takes a while
    for name, what in _set_aside(options.folder):
        print(f"{name}  {what}")
    return code


def _set_aside(folder: Path) -> list[tuple[str, str]]:
    if order_of(folder) is not None:
        return []
    names = sorted(path.name for path in folder_in(folder).iterdir())
    return [(name, what) for name in names for start, what in SET_ASIDE.items() if name.startswith(start)]


def verify_resume(options: argparse.Namespace) -> int:
    """Run a script straight, and killed and resumed, and print how the ends compare."""
    from train_manager.tools.verify_resume import verify_script  # needs torch

    report = verify_script(
        options.script, options.arguments, at=options.at, lose=options.lose, folder=options.folder, say=_say
    )
    print(report)
    return ALL_IS_WELL if report.identical else NOT_AS_IT_SHOULD_BE


def _say(text: str) -> None:
    print(text, flush=True)
