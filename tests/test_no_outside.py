"""What no import and no training does: open a socket, start a process, write or read where it has no business."""

from __future__ import annotations

import os
from pathlib import Path
from shutil import copytree

import pytest

from tests.support.outside import Noted, watched

pytestmark = pytest.mark.skipif(os.name != "posix", reason="homes and processes have other names here")

STARTED_BY = {"code_record": {"git"}}
"""The programs that an extension starts, by its name; no other extension of the default ones starts any.

If variables of git are set (``GIT_DIR`` in a git hook), ``env`` starts git without them.
"""

FONTS = "import matplotlib.font_manager"  # looks for the fonts of this machine, once for each home

TRAINING = """
import train_manager
import train_manager.extensions as extensions

for module in (train_manager, extensions):
    for name in module.__all__:
        getattr(module, name)

import torch
from train_manager.extensions import Checkpoints, default_extensions
from train_manager.testing import tiny_manager

def make(**others):
    chosen = {name: one for name, one in default_extensions().items() if name not in LEFT_OUT}
    return tiny_manager(extensions={**chosen, **others}, epochs=2, train_dir="run", seed=0)

tm = make()
tm.train()
tm.eval()
tm.predict(torch.rand(3, 2))
resumed = make(checkpoints=Checkpoints(resume=True, at=3))
assert resumed.train().epochs == 1
"""


class Run:
    """A training in its folder, and what it did outside of its process.

    Args:
        home: a home in which matplotlib has looked for the fonts.
    """

    def __init__(self, folder: Path, home: Path, left_out: tuple[str, ...]) -> None:
        self.folder = folder
        copytree(home, folder / "home")
        for secret in (".netrc", ".ssh/id_rsa", ".gitconfig", ".aws/credentials", ".config/train_manager.toml"):
            (folder / "home" / secret).parent.mkdir(exist_ok=True)
            (folder / "home" / secret).touch()
        self.notes = watched(f"LEFT_OUT = {left_out!r}\n{TRAINING}", folder)

    def noted(self, kind: str, *, outside: tuple[str, ...] = ()) -> list[Noted]:
        """Return what it did of a kind, but for what was in these of its folders."""
        folders = tuple(f"{self.folder}/{name}/" for name in outside)
        return [note for note in self.notes if note.kind == kind and not f"{note.what}/".startswith(folders or "\n")]

    def written_elsewhere(self) -> list[Noted]:
        """Return what it wrote beside its train_dir, the folder for temporary files, and the caches of matplotlib."""
        known = ("here/run", "temporary", "home/.cache/matplotlib", "home/.config/matplotlib")
        return [note for note in self.noted("write", outside=known) if note.what != os.devnull]


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Noted]]:
    """A home in which matplotlib has looked for the fonts, and what it did for that."""
    folder = tmp_path_factory.mktemp("fonts")
    notes = watched(FONTS, folder)
    return folder / "home", notes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, fonts: tuple[Path, list[Noted]]) -> Run:
    """A training with all default extensions but those that start a program."""
    return Run(tmp_path_factory.mktemp("run"), fonts[0], tuple(STARTED_BY))


def kinds(notes: list[Noted]) -> set[str]:
    return {note.kind for note in notes}


# ---- the library -----------------------------------------------------------------------------------------------------


def test_an_import_reads_files_and_does_nothing_else(tmp_path: Path) -> None:
    assert kinds(watched("import train_manager, train_manager.extensions, train_manager.cli", tmp_path)) == {"read"}


@pytest.mark.slow
def test_a_training_opens_no_socket(run: Run) -> None:
    assert run.noted("socket") == []


@pytest.mark.slow
def test_a_training_starts_no_process(run: Run) -> None:
    assert run.noted("process") == []


@pytest.mark.slow
def test_a_training_writes_into_its_train_dir_and_the_folder_for_temporary_files(run: Run) -> None:
    assert run.written_elsewhere() == []
    assert [*(run.folder / "here").iterdir()] == [run.folder / "here" / "run"]


