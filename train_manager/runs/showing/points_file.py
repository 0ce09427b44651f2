"""The curves of runs as lines of JSON, for other programs to draw."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from train_manager.runs.showing.shown_curves import shown_curves
from train_manager.runs.showing.shown_run import ShownRun, names_of
from train_manager.runs.showing.stored_metrics import read_metrics


def point_lines(runs: Sequence[ShownRun]) -> Iterator[str]:
    """Yield a line for each point: run, plot, curve, step and value; also "low" and "high" if the value is a mean."""
    names = names_of(runs)
    for plot in shown_curves([read_metrics(run) for run in runs]):
        for curve in plot.curves:
            ends = zip(curve.low, curve.high, strict=True) if curve.low else None
            for step, value in zip(curve.x, curve.y, strict=True):
                line: dict[str, Any] = {"run": names[curve.run], "plot": plot.name, "curve": curve.name}
                line |= {"step": step, "value": value}
                if ends is not None:
                    line["low"], line["high"] = next(ends)
                yield json.dumps(line, allow_nan=False) + "\n"
