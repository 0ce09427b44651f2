"""The history of a training: a row of metrics for each epoch and for each evaluation."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast, final

from train_manager.metrics.history_rows import PLACE, Row, metrics_of
from train_manager.reporting.figures import for_notebook, panels_figure
from train_manager.reporting.panels import TRAINING_LOOK, Line, Look, Panel, Panels, in_rows, looks, scale_for
from train_manager.reporting.results import EvalResult
from train_manager.reporting.values import html_table, plural, short_name, text_of
from train_manager.validation import require_one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Points = list[tuple[float, float]]

PANEL_WIDTH, PANEL_HEIGHT = 460, 310  # pixels
MOST_ROWS = 20  # a notebook shows the last rows, up to this number


@final
class History:
    """The metrics of each epoch and of each evaluation, in the order in which they were measured.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(epochs=2)
    >>> result = tm.train()
    >>> tm.history
    History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)
    >>> [(row["epoch"], row["step"], round(row["loss"], 3)) for row in tm.history.epochs]
    [(1, 3, 0.7), (2, 6, 0.676)]
    >>> [(row["epoch"], row["set"], round(row["loss"], 3)) for row in tm.history.evaluations]
    [(0, 'valid', 0.698), (1, 'valid', 0.687), (2, 'valid', 0.654)]

    Attributes:
        epochs: a row for each epoch: "epoch" (its number, from 1), "step" (``step_num`` at its end), "seconds", and
            what the fixture ``train_result`` had: "loss" (the mean over its examples, if batches have a loss; of
            several optimizers without a loss together "losses/<name>" of each) and training metrics. "phase" is its
            name if the epoch is of a phase. "partial" is True if the epoch was left before its end; its row is replaced
            if it is trained further, or anew.
        evaluations: a row for each set of each evaluation: "epoch" (epochs completed), "step", "set", and its result,
            as ``{"loss": 0.31, "accuracy": 0.9}``; "phase" as above. "standalone" is True for ``tm.eval()`` outside
            of a run, which is of no training.
    """

    def __init__(self) -> None:
        self.epochs: list[Row] = []
        self.evaluations: list[Row] = []

    def add_epoch(self, row: Row, replaces: int | None = None) -> int:
        """Add the row of an epoch, or of a part of it, and return where it is in ``epochs``.

        Args:
            row: the place and the metrics.
            replaces: where the row of an earlier part of this epoch is.
        """
        if replaces is not None:
            # A slice: the program may have emptied the list since, and an index would raise.
            del self.epochs[replaces : replaces + 1]
        self.epochs.append(row)
        return len(self.epochs) - 1

    def add_evaluation(self, results: Mapping[str, EvalResult], place: Row) -> None:
        """Add an evaluation of one or several sets; each row begins with ``place``."""
        for name, result in results.items():
            self.evaluations.append({**place, "set": name, **metrics_of(result)})

    def evaluation_at(self, step: int) -> dict[str, Row]:
        """Return the last result of each set that was evaluated at a step of the training."""
        rows = (row for row in self.evaluations if row["step"] == step and "standalone" not in row)
        return {row["set"]: metrics_of(row) for row in rows}

    # ---- reading -------------------------------------------------------------------------------------------------

    def by_epoch(self) -> list[Row]:
        """Return a row for each epoch, with the last results of each set in this epoch: "valid loss", "valid accuracy".

        Evaluations before the first epoch are left out, and so are standalone ones.
        """
        rows, before = [], dict[str | None, int]()  # by phase: a phase may be between two parts of an epoch
        for epoch in self.epochs:
            row, phase = dict(epoch), epoch.get("phase")
            for found in self.evaluations:
                is_of_epoch = before.get(phase, 0) < found["step"] <= epoch["step"] and found.get("phase") == phase
                if is_of_epoch and "standalone" not in found:
                    row.update({f"{found['set']} {name}": value for name, value in metrics_of(found).items()})
            rows.append(row)
            before[phase] = epoch["step"]
        return rows

    def to_pandas(self, rows: str = "epochs") -> DataFrame:
        """Return a data frame (``pip install "train-manager[pandas]"``).

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager(epochs=2)
        >>> result = tm.train()
        >>> frame = tm.history.to_pandas()
        >>> print(frame[["loss", "valid loss"]].round(3).to_string(index_names=False))
            loss  valid loss
        1  0.700       0.687
        2  0.676       0.654

        Args:
            rows: "epochs": a row for each epoch, whose index is its number, with "step", "seconds", "loss" and metrics
                of the training, and those of each set as "valid loss"; or "evaluations": a row for each set of each
                evaluation.

        Raises:
            InputError: ``rows`` is neither.
            ImportError: pandas is not installed.
        """
        require_one_of(rows, "rows", ("epochs", "evaluations"))
        pandas = _require_pandas()
        if rows == "evaluations":
            return cast("DataFrame", pandas.DataFrame(self.evaluations))
        found = self.by_epoch()
        keys = {"epoch": 0, "step": 0, **{key: 0 for row in found for key in row}}
        columns = sorted(keys, key=lambda key: PLACE.index(key) if key in PLACE else len(PLACE))
        frame: DataFrame = pandas.DataFrame(found, columns=columns).set_index("epoch")
        return frame

    def plot(self) -> Figure:
        """Return a matplotlib figure: a panel for the loss and for each metric, with a line for each set.

        A notebook shows it; elsewhere, ``tm.history.plot().savefig("history.png")``.
        """
        place, x_label = self._axis()
        panels: dict[str, dict[str, Points]] = {}
        standing = [row for row in self.evaluations if "standalone" not in row]
        for row in [*self.epochs, *standing]:
            for name, value in metrics_of(row).items():
                lines = panels.setdefault(name, {})
                lines.setdefault(row.get("set", "training"), []).append((place(row["step"]), value))
        sets = sorted(dict.fromkeys(name for lines in panels.values() for name in lines), key="training".__ne__)
        others = looks()
        look_of = {name: TRAINING_LOOK if name == "training" else next(others) for name in sets}
        rows = in_rows(PANEL_HEIGHT, [_panel(name, lines, look_of, x_label) for name, lines in panels.items()])
        legend = [(short_name(name), look) for name, look in look_of.items()]
        width = 60 + PANEL_WIDTH * max([1, *(len(in_row) for _, in_row in rows)])
        return for_notebook(panels_figure(Panels(rows, legend, width)))

    def __repr__(self) -> str:
        text = f"{plural(len(self.epochs), 'epoch')}, {plural(len(self.evaluations), 'evaluation')}"
        last = metrics_of(self.by_epoch()[-1]) if self.epochs else {}
        metrics = ", ".join(f"{name} {text_of(value)}" for name, value in last.items())
        return f"History({text}; last epoch: {metrics})" if metrics else f"History({text})"

    def _repr_html_(self) -> str:
        rows = self.by_epoch()
        names = list(dict.fromkeys(name for row in rows for name in metrics_of(row)))
        cells = [[str(row["epoch"]), str(row["step"]), *(text_of(row.get(name, "")) for name in names)] for row in rows]
        caption = f"the last {MOST_ROWS} of {len(rows)} epochs" if len(rows) > MOST_ROWS else ""
        return html_table(["epoch", "step", *names], cells[-MOST_ROWS:], caption)

    def _axis(self) -> tuple[Callable[[int], float], str]:
        """Return where a step is on the axis, and the name of the axis: epochs if one is complete."""
        ends = [row["step"] for row in self.epochs if "partial" not in row]
        if not ends:
            return float, "batches"
        steps = [0, *ends]

        def place(step: int) -> float:
            epoch = min(bisect_left(ends, step), len(ends) - 1)  # steps after the last epoch count as if it went on
            length: int = steps[epoch + 1] - steps[epoch]
            return float(epoch + (step - steps[epoch]) / max(1, length))

        return place, "epochs"

    # ---- saved state ---------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all rows."""
        return {"epochs": copy.deepcopy(self.epochs), "evaluations": copy.deepcopy(self.evaluations)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.epochs = copy.deepcopy(list(state["epochs"]))
        self.evaluations = copy.deepcopy(list(state["evaluations"]))


def _panel(name: str, lines: Mapping[str, Points], look_of: Mapping[str, Look], x_label: str) -> Panel:
    heights = [y for points in lines.values() for _, y in points]
    scale = scale_for(heights, heights) if name == "loss" else "linear"
    drawn = [Line(look, *map(list, zip(*lines[of], strict=True))) for of, look in look_of.items() if of in lines]
    return Panel(x_label, name, scale, drawn)


def _require_pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f'to_pandas needs pandas ({error}): pip install "train-manager[pandas]"') from error
    return pandas
