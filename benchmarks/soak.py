"""Whether memory stays flat over millions of stages.

    python -m benchmarks soak --stages 1e6

The garbage collector is off: what could only be freed by it would show.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import in_fresh_process
from benchmarks.section import Claim, Section, table
from train_manager import Extensible, Extension, fixture, modifies, provides

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES: Final = 20
STAGES_IN_A_STEP: Final = 2
FAILURES: Final = 1000  # a step in so many fails
QUICK: dict[str, Any] = {"stages": 20_000}

TEXT: Final = """\
{stages:,} stages in {seconds:.0f} s, nested in pairs, with fixtures of a kilobyte that are given, provided,
modified and lazy; one step in {failures} fails. The garbage collector is off: no object waits for it.
Memory of the process above that after the first twentieth of the stages:

{table}

![Memory of the process over the stages](benchmarks/soak.png)
"""


class Steps(Extensible):
    """Steps of two stages."""

    def step(self, number: int) -> None:
        with self.staged("step", {"data": bytearray(1000)}):
            with self.staged("forward"):
                self.fixtures.define("loss", [0.0] * 100, stage="step")
            if number % FAILURES == 0:
                raise ArithmeticError(number)


class Watching(Extension):
    """Reads, provides, modifies, and computes on demand."""

    seen = 0

    @fixture("step")
    def size(self, data: bytearray) -> int:
        return len(data)

    @provides("norm")
    def pre_forward(self, data: bytearray) -> list[int]:
        return [len(data)] * 100

    @modifies("loss")
    def post_forward(self, loss: list[float], norm: list[int]) -> list[float]:
        return [*loss, 1.0]

    def post_step(self, loss: list[float], size: int) -> None:
        self.seen += size == 1000 and len(loss) == 101


def soak(stages: int, *others: Extension) -> dict[str, Any]:
    """Run, and tell the seconds it took and the memory in MB at each sample; for a process of its own.

    Args:
        stages: how many.
        others: extensions beside the one that is always there.
    """
    watching = Watching()
    steps = Steps([watching, *others])
    memory = []
    gc.disable()
    before = time.process_time()
    each = stages // STAGES_IN_A_STEP // SAMPLES
    for sample in range(SAMPLES):
        for number in range(sample * each, (sample + 1) * each):
            try:
                steps.step(number)
            except ArithmeticError:
                watching.seen += 1
        memory.append(megabytes())
    assert watching.seen == SAMPLES * each, "each hook ran once per step"
    return {"seconds": time.process_time() - before, "memory": memory}


def megabytes() -> float:
    """Memory that the process has now; where that cannot be told, the most that it ever had."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def section(stages: int = 3_000_000) -> Section:
    """Measure.

    Args:
        stages: how many in all.
    """
    code = f"import json; from benchmarks.soak import soak; print(json.dumps(soak({stages})))"
    told: Mapping[str, Any] = in_fresh_process(code)
    above = [memory - told["memory"][0] for memory in told["memory"]]
    done = [stages // SAMPLES * (sample + 1) for sample in range(SAMPLES)]
    shown = range(4, SAMPLES, 5)
    text = TEXT.format(
        stages=stages,
        seconds=told["seconds"],
        failures=FAILURES,
        table=table(
            ["stages", *(f"{done[sample]:,}" for sample in shown)],
            [["MB", *(f"{above[sample]:.2f}" for sample in shown)]],
        ),
    )
    claims = [Claim(f"growth of memory over {stages:,} stages", max(above), 1, 0.1, "MB")]
    return Section("Memory over many stages", text, claims, {"soak": picture(done, above)}, on_page=False)


def picture(done: list[int], above: list[float]) -> Figure:
    """Memory over stages."""
    from matplotlib.ticker import EngFormatter

    from benchmarks.pictures import figure

    made, (axes,) = figure(1, height=2.6)
    axes.plot(done, above, marker="o", markersize=4, color="black")
    axes.axhline(1, color="#d55e00", linestyle="--")
    axes.annotate("limit", (done[0], 1), (0, -12), textcoords="offset points", color="#d55e00")
    axes.set_ylim(min(-0.1, *above), max(1.2, *above))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlabel("stages")
    axes.set_ylabel("MB above the start")
    return made
