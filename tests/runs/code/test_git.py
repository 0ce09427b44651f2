"""Git is asked so that it answers in time or is ended, and so that the environment leads it nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.other_processes import is_running
from tests.runs.code.repositories import repository
from train_manager.runs.code import git as git_commands
from train_manager.runs.code.git import Git, GitTrouble


def hanging_git(folder: Path) -> Path:
    """A git that starts a child and hangs with it; both write down their ids."""
    program = folder / "git"
    program.write_text(f'#!/bin/sh\nsleep 1000 &\necho "$$ $!" > "{folder}/ids"\nwait\n')
    program.chmod(0o755)
    return program


def test_a_git_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_commands.git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(hanging_git(tmp_path)))

    with pytest.raises(GitTrouble) as caught:
        Git(tmp_path, seconds=0.5).run("rev-parse")

    assert str(caught.value) == "git did not answer within 0.5 s"
    ids = [int(text) for text in (tmp_path / "ids").read_text().split()]
    eventually(lambda: not any(map(is_running, ids)))  # a killed process goes in its own time


def test_a_child_that_keeps_the_output_open_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "git"
    waits = "while not os.path.exists('over'): time.sleep(0.02)"
    program.write_text(f"#!{sys.executable} -S\nimport os, time\nif os.fork() == 0: os.setsid()\n{waits}\n")
    program.chmod(0o755)
    monkeypatch.setattr(git_commands.git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(program))

    with pytest.raises(GitTrouble, match=r"git did not answer within 0\.5 s"):
        Git(tmp_path, seconds=0.5).run("rev-parse")  # would not come back before the child has ended

    (tmp_path / "over").touch()


def test_an_exit_code_that_is_not_fine_is_told_with_gits_own_line(tmp_path: Path) -> None:
    with pytest.raises(GitTrouble) as caught:
        Git(tmp_path).run("cat-file", "-e", "HEAD")

    assert str(caught.value) == "git cat-file failed: not a git repository (or any of the parent directories): .git"


def test_what_git_reads_is_handed_to_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab")

    assert Git(root).run("hash-object", "--stdin", feed=b"a\0b") == b"20b5be91886d0b6f26dc98a225c0dac05fe2c86e\n"


def test_without_anything_to_read_git_finds_the_end_of_a_file(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab")

    assert Git(root).run("hash-object", "--stdin") == b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n"


def test_variables_of_a_hook_do_not_lead_git_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, elsewhere = repository(tmp_path / "lab"), repository(tmp_path / "elsewhere")
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(elsewhere))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))

    assert Git(root).run("rev-parse", "--show-toplevel") == os.fsencode(root) + b"\n"


def test_a_process_that_is_ended_leaves_no_pipes_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_commands.git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(hanging_git(tmp_path)))
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        with pytest.raises(GitTrouble):
            Git(tmp_path, seconds=0.1).run("rev-parse", feed=b"x")

    assert len(os.listdir("/proc/self/fd")) == before
    assert not is_running(int((tmp_path / "ids").read_text().split()[0]))


RECORD = """
import sys
from pathlib import Path
from train_manager.runs.code.take import take_code_record
print(take_code_record(Path.cwd(), Path(sys.argv[1]), "0123456789abcdef")["reason"])
"""


def reason_of_a_process(root: Path, tmp_path: Path, **variables: str) -> str:
    """Record the working folder in a process of its own, which has not imported GitPython yet."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, "-c", RECORD, str(tmp_path / "runs")]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("first", [".", "", "bin"])
def test_programs_in_the_working_folder_are_not_run(tmp_path: Path, first: str) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    for program in ("git", "env", "bin/git", "bin/env"):
        (root / program).parent.mkdir(exist_ok=True)
        (root / program).write_text(f'#!/bin/sh\necho ran >>{tmp_path}/mark\nexec /usr/bin/env -- "$@"\n')
        (root / program).chmod(0o755)
    path = os.pathsep.join([first, os.environ["PATH"]])

    assert reason_of_a_process(root, tmp_path, PATH=path, GIT_DIR="elsewhere") == "None"
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("module", ["git.py", "git/__init__.py"])
def test_a_module_of_the_user_that_hides_gitpython_is_named_and_not_run(tmp_path: Path, module: str) -> None:
    root = repository(tmp_path / "lab", {module: f"open({str(tmp_path / 'mark')!r}, 'w')".encode()})

    reason = reason_of_a_process(root, tmp_path)

    assert reason == f"{root / module} hides GitPython, which is also imported as git: give it another name"
    assert not (tmp_path / "mark").exists()


def test_a_folder_that_happens_to_be_called_git_does_not_hide_gitpython(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"git/notes.txt": b"1\n"})

    assert reason_of_a_process(root, tmp_path) == "None"
