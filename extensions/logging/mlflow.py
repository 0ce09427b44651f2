"""Every figure of the training in MLflow, sent from ``metrics.sqlite``."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.following import FollowsStore
from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.record.sink import file_of, scalars_of, tag_of

MOST_AT_ONCE: Final = 1000  # that MLflow takes in a call
LARGEST: Final = 2**62  # a step that a column of SQL holds


@recorded
class MLflow(FollowsStore):
    """Send all that ``MetricStore`` stores to MLflow, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), MLflow(experiment="digits")]

    MLflow cannot take points back, so each stretch of the training between two resumes is a run of MLflow. Its tags
    ``run_id`` and ``from_step`` tell where it belongs, and ``until_step`` how much of it counts. Histograms and
    matrices, which MLflow does not know, are left out. What was not sent as the run ends is sent by a resume, or by
    ``train-manager export RUN --to mlflow``; if the training was given a ``uri``, set ``MLFLOW_TRACKING_URI`` there. It
    needs the package mlflow-skinny: ``pip install "train-manager[mlflow]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* runs of MLflow; ``sinks.json`` in ``train_dir``.

    Args:
        uri: where MLflow keeps its runs; None is what its variable ``MLFLOW_TRACKING_URI`` says, or else the file
            ``mlflow.sqlite`` in the ``train_dir``.
        experiment: the name of the experiment; None is "train_manager".

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: mlflow is not installed.
    """

    sink: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self.uri, self.experiment = uri, experiment

    def make_sink(self, train_dir: Path, state: Mapping[str, Any]) -> MlflowRuns:
        """Return what sends."""
        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{train_dir / 'mlflow.sqlite'}"
        experiment = self.experiment or state.get("experiment", "train_manager")  # of the training, if it is exported
        return MlflowRuns(uri, experiment, train_dir, state)


@final
class MlflowRuns:
    """A sink with a run of MLflow for each segment; a row that is sent twice is one point there.

    Args:
        uri: where MLflow keeps its runs.
        experiment: their experiment.
        train_dir: the folder of the training.
        state: the runs of MLflow by segments, of the sink before.
    """

    def __init__(self, uri: str, experiment: str, train_dir: Path, state: Mapping[str, Any]) -> None:
        from mlflow.tracking import MlflowClient

        self._client, self._train_dir = MlflowClient(tracking_uri=uri), train_dir
        known = self._client.get_experiment_by_name(experiment)
        files = (train_dir / "mlflow").as_uri() if uri.startswith("sqlite") else None
        made = known.experiment_id if known else self._client.create_experiment(experiment, artifact_location=files)
        self._experiment, self._runs = made, dict[str, str](state.get("runs", {}))
        self._named = {"experiment": experiment}

    def begin(self, segment: NewSegment, is_new: bool) -> bool:
        """Make the run of a segment, and note in those before how much of them counts."""
        step, begun = segment.from_step, int(1000 * segment.began)
        if is_new and step is not None:
            self._note_until(step)
        name = f"{segment.run}-{segment.id}"
        if name not in self._runs:
            same = self._client.search_runs([self._experiment], f"tags.segment = '{name}'", max_results=1)
            tags = {"run_id": segment.run, "segment": name, "train_dir": str(self._train_dir)}
            tags |= {} if step is None else {"from_step": str(step)}
            # One that an error came after, before it was noted, is found again.
            found = same[0] if same else self._client.create_run(self._experiment, begun, tags, run_name=name)
            self._runs[name] = found.info.run_id
        return False

    def _note_until(self, step: int) -> None:
        for run in self._runs.values():
            until = self._client.get_run(run).data.tags.get("until_step")
            if until is None or int(until) > step:
                self._client.set_tag(run, "until_step", step)

    def send(self, rows: Sequence[NewRow]) -> None:
        """Send numbers in batches, and texts and files one by one."""
        from mlflow.entities import Metric

        metrics = defaultdict[str, list[Any]](list)
        for row in rows:
            run, step = self._runs[f"{row.run}-{row.segment}"], max(-LARGEST, min(LARGEST, row.step))
            metrics[run] += [Metric(key_of(tag), value, int(1000 * row.time), step) for tag, value in scalars_of(row)]
            if isinstance(row.value, str):
                self._client.log_text(run, row.value, f"{key_of(tag_of(row.series))}-{row.step}.txt")
            elif path := file_of(row, self._train_dir):
                self._client.log_artifact(run, str(path))
        for run, found in metrics.items():
            for first in range(0, len(found), MOST_AT_ONCE):
                self._client.log_batch(run, metrics=found[first : first + MOST_AT_ONCE])

    def flush(self) -> dict[str, Any]:
        """Return what is noted: the runs; not where they are, for that may have a password."""
        return {**self._named, "runs": dict(self._runs)}

    def close(self) -> None:
        """Mark the runs as finished."""
        for run in self._runs.values():
            self._client.set_terminated(run, "FINISHED")


def key_of(tag: str) -> str:
    """Return a tag as MLflow allows it; one that is changed gets an end that tells it from others.

    >>> key_of("eval/valid/accuracy"), key_of("eval/größe<1/loss"), key_of("eval//loss")
    ('eval/valid/accuracy', 'eval/größe_1/loss-4637c1', 'eval/loss-66261e')
    """
    allowed = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", tag)).lstrip("/.")[:240] or "_"
    return allowed if allowed == tag else f"{allowed}-{hashlib.sha256(tag.encode()).hexdigest()[:6]}"
