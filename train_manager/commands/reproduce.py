"""``train-manager reproduce``: whether a recorded run gives the same metrics again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from train_manager.commands.answer import Answer, error_data
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE

INTERRUPTED: Final = 130  # the code of shells for a program that Ctrl-C has ended: 128 + SIGINT


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Run a recorded run again, with its code from the record and a clone of its repository, and compare losses and "
        "metrics bit for bit. It runs the program that is in the record, whose command and folder are shown first; a "
        "record of another user or another machine is asked about. That guards against mistakes, and is not a sandbox. "
        "Exits with 0 if the metrics are identical, with 1 if they differ, and with 2 if it cannot be done."
    )
    command = commands.add_parser("reproduce", help="run a recorded run again, and compare", description=text)
    command.set_defaults(command=reproduce)
    text = "a train_dir (its run that trained last), or train_dir#ID, where ID is the beginning of a run's id"
    command.add_argument("run", metavar="RUN", help=text)
    text = "a clone of the repository, if it is not where it was"
    command.add_argument("--repository", type=Path, metavar="DIR", help=text)
    text = "run the program as it is now, in its working folder, instead of the recorded code in a clone"
    command.add_argument("--here", action="store_true", help=text)
    text = "stop this training after so many steps, and compare up to there; other trainings of the program go on"
    command.add_argument("--steps", type=int, metavar="N", help=text)
    text = "keep the code, the metrics and the output here (default: a temporary folder, kept if the metrics differ)"
    command.add_argument("--folder", type=Path, metavar="DIR", help=text)
    text = "link a file or folder of the repository, as data that git ignores, into the clone; repeat it for more"
    command.add_argument("--link", type=Path, action="append", default=[], metavar="PATH", help=text)
    text = "run a record of another user or machine without asking; required if there is no terminal"
    command.add_argument("--yes", action="store_true", help=text)
    command.add_argument("--quiet", action="store_true", help="do not show the output of the program")


def reproduce(options: argparse.Namespace) -> Answer:
    """Run a recorded run again, and print how its metrics compare."""
    from train_manager.reporting.terminal import print_wrapped
    from train_manager.runs.repeating.reproduce import reproduce  # needs torch

    try:
        report = reproduce(
            options.run,
            repository=options.repository,
            here=options.here,
            steps=options.steps,
            folder=options.folder,
            links=options.link,
            yes=options.yes,
            # In a pipe nobody could answer: then the record is refused.
            ask=_ask if sys.stdin.isatty() and sys.stdout.isatty() else None,
            say=print_wrapped,
            show=None if options.quiet else _show,
        )
    except KeyboardInterrupt as error:
        told = "interrupted; the program was ended, and its files removed"
        print(f"\ntrain-manager: {told}", file=sys.stderr)
        return Answer(INTERRUPTED, error_data(error, told))
    if not options.json:
        print_wrapped(str(report))
    return Answer(ALL_IS_WELL if report.identical else NOT_AS_IT_SHOULD_BE, report.as_json())


def _ask(question: str) -> bool:
    try:
        return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _show(output: bytes) -> None:
    # The buffer of the text layer first, so that lines of `print_wrapped` keep their place.
    sys.stdout.flush()
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
