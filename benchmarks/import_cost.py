"""What an import costs, in time, memory and modules, beside an empty Python and `import torch`.

    python -m benchmarks import_cost

Each import runs in a fresh process, whose own peak of memory is read: that which ``getrusage`` tells can be that of
the process which started it.
"""

from __future__ import annotations

from typing import Any, Final

from benchmarks.measure import in_fresh_process, interleaved, ratios, spread
from benchmarks.section import Claim, Section, table

TORCH: Final = "import torch"
LIGHT: Final = "import train_manager"
OURS: Final = "from train_manager import TrainManager"
STATEMENTS: Final = ("pass", LIGHT, TORCH, OURS)
QUICK: dict[str, Any] = {"rounds": 1}

PROBE: Final = """
import json, pathlib, resource, sys, time
before = time.process_time()
{statement}
seconds = time.process_time() - before
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = pathlib.Path("/proc/self/status")
if status.exists():
    peak = int(status.read_text().partition("VmHWM:")[2].split()[0])
print(json.dumps([seconds, peak / 1024, len(sys.modules), "torch" in sys.modules]))
"""

TEXT: Final = """\
CPU time of an import in a new process, the peak of memory, and the number of loaded modules.

{table}
"""


def section(rounds: int = 5) -> Section:
    """Measure."""
    imports = {statement: Import(statement) for statement in STATEMENTS}
    seconds = interleaved({statement: one.seconds for statement, one in imports.items()}, rounds)
    rows = [
        [
            f"`{statement}`",
            spread(seconds[statement]).shown(3),
            ratios(seconds[statement], seconds[TORCH]).shown(2),
            *imports[statement].others(),
        ]
        for statement in sorted(STATEMENTS, key=lambda statement: spread(seconds[statement]).median)
    ]
    text = TEXT.format(table=table(["", "CPU s", "over torch", "peak MB", "modules", "torch loaded"], rows))
    if imports[LIGHT].has_torch:
        raise AssertionError("`import train_manager` imports torch")
    claims = [
        Claim("`import train_manager`, without torch", spread(seconds[LIGHT]).median, 0.10, 0.03, "s"),
        Claim(f"`{OURS}` over `import torch`", ratios(seconds[OURS], seconds[TORCH]).median, 1.10, 1.03),
    ]
    return Section("Import", text, claims, on_page=False)


class Import:
    """A statement that is run in fresh processes, and what the last of them told."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        self.peak = self.modules = 0.0
        self.has_torch = False

    def seconds(self) -> float:
        """CPU seconds of one more process."""
        seconds, self.peak, self.modules, self.has_torch = in_fresh_process(PROBE.format(statement=self.statement))
        return float(seconds)

    def others(self) -> list[str]:
        """The rest of its row."""
        return [f"{self.peak:.0f}", f"{self.modules:.0f}", "yes" if self.has_torch else "no"]
