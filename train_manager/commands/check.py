"""``train-manager check``: whether the checkpoints of a training are sound. It needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE
from train_manager.telling.errors import CheckpointError

# How a folder in checkpoints/ that is not a checkpoint came to be, by the beginning of its name.
SET_ASIDE: Final = {
    ".tmp-": "left half-written or half-deleted by a killed process; the next training removes it",
    "damaged-": "set aside, because it is damaged",
    "superseded": "set aside, because a training resumed from an earlier checkpoint",
}


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = "Check every file of every checkpoint; nothing is changed. Exits with 1 if one is damaged."
    command = commands.add_parser("check", help="check every checkpoint of a training", description=text)
    command.set_defaults(command=check)
    command.add_argument("folder", type=Path, metavar="DIR", help="a train_dir, or one checkpoint")


def check(options: argparse.Namespace) -> Answer:
    """Print a line for each checkpoint, and for each folder that was set aside or left over."""
    from train_manager.checkpoints.as_text import reason
    from train_manager.checkpoints.checkpoint_names import named_checkpoints
    from train_manager.checkpoints.hashed_file import Gone
    from train_manager.checkpoints.verification import is_damage, verify

    found, code = [], ALL_IS_WELL
    for path in named_checkpoints(options.folder):
        try:
            verify(path)
            status, problem = "sound", ""
        except Gone:
            continue  # a run that saves has deleted it since it was listed
        except CheckpointError as error:
            status, problem = "damaged" if is_damage(error) else "unreadable", reason(error, path)
            code = NOT_AS_IT_SHOULD_BE
        found.append({"name": path.name, "status": status, "problem": problem})
        if not options.json:
            # A large checkpoint takes seconds to read: its line is seen before the next one begins.
            print(f"{path.name}  {status}{problem and f': {problem}'}", flush=True)
    others = [{"name": name, "what": what} for name, what in _set_aside(options.folder)]
    for other in [] if options.json else others:
        print(f"{other['name']}  {other['what']}")
    return Answer(code, {"checkpoints": found, "others": others})


def _set_aside(folder: Path) -> list[tuple[str, str]]:
    from train_manager.checkpoints.checkpoint_names import folder_in, order_of

    # The user has named one checkpoint, and not a train_dir.
    if order_of(folder) is not None:
        return []
    names = sorted(path.name for path in folder_in(folder).iterdir())
    return [(name, what) for name in names for start, what in SET_ASIDE.items() if name.startswith(start)]
