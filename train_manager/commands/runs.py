"""``train-manager runs``: the runs below a folder. It needs no torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "List the runs below a folder, the newest first: a line for each TrainManager that trained, with a run record. "
        "Links are not followed. Exits with 1 if a file of a run cannot be read."
    )
    command = commands.add_parser("runs", help="list the runs below a folder", description=text)
    command.set_defaults(command=runs)
    command.add_argument("folder", type=Path, metavar="DIR", nargs="?", default=Path(), help="a folder (default: .)")
    text = "by began, run, took, outcome, epochs, steps, or the name of a metric such as valid/loss (default: began)"
    command.add_argument("--sort", metavar="COLUMN", default="began", help=text)
    command.add_argument("--parameters", action="store_true", help="show the parameters that differ between the runs")
    command.add_argument("--all", action="store_true", help="list also runs that trained nothing")


def runs(options: argparse.Namespace) -> Answer:
    """Print a line for each run below a folder."""
    from train_manager.reporting.terminal import Line, print_lines, printable, terminal_width
    from train_manager.reporting.values import plural
    from train_manager.runs.comparing.run_list import run_lines, sorted_runs
    from train_manager.runs.record.run_summary import summaries_below
    from train_manager.telling.errors import InputError

    if not options.folder.is_dir():
        cure = "give a folder that has train_dirs in it, or a train_dir"
        raise InputError(f"there is no folder {options.folder}", name="folder", cure=cure)
    found, problems = summaries_below(options.folder)
    found = sorted_runs(found, options.sort)
    # All runs, also those that trained nothing: a program that reads the list can filter by "trained".
    damaged = [{"train_dir": str(path.parent), "problem": text} for path, text in problems.items()]
    data = {"runs": [run.as_json() for run in found], "damaged": damaged}
    answer = Answer(NOT_AS_IT_SHOULD_BE if problems else ALL_IS_WELL, data)
    if options.json:
        return answer
    listed = [run for run in found if run.trained or options.all]
    if listed:
        print_lines(run_lines(listed, options.folder, terminal_width(), options.sort, parameters=options.parameters))
    elif not found and not problems:
        print_lines([Line(f"there is no run below {options.folder}", "note")])
    if left_out := len(found) - len(listed):
        print_lines([Line(f"not listed: {plural(left_out, 'run')} that trained nothing (--all lists them)", "note")])
    # The table before the problems: standard error is not buffered.
    sys.stdout.flush()
    for text in problems.values():
        print(printable(f"train-manager: {text}"), file=sys.stderr)
    return answer
