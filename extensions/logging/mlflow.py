"""Every metric of the training in MLflow, sent from ``metrics.sqlite``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.sending.following import FollowsStore
from train_manager.runs.sending.sink import Sink


@recorded
class MLflow(FollowsStore):
    """Send all metrics of ``MetricStore`` to MLflow, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), MLflow(experiment="digits")]

    MLflow cannot take points back, so each stretch of the training between two resumes is a run of MLflow. Its tags
    ``run_id`` and ``from_step`` say where it belongs, and ``until_step`` how much of it counts. Its status is FAILED
    after an error, and KILLED after a signal (after a kill, once a resume or an export has looked); its parameters are
    those of the ``TrainManager``, its extensions and its optimizers, as the record of the run has them. Histograms and
    matrices, which MLflow does not know, are left out. Metrics that were not sent as the run ends are sent by a
    resume, or by ``train-manager export RUN --to mlflow``; if the training was given a ``uri``, set
    ``MLFLOW_TRACKING_URI`` there. The extension needs the package mlflow-skinny:
    ``pip install "train-manager[mlflow]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* runs of MLflow; ``sinks.json`` in ``train_dir``.

    Args:
        uri: where MLflow keeps its runs; None takes the variable ``MLFLOW_TRACKING_URI``, or else the file
            ``mlflow.sqlite`` in the ``train_dir``.
        experiment: the name of the experiment; None is "train_manager".

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: mlflow is not installed.
    """

    sink: ClassVar[str] = "mlflow"  # its name in sinks.json and in `train-manager export --to`
    package: ClassVar[str] = "mlflow"  # the package that must be installed as a run begins

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self.uri, self.experiment = uri, experiment

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> Sink:
        """Return the object that sends."""
        # Imported here, because the module imports mlflow, which is optional.
        from train_manager.runs.sending.mlflow_runs import MlflowRuns

        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{train_dir / 'mlflow.sqlite'}"
        # `train-manager export` makes this extension without arguments; `state`, which the sink of the training has
        # saved in sinks.json, has the arguments of the training.
        experiment = self.experiment or state.get("experiment", "train_manager")
        return MlflowRuns(uri, experiment, train_dir, state, self.known_notes)
