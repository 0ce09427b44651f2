"""What the records of a run cost: the first training of a process, with and without them.

python -m benchmarks run_records
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from benchmarks.measure import in_fresh_process, interleaved, spread
from benchmarks.section import Claim, Section, table

RECORDS: Final = ("CodeRecord", "RunRecord", "MetricStore")
QUICK: dict[str, Any] = {"rounds": 1}

PROBE: Final = """
import json, tempfile, time
from train_manager import extensions
from train_manager.testing import tiny_manager
tiny_manager().train()  # what torch does once
chosen = [getattr(extensions, name)() for name in {names}]
tm = tiny_manager(*chosen, epochs=3, train_dir=tempfile.mkdtemp())
before = time.perf_counter()
tm.train()
print(json.dumps(time.perf_counter() - before))
"""

TEXT: Final = """\
Time on the clock of the first training of a process, which is as short as can be (9 batches), so that all that is left
is what the records do as it opens and ends: asking git about this repository and copying what differs, reading which
packages are installed, and writing the files. `CodeRecord` works in a thread, so a longer training does not wait.

{table}
"""


def section(rounds: int = 2) -> Section:
    """Measure."""
    cases: dict[str, tuple[str, ...]] = {"without": (), "with the three records": RECORDS}
    measured = interleaved({case: partial(_seconds, names) for case, names in cases.items()}, rounds)
    rows = [[case, spread(seconds).times(1e3).shown(0)] for case, seconds in measured.items()]
    cost = spread(measured["with the three records"]).median - spread(measured["without"]).median
    claim = Claim("the three records of a run", cost, must=1.0, goal=0.3, unit="s")
    return Section("Records of a run", TEXT.format(table=table(["a training", "ms"], rows)), [claim], on_page=False)


def _seconds(names: tuple[str, ...]) -> float:
    return float(in_fresh_process(PROBE.format(names=names)))
