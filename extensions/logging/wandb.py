"""Every metric of the training in Weights & Biases, handed on by ``MetricStore``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.store.delivery import Connection, Ending, Sent
from train_manager.runs.store.rows import Histogram, StoredRow
from train_manager.runs.store.schema import tag_of
from train_manager.runs.store.sinks import Sink, file_of, tagged_numbers
from train_manager.validation import require_one_of


@recorded
class WandB(Sink):
    """Hand all metrics of ``MetricStore`` to Weights & Biases, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), WandB(project="digits")]

    By default the metrics are kept in ``train_dir/wandb``, and ``wandb sync`` sends them from there. As points cannot
    be taken back, a training that resumes is a run of W&B of its own, with the run_id as its id. The axis of all
    metrics is ``step``. ``train-manager export RUN --to wandb`` hands all metrics of a run on again, as a run of W&B
    whose id ends in ``-export``. The extension needs the package wandb: ``pip install "train-manager[wandb]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* ``wandb`` in ``train_dir``.

    Args:
        project: the name of the project; None is "train_manager".
        mode: "offline", or "online" to send at once.

    Raises:
        InputError: ``mode`` is neither; or as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: wandb is not installed.
    """

    tool: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __init__(self, project: str | None = None, mode: str = "offline") -> None:
        self.project, self.mode = project, require_one_of(mode, "mode", ("offline", "online"))

    def connect(self, sent: Sent) -> Connection:
        """Open a run of W&B, or go on with it."""
        import wandb  # optional

        run = sent.part.run
        options: dict[str, Any] = {
            "project": self.project or "train_manager",
            "mode": self.mode,
            "dir": sent.train_dir,
            "group": run,
            "id": f"{run}-export" if sent.mode == "export" else run,
            "config": {"run_id": run, "train_dir": str(sent.train_dir)},
            # An offline run cannot ask the server for an earlier one.
            "resume": "allow" if self.mode == "online" else None,
            "reinit": "create_new",
        }
        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, save_code=False)
        made = wandb.init(**options, settings=quiet)
        # W&B counts calls of `log` as steps; with this its charts have the steps of the training on the x axis.
        made.define_metric("step")
        made.define_metric("*", step_metric="step")
        return WandbRun(made, sent.train_dir)


@final
class WandbRun:
    """A run of W&B that is open.

    Args:
        run: what ``wandb.init`` has returned.
        train_dir: the folder of the run, in which its pictures are.
    """

    def __init__(self, run: Any, train_dir: Path) -> None:
        self._run, self._train_dir = run, train_dir

    def send(self, rows: Sequence[StoredRow]) -> None:
        """Log rows, with one call for neighbouring rows of one step."""
        for step, several in groupby(rows, lambda row: row.step):
            if found := {tag: value for row in several for tag, value in self._values(row)}:
                self._run.log({"step": step, **found})

    def close(self, ending: Ending | None) -> None:
        """Finish the run."""
        self._run.finish()

    def _values(self, row: StoredRow) -> Iterator[tuple[str, Any]]:
        import wandb

        yield from tagged_numbers(row)
        tag, value = tag_of(row.series), row.value
        if isinstance(value, str):
            yield tag, value
        elif isinstance(value, Histogram):
            ordered: Any = value.counts, value.edges  # as numpy orders them
            yield tag, wandb.Histogram(np_histogram=ordered)
        elif (path := file_of(row, self._train_dir)) and path.suffix == ".png":
            yield tag, wandb.Image(str(path))
