"""The page about a run: one file of HTML that needs no server, and loads nothing from other hosts."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, final

from jinja2 import Environment, StrictUndefined, Template

from train_manager._version import __version__
from train_manager.files.atomic import quote_path, replace_file
from train_manager.reporting.values import plural
from train_manager.runs.comparing.compare_runs import compare
from train_manager.runs.comparing.comparison import TITLES, Comparison
from train_manager.runs.comparing.measured import Measured
from train_manager.runs.comparing.run_facts import RunFacts
from train_manager.runs.comparing.run_list import outcome_in_short
from train_manager.runs.record.run_file import has_runs, outcome_of
from train_manager.runs.record.run_paths import FoundRun, labels_of, named_run, nearby, short_id
from train_manager.runs.record.run_summary import Best
from train_manager.runs.showing.clocks import clock
from train_manager.runs.showing.curves import Plot, as_json, shown_curves
from train_manager.runs.showing.layers import shown_layers
from train_manager.runs.showing.results import last_texts, pictures, shown_classes
from train_manager.runs.showing.summary_facts import facts
from train_manager.runs.store.schema import FILE as METRICS
from train_manager.telling.errors import InputError

FILE: Final = "report.html"
LONG: Final = 80  # characters of a value; a longer value is shown when a reader opens it
HERE: Final = "train_manager.runs.showing"  # the package with the scripts and styles


@final
class ShownRun:
    """A run on a page, from its folder, which may have metrics only.

    Args:
        train_dir: its folder.
        found: its record; None if there is no file of it.
    """

    def __init__(self, train_dir: Path, found: FoundRun | None) -> None:
        self.train_dir, self.found = train_dir, found
        self.measured = Measured(train_dir, found.id if found else None)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended; that of a run without a file is never known."""
        return self.found is not None and not outcome_of(self.found.entry).startswith("running")


def run_to_show(path: str | os.PathLike[str]) -> ShownRun:
    """Return the run that a path means, as ``compare`` reads it; metrics alone suffice.

    Raises:
        InputError: there is none.
        CheckpointError: its file is damaged.
    """
    folder = Path(path)
    if folder.is_dir() and not has_runs(folder):
        if (folder / METRICS).is_file():
            return ShownRun(folder, None)
        if not nearby(folder):
            what = f"{quote_path(folder)} has neither run-<id>.json nor {METRICS}, so there is nothing to report"
            cure = "RunRecord and MetricStore, two of the default extensions, write them"
            raise InputError(what, name="run", asked_by="report", cure=cure)
    found = named_run(path)
    return ShownRun(found.train_dir, found)


def names_of(runs: Sequence[ShownRun]) -> list[str]:
    """Return short and different names of runs, for a page and for files."""
    return labels_of([(run.train_dir, short_id(run.found) if run.found else "") for run in runs])


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
    labels, measured = names_of(runs), [run.measured for run in runs]
    compared, notes = _compare(runs, labels)
    plots, maps, results = _measured(runs, labels, [run.best for run in compared.runs] if compared else ())
    clocks = [clock(of_run) for of_run in measured]
    return _template().render(
        script=_script(),
        style=_style(),
        data={"runs": labels, "clocks": clocks, "plots": as_json(plots), "maps": maps, "renews": renews},
        labels=labels,
        made=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        notes=notes,
        summaries=[_summary(run, number, compared) for number, run in enumerate(runs)],
        has_metrics=bool(plots or maps),
        has_layers=any(plot.section == "layers" for plot in plots) or any(one["section"] == "layers" for one in maps),
        has_norms=any(one.get("roots") for one in maps) or any(one.root for plot in plots for one in plot.curves),
        **results,
        runs=compared.runs if compared else (),
        compared=compared,
        tables={title: compared.table(title) for title in TITLES} if compared else {},
        files=compared.differing_files() if compared else [],
        version=__version__,
    )


def _measured(
    runs: Sequence[ShownRun], labels: Sequence[str], best: Sequence[Best | None]
) -> tuple[list[Plot], list[dict[str, Any]], dict[str, list[Any]]]:
    """Return the plots and the heat maps of runs; and their results, pictures and texts, by these names."""
    plots, maps = shown_curves([run.measured for run in runs], best), list[dict[str, Any]]()
    found: dict[str, list[Any]] = {"results": [], "pictures": [], "texts": []}
    for number, (run, label) in enumerate(zip(runs, labels, strict=True)):
        reader, id_, of = run.measured.reader, run.measured.run, f" of {label}" if len(runs) > 1 else ""
        if reader is None:
            continue
        arrays = reader.arrays(run=id_)
        lines, of_layers = shown_layers(number, arrays, reader.histograms(run=id_), run.measured.small, of)
        classes, of_classes = shown_classes(number, arrays, of)
        plots += lines
        maps += of_layers + of_classes
        shown = [one._replace(name=one.name + of) for one in pictures(run.train_dir, reader, id_)]
        # A text that is the caption of a picture is not shown again.
        captions = {one.text for one in shown}
        texts = [(name + of, step, text) for name, step, text in last_texts(reader, id_) if text not in captions]
        for name, values in ("results", classes), ("pictures", shown), ("texts", texts):
            found[name] += values
    return plots, maps, found


def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # nan is not valid JSON: the browser would refuse all of the data. An error here names the fault at once.
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    # The page's Content-Security-Policy allows only the scripts and styles with these hashes.
    environment.filters["sha256"] = _hash
    environment.globals.update(plural=plural, LONG=LONG)
    return environment.from_string(_text("tables.html") + _text("report.html"))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _text(name: str) -> str:
    return files(HERE).joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    own = "\n".join(map(_text, ("plots.js", "heat_map.js", "report.js")))
    return f"/*! uPlot:\n{_text('uPlot.LICENSE.txt')}*/\n{_text('uPlot.iife.min.js')}\n{own}"


def _style() -> str:
    return _text("uPlot.min.css") + _text("report.css")


def _compare(runs: Sequence[ShownRun], labels: Sequence[str]) -> tuple[Comparison | None, list[str]]:
    """Return the records of the runs side by side, and notes about files that could not be read."""
    without = [label for label, run in zip(labels, runs, strict=True) if run.found is None]
    if without:
        return None, [f"{', '.join(without)}: there is no run-<id>.json, so only metrics are shown"]
    pairs = zip(runs, labels, strict=True)
    compared = compare([RunFacts(run.found, label, run.measured) for run, label in pairs if run.found])
    return compared, list(compared.notes)


def _summary(run: ShownRun, number: int, compared: Comparison | None) -> tuple[Any, ...]:
    """Return label, facts, outcome with its message, and findings of a run."""
    if run.found is None or compared is None:
        return names_of([run])[0], [("folder", str(run.train_dir), "")], "", ()
    summary = compared.runs[number]
    # The short outcome may be the whole of it.
    message = summary.outcome if outcome_in_short(summary.outcome) != summary.outcome else ""
    metrics = {name: cells[number] for name, cells in compared.metrics.items()}
    return summary.label, [*facts(summary, run.found.entry, metrics)], message, compared.findings[number]
