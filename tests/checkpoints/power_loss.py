"""What a power failure may leave on a disk: calls to the system are recorded, and disks are made that forgot some.

A disk keeps what was synced. Of all else it keeps any part, in any order: a name in a folder (made, renamed) or not,
bytes of a file all, none, the first few of them, or zeros in their place. That is harsher than ext4 with its journal.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch


@dataclass
class Step:
    """One call to the system that changes a disk.

    Args:
        kind: "folder", "file", "write", "rename", "sync", "sync folder" or "acknowledged".
        path: of what; a file keeps the path under which it was opened.
        content: what was written, or the new name.
    """

    kind: str
    path: str
    content: Any = None


@dataclass
class Recording:
    """The steps below a folder, in order."""

    root: Path
    steps: list[Step] = field(default_factory=list)

    def acknowledge(self, name: str) -> None:
        """Note that the program now relies on something."""
        self.steps.append(Step("acknowledged", name))

    def note(self, kind: str, path: Any, content: Any = None) -> None:
        name = os.path.relpath(path, self.root)
        if not name.startswith(".."):
            self.steps.append(Step(kind, name, content))


@contextmanager
def recorded(root: Path, *, without: tuple[str, ...] = ()) -> Iterator[Recording]:
    """Record what this process changes on disk below a folder.

    Args:
        root: the folder.
        without: kinds of steps that are left out, to show that a disk without them loses something.
    """
    found, paths = Recording(root), dict[int, str]()
    real_open, real_write, real_sync, real_mkdir, real_rename = os.open, os.write, os.fsync, os.mkdir, os.rename

    def note(kind: str, path: Any, content: Any = None) -> None:
        if kind not in without:
            found.note(kind, path, content)

    def opened(path: Any, flags: int, *more: Any, **options: Any) -> int:
        descriptor = real_open(path, flags, *more, **options)
        paths[descriptor] = os.fspath(path)
        if flags & os.O_CREAT:
            note("file", path)
        return descriptor

    def wrote(descriptor: int, content: Any) -> int:
        count = real_write(descriptor, content)
        note("write", paths[descriptor], bytes(content[:count]))
        return count

    def synced(descriptor: int) -> None:
        real_sync(descriptor)
        note("sync folder" if os.path.isdir(paths[descriptor]) else "sync", paths[descriptor])

    def made(path: Any, *more: Any, **options: Any) -> None:
        real_mkdir(path, *more, **options)
        note("folder", path)

    def renamed(old: Any, new: Any, **options: Any) -> None:
        real_rename(old, new, **options)
        note("rename", old, os.path.relpath(new, root))

    with patch.multiple(os, open=opened, write=wrote, fsync=synced, mkdir=made, rename=renamed):
        yield found


def disk_states(steps: list[Step], times: int, seed: int = 0) -> Iterator[tuple[list[str], dict[str, bytes | None]]]:
    """Yield what was acknowledged before a failure at a random moment, and a disk as it may be found after it.

    Args:
        steps: what was recorded.
        times: how many disks.
        seed: of all that is random.
    """
    chance = random.Random(seed)
    for _ in range(times):
        done = steps[: chance.randrange(len(steps) + 1)]
        yield [step.path for step in done if step.kind == "acknowledged"], _disk(done, chance)


def lay_out(disk: dict[str, bytes | None], folder: Path) -> None:
    """Make the files and folders of a disk."""
    for name, content in sorted(disk.items()):
        path = folder / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        elif path.parent.is_dir():
            path.write_bytes(content)


def _disk(done: list[Step], chance: random.Random) -> dict[str, bytes | None]:
    """A disk: names of files with their bytes, and of folders with None; a name whose folder is missing is lost."""
    disk: dict[str, bytes | None] = {}
    for place, step in enumerate(done):
        kept = _is_synced(step, done[place + 1 :])
        match step.kind:
            case "folder" if kept or chance.random() < 0.5:
                disk[step.path] = None
            case "file" if kept or chance.random() < 0.5:
                disk[step.path] = b""
            case "write" if step.path in disk:
                disk[step.path] = (disk[step.path] or b"") + (step.content if kept else _torn(step.content, chance))
            case "rename" if step.path in disk and (kept or chance.random() < 0.5):
                disk = {_moved(name, step.path, step.content): content for name, content in disk.items()}
    return disk


def _is_synced(step: Step, later: list[Step]) -> bool:
    """Whether a later sync covers a step: of the file for its bytes, of the folder around it for its name."""
    kind, path = ("sync", step.path) if step.kind == "write" else ("sync folder", os.path.dirname(step.path) or ".")
    return any(other.kind == kind and other.path == path for other in later)


def _torn(content: bytes, chance: random.Random) -> bytes:
    part = content[: chance.randrange(len(content) + 1)]
    return chance.choice([content, b"", part, part + bytes(len(content) - len(part)), bytes(len(content))])


def _moved(name: str, old: str, new: str) -> str:
    return new + name.removeprefix(old) if name == old or name.startswith(f"{old}/") else name
