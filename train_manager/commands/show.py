"""``train-manager show``: what is in a checkpoint. It needs no torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE
from train_manager.telling.errors import CheckpointError, InputError


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = "Show the content of a checkpoint; nothing in it is executed. Exits with 1 if it is damaged."
    command = commands.add_parser("show", help="show what is in a checkpoint", description=text)
    command.set_defaults(command=show)
    text = "a checkpoint, a train_dir (its newest checkpoint), or a .safetensors file"
    command.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help=text)
    command.add_argument("--all", action="store_true", help="show all tensors of the model, not only the first 30")


def show(options: argparse.Namespace) -> int:
    """Print what is in a checkpoint, or in a file of tensors."""
    from train_manager.checkpoints.as_text import tensor_lines
    from train_manager.checkpoints.hashed_file import Gone

    path: Path = options.checkpoint
    if path.is_file() and path.suffix != ".safetensors":
        cure = "give a checkpoint, the train_dir of a training, or a .safetensors file"
        raise InputError(f"{path} is neither a checkpoint nor a .safetensors file", cure=cure)
    if path.is_file():
        return _print(str(path), path, tensor_lines("tensors", path, shows_all=options.all))
    with suppress(Gone):
        return _show_newest(path, shows_all=options.all)
    # The run that has deleted the newest checkpoint had saved a newer one before, which the second look finds.
    return _show_newest(path, shows_all=options.all)


def _show_newest(path: Path, *, shows_all: bool) -> int:
    from train_manager.checkpoints.as_text import checkpoint_lines
    from train_manager.checkpoints.checkpoint_names import named_checkpoints

    *others, newest = named_checkpoints(path)
    title = f"{newest}" if newest == path else f"{newest} (the newest of {len(others) + 1})"
    return _print(title, newest, checkpoint_lines(newest, shows_all=shows_all))


def _print(title: str, path: Path, lines: Iterator[str]) -> int:
    """Print lines, and the damage that ends them; nothing of a checkpoint that is deleted meanwhile."""
    from train_manager.checkpoints.as_text import line, reason
    from train_manager.checkpoints.hashed_file import Gone

    shown, code = [title], ALL_IS_WELL
    try:
        shown += lines  # also those before an error
    except CheckpointError as error:
        if isinstance(error, Gone):
            raise
        shown.append(line("DAMAGED", reason(error, path)))
        code = NOT_AS_IT_SHOULD_BE
    print("\n".join(shown))
    return code
