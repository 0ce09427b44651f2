"""A sink with runs of MLflow. It is imported where mlflow is installed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from train_manager.runs.record.metric_news import NewRow, NewSegment
from train_manager.runs.sending.mlflow_keys import key_of
from train_manager.runs.sending.run_notes import RunNotes, read_notes
from train_manager.runs.sending.sink import file_of, scalars_of, tag_of

MOST_AT_ONCE: Final = 1000  # metrics that MLflow accepts in one `log_batch`
MOST_PARAMETERS: Final = 100  # parameters that it accepts in one
LONGEST: Final = 6000  # characters of a parameter
LARGEST: Final = 2**62  # MLflow stores steps in a BIGINT of SQL, which ends at 2**63


@final
class MlflowRuns:
    """A sink with a run of MLflow for each segment; a row that is sent twice is one point there.

    Args:
        uri: where MLflow keeps its runs.
        experiment: their experiment.
        train_dir: the folder of the training.
        state: the runs of MLflow by segments, of the sink before.
        notes: returns what is known of the runs of this process, by their run_ids.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        train_dir: Path,
        state: Mapping[str, Any],
        notes: Callable[[], Mapping[str, RunNotes]] = dict,
    ) -> None:
        self._client, self._train_dir = MlflowClient(tracking_uri=uri), train_dir
        known = self._client.get_experiment_by_name(experiment)
        # A database has no place for files; by default MLflow would put them into the working folder.
        files = (train_dir / "mlflow").as_uri() if uri.startswith("sqlite") else None
        made = known.experiment_id if known else self._client.create_experiment(experiment, artifact_location=files)
        # `_runs`: the id that MLflow has given to the run of each segment, by the segment's name.
        self._experiment, self._runs = made, dict[str, str](state.get("runs", {}))
        self._named = {"experiment": experiment}
        self._notes = notes
        self._own = set[str]()  # the runs of MLflow that this sink has made, or found

    def cut(self, step: int) -> bool:
        """Set the tag ``until_step`` of all runs: MLflow cannot delete the later points."""
        for run in self._runs.values():
            until = self._client.get_run(run).data.tags.get("until_step")
            if until is None or int(until) > step:
                self._client.set_tag(run, "until_step", step)
        return False

    def begin(self, segment: NewSegment) -> None:
        """Make the run of a segment, or find it."""
        name = f"{segment.run}-{segment.id}"
        if name not in self._runs:
            # A killed process may have made the run in MLflow, and not have written its id into sinks.json.
            same = self._client.search_runs([self._experiment], f"tags.segment = '{name}'", max_results=1)
            tags = {"run_id": segment.run, "segment": name, "train_dir": str(self._train_dir)}
            tags |= {} if segment.from_step is None else {"from_step": str(segment.from_step)}
            begun = int(1000 * segment.began)
            found = same[0] if same else self._client.create_run(self._experiment, begun, tags, run_name=name)
            self._runs[name] = found.info.run_id
            self._own.add(found.info.run_id)
            notes = self._known().get(segment.run)
            if notes is not None:
                self._send_parameters(found.info.run_id, notes.parameters)

    def send(self, rows: Sequence[NewRow]) -> None:
        """Send numbers in batches, and texts and files one by one."""
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
        """Return the ids of the runs for sinks.json, without the address of the server, which may have a password."""
        return {**self._named, "runs": dict(self._runs)}

    def close(self) -> None:
        """Mark how the runs have ended."""
        known, of_this_process = self._known(), self._notes()
        for name, run in self._runs.items():
            run_id, before = name.rpartition("-")[0], self._client.get_run(run).info.status
            if run_id in known:
                status = known[run_id].status
            elif before == "RUNNING":  # without a run file: no program has ended the run of an earlier process
                status = "FINISHED" if run in self._own else "KILLED"
            else:
                continue
            if run_id in of_this_process and status == "RUNNING":  # its program has not closed it
                status = "FINISHED"
            if status != before:
                self._client.set_terminated(run, status)

    def _known(self) -> dict[str, RunNotes]:
        return {**read_notes(self._train_dir), **self._notes()}

    def _send_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        found = [Param(key_of(name), value[:LONGEST]) for name, value in parameters.items()]
        for first in range(0, len(found), MOST_PARAMETERS):
            self._client.log_batch(run, params=found[first : first + MOST_PARAMETERS])
