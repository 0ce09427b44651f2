from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import train_manager
from train_manager import demo

pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")


def run_demo(folder: Path) -> subprocess.CompletedProcess[str]:
    library = str(Path(train_manager.__file__).parents[1])
    path = os.pathsep.join([library, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "train_manager.demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.slow
def test_the_demo_prints_a_line_for_each_epoch_and_reads_more_than_98_percent(tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    table, _, end = done.stdout.partition("\n\n")
    groups, header, start, *epochs = table.splitlines()
    assert groups.split() == ["training", "held", "out"]
    assert header.split() == ["epoch", "loss", "accuracy", "loss", "accuracy", "seconds"]
    assert start.startswith("start")
    assert [line.split()[0] for line in epochs] == [f"{epoch}/12" for epoch in range(1, 13)]
    assert max(map(len, table.splitlines())) <= 80
    lines = end.splitlines()
    assert [line.split()[0] for line in lines] == ["accuracy", "training", "curves", "program"]
    accuracy = re.search(r"([\d.]+)% of the 450 held-out digits", lines[0])
    assert accuracy is not None
    assert float(accuracy[1]) > 98
    assert "runs/digits-1/plots/loss_curves.png" in lines[2]
    files = {path.name for path in (tmp_path / "runs" / "digits-1" / "plots").iterdir()}
    assert files == {"loss_curves.png", "loss_curves.svg"}


def test_the_held_out_digits_are_not_trained_on() -> None:
    images, held_out, labels, held_out_labels = demo.digits()
    seen = {image.numpy().tobytes() for image in images}
    assert len(images) + len(held_out) == len(labels) + len(held_out_labels) == 1797
    assert not [image for image in held_out if image.numpy().tobytes() in seen]


def test_the_split_is_the_same_each_time() -> None:
    assert all(first.equal(second) for first, second in zip(demo.digits(), demo.digits(), strict=True))


def test_two_demos_at_once_get_two_folders(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        folders = list(threads.map(lambda _: demo.new_folder(str(tmp_path / "runs" / "digits")), range(32)))
    assert {folder.name for folder in folders} == {f"digits-{number}" for number in range(1, 33)}


@pytest.mark.parametrize("missing", ["sklearn", "matplotlib"])
def test_a_missing_package_is_an_error_that_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "sklearn.datasets", raising=False)
    with pytest.raises(SystemExit, match=rf'{missing}.*pip install "train-manager\[demo\]"'):
        demo.digits()
