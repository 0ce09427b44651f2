"""``train-manager compare``: what differs between runs. It needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL, NOT_AS_IT_SHOULD_BE


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Show what differs between up to ten runs: parameters, code, environment, data, and their metrics side by "
        "side. Each run is a train_dir, of which the last run that trained is taken, or TRAIN_DIR#RUN_ID, of which the "
        "first digits suffice. Exits with 1 if something differs besides the metrics."
    )
    command = commands.add_parser("compare", help="show what differs between runs", description=text)
    command.set_defaults(command=compare)
    command.add_argument("runs", metavar="RUN", nargs="+", help="a train_dir, or TRAIN_DIR#RUN_ID")
    command.add_argument("--all", action="store_true", help="also show equal values; of a single run, its record")
    text = "write a page with all of it and with the curves, which refers to no other file"
    command.add_argument("--html", type=Path, metavar="FILE", help=text)


def compare(options: argparse.Namespace) -> Answer:
    """Print how runs compare, or write it as a page."""
    from train_manager.reporting.terminal import print_lines, terminal_width
    from train_manager.runs.comparing.compare_runs import compare_runs
    from train_manager.runs.showing.page import write_report
    from train_manager.telling.errors import InputError

    # Refused before the comparison, which may take seconds.
    if options.html is not None and options.html.is_dir():
        raise InputError(
            f"{options.html} is a folder", name="html", cure=f"name a file: --html {options.html / 'runs.html'}"
        )
    compared = compare_runs(options.runs)
    if not options.json:
        print_lines(compared.lines(terminal_width(), shows_all=options.all))
    if options.html is not None:
        write_report(options.runs, options.html)
        if not options.json:
            print(f"\nwritten to {options.html}")
    # Metrics do not count: two runs of the same code and arguments may differ in them.
    code = NOT_AS_IT_SHOULD_BE if compared.differences() else ALL_IS_WELL
    return Answer(code, compared.as_json())
