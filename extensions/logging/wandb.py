"""Every figure of the training in Weights & Biases, handed on from ``metrics.sqlite``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.following import FollowsStore
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.sink import file_of, histogram_of, scalars_of, tag_of
from train_manager.validation import require_one_of


@recorded
class WandB(FollowsStore):
    """Hand all that ``MetricStore`` stores to Weights & Biases, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), WandB(project="digits")]

    By default it is kept in ``train_dir/wandb``, and ``wandb sync`` sends it from there. As points cannot be taken
    back, each stretch of the training between two resumes is a run of W&B; those of one training are a group. The axis
    of all figures is ``step``. What was not handed on as the run ends is so by ``train-manager export RUN --to wandb``,
    or by a resume. It needs the package wandb: ``pip install "train-manager[wandb]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* ``wandb`` and ``sinks.json`` in ``train_dir``.

    Args:
        project: the name of the project; None is "train_manager".
        mode: "offline", or "online" to send at once.

    Raises:
        InputError: ``mode`` is neither; or as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: wandb is not installed.
    """

    sink: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __init__(self, project: str | None = None, mode: str = "offline") -> None:
        self.project, self.mode = project, require_one_of(mode, "mode", ("offline", "online"))

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> WandbRuns:
        """Return what hands on."""
        project = self.project or state.get("project", "train_manager")  # of the training, if it is exported
        return WandbRuns(project, self.mode, train_dir)


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
        self._run: Any = None
        self._segment: tuple[str, int] | None = None

    def begin(self, segment: NewSegment, is_new: bool) -> bool:
        """Do nothing: the rows of a segment tell of which they are."""
        return False

    def send(self, rows: Sequence[NewRow]) -> None:
        """Log rows, with one call for those next to each other that are of one step."""
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
        import wandb

        self.close()
        self._run = wandb.init(
            project=self._project,
            mode=self._mode,
            dir=self._train_dir,
            group=run,
            id=f"{run}-{segment}",
            config={"run_id": run, "segment": segment, "train_dir": str(self._train_dir)},
            resume="allow" if self._mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        self._segment = run, segment

    def _values(self, row: NewRow) -> Iterator[tuple[str, Any]]:
        import wandb

        yield from scalars_of(row)
        tag, value = tag_of(row.series), row.value
        if isinstance(value, str):
            yield tag, value
        elif found := histogram_of(row):
            yield tag, wandb.Histogram(np_histogram=found[::-1])
        elif (path := file_of(row, self._train_dir)) and path.suffix == ".png":
            yield tag, wandb.Image(str(path))
