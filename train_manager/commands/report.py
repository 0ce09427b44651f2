"""``train-manager report``: a run as a page, or several runs side by side. It needs no torch."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL

if TYPE_CHECKING:
    from train_manager.runs.showing.page import ShownRun


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


def report(options: argparse.Namespace) -> Answer:
    """Write a page, once or until the runs have ended."""
    from train_manager.runs.showing.page import default_target, run_to_show, write_page, write_text
    from train_manager.telling.errors import InputError

    # Refused before the files are read: a page of a long run takes seconds.
    for name, path, file in ("html", options.html, "run.html"), ("points", options.points, "run.jsonl"):
        if path is not None and path.is_dir():
            raise InputError(f"{path} is a folder", name=name, cure=f"name a file: --{name} {path / file}")
    runs = [run_to_show(run) for run in options.runs]
    target = options.html or default_target(runs)
    if options.every is not None:
        renew(options.runs, target, options.every)
        runs = [run_to_show(run) for run in options.runs]
    # Also after a page that renews itself: the last one would load itself again for ever.
    write_page(runs, target)
    if options.points is not None:
        write_text(options.points, "".join(point_lines(runs)), "points")
    if not options.json:
        print(
            *([] if options.points is None else [f"points written to {options.points}"]),
            f"written to {target}",
            sep="\n",
        )
    return Answer(ALL_IS_WELL, {"html": str(target), "points": options.points and str(options.points)})


def renew(paths: Sequence[str], target: Path, seconds: float) -> None:
    """Write a page that loads itself again, anew after each period until all runs have ended, or Ctrl-C.

    Args:
        paths: of the runs; of one without its file it is never known that it has ended.
        target: where the page is written.
        seconds: of a period.

    Raises:
        InputError: the period is not above zero, or there is no such run.
    """
    from train_manager.runs.showing.page import run_to_show, write_page
    from train_manager.telling.errors import InputError

    if not 0 < seconds < math.inf:
        what = f"a page cannot be renewed every {seconds:g} s"
        raise InputError(what, name="every", asked_by="report", cure="give some seconds: --every 10")
    with contextlib.suppress(KeyboardInterrupt):
        runs = [*map(run_to_show, paths)]
        while not all(run.has_ended for run in runs):
            write_page(runs, target, seconds)
            sleep(seconds)
            runs = [*map(run_to_show, paths)]


def point_lines(runs: Sequence[ShownRun]) -> Iterator[str]:
    """Yield a line for each point: run, plot, curve, step and value; also "low" and "high" if the value is a mean."""
    from train_manager.runs.showing.curves import shown_curves
    from train_manager.runs.showing.page import names_of

    names = names_of(runs)
    for plot in shown_curves([run.measured for run in runs]):
        for curve in plot.curves:
            place = {"run": names[curve.run], "plot": plot.name, "curve": curve.name}
            columns = {
                "step": curve.x,
                "value": curve.y,
                **({"low": curve.low, "high": curve.high} if curve.low else {}),
            }
            for point in zip(*columns.values(), strict=True):
                yield json.dumps({**place, **dict(zip(columns, point, strict=True))}, allow_nan=False) + "\n"
