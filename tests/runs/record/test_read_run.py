from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.fork_server import ForkServer
from train_manager import InputError
from train_manager.extensions import Checkpoints, MetricStore, RunRecord
from train_manager.testing import tiny_manager
from train_manager.tools import read_run


def test_a_folder_shows_its_runs_metrics_and_checkpoints(tmp_path: Path) -> None:
    tm = tiny_manager(RunRecord(), MetricStore(), Checkpoints(), epochs=2, train_dir=tmp_path)
    tm.train()
    found = read_run(tmp_path)

    assert [entry["id"] for entry in found.entries] == [tm.run_id]
    assert [path.name for path in found.checkpoints] == ["step-000000000003", "step-000000000006"]
    assert found.history.state_dict() == tm.history.state_dict()
    assert repr(found) == f"RunFolder({str(tmp_path)!r}: 1 run, 2 checkpoints)"
    assert f">{tm.run_id}</" in found._repr_html_()


def train_forever(folder: Path) -> None:
    tm = tiny_manager(MetricStore(), epochs=10**6, train_dir=folder)
    tm.add_extension(post_train_step_epoch=lambda epoch_num: print("epoch", epoch_num, flush=True))
    tm.train()


def has_epochs(train_dir: Path) -> bool:
    with contextlib.suppress(InputError):
        return bool(read_run(train_dir).history.epochs)
    return False


def test_the_history_of_a_training_that_was_killed_can_be_drawn(fork_server: ForkServer, tmp_path: Path) -> None:
    child = fork_server.start(train_forever, tmp_path)
    child.wait_for("epoch 3")
    eventually(lambda: has_epochs(tmp_path))  # metrics are written twice a second
    child.signal(signal.SIGKILL)
    child.wait()
    history = read_run(tmp_path).history

    assert [row["epoch"] for row in history.epochs] == list(range(1, len(history.epochs) + 1))
    assert history.plot().axes


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_run(tmp_path / "lost")

    assert str(error.value).splitlines()[0] == f"there is no folder {tmp_path / 'lost'}"


def test_code_that_was_not_recorded_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_run(tmp_path).code("0123456789abcdef")

    assert str(error.value).splitlines()[0] == f"the code of run '0123456789abcdef' was not recorded in {tmp_path}"


def test_a_folder_without_records_has_a_repr(tmp_path: Path) -> None:
    assert repr(read_run(tmp_path)) == f"RunFolder({str(tmp_path)!r}: 0 runs, 0 checkpoints)"


def test_a_run_that_cannot_be_read_is_not_counted(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), train_dir=tmp_path).train()
    (tmp_path / "run-aaaa.json").write_text("{")

    assert repr(read_run(tmp_path)) == f"RunFolder({str(tmp_path)!r}: 1 run, 0 checkpoints)"
