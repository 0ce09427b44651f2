"""``train-manager show``: what is in a checkpoint. It needs no torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE
from train_manager.telling.errors import CheckpointError, InputError

Part = TypeVar("Part")
# The keys of the JSON of a checkpoint; what damage or a file of tensors leaves out is null.
KEYS: Final = ("manifest", "epoch", "counts", "history", "findings", "parameters", "tensors")


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = "Show the content of a checkpoint; nothing in it is executed. Exits with 1 if it is damaged."
    command = commands.add_parser("show", help="show what is in a checkpoint", description=text)
    command.set_defaults(command=show)
    text = "a checkpoint, a train_dir (its newest checkpoint), or a .safetensors file"
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=text)
    command.add_argument("--all", action="store_true", help="show all tensors of the model, not only the first 30")


def show(options: argparse.Namespace) -> Answer:
    """Print what is in a checkpoint, or in a file of tensors."""
    from train_manager.checkpoints.as_text import tensor_data, tensor_lines
    from train_manager.checkpoints.hashed_file import Gone

    path: Path = options.checkpoint
    if path.is_file() and path.suffix != ".safetensors":
        cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
        raise InputError(f"{path} is neither a checkpoint nor a .safetensors file", cure=cure)
    if path.is_file() and options.json:
        return _data(path, tensor_data(path))
    if path.is_file():
        return _print(str(path), path, tensor_lines("tensors", path, shows_all=options.all))
    with suppress(Gone):
        return _show_newest(path, options)
    # The run that has deleted the newest checkpoint had saved a newer one before, which the second look finds.
    return _show_newest(path, options)


def _show_newest(path: Path, options: argparse.Namespace) -> Answer:
    from train_manager.checkpoints.as_text import checkpoint_data, checkpoint_lines
    from train_manager.checkpoints.checkpoint_names import named_checkpoints

    *others, newest = named_checkpoints(path)
    if options.json:
        return _data(newest, checkpoint_data(newest))
    title = f"{newest}" if newest == path else f"{newest} (the newest of {len(others) + 1})"
    return _print(title, newest, checkpoint_lines(newest, shows_all=options.all))


def _data(path: Path, parts: Iterable[tuple[str, Any]]) -> Answer:
    read, problem = _read(path, parts)
    return Answer(
        NOT_AS_IT_SHOULD_BE if problem else ALL_IS_WELL,
        {"path": str(path), "problem": problem, **dict.fromkeys(KEYS), **dict(read)},
    )


def _print(title: str, path: Path, lines: Iterable[str]) -> Answer:
    from train_manager.checkpoints.as_text import line

    shown, problem = _read(path, lines)
    print("\n".join([title, *shown, *([line("DAMAGED", problem)] if problem else [])]))
    return Answer(NOT_AS_IT_SHOULD_BE if problem else ALL_IS_WELL, {})


def _read(path: Path, parts: Iterable[Part]) -> tuple[list[Part], str]:
    """Return what can be read, and the damage that ends it; nothing of a checkpoint that is deleted meanwhile."""
    from train_manager.checkpoints.as_text import reason
    from train_manager.checkpoints.hashed_file import Gone

    read: list[Part] = []
    try:
        read += parts  # also those before an error
    except CheckpointError as error:
        if isinstance(error, Gone):
            raise
        return read, reason(error, path)
    return read, ""
