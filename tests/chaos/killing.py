"""Kill trainings at random moments, and look at what they have left.

A moment is a random number of lines that the process prints, and then a random part of the time that a step takes.
"""

from __future__ import annotations

import json
import random
import re
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.victims import saves, saves_together, stamps, trains
from tests.support.fork_server import Child, ForkServer
from tests.support.ranks import end_of, start_ranks
from train_manager.checkpoints.checkpoint import read_checkpoint
from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.telling.errors import CheckpointError

STEP_SECONDS = 0.02  # about as long as a step with its save takes


@dataclass
class Found:
    """What was found after kills.

    Attributes:
        kills: how many there were.
        in_a_save: of these, how many left a checkpoint half-written.
        faults: what was wrong.
    """

    kills: int = 0
    in_a_save: int = 0
    faults: list[str] = field(default_factory=list)


def kill(child: Child, chance: random.Random, line: str, most: int) -> int:
    """Kill a process at a random moment; return the number in the last of these lines, of which one may be cut."""
    for _ in range(chance.randint(1, most)):
        child.wait_for(line)
    time.sleep(chance.uniform(0, STEP_SECONDS))
    child.signal(signal.SIGKILL)
    child.wait()
    return max(int(number) for number in re.findall(rf"^{line} (\d+)\n", child.output, re.MULTILINE))


def kills_of_saves(
    server: ForkServer, folder: Path, kills: int, size: int = 30_000, in_background: bool = False
) -> Found:
    """Kill a training that saves each step, and resumes from there, again and again.

    Args:
        size: the numbers in each of two parameters.
        in_background: a step is told before it is written, so the disk has the one before.
    """
    chance, found, last = random.Random(0), Found(), 0
    for _ in range(kills):
        child = server.start(saves, str(folder), size, in_background)
        loaded = int(child.wait_for("loaded").split()[1])
        if loaded != last:
            found.faults.append(f"resumed from {loaded}, not from {last}")
        acknowledged = kill(child, chance, "saved", most=4)
        found.kills += 1
        found.in_a_save += any(folder.glob("checkpoints/.tmp-*"))
        last = _newest_sound(folder, acknowledged - in_background, found)
    return found


def kills_of_ranks(server: ForkServer, folder: Path, kills: int, rank: int, size: int = 30_000) -> Found:
    """Kill one of two processes that train together and save each step, and start both again, again and again.

    Args:
        rank: the process that is killed; the other one ends by itself, with an error.
        size: the numbers in each of two parameters.
    """
    chance, found, last = random.Random(rank), Found(), 0
    for _ in range(kills):
        ranks = start_ranks(server, 2, saves_together, str(folder), size, folder=folder.parent)
        for one in ranks:
            loaded = int(one.wait_for("loaded").split()[1])
            if loaded != last:
                found.faults.append(f"resumed from {loaded}, not from {last}")
        acknowledged = kill(ranks[rank], chance, "saved", most=4)
        other = end_of(ranks[1 - rank], 1 - rank, folder.parent)
        if not other.text:
            found.faults.append(f"rank {1 - rank} has ended without an error: {other.output}")
        found.kills += 1
        found.in_a_save += any(folder.glob("checkpoints/.tmp-*"))
        last = _newest_sound(folder, acknowledged, found)
    return found


def _newest_sound(folder: Path, acknowledged: int, found: Found) -> int:
    """The step of the newest checkpoint, and what is wrong with any."""
    steps = []
    for path in CheckpointFolder(folder / "checkpoints").checkpoints():
        try:
            held = stamps(read_checkpoint(path))
        except CheckpointError as error:
            found.faults.append(f"unusable: {error}")
            continue
        steps.append(int(max(held)))
        if len(held) != 1 or int(path.name.split("-")[1]) not in held:
            found.faults.append(f"torn: {path.name} is of the steps {sorted(held)}")
    newest = max(steps, default=0)
    if newest < acknowledged:
        found.faults.append(f"lost: step {acknowledged} was saved, but the newest is {newest}")
    return newest


def kills_of_a_training(
    server: ForkServer,
    folder: Path,
    kills: int,
    seed: int = 0,
    steps: int = 120,
    save_each: int = 5,
    real: bool = False,
) -> tuple[Found, dict[str, str], dict[str, str]]:
    """Kill a training so many times on its way, and compare its end with that of one that runs through.

    Returns:
        What was found, and the sums of both.
    """
    through = server.start(trains, None, steps, save_each, real)
    whole = _sums(through)
    chance, found = random.Random(seed), Found()
    for number in range(kills):
        child = server.start(trains, str(folder), steps, save_each, real)
        loaded = int(child.wait_for("loaded").split()[1])
        left = steps - loaded
        at = max(1, min(left - 1, round(chance.uniform(0.2, 1.8) * left / (kills - number + 1))))
        for _ in range(at):
            child.wait_for("step")
        time.sleep(chance.uniform(0, STEP_SECONDS / 4))
        child.signal(signal.SIGKILL)
        if child.wait() != -signal.SIGKILL:
            found.faults.append(f"ended with {child.code}: {child.errors}")
        found.kills += 1
        found.in_a_save += any(folder.glob("checkpoints/.tmp-*"))
    return found, whole, _sums(server.start(trains, str(folder), steps, save_each, real))


def _sums(child: Child) -> dict[str, str]:
    found: dict[str, str] = json.loads(child.wait_for("sums").partition(" ")[2])
    child.wait()
    return found
