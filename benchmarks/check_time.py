"""What the check before the first step costs a TrainManager, with 0, 20 and 100 extensions.

    python -m benchmarks check_time

"first" is in a fresh process; "again" is after that, as when an extension was added.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks.measure import in_fresh_process, spread
from benchmarks.section import Claim, Section, table

COUNTS: Final = (0, 20, 100)
LIMITS: Final = {0: (50, 10), 20: (65, 25)}  # must and goal
QUICK: dict[str, Any] = {"rounds": 1}

PROBE: Final = """
import json, time
from train_manager import Extension, provides
from train_manager.testing import tiny_manager

def watcher(number):
    def post_train_step_batch(self, loss, prediction, targets): pass
    def post_eval(self, eval_results, epoch_num): pass
    def post_train_backward(self, step_num, fixtures):
        fixtures.setdefault("seen", step_num)
    return type(f"Watcher{number}", (Extension,), {f.__name__: f for f in
        (post_train_step_batch, post_eval, post_train_backward)})()

tm = tiny_manager(*map(watcher, range(EXTENSIONS)))
milliseconds = []
for _ in range(2):
    before = time.process_time()
    tm.check("train")
    milliseconds.append((time.process_time() - before) * 1000)
print(json.dumps(milliseconds))
"""

TEXT: Final = """\
CPU time in ms: the first check of a process, and again, as after a new extension.

{table}
"""


def section(rounds: int = 2) -> Section:
    """Measure."""
    rows, claims = [], []
    for count in COUNTS:
        probes = [in_fresh_process(PROBE.replace("EXTENSIONS", str(count))) for _ in range(rounds)]
        first, again = (spread(column) for column in zip(*probes, strict=True))
        rows.append([f"{count} extensions", first.shown(1), again.shown(1)])
        if count in LIMITS:
            claims.append(
                Claim(f"the first check of a process, {count} extensions", first.median, *LIMITS[count], "ms")
            )
    text = TEXT.format(table=table(["", "first", "again"], rows))
    return Section("The check before the first step", text, claims, on_page=False)
