"""What `import train_manager` costs, in time, memory and modules, beside an empty Python and `import torch`.

    python benchmarks/import_time.py [rounds]

Each import runs in a fresh process; the cases are interleaved; CPU time, medians over the rounds.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

CASES = {
    "an empty Python": "pass",
    "import train_manager": "import train_manager",
    "import torch": "import torch",
    "from train_manager import TrainManager": "from train_manager import TrainManager",
}
PROBE = """
import json, resource, sys, time
before = time.process_time()
{statement}
seconds = time.process_time() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([seconds, peak, len(sys.modules), "torch" in sys.modules]))
"""


def probe(statement: str) -> list[float]:
    """CPU seconds, peak MB, modules loaded, and whether torch is among them, in a fresh process."""
    code = PROBE.format(statement=statement)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(value) for value in json.loads(run.stdout)]


def main(rounds: int) -> None:
    measured: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for _ in range(rounds + 1):  # the first round fills the file cache
        for case, statement in CASES.items():
            measured[case].append(probe(statement))
    medians = {
        case: [statistics.median(column) for column in zip(*runs[1:], strict=True)] for case, runs in measured.items()
    }
    torch_seconds = medians["import torch"][0]
    print(f"{'':40} {'CPU s':>8} {'of torch':>9} {'peak MB':>8} {'modules':>8}  torch loaded")
    for case, (seconds, peak, modules, has_torch) in medians.items():
        share = seconds / torch_seconds
        print(f"{case:40} {seconds:8.3f} {share:8.2f}x {peak:8.0f} {modules:8.0f}  {'yes' if has_torch else 'no'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