@pytest.mark.slow
def test_a_training_reads_nothing_in_the_home_but_what_matplotlib_keeps_there(run: Run) -> None:
    home = str(run.folder / "home")
    known = ("home/.cache/matplotlib", "home/.config/matplotlib")

    assert [note for note in run.noted("read", outside=known) if note.what.startswith(home)] == []


@pytest.mark.slow
def test_the_first_figure_of_a_user_lets_matplotlib_ask_for_fonts(fonts: tuple[Path, list[Noted]]) -> None:
    """A process that the library does not start, but that users may see: it is the only one."""
    started = {note.what for note in fonts[1] if note.event == "subprocess.Popen"}

    assert started <= {"fc-list", "system_profiler"}


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("name", sorted(STARTED_BY))
def test_an_extension_starts_the_programs_that_it_is_known_for(
    name: str, tmp_path: Path, fonts: tuple[Path, list[Noted]]
) -> None:
    run = Run(tmp_path, fonts[0], tuple({*STARTED_BY} - {name}))
    started = {Path(note.what).name for note in run.noted("process") if note.event != "a child has ended"}

    assert started == STARTED_BY[name]
    assert run.noted("socket") == run.written_elsewhere() == []


# ---- the watcher -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "program"),
    [
        ("socket.__new__", "import socket; socket.socket().close()"),
        ("socket.__new__", "import asyncio; asyncio.new_event_loop().close()"),
        ("socket.getaddrinfo", "import socket; socket.getaddrinfo('127.0.0.1', 80)"),
        ("socket.gethostbyname", "import socket; socket.gethostbyname('127.0.0.1')"),
        ("a socket is open", "import ctypes; ctypes.CDLL(None).socket(2, 1, 0)"),
    ],
)
def test_the_watcher_sees_a_socket(event: str, program: str, tmp_path: Path) -> None:
    assert event in {note.event for note in watched(program, tmp_path) if note.kind == "socket"}


FORK = "import os\nif os.fork() == 0: os._exit(0)"
SPAWN = "import os; os.posix_spawn('/bin/sh', ['sh', '-c', ':'], {})"
MULTIPROCESSING = "import multiprocessing as m; p = m.get_context({!r}).Process(); p.start(); p.join()"


@pytest.mark.parametrize(
    ("event", "program"),
    [
        ("subprocess.Popen", "import subprocess; subprocess.run(['true'])"),
        ("os.system", "import os; os.system('true')"),
        ("os.fork", FORK),
        ("os.forkpty", FORK.replace("os.fork()", "os.forkpty()[0]")),
        ("os.posix_spawn", SPAWN),
        ("os.exec", "import os; os.execv('/bin/sh', ['sh', '-c', ':'])"),
        ("os.fork", MULTIPROCESSING.format("fork")),
        ("_posixsubprocess.fork_exec", MULTIPROCESSING.format("spawn")),
        ("a child has ended", "import ctypes; ctypes.CDLL(None).system(b'true')"),
    ],
)
def test_the_watcher_sees_a_process(event: str, program: str, tmp_path: Path) -> None:
    assert event in {note.event for note in watched(program, tmp_path) if note.kind == "process"}


@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("write", "open('a', 'w').close()"),
        ("write", "open('a', 'a').close()"),
        ("write", "import os; os.open('a', os.O_CREAT)"),
        ("write", "import os; os.mkdir('a')"),
        ("write", "import os; os.symlink('nowhere', 'a')"),
        ("write", "import os; os.mkdir('a', dir_fd=os.open('.', os.O_RDONLY))"),
        ("write", "import sqlite3; sqlite3.connect('a').close()"),
        ("read", "open('/dev/null').close()"),
        ("read", "import os; os.listdir('/dev')"),
        ("read", "import os; os.scandir('/dev').close()"),
    ],
)
def test_the_watcher_sees_where_files_are_changed_and_read(kind: str, program: str, tmp_path: Path) -> None:
    paths = {"write": {f"{tmp_path}/here/a"}, "read": {"/dev", "/dev/null"}}[kind]

    assert [note for note in watched(program, tmp_path) if note.kind == kind and note.what in paths]


def test_the_watcher_tells_of_a_program_that_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        watched("1 / 0", tmp_path)
