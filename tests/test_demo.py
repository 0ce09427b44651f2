from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch import Tensor

import train_manager
from tests.support.fork_server import ForkServer
from tests.support.programs import strictly
from train_manager import demo
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


ROOT = Path(train_manager.__file__).parents[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> tuple[str, Path]:
    """Return what an uninterrupted demo prints, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    done = fork_server.run(strictly, "module", "train_manager.demo", cwd=folder)
    assert (done.code, done.errors) == (0, "")
    return done.output, folder / "runs" / "digits-1"


def last_model(folder: Path) -> dict[str, Tensor]:
    path = CheckpointFolder(folder / "checkpoints").find("last")
    assert path.name == "step-000000000264"
    model: dict[str, Tensor] = read_checkpoint(path, ["model"])["model"]
    return model


@pytest.mark.slow
def test_the_demo_prints_a_line_for_each_epoch_and_reads_more_than_98_percent(whole: tuple[str, Path]) -> None:
    output, folder = whole
    table, _, end = output.partition("\n\n")
    groups, header, start, *epochs, done, look = table.splitlines()
    assert groups.split() == ["training", "held", "out"]
    assert header.split() == ["epoch", "loss", "accuracy", "loss", "accuracy", "seconds"]
    assert start.startswith("start")
    assert [line.split()[0] for line in epochs] == [f"{epoch}/12" for epoch in range(1, 13)]
    assert max(map(len, [groups, header, start, *epochs])) <= 80
    assert done.startswith("done after epoch 12/12 (step 264); the model has its last weights")
    assert look == "look at it: train-manager report runs/digits-1"
    lines = end.splitlines()
    assert [line.split()[0] for line in lines] == ["accuracy", "training", "curves", "report", "program"]
    accuracy = re.search(r"([\d.]+)% of the 450 held-out digits", lines[0])
    assert accuracy is not None
    assert float(accuracy[1]) > 98
    assert "runs/digits-1/plots/loss_curves.svg" in lines[2]
    assert "runs/digits-1/report.html" in lines[3]
    assert 100_000 < (folder / "report.html").stat().st_size < 200_000
    files = {path.name for path in (folder / "plots").iterdir()}
    assert files == {"loss_curves.svg"}


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_an_interrupted_demo_says_how_to_resume_it(fork_server: ForkServer, tmp_path: Path) -> None:
    interrupted = fork_server.start(strictly, "module", "train_manager.demo", cwd=tmp_path)
    interrupted.wait_for(" 1/12")
    interrupted.signal(signal.SIGINT)

    assert interrupted.wait() == 130
    assert "Traceback" not in interrupted.errors
    assert interrupted.output.splitlines()[-1] == "resume with: make demo RESUME=1"


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the demo is not in a repository here")
def test_the_demo_is_reproduced(whole: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = whole
    done = subprocess.run(
        [sys.executable, "-m", "train_manager", "reproduce", "--quiet", "--steps", "44", str(folder)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical up to step 44: 44 losses and " in done.stdout


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_demo_that_is_killed_resumes_to_the_same_weights(
    whole: tuple[str, Path], fork_server: ForkServer, tmp_path: Path
) -> None:
    killed = fork_server.start(demo.main, cwd=tmp_path)
    killed.wait_for(" 3/12")
    killed.signal(signal.SIGKILL)  # while the third checkpoint is written, or soon after
    assert killed.wait() == -signal.SIGKILL
    resumed = fork_server.start(demo.main, cwd=tmp_path, RESUME="1")
    assert (resumed.wait(), resumed.errors) == (0, "")

    models = last_model(tmp_path / "runs" / "digits-1"), last_model(whole[1])
    assert [name for name in models[0] | models[1] if not models[0][name].equal(models[1][name])] == []
    assert next(line for line in resumed.output.splitlines() if line.startswith("accuracy")) in whole[0]
    assert re.search(r"^resumed   from step (44|66|88|110), that of the last checkpoint$", resumed.output, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.whole
def test_a_demo_that_has_finished_says_so(whole: tuple[str, Path], tmp_path: Path, fork_server: ForkServer) -> None:
    shutil.copytree(whole[1], tmp_path / "runs" / "digits-1")  # beside `whole`, other tests may leave newer folders
    again = fork_server.start(demo.main, cwd=tmp_path, RESUME="1")

    assert again.wait() == 0
    assert "nothing to do" not in again.errors
    resumes, end = again.output.splitlines()
    assert resumes.endswith("runs/digits-1/checkpoints/step-000000000264 (12 epochs done)")
    assert len(resumes) <= 80
    assert end == "finished already; press Ctrl-C during make demo to see a resume"


def test_the_newest_folder_has_the_largest_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert demo.newest_folder() == Path("runs/digits-1")
    for name in ("digits-9", "digits-10", "digits-11-copy"):
        Path("runs", name).mkdir()

    assert demo.newest_folder() == Path("runs/digits-10")


def test_the_held_out_digits_are_not_trained_on() -> None:
    images, held_out, labels, held_out_labels = demo.digits()
    seen = {image.numpy().tobytes() for image in images}
    assert len(images) + len(held_out) == len(labels) + len(held_out_labels) == 1797
    assert not [image for image in held_out if image.numpy().tobytes() in seen]


def test_two_demos_at_once_get_two_folders(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        folders = list(threads.map(lambda _: demo.new_folder(str(tmp_path / "runs" / "digits")), range(32)))
    assert {folder.name for folder in folders} == {f"digits-{number}" for number in range(1, 33)}


def test_a_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "sklearn.datasets", raising=False)
    with pytest.raises(SystemExit, match=r'sklearn.*pip install "train-manager\[demo\]"'):
        demo.digits()
