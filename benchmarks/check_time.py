"""What the check before the first step costs a TrainManager, with 0, 20 and 100 extensions.

    python -m benchmarks check_time

"first" is in a fresh process, where no source has been read yet; "again" is after that, as when an extension was
added.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks.measure import in_fresh_process, spread
from benchmarks.section import Section, table

COUNTS: Final = (0, 20, 100)
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
CPU time in ms of the check before the first step: the first time in a process, which reads the source, and again, as
after a new extension.

{table}
"""


def section(rounds: int = 5) -> Section:
    """Measure."""
    rows = []
    for count in COUNTS:
        probes = [in_fresh_process(PROBE.replace("EXTENSIONS", str(count))) for _ in range(rounds)]
        first, again = (spread(column).shown(1) for column in zip(*probes, strict=True))
        rows.append([f"{count} extensions", first, again])
    return Section("The check before the first step", TEXT.format(table=table(["", "first", "again"], rows)))
