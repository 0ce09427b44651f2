"""The report of a run: one file of HTML that needs no server, and loads nothing from other hosts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from train_manager._version import __version__
from train_manager.files.atomic import quote_path, replace_file
from train_manager.reporting.values import plural
from train_manager.runs.comparing.compare_runs import Comparison, compare_runs
from train_manager.runs.showing.compared_tables import files_of, tables_of
from train_manager.runs.showing.shown_curves import as_json, clock, shown_curves
from train_manager.runs.showing.shown_layers import shown_layers
from train_manager.runs.showing.shown_results import Classes, Picture, pictures, shown_classes, texts
from train_manager.runs.showing.shown_run import ShownRun, names_of, run_to_show
from train_manager.runs.showing.stored_metrics import read_metrics
from train_manager.runs.showing.summary_facts import facts, message_of, metrics_of
from train_manager.telling.errors import InputError

FILE: Final = "report.html"
LONG: Final = 80  # characters of a value; a longer value is shown when a reader opens it
HERE: Final = "train_manager.runs.showing"  # the package with the scripts and styles


def write_report(
    runs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], html: str | os.PathLike[str] | None = None
) -> Path:
    """Write a page about a run, or about several side by side, and return where it is.

    >>> import tempfile
    >>> from train_manager.extensions import MetricStore, RunRecord
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), RunRecord(), epochs=2, train_dir=folder).train()
    >>> write_report(folder).name
    'report.html'

    It is one file, which asks no other host for anything: outcome and best metrics, curves that can be zoomed, picked
    and smoothed, layers, results of classes, code, parameters, environment and data.

    Args:
        runs: each a ``train_dir``, of which the last run that trained is taken, or ``train_dir#3f2a`` with the
            beginning of a run_id.
        html: the file; ``report.html`` in the ``train_dir`` by default, of several runs in the present folder.

    Raises:
        InputError: there is no such run, a file of it cannot be read, or the page cannot be written.
        CheckpointError: the file of a run is damaged.
    """
    shown = [run_to_show(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    target = default_target(shown) if html is None else Path(html)
    write_page(shown, target)
    return target


def default_target(runs: Sequence[ShownRun]) -> Path:
    """Return the file of a page by default."""
    return (runs[0].train_dir if len(runs) == 1 else Path()) / FILE


def write_page(runs: Sequence[ShownRun], target: Path, renews: float | None = None) -> None:
    """Write the page; a reader finds the old page or the new one, never half of one.

    Args:
        runs: what it shows.
        target: the file.
        renews: after how many seconds it loads itself again; None if it stays as it is.

    Raises:
        InputError: a file of a run cannot be read, or the page cannot be written.
    """
    write_text(target, report_page(runs, renews), "html")


def write_text(target: Path, text: str, option: str) -> None:
    """Write a file that a user has named by an option.

    Raises:
        InputError: it cannot be written.
    """
    try:
        replace_file(target, text.encode(errors="backslashreplace"))
    except OSError as error:
        what = f"{quote_path(target)} cannot be written: {error.strerror}"
        raise InputError(what, name=option, asked_by="report", cure=f"name another file: --{option} FILE") from error


def report_page(runs: Sequence[ShownRun], renews: float | None = None) -> str:
    """Return the page of a run, or of several side by side.

    Args:
        runs: what it shows.
        renews: after how many seconds it loads itself again; None if it stays as it is.
    """
    stored = [read_metrics(run) for run in runs]
    compared, notes = _compare(runs)
    labels = names_of(runs)
    plots, maps, results = shown_curves(stored), list[dict[str, Any]](), list[Classes]()
    shown, written = list[Picture](), list[tuple[str, int, str]]()
    for number, (run, label, metrics) in enumerate(zip(runs, labels, stored, strict=True)):
        of = f" of {label}" if len(runs) > 1 else ""
        lines, of_layers = shown_layers(number, metrics, of)
        classes, of_classes = shown_classes(number, metrics, of)
        plots += lines
        results += classes
        maps += of_layers + of_classes
        shown += [one._replace(name=one.name + of) for one in pictures(run.train_dir, metrics)]
        written += [(name + of, step, text) for name, step, text in texts(metrics)]
    clocks = [clock(metrics) for metrics in stored]
    data = {"runs": labels, "clocks": clocks, "plots": as_json(plots), "maps": maps, "renews": renews}
    script, style = _script(), _text("uPlot.min.css") + _text("report.css")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # nan is not valid JSON: the browser would refuse all of the data. An error here names the fault at once.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    # The page's Content-Security-Policy allows only the scripts and styles with these hashes.
    environment.filters["sha256"] = _hash
    environment.globals.update(plural=plural, LONG=LONG, runs=compared.runs if compared else ())
    return environment.from_string(_text("tables.html") + _text("report.html")).render(
        script=script,
        style=style,
        data=data,
        labels=labels,
        made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        notes=notes,
        summaries=[
            (
                labels[number],
                [*facts(run, metrics_of(compared, number))],
                message_of(compared, number),
                compared.findings[number] if compared else (),
            )
            for number, run in enumerate(runs)
        ],
        has_metrics=bool(plots or maps),
        has_layers=any(plot.section == "layers" for plot in plots) or any(one["section"] == "layers" for one in maps),
        has_norms=any(one.get("roots") for one in maps) or any(one.root for plot in plots for one in plot.curves),
        results=results,
        pictures=shown,
        # A text that is the caption of a picture is not shown again.
        texts=[one for one in written if one[2] not in {picture.text for picture in shown}],
        compared=compared,
        tables={table.title: table for table in tables_of(compared)} if compared else {},
        files=files_of(compared) if compared else [],
        version=__version__,
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _text(name: str) -> str:
    return files(HERE).joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    own = "\n".join(map(_text, ("plots.js", "heat_map.js", "report.js")))
    return f"/*! uPlot:\n{_text('uPlot.LICENSE.txt')}*/\n{_text('uPlot.iife.min.js')}\n{own}"


def _compare(runs: Sequence[ShownRun]) -> tuple[Comparison | None, list[str]]:
    """Return the records of the runs side by side, and notes about files that could not be read."""
    if not all(run.found for run in runs):
        without = ", ".join(label for label, run in zip(names_of(runs), runs, strict=True) if not run.found)
        return None, [f"{without}: there is no run-<id>.json, so only metrics are shown"]
    compared = compare_runs([f"{run.train_dir}#{run.found.id}" for run in runs if run.found])
    return compared, list(compared.notes)
