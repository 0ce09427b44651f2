"""``train-manager report``: a run as a page, or several runs side by side. It needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from train_manager.commands.exit_codes import ALL_IS_WELL


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Write a page with the summary, the curves, the layers, the results and the record of a run, which refers to "
        "no other file. Each run is a train_dir, of which the last run that trained is taken, or TRAIN_DIR#RUN_ID, of "
        "which the first digits suffice; several runs are shown side by side."
    )
    command = commands.add_parser("report", help="write a page about a run", description=text)
    command.set_defaults(command=report)
    command.add_argument("runs", metavar="RUN", nargs="+", help="a train_dir, or TRAIN_DIR#RUN_ID")
    text = "where to (default: report.html in the train_dir; of several runs, in the present folder)"
    command.add_argument("--html", type=Path, metavar="FILE", help=text)
    text = "write it anew every so many seconds until the runs have ended; the page in a browser renews itself"
    command.add_argument("--every", type=float, metavar="SECONDS", help=text)
    command.add_argument("--points", type=Path, metavar="FILE", help="write the curves too, as lines of JSON")


def report(options: argparse.Namespace) -> int:
    """Write a page, once or until the runs have ended."""
    from train_manager.runs.showing.points_file import point_lines
    from train_manager.runs.showing.renewing import keep_writing
    from train_manager.runs.showing.report_page import default_target, write_page, write_text
    from train_manager.runs.showing.shown_run import run_to_show
    from train_manager.telling.errors import InputError

    # Refused before the files are read: a page of a long run takes seconds.
    for name, path, file in ("html", options.html, "run.html"), ("points", options.points, "run.jsonl"):
        if path is not None and path.is_dir():
            raise InputError(f"{path} is a folder", name=name, cure=f"name a file: --{name} {path / file}")
    runs = [run_to_show(run) for run in options.runs]
    target = options.html or default_target(runs)
    if options.every is None:
        write_page(runs, target)
    else:
        keep_writing(options.runs, target, options.every)
    # After the page, which `keep_writing` finishes only as the runs end.
    if options.points is not None:
        write_text(options.points, "".join(point_lines(runs)), "points")
        print(f"points written to {options.points}")
    print(f"written to {target}")
    return ALL_IS_WELL
