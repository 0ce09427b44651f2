"""Every metric of the training in Weights & Biases, handed on from ``metrics.sqlite``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink import Sink
from train_manager.validation import require_one_of


@recorded
class WandB(FollowsStore):
    """Hand all metrics of ``MetricStore`` to Weights & Biases, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), WandB(project="digits")]

    By default the metrics are kept in ``train_dir/wandb``, and ``wandb sync`` sends them from there. As points cannot
    be taken back, each stretch of the training between two resumes is a run of W&B; the runs of one training are a
    group. The axis of all metrics is ``step``. Metrics that were not handed on as the run ends are handed on by
    ``train-manager export RUN --to wandb``, or by a resume. The extension needs the package wandb:
    ``pip install "train-manager[wandb]"``.

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

    sink: ClassVar[str] = "wandb"  # its name in sinks.json and in `train-manager export --to`
    package: ClassVar[str] = "wandb"  # the package that must be installed as a run begins

    def __init__(self, project: str | None = None, mode: str = "offline") -> None:
        self.project, self.mode = project, require_one_of(mode, "mode", ("offline", "online"))

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return the object that hands metrics on."""
        # Imported here, because the module imports wandb, which is optional.
        from train_manager.runs.sending.wandb_runs import WandbRuns

        # `train-manager export` makes this extension without arguments; `state`, which the sink of the training has
        # saved in sinks.json, has the arguments of the training.
        project = self.project or state.get("project", "train_manager")
        return WandbRuns(project, self.mode, train_dir)
