from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.support.fork_server import ForkServer
from tests.support.refusals import refusal
from tests.support.reproducing import READS_A_FILE, Project
from train_manager import InputError
from train_manager.runs.code.take import take_code_record
from train_manager.runs.repeating.reproduction import Reproduction
from train_manager.tools import reproduce

HOOK = '#!/bin/sh\ntouch "{}"\n'


class Console:
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
def console() -> Console:
    return Console()


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
) -> tuple[Project, Console, Reproduction]:
    """What is told of a working tree with another learning rate and another number of threads."""
    folder = tmp_path_factory.mktemp("changed")
    copy, console = project.copy(folder / "digits"), Console()
    copy.change("src/digits/settings.py", "0.25", "0.5")
    copy.change("threads.txt", "1", "2")
    return copy, console, console.reproduce(copy.train_dir, here=True, folder=folder / "again")


def of_another_machine(project: Project) -> None:
    project.edit_record(f'"host": "{socket.gethostname()}"', '"host": "elsewhere"')


@pytest.fixture
def own_project(project: Project, tmp_path: Path) -> Project:
    return project.copy(tmp_path / "digits")


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_a_run_is_reproduced_bit_for_bit_with_what_was_not_committed(project: Project, console: Console) -> None:
    before = project.content()

    report = console.reproduce(project.train_dir)

    assert report.identical, str(report)
    assert re.fullmatch(r"identical: 9 losses and \d+ metrics, bit for bit", str(report))
    assert project.content() == before
    assert not (project.root.parent / "hook-ran").exists()
    place = re.search(r"code of (.*/reproduce-\w+/code/\w+) trained 9 steps", console.output.decode())
    assert place is not None
    assert not Path(place[1]).exists()
    assert report.folder is None


@pytest.mark.slow
def test_a_changed_line_is_found_and_named(changed: tuple[Project, Console, Reproduction]) -> None:
    project, console, report = changed

    assert not report.identical
    first = report.metrics.first
    assert first is not None
    assert (first.step, first.series.name, first.one, first.other) == (1, "lr", 0.25, 0.5)
    assert "code: src/digits/settings.py line 1: - RATE = 0.25 # changed + RATE = 0.5 # changed" in report.around
    assert f"code of {project.root} trained 9 steps" in console.output.decode()


@pytest.mark.slow
def test_another_number_of_threads_is_found_and_named(changed: tuple[Project, Console, Reproduction]) -> None:
    _, _, report = changed

    assert "environment: threads.torch 1 there, 2 here" in report.around
    assert "code: threads.txt line 1: - 1 + 2" in report.around


@pytest.mark.slow
def test_the_files_of_a_reproduction_that_differs_are_kept(changed: tuple[Project, Console, Reproduction]) -> None:
    _, console, report = changed

    assert report.folder is not None
    assert (report.folder / "output.log").read_bytes() == console.output
    assert (report.folder / "train_dir" / "metrics.sqlite").exists()


@pytest.mark.slow
@pytest.mark.whole
def test_missing_data_and_a_missing_seed_are_told(tmp_path: Path, console: Console, fork_server: ForkServer) -> None:
    project = Project(tmp_path / "digits").make(settings="RATE = 0.25\nSEED = None\n", data=READS_A_FILE)
    project.write("seed.csv", "0")
    project.train(fork_server, epochs=1)

    told = refusal(lambda: console.reproduce(project.train_dir, folder=tmp_path / "again"))
    report = console.reproduce(project.train_dir, links=[Path("seed.csv")], folder=tmp_path / "linked")

    assert told.startswith("the program failed (exit code 1); its output ended with:\n    ")
    assert told.endswith(
        "    FileNotFoundError: [Errno 2] No such file or directory: '../seed.csv'\n"
        f"  all of it is in {tmp_path}/again/output.log\n"
        "  files that git ignores are not in the record: link this one into the copy with --link seed.csv"
    )
    assert not report.identical
    assert report.metrics.first is not None
    assert report.metrics.first.step == 0  # the evaluation before the first step
    assert "nothing else that was recorded differs\ncause, perhaps: no seed was recorded: " in str(report)


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
def test_a_finished_run_with_an_exit_code_is_compared(
    tmp_path: Path, console: Console, fork_server: ForkServer
) -> None:
    project = Project(tmp_path / "digits").make()
    project.write("src/digits/train.py", (project.root / "src/digits/train.py").read_text() + "sys.exit(3)\n")
    project.train(fork_server, epochs=1, code=3)

    report = console.reproduce(project.train_dir)

    assert report.identical, str(report)
    assert console.said("ended") == "ended: exit code 3; its training was completed, as the recorded one"


