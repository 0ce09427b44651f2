"""`make chaos`: the tests that kill, many times over; the numbers go into docs/explanation/checkpoints-under-fire.md.

`python -m tests.chaos 0.1` does a tenth of it, and only shows the numbers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.chaos.killing import Found, kills_of_a_training, kills_of_saves
from tests.chaos.page import PAGE, Row, written
from tests.checkpoints.hostile import opened
from tests.checkpoints.test_checkpoint_crashes import losses
from tests.checkpoints.test_hostile_files import make_mutants
from tests.support.fork_server import ForkServer

MEMORY = Path("/dev/shm")
TRAININGS = 2
Count = Callable[[Path], tuple[int, list[str]]]


class Fire:
    """What was done so far.

    Args:
        part: of the full number of times.
    """

    def __init__(self, server: ForkServer, part: float) -> None:
        self.server, self.part = server, part
        self.rows: list[Row] = []
        self.in_a_save = 0

    def times(self, full: int) -> int:
        return max(1, round(full * self.part))

    def add(
        self, what: str, found: str, count: Callable[[Path], tuple[int, list[str]]], on: Path | None = None
    ) -> None:
        """Do something in a new folder, which returns how often it was done, and what was wrong."""
        began = perf_counter()
        with TemporaryDirectory(dir=on, prefix="chaos-") as folder:
            times, faults = count(Path(folder))
        self.rows.append(Row(what, times, found, perf_counter() - began, faults))
        print(" | ".join(self.rows[-1].cells()), *faults, sep="\n  ", flush=True)

    def _count(self, found: Found) -> tuple[int, list[str]]:
        self.in_a_save += found.in_a_save
        return found.kills, found.faults

    def kill_saves(self, folder: Path) -> tuple[int, list[str]]:
        return self._count(kills_of_saves(self.server, folder, self.times(450)))

    def kill_saves_in_background(self, folder: Path) -> tuple[int, list[str]]:
        return self._count(kills_of_saves(self.server, folder, self.times(100), in_background=True))

    def kill_trainings(self, folder: Path) -> tuple[int, list[str]]:
        kills, faults = 0, []
        for number in range(TRAININGS):
            done = kills_of_a_training(
                self.server, folder / str(number), self.times(100), steps=1008, save_each=10, real=True, seed=number
            )
            kills += done[0].kills
            faults += done[0].faults
            faults += [f"{name} differs" for name in done[1] if done[1][name] != done[2][name]]
        return kills, faults

    def kill_lines(self, folder: Path) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "tests.checkpoints.crash_points", str(folder), str(round(1 / self.part))]
        counts = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        wrong = ("corrupt", "lost", "next save failed")
        return counts["points"], [f"{name}: {counts[name]}" for name in wrong if counts[name]]

    def cut_the_power(self, folder: Path) -> tuple[int, list[str]]:
        times = self.times(4000)
        return times, [f"{name}: {count}" for name, count in losses(folder, times).items() if count]

    def change_files(self, folder: Path) -> tuple[int, list[str]]:
        (folder / "files").mkdir()
        make_mutants(folder / "files", self.times(4000))
        outcomes = opened(folder / "files", self.server)
        refused = {name for name, outcome in outcomes.items() if outcome.startswith("CheckpointError: ")}
        other = [
            f"{name}: {outcome}" for name, outcome in outcomes.items() if outcome != "read" and name not in refused
        ]
        print(f"  {len(refused)} refused, {len(outcomes) - len(refused) - len(other)} read")
        return len(outcomes), other


def main() -> int:
    part = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with ForkServer() as server:
        fire = Fire(server, part)
        fire.add("killed while it saves, on the mount of `/tmp`", "these lost, unusable or torn", fire.kill_saves)
        fire.add("the same on another mount", "these lost, unusable or torn", fire.kill_saves, on=MEMORY)
        fire.add("the same, written in the background", "these lost, unusable or torn", fire.kill_saves_in_background)
        fire.add("killed trainings", f"{TRAININGS} trainings that differ in any bit", fire.kill_trainings)
        fire.add(
            "killed at each line of a save",
            "these corrupt, lost, or in the way of the next",
            fire.kill_lines,
            on=MEMORY,
        )
        fire.add("power failures", "these unusable, or with a save lost", fire.cut_the_power, on=MEMORY)
        fire.add("changed files", "these neither read nor refused", fire.change_files, on=MEMORY)
    if part == 1:
        print(written(fire.rows, fire.in_a_save), f"written: {PAGE}", sep="\n")
    return int(any(row.faults for row in fire.rows))


if __name__ == "__main__":
    sys.exit(main())
