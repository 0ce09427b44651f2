from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.fork_server import ForkServer
from tests.reproducing import READS_A_FILE, Project
from train_manager import InputError, reproduce
from train_manager.runs.repeating.reproduction import Reproduction

HOOK = '#!/bin/sh\ntouch "{}"\n'


class Told:
    """What a reproduction says, and what the program prints."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.output = b""

    def show(self, output: bytes) -> None:
        self.output += output

    def reproduce(self, run: Path | str, **options: object) -> Reproduction:
        return reproduce(run, say=self.lines.append, show=self.show, **options)  # type: ignore[arg-type]

    def said(self, word: str) -> str:
        (line,) = (line for line in self.lines if line.startswith(f"{word}: "))
        return line


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Project:
    """A repository with a run, in which a hook was planted afterwards."""
    project = Project(tmp_path_factory.mktemp("project") / "digits").make()
    project.train(fork_server)
    hook = project.root / ".git/hooks/post-checkout"
    hook.write_text(HOOK.format(project.root.parent / "hook-ran"))
    hook.chmod(0o755)
    return project


@pytest.fixture(scope="module")
def changed(
    project: Project, repeated_programs: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Project, Told, Reproduction]:
    """What is told of a working tree with another learning rate and another number of threads."""
    folder = tmp_path_factory.mktemp("changed")
    copy, told = project.copy(folder / "digits"), Told()
    copy.change("src/digits/settings.py", "0.25", "0.5")
    copy.change("threads.txt", "1", "2")
    return copy, told, told.reproduce(copy.train_dir, here=True, folder=folder / "again")


@pytest.fixture
def own_project(project: Project, tmp_path: Path) -> Project:
    return project.copy(tmp_path / "digits")


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_a_run_is_reproduced_bit_for_bit_with_what_was_not_committed(project: Project, told: Told) -> None:
    before = project.content()

    report = told.reproduce(project.train_dir)

    assert report.identical, str(report)
    assert re.fullmatch(r"identical: 9 losses and \d+ figures, bit for bit", str(report))
    assert project.content() == before
    assert not (project.root.parent / "hook-ran").exists()
    place = re.search(r"code of (.*/reproduce-\w+/code/\w+) trained 9 steps", told.output.decode())
    assert place is not None
    assert not Path(place[1]).exists()
    assert report.folder is None


@pytest.mark.slow
def test_a_changed_line_is_found_and_named(changed: tuple[Project, Told, Reproduction]) -> None:
    project, told, report = changed

    assert not report.identical
    first = report.figures.first
    assert first is not None
    assert (first.step, first.series.name, first.one, first.other) == (1, "lr", 0.25, 0.5)
    assert "code: src/digits/settings.py line 1: - RATE = 0.25 # changed + RATE = 0.5 # changed" in report.around
    assert f"code of {project.root} trained 9 steps" in told.output.decode()


@pytest.mark.slow
def test_another_number_of_threads_is_found_and_named(changed: tuple[Project, Told, Reproduction]) -> None:
    _, _, report = changed

    assert "environment: threads of torch 1 there, 2 here" in report.around
    assert "code: threads.txt line 1: - 1 + 2" in report.around


@pytest.mark.slow
def test_the_files_of_a_reproduction_that_differs_are_kept(changed: tuple[Project, Told, Reproduction]) -> None:
    _, told, report = changed

    assert report.folder is not None
    assert (report.folder / "output.log").read_bytes() == told.output
    assert (report.folder / "train_dir" / "metrics.sqlite").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_missing_data_and_a_missing_seed_are_told(tmp_path: Path, told: Told, fork_server: ForkServer) -> None:
    project = Project(tmp_path / "digits").make(settings="RATE = 0.25\nSEED = None\n", data=READS_A_FILE)
    project.write("seed.csv", "0")
    project.train(fork_server, epochs=1)

    with pytest.raises(InputError) as failed:
        told.reproduce(project.train_dir, folder=tmp_path / "again")
    report = told.reproduce(project.train_dir, links=[Path("seed.csv")], folder=tmp_path / "linked")

    assert str(failed.value).startswith("the program failed (exit code 1); its output ended with:\n    ")
    assert str(failed.value).endswith(
        "    FileNotFoundError: [Errno 2] No such file or directory: '../seed.csv'\n"
        f"  all of it is in {tmp_path}/again/output.log\n"
        "  files that git ignores are not in the record: link this one into the copy with --link seed.csv"
    )
    assert not report.identical
    assert report.figures.first is not None
    assert report.figures.first.step == 0  # the evaluation before the first step
    assert "nothing else that was recorded differs\ncause, perhaps: no seed was recorded: " in str(report)


def test_a_repository_that_has_moved_is_asked_for(own_project: Project, told: Told, tmp_path: Path) -> None:
    runs = shutil.copytree(own_project.train_dir, tmp_path / "kept")
    own_project.root.rename(tmp_path / "elsewhere")

    with pytest.raises(InputError) as refused:
        told.reproduce(runs)

    assert str(refused.value) == (
        f"the repository {own_project.root} is not there any more\n  give a clone of it: --repository DIR"
    )


def test_a_run_without_a_code_record_says_that_here_is_the_way(own_project: Project, told: Told) -> None:
    shutil.rmtree(own_project.train_dir / "code")

    with pytest.raises(InputError) as refused:
        told.reproduce(own_project.train_dir)

    assert str(refused.value) == (
        "the code of this run was not recorded: it had no extension CodeRecord\n"
        "  --here runs the program as it is now, and compares the figures"
    )


def test_a_folder_that_is_not_empty_is_refused(own_project: Project, told: Told) -> None:
    with pytest.raises(InputError) as refused:
        told.reproduce(own_project.train_dir, folder=own_project.root)

    assert str(refused.value) == f"{own_project.root} is not empty\n  give a folder that is empty or not there"