def test_command_and_folder_are_told_before_all_else(own_project: Project, console: Console, tmp_path: Path) -> None:
    (own_project.train_dir / "metrics.sqlite").touch()
    own_project.root.joinpath(".git").rename(tmp_path / "gone")

    with pytest.raises(InputError, match=r"^the commit .* of the record is not in "):
        console.reproduce(own_project.train_dir, folder=tmp_path / "again")

    assert console.lines[:3] == [
        f"runs: {sys.executable} -m digits.train 3",
        f"in {tmp_path}/again/code/digits/experiments; its output goes to {tmp_path}/again/output.log",
        "The program runs with your permissions. "
        "The question before a foreign record guards against mistakes; it is not a sandbox.",
    ]


@pytest.mark.parametrize("here", [True, False])
def test_a_record_that_may_be_foreign_is_not_run_where_nobody_can_be_asked(
    own_project: Project, console: Console, tmp_path: Path, here: bool
) -> None:
    of_another_machine(own_project)

    assert refusal(lambda: console.reproduce(own_project.train_dir, folder=tmp_path / "again", here=here)) == (
        "the record may not be yours: it was recorded on another machine, 'elsewhere'\n"
        "  look at the command and at the code of the record, and give --yes if you trust them"
    )
    assert [line.partition(" ")[0] for line in console.lines] == ["runs:", "in", "The"]
    assert [*(tmp_path / "again").iterdir()] == []


@pytest.mark.slow
@pytest.mark.usefixtures("repeated_programs")
@pytest.mark.parametrize(
    "consent", [{"yes": True}, pytest.param({"ask": lambda question: True}, marks=pytest.mark.whole)]
)
def test_a_record_that_may_be_foreign_is_run_with_consent(
    own_project: Project, console: Console, tmp_path: Path, consent: dict[str, object]
) -> None:
    of_another_machine(own_project)

    assert console.reproduce(own_project.train_dir, folder=tmp_path / "again", steps=2, **consent).identical


def test_nothing_of_a_record_is_said_raw(own_project: Project, console: Console, tmp_path: Path) -> None:
    odd = json.dumps("\x1b[31m\u202e\n\x07")[1:-1]
    own_project.edit_record('"digits.train"', f'"digits{odd}.train"')
    own_project.root.joinpath(".git").rename(tmp_path / "gone")

    with pytest.raises(InputError, match=r"^the commit .* of the record is not in "):
        console.reproduce(own_project.train_dir, folder=tmp_path / "again")

    assert "\\x1b[31m" in console.said("runs")
    assert [line for line in console.lines if not line.isprintable()] == []


@pytest.mark.parametrize("folder", ["elsewhere/at/all", "digits/../outside"])
def test_no_folder_is_made_where_a_record_says(
    own_project: Project, console: Console, tmp_path: Path, folder: str
) -> None:
    place = tmp_path / folder
    own_project.edit_record(f'"folder": "{own_project.root}/experiments"', f'"folder": "{place}"')

    assert (
        refusal(lambda: console.reproduce(own_project.train_dir, folder=tmp_path / "again"))
        == f"the working folder {place} is not there\n  make it, if the program that is named above should run there"
    )
    assert not place.exists()


def test_no_folder_is_made_through_a_link_of_a_record(own_project: Project, console: Console, tmp_path: Path) -> None:
    (own_project.root / "door").symlink_to(tmp_path)
    (record,) = own_project.train_dir.glob("code/*.json")
    before = record.stat()
    take_code_record(own_project.root, own_project.train_dir, record.stem)
    os.utime(record, ns=(before.st_atime_ns, before.st_mtime_ns))
    own_project.edit_record(f'"folder": "{own_project.root}/experiments"', f'"folder": "{own_project.root}/door/made"')

    with pytest.raises(InputError, match=r"^the working folder .*/door/made is not there"):
        console.reproduce(own_project.train_dir, folder=tmp_path / "again")

    assert not (tmp_path / "made").exists()


def test_a_repository_that_has_moved_is_asked_for(own_project: Project, console: Console, tmp_path: Path) -> None:
    runs = shutil.copytree(own_project.train_dir, tmp_path / "kept")
    own_project.root.rename(tmp_path / "elsewhere")

    assert (
        refusal(lambda: console.reproduce(runs))
        == f"the repository {own_project.root} is not there any more\n  give a clone of it: --repository DIR"
    )


def test_a_run_without_a_code_record_says_that_here_is_the_way(own_project: Project, console: Console) -> None:
    shutil.rmtree(own_project.train_dir / "code")

    assert refusal(lambda: console.reproduce(own_project.train_dir)) == (
        "the code of this run was not recorded: it had no extension CodeRecord\n"
        "  --here runs the program as it is now, and compares the metrics"
    )


def test_a_folder_that_is_not_empty_is_refused(own_project: Project, console: Console) -> None:
    assert (
        refusal(lambda: console.reproduce(own_project.train_dir, folder=own_project.root))
        == f"{own_project.root} is not empty\n  give a folder that is empty or not there"
    )
