"""What the check before the first step costs a TrainManager, with 0, 20 and 100 extensions.

    python benchmarks/check_time.py [rounds]

"first" is in a fresh process, where no source has been read yet; "again" is after that, as when an extension was
added. CPU time in milliseconds, medians over the rounds.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

PROBE = """
import time
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
for _ in range(2):
    before = time.process_time()
    tm.check("train")
    print((time.process_time() - before) * 1000)
"""


def probe(extensions: int) -> list[float]:
    """Milliseconds of the first check and of the next, in a fresh process."""
    code = PROBE.replace("EXTENSIONS", str(extensions))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(line) for line in run.stdout.split()]


def main(rounds: int) -> None:
    print(f"{'extensions':>10} {'first ms':>9} {'again ms':>9}")
    for extensions in (0, 20, 100):
        probes = [probe(extensions) for _ in range(rounds)]
        first, again = (statistics.median(column) for column in zip(*probes, strict=True))
        print(f"{extensions:10} {first:9.1f} {again:9.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
