"""A sink with runs of Weights & Biases. It is imported where wandb is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, final

import wandb

from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.sending.sink import file_of, histogram_of, scalars_of, tag_of


@final
class WandbRuns:
    """A sink with a run of W&B for each segment.

    Args:
        project: of the runs.
        mode: "offline" or "online".
        train_dir: the folder of the training.
    """

    def __init__(self, project: str, mode: str, train_dir: Path) -> None:
        self._project, self._mode, self._train_dir = project, mode, train_dir
        self._run: Any = None  # the run of W&B that is open
        self._segment: tuple[str, int] | None = None  # the run_id and the segment that it is of

    def cut(self, step: int) -> bool:
        """Do nothing: W&B cannot delete points, and the next rows belong to a new run of W&B."""
        return False

    def begin(self, segment: NewSegment) -> None:
        """Do nothing: each row names its segment, and ``send`` opens the run of it."""

    def send(self, rows: Sequence[NewRow]) -> None:
        """Log rows, with one call for neighbouring rows of one step."""
        for (run, segment, step), several in groupby(rows, lambda row: (row.run, row.segment, row.step)):
            self._open(run, segment)
            found = {tag: value for row in several for tag, value in self._values(row)}
            if found:
                self._run.log({"step": step, **found})

    def flush(self) -> dict[str, Any]:
        """Return the project; a run is found again by its name."""
        return {"project": self._project}

    def close(self) -> None:
        """Finish the run that is open."""
        run, self._run, self._segment = self._run, None, None
        if run is not None:
            run.finish()

    def _open(self, run: str, segment: int) -> None:
        """Open the run of a segment."""
        if self._segment == (run, segment):
            return
        self.close()
        self._run = wandb.init(
            project=self._project,
            mode=self._mode,
            dir=self._train_dir,
            group=run,
            id=f"{run}-{segment}",
            config={"run_id": run, "segment": segment, "train_dir": str(self._train_dir)},
            # An offline run cannot ask the server for an earlier one.
            resume="allow" if self._mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False),
        )
        # W&B counts calls of `log` as steps; with this its charts have the steps of the training on the x axis.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self._segment = run, segment

    def _values(self, row: NewRow) -> Iterator[tuple[str, Any]]:
        yield from scalars_of(row)
        tag, value = tag_of(row.series), row.value
        if isinstance(value, str):
            yield tag, value
        elif found := histogram_of(row):
            # numpy orders a histogram as (counts, edges).
            yield tag, wandb.Histogram(np_histogram=found[::-1])
        elif (path := file_of(row, self._train_dir)) and path.suffix == ".png":
            yield tag, wandb.Image(str(path))
