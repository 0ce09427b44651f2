"""``train-manager tune``: what makes the steps of a script's training faster."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Run a script up to its first training; in place of that, try on its model and data what may make a step "
        "faster, and print a table of the times, how far losses and weights differ, and the lines to paste. Nothing of "
        "the training is written or changed."
    )
    command = commands.add_parser(
        "tune",
        help="try what makes a script's training faster",
        description=text,
        usage="train-manager tune [options] SCRIPT [-- arguments of the script]",
    )
    command.set_defaults(command=tune)
    command.add_argument("script", type=Path, metavar="SCRIPT", help="a script that trains with a TrainManager")
    text = "how many steps to time in each of the five rounds of a trial (default: 20)"
    command.add_argument("--steps", type=int, default=20, metavar="N", help=text)
    text = "a trick to leave out, such as bf16 or Compile; repeat it for more"
    command.add_argument("--without", action="append", default=[], metavar="TRICK", help=text)
    command.add_argument("--quiet", action="store_true", help="print no line for each trial")


def tune(options: argparse.Namespace) -> Answer:
    """Run a script up to its first training, and print how the trials of that compare."""
    from train_manager.reporting.terminal import print_wrapped
    from train_manager.trials.tune import tune_script  # needs torch

    given = {"steps": options.steps, "without": options.without, "quiet": options.quiet}
    report = tune_script(options.script, options.arguments, **given)
    if not options.json:
        print_wrapped(str(report))
    return Answer(ALL_IS_WELL, report.as_json())
