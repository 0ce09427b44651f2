"""``train-manager verify-resume``: whether a script resumes exactly."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Run a script to its end; run it again, kill it, resume it; and compare the two ends to the bit. Each run is a "
        "fork of this process with one thread, in a folder of its own in place of the script's train_dir. Exits with 1 "
        "if they differ."
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


def verify_resume(options: argparse.Namespace) -> Answer:
    """Run a script straight, and killed and resumed, and print how the ends compare."""
    from train_manager.trials.verify_resume import verify_script  # needs torch

    report = verify_script(
        options.script, options.arguments, at=options.at, lose=options.lose, folder=options.folder, say=_say
    )
    if not options.json:
        print(report)
    return Answer(ALL_IS_WELL if report.identical else NOT_AS_IT_SHOULD_BE, asdict(report))


def _say(text: str) -> None:
    print(text, flush=True)
