"""What a program does outside of its own process, noted by an audit hook: sockets, processes, files.

    notes = watched("import train_manager", folder)
    assert not [note for note in notes if note.kind == "socket"]

Audit hooks see what Python's own functions do, and cannot be taken out again, so each program runs in an interpreter of
its own, in which the hook comes first. A process that C code starts shows in the numbers that the system keeps of
children; a socket that C code opens shows if it is still open at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

ROOT = Path(__file__).parents[2]
NO_SOCKET: Final = "socket.gethostname"  # asks the kernel for a name, for the file that says which process writes
PROCESSES: Final = (
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "pty.spawn",
    "subprocess.Popen",
)
READING: Final = ("os.listdir", "os.scandir")
CHANGING: Final = {  # at which places of the arguments paths stand, each with that of its folder; None if it has none
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((1, 3),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
}
LEFT_OUT: Final = ("GIT_", "MPL", "TORCH", "TRAIN_MANAGER_", "XDG_")  # variables that lead elsewhere
WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Noted:
    """One thing that a program did.

    Attributes:
        kind: "socket", "process", "read" or "write".
        event: the name of the audit event.
        what: the address, the executable or the path.
    """

    kind: str
    event: str
    what: str


def watched(program: str, folder: Path) -> list[Noted]:
    """Run a program in a new interpreter, in a folder, and return what it did outside of its process.

    Its home is ``folder/home``, its folder for temporary files ``folder/temporary``, and it runs in ``folder/here``.

    Raises:
        AssertionError: the program failed.
    """
    for name in ("home", "temporary", "here"):
        (folder / name).mkdir(exist_ok=True)
    notes = folder / "notes.jsonl"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    environment = {
        **kept,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.support.outside", str(notes), program]
    done = subprocess.run(
        command, cwd=folder / "here", env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return [Noted(*json.loads(line)) for line in notes.read_text(encoding="utf-8").splitlines()]


# ---- the program's side ----------------------------------------------------------------------------------------------


class Watcher:
    """The audit hook; each note is written at once, since a program may end in any way."""

    def __init__(self, notes: int) -> None:
        self._notes = notes

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket.") and event != NO_SOCKET:
            self.note("socket", event, arguments)
        elif event in PROCESSES:
            self.note("process", event, arguments[0] if arguments else "")
        elif event == "open":
            path, _, flags = arguments
            self._note_path("write" if flags & WRITES else "read", event, path)
        elif event == "sqlite3.connect":
            self._note_database(os.fsdecode(arguments[0]))
        elif event in READING:
            self._note_path("read", event, arguments[0])
        elif event in CHANGING:
            for path, folder in CHANGING[event]:
                self._note_path("write", event, arguments[path], -1 if folder is None else arguments[folder])

    def _note_database(self, name: str) -> None:
        path, _, how = name.removeprefix("file:").partition("?") if name.startswith("file:") else (name, "", "")
        if path not in ("", ":memory:"):
            self._note_path("read" if "mode=ro" in how else "write", "sqlite3.connect", unquote(path))

    def _note_path(self, kind: str, event: str, path: Any, folder: int = -1) -> None:
        """Note a path, unless it is a file that is open already; relative to a folder that is open, if one is given."""
        if not isinstance(path, int):
            start = os.getcwd() if folder < 0 else os.readlink(f"/proc/self/fd/{folder}")
            self.note(kind, event, os.path.normpath(os.path.join(start, os.fsdecode(path or "."))))

    def note(self, kind: str, event: str, what: Any) -> None:
        os.write(self._notes, (json.dumps([kind, event, str(what)]) + "\n").encode())

    def watch_fork_exec(self) -> None:
        """Note what no audit event tells: ``multiprocessing`` starts its servers past ``subprocess``."""
        import _posixsubprocess as module

        start = module.fork_exec

        def fork_exec(arguments: Sequence[Any], executables: Sequence[bytes], *others: Any) -> int:
            self.note("process", "_posixsubprocess.fork_exec", os.fsdecode(executables[0]))
            return int(start(arguments, executables, *others))

        module.fork_exec = fork_exec  # type: ignore[assignment]

    def note_what_is_left(self) -> None:
        """Note what C code may have done: children that were waited for, and sockets that are open."""
        import resource

        if resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss:
            self.note("process", "a child has ended", "")
        for file in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
            try:
                target = os.readlink(f"/proc/self/fd/{file}")
            except OSError:
                continue  # the one that listed them
            if target.startswith("socket:"):
                self.note("socket", "a socket is open", target)


def main() -> None:
    file, program = sys.argv[1:]
    watcher = Watcher(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    watcher.watch_fork_exec()
    sys.addaudithook(watcher)
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    watcher.note_what_is_left()


if __name__ == "__main__":
    main()
