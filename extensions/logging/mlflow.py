"""Every metric of the training in MLflow, handed on by ``MetricStore``."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

from train_manager.rebuilding.recorded import recorded
from train_manager.runs.record.run_notes import parameters_in_words, read_notes, status_after
from train_manager.runs.store.delivery import Connection, Ending, Sent
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.rows import StoredRow
from train_manager.runs.store.schema import RunPart, tag_of
from train_manager.runs.store.sinks import Sink, file_of, tagged_numbers

MOST_METRICS: Final = 1000  # metrics that MLflow accepts in one `log_batch`
MOST_PARAMETERS: Final = 100  # parameters that it accepts in one
LONGEST: Final = 6000  # characters of a parameter
LARGEST: Final = 2**62  # MLflow stores steps in a BIGINT of SQL, which ends at 2**63


@recorded
class MLflow(Sink):
    """Send all metrics of ``MetricStore`` to MLflow, in a thread that no step waits for.

    >>> from train_manager.extensions import MetricStore
    >>> extensions = [MetricStore(), MLflow(experiment="digits")]

    MLflow cannot take points back, so a training that resumes is a run of MLflow of its own. The tags ``run_id`` and
    ``from_step`` say where it belongs, and ``until_step`` how much of an earlier one counts. Its status is FAILED
    after an error, and KILLED after a signal (after a kill, once a resume or an export has looked); its parameters are
    those of the ``TrainManager``, its extensions and its optimizers, as the record of the run has them. Histograms and
    matrices, which MLflow does not know, are left out. ``train-manager export RUN --to mlflow`` sends all metrics that
    count for a run once more, and MLflow shows each once; if the training was given a ``uri``, set
    ``MLFLOW_TRACKING_URI`` there. The extension needs the package mlflow-skinny:
    ``pip install "train-manager[mlflow]"``.

    *Runs at:* the start and the end of ``run``.

    *Asks for:* ``writer`` of ``MetricStore``, without which it is refused; ``train_dir``, ``step_num`` and
    ``start_step``.

    *Leaves behind:* runs of MLflow.

    Args:
        uri: where MLflow keeps its runs; None takes the variable ``MLFLOW_TRACKING_URI``, or else the file
            ``mlflow.sqlite`` in the ``train_dir``.
        experiment: the name of the experiment; None is "train_manager".

    Raises:
        InputError: as the run begins: there is no ``MetricStore``.
        ImportError: as the run begins: mlflow is not installed.
    """

    tool: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str | None = None) -> None:
        self.uri, self.experiment = uri, experiment

    def describe(self, train_manager: Any) -> Mapping[str, str]:
        """Return the parameters of a manager and what it consists of."""
        return parameters_in_words(train_manager)

    def connect(self, sent: Sent) -> Connection:
        """Make the run of MLflow, or find it."""
        from mlflow.tracking import MlflowClient  # optional

        uri = self.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{sent.train_dir / 'mlflow.sqlite'}"
        # A database has no place for files; by default MLflow would put them into the working folder.
        files = (sent.train_dir / "mlflow").as_uri() if uri.startswith("sqlite") else None
        client, name = MlflowClient(tracking_uri=uri), self.experiment or "train_manager"
        known = client.get_experiment_by_name(name)
        return MlflowRun(
            client, known.experiment_id if known else client.create_experiment(name, artifact_location=files), sent
        )


@final
class MlflowRun:
    """A run of MLflow; a row that is sent twice is one point there.

    Args:
        client: of MLflow.
        experiment: the id of its experiment.
        sent: what it shows.
    """

    def __init__(self, client: Any, experiment: str, sent: Sent) -> None:
        self._client, self._experiment, self._sent = client, experiment, sent
        found = self._find(sent.part.run)
        self._is_new = found is None
        self._id: str = self._make() if found is None else found.info.run_id
        if sent.mode == "begin" and sent.part.step is not None:
            self._note_resume(sent.part)
        elif sent.mode == "export" and found is not None and "from_step" in found.data.tags:
            client.delete_tag(self._id, "from_step")  # it gets the earlier metrics too

    def send(self, rows: Sequence[StoredRow]) -> None:
        """Send numbers in batches, and texts and files one by one."""
        from mlflow.entities import Metric

        metrics = []
        for row in rows:
            step = max(-LARGEST, min(LARGEST, row.step))
            metrics += [Metric(key_of(tag), value, int(1000 * row.time), step) for tag, value in tagged_numbers(row)]
            if isinstance(row.value, str):
                self._client.log_text(self._id, row.value, f"{key_of(tag_of(row.series))}-{row.step}.txt")
            elif path := file_of(row, self._sent.train_dir):
                self._client.log_artifact(self._id, str(path))
        for first in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._id, metrics=metrics[first : first + MOST_METRICS])

    def close(self, ending: Ending | None) -> None:
        """Mark how the run has ended."""
        if ending is not None:
            self._client.set_terminated(self._id, status_after(*ending))
        elif self._sent.mode == "export":
            self._note_end(self._sent.part.run, self._id, "FINISHED" if self._is_new else "KILLED")

    # ---- runs of MLflow ------------------------------------------------------------------------------------------

    def _find(self, run: str) -> Any:
        """Return the run of MLflow that shows a run; None if there is none."""
        return next(iter(self._client.search_runs([self._experiment], f"tags.run_id = '{run}'", max_results=1)), None)

    def _make(self) -> str:
        from mlflow.entities import Param

        train_dir, part, mode, parameters = self._sent
        tags = {"run_id": part.run, "train_dir": str(train_dir)}
        if mode != "export" and part.step is not None:
            tags["from_step"] = str(part.step)
        made = self._client.create_run(self._experiment, int(1000 * part.began), tags, run_name=part.run)
        noted = read_notes(train_dir).get(part.run)
        rows = noted.parameters if noted and not parameters else parameters
        # MLflow refuses a second value of a key, and two names may become one key.
        values = {key_of(name): value[:LONGEST] for name, value in rows.items()}
        params = [Param(key, value) for key, value in values.items()]
        for first in range(0, len(params), MOST_PARAMETERS):
            self._client.log_batch(made.info.run_id, params=params[first : first + MOST_PARAMETERS])
        return str(made.info.run_id)

    def _note_resume(self, part: RunPart) -> None:
        """Note at the run that this one goes on from how much of it counts, and how it has ended."""
        [resumed] = [one.run for one in MetricReader(self._sent.train_dir).runs() if one.id == part.resumes]
        found = None if resumed == part.run else self._find(resumed)
        if found is not None:
            self._client.set_tag(found.info.run_id, "until_step", part.step)
            self._note_end(resumed, found.info.run_id, "KILLED")

    def _note_end(self, run: str, id_: str, unknown: str) -> None:
        """Set the status that the record of a run has; without a record, ``unknown`` if MLflow has it as running."""
        before, noted = self._client.get_run(id_).info.status, read_notes(self._sent.train_dir).get(run)
        status = noted.status if noted else unknown if before == "RUNNING" else before
        if status not in (before, "RUNNING"):
            self._client.set_terminated(id_, status)


def key_of(tag: str) -> str:
    """Return a tag as MLflow allows it.

    >>> key_of("eval/valid/accuracy"), key_of("eval/größe<1/loss"), key_of("eval//loss")
    ('eval/valid/accuracy', 'eval/größe_1/loss', 'eval/loss')
    """
    return posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", tag)).lstrip("/.")[:250] or "_"
