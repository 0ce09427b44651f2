"""MLflow's own client reads back what the store has."""

from __future__ import annotations

import math
import os
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs.store.sinks import OwnMetrics, Points, counting, kill_and_resume, needs_package
from train_manager import Extension, TrainManager
from train_manager.extensions import Checkpoints, MetricStore, MLflow, RunRecord
from train_manager.extensions.logging.mlflow import key_of
from train_manager.runs.record.processes import this_process
from train_manager.runs.record.run_file import read_runs, write_entry
from train_manager.testing import tiny_manager

needs_package()
pytestmark = [
    pytest.mark.sinks,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

from mlflow.tracking import MlflowClient  # noqa: E402


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables of MLflow, which take seconds to make."""
    folder = tmp_path_factory.mktemp("mlflow")
    client_of(folder).search_experiments()
    return folder / "mlflow.sqlite"


@pytest.fixture(autouse=True)
def _with_tables(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(tables, tmp_path)


@pytest.fixture(scope="module")
def killed(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that was killed and has resumed."""
    folder = tmp_path_factory.mktemp("killed")
    shutil.copy(tables, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        kill_and_resume(folder, "MLflow")
    return folder


def client_of(train_dir: Path) -> Any:
    return MlflowClient(tracking_uri=f"sqlite:///{train_dir / 'mlflow.sqlite'}")


def runs_of(train_dir: Path) -> list[Any]:
    client = client_of(train_dir)
    experiment = client.get_experiment_by_name("train_manager").experiment_id
    return list(client.search_runs([experiment], order_by=["attributes.start_time ASC"]))


def shown(train_dir: Path) -> Points:
    """What the runs have up to the steps that count."""
    found: Points = {}
    client = client_of(train_dir)
    for run in runs_of(train_dir):
        until = float(run.data.tags.get("until_step", "inf"))
        for key in run.data.metrics:
            points = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
            found.setdefault(key, []).extend(point for point in points if point[0] <= until)
    return {key: sorted(points) for key, points in found.items() if points}


def stored(train_dir: Path) -> Points:
    return {key_of(tag): points for tag, points in counting(train_dir).items()}


def train(folder: Path, *extensions: Extension, epochs: int = 2, resume: Any = "fresh") -> None:
    checkpoints = Checkpoints(resume=resume)
    tiny_manager(MetricStore(), MLflow(), checkpoints, *extensions, epochs=epochs, train_dir=folder).train()


def test_it_has_every_number_that_counts(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics())

    assert shown(tmp_path) == stored(tmp_path)
    assert shown(tmp_path)["norms/0 Linear"] == [(3, 1.0), (6, 1.0)]


def test_it_has_texts_and_files(tmp_path: Path) -> None:
    train(tmp_path, OwnMetrics(), epochs=1)
    [run] = runs_of(tmp_path)
    found = [artifact.path for artifact in client_of(tmp_path).list_artifacts(run.info.run_id)]

    assert sorted(found) == ["note-3.txt", "picture-3.png"]
    assert run.info.status == "FINISHED"


def test_a_resume_is_a_run_of_its_own_that_tells_where_it_continues(tmp_path: Path) -> None:
    train(tmp_path, epochs=2)
    train(tmp_path, epochs=3, resume=True)
    tags = [(run.data.tags.get("from_step"), run.data.tags.get("until_step")) for run in runs_of(tmp_path)]

    assert tags == [(None, "6"), ("6", None)]
    assert shown(tmp_path) == stored(tmp_path)


def test_after_a_kill_and_a_resume_it_has_what_counts(killed: Path) -> None:
    assert shown(killed) == stored(killed)
    assert [step for step, _ in shown(killed)["batch/loss"]] == [*range(1, 31)]


def test_after_an_export_the_newest_run_has_all_that_counts(tmp_path: Path) -> None:
    train(tmp_path, epochs=2)
    train(tmp_path, epochs=3, resume=True)
    MLflow().export(tmp_path)
    client, newest = client_of(tmp_path), runs_of(tmp_path)[-1]
    history = client.get_metric_history(newest.info.run_id, "batch/loss")

    assert sorted((one.step, one.value) for one in history) == stored(tmp_path)["batch/loss"]
    assert "from_step" not in newest.data.tags


def test_names_that_mlflow_does_not_allow_get_one_that_it_does(tmp_path: Path) -> None:
    class Writes(Extension):
        def post_train_step_epoch(self, writer: Any) -> None:
            writer.scalars({"größe <1>": 1.0, "../up": 3.0, "//": 4.0, "x" * 300: 5.0})

    train(tmp_path, Writes(), epochs=1)

    assert shown(tmp_path) == stored(tmp_path)
    assert {1.0, 3.0, 4.0, 5.0} <= {points[0][1] for points in shown(tmp_path).values()}


def test_two_names_that_become_one_in_mlflow_do_not_stop_the_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Writes(Extension):
        def post_train_step_epoch(self, writer: Any) -> None:
            writer.scalars({"größe <1>": 1.0, "größe (1)": 2.0})

    monkeypatch.setattr(MLflow, "describe", lambda self, train_manager: {"a <1>": "x", "a (1)": "y"})
    train(tmp_path, Writes(), epochs=1)

    assert shown(tmp_path)["größe _1_"] == [(3, 1.0), (3, 2.0)]
    assert runs_of(tmp_path)[0].data.params == {"a _1_": "y"}


def test_nan_is_shown_as_it_is(tmp_path: Path) -> None:
    class Writes(Extension):
        def post_train_step_epoch(self, writer: Any) -> None:
            writer.scalar("nan", math.nan)

    train(tmp_path, Writes(), epochs=1)

    assert math.isnan(shown(tmp_path)["nan"][0][1])


def test_rows_that_are_sent_twice_are_there_once(tmp_path: Path) -> None:
    train(tmp_path)
    MLflow().export(tmp_path)

    assert shown(tmp_path) == stored(tmp_path)
    assert len(runs_of(tmp_path)) == 1


def test_a_server_that_does_not_answer_does_not_stop_the_training_and_gets_all_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        patch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        tm = tiny_manager(MetricStore(), MLflow(), epochs=2, train_dir=tmp_path)
        with pytest.raises(
            RuntimeWarning, match=r"mlflow gets no metrics: MlflowException: .*; mlflow lacks 16 metrics"
        ):
            tm.train()
    assert tm.epoch_num == 2
    MLflow().export(tmp_path)

    assert shown(tmp_path) == stored(tmp_path)


def test_a_run_that_is_not_followed_has_no_run_of_mlflow(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), Checkpoints(resume="fresh"), epochs=1, train_dir=tmp_path).train()
    train(tmp_path, epochs=2, resume=True)

    assert [run.data.tags["from_step"] for run in runs_of(tmp_path)] == ["3"]
    MLflow().export(tmp_path)
    assert shown(tmp_path) == stored(tmp_path)
    assert len(runs_of(tmp_path)) == 1


def test_an_export_brings_what_a_kill_has_kept_from_mlflow(killed: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(killed, tmp_path / "copied")
    for run in runs_of(copied):
        client_of(copied).delete_run(run.info.run_id)
    MLflow().export(copied)

    assert shown(copied) == stored(killed)


def statuses(train_dir: Path) -> list[str]:
    return [run.info.status for run in runs_of(train_dir)]


@pytest.mark.parametrize(("step", "error"), [(1, "in the first step"), (4, "later")])
def test_a_run_that_fails_is_shown_as_failed(tmp_path: Path, step: int, error: str) -> None:
    class Fails(Extension):
        def pre_train_step_batch(self, step_num: int) -> None:
            if step_num + 1 == step:
                raise ValueError(error)

    with pytest.raises(ValueError, match=error):
        train(tmp_path, Fails())

    assert statuses(tmp_path) == ["FAILED"]


def test_a_run_that_ctrl_c_ends_is_shown_as_killed(tmp_path: Path) -> None:
    class Interrupted(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, Interrupted())

    assert statuses(tmp_path) == ["KILLED"]


def test_a_run_that_a_signal_stops_is_shown_as_killed(tmp_path: Path) -> None:
    class Signalled(Extension):
        def post_train_step_batch(self, step_num: int) -> None:
            if step_num == 4:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(SystemExit):
        train(tmp_path, Signalled())

    assert statuses(tmp_path) == ["KILLED"]


def test_a_run_that_stops_early_is_shown_as_finished(tmp_path: Path) -> None:
    class Stops(Extension):
        def post_train_step_batch(self, train_manager: TrainManager, step_num: int) -> None:
            if step_num == 4:
                train_manager.stop("enough")

    train(tmp_path, Stops())

    assert statuses(tmp_path) == ["FINISHED"]


def test_a_killed_run_is_shown_as_killed_once_it_resumes(killed: Path) -> None:
    assert statuses(killed) == ["KILLED", "FINISHED"]


def test_a_killed_run_is_shown_as_killed_once_it_is_exported(tmp_path: Path) -> None:
    train(tmp_path, RunRecord())
    change_entry(tmp_path, outcome="running", process={**this_process(), "started": "before the boot"})
    MLflow().export(tmp_path)

    assert statuses(tmp_path) == ["KILLED"]


def test_a_run_that_has_failed_and_was_not_followed_is_failed_in_the_export(tmp_path: Path) -> None:
    tiny_manager(MetricStore(), RunRecord(), epochs=1, train_dir=tmp_path).train()
    change_entry(tmp_path, outcome="failed")
    MLflow().export(tmp_path)

    assert statuses(tmp_path) == ["FAILED"]
    assert runs_of(tmp_path)[0].data.params["epochs"] == "1"


def test_it_has_the_parameters_of_the_training(tmp_path: Path) -> None:
    optimizer = partial(torch.optim.SGD, lr=0.25)
    tiny_manager(MetricStore(), MLflow(), optimizer=optimizer, epochs=2, train_dir=tmp_path).train()
    params = runs_of(tmp_path)[0].data.params

    assert (params["epochs"], params["loss"]) == ("2", "cross_entropy")
    assert [value for key, value in params.items() if key.endswith(".lr")] == ["0.25"]


def change_entry(train_dir: Path, **changes: Any) -> None:
    write_entry(train_dir, read_runs(train_dir)[0] | changes)
