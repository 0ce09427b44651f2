"""Kill a process at each line that it runs: `python -m tests.checkpoints.crash_points FOLDER [EVERY]`, here of a save.

A process forks once per line, and lets the child kill itself as soon as it comes to that line; no `finally` runs then.
It must not have used torch's threads before, so tests start it as a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from tests.checkpoints.states import same, small_state
from train_manager.checkpoints import checkpoint, hashed_file, tensors
from train_manager.checkpoints.checkpoint import read_checkpoint, write_checkpoint
from train_manager.telling.errors import CheckpointError

# All that is asked of the disk is asked in their lines.
TRACED = (checkpoint.__file__, hashed_file.__file__, tensors.__file__)


def killed_at_each_line(work: Callable[[], object], files: Collection[str] = TRACED, every: int = 1) -> Iterator[int]:
    """Run some work in a child per line, killed at that line; yield the line's number when it is dead.

    Args:
        work: what is done.
        files: the source files whose lines count.
        every: 1 for each line, 10 for each tenth.
    """
    for line in count(1, every):
        child = os.fork()
        if child == 0:
            _work_until(work, line, files)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the work failed without being killed"
            return
        yield line


def _work_until(work: Callable[[], object], line: int, files: Collection[str]) -> None:
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        left -= event == "line"
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    os._exit(1)


def state_of(path: Path) -> int | None:
    """Which of the states ``small_state`` a checkpoint holds, or None if it is damaged."""
    try:
        found = read_checkpoint(path)
    except CheckpointError:
        return None
    step = found["counters"]["step_num"]
    return step if same(found["model"], small_state(step)["model"]) else None


def kill_a_save(folder: Path, every: int = 1) -> dict[str, int]:
    """Kill a save at each line, and count what came of it."""
    names = {step: f"step-{step:012d}" for step in (1, 2, 3)}
    states = {step: small_state(step) for step in names}
    write_checkpoint(folder, names[1], states[1], {})
    counts = {"points": 0, "written": 0, "corrupt": 0, "lost": 0, "next save failed": 0}

    def save() -> None:
        write_checkpoint(folder, names[2], states[2], {})

    for _ in killed_at_each_line(save, every=every):
        found = {path.name: state_of(path) for path in folder.glob("step-*")}
        write_checkpoint(folder, names[3], states[3], {})  # beside what was left
        counts["points"] += 1
        counts["written"] += names[2] in found
        counts["corrupt"] += any(f"step-{step or 0:012d}" != name for name, step in found.items())
        counts["lost"] += names[1] not in found
        counts["next save failed"] += state_of(folder / names[3]) != 3
        for path in (folder / names[2], folder / names[3], *folder.glob(".tmp-*")):
            shutil.rmtree(path, ignore_errors=True)
    return counts


if __name__ == "__main__":
    print(json.dumps(kill_a_save(Path(sys.argv[1]), *map(int, sys.argv[2:]))))
