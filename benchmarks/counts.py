"""How many calls one stage makes of functions written in Python and in C: a cost that has no noise.

python -m benchmarks counts
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from benchmarks import peers, trace
from benchmarks.dispatch import COUNTS
from benchmarks.section import Claim, Section, lines, table
from benchmarks.stages import KINDS, OURS
from train_manager.extensions import default_extensions

QUICK: dict[str, Any] = {}

TEXT: Final = """\
Calls of Python functions + calls of C functions in one hook point, with the 2H calls of the subscribers, as
`sys.setprofile` counts them.

{table}{notes}

The work of this library, without torch and the user's code, in a step of the MLP, and in a save and a load of a
checkpoint. A move is a call from one file into another.

{traces}
"""


def section(with_peers: bool = True) -> Section:
    """Count, in the toolkits that are installed too if so told."""
    usable, skipped = peers.with_hook_points() if with_peers else ({}, [])
    stages = {**KINDS, **{name: module.stage for name, module in usable.items()}}
    counted = {name: [calls_of(stage(count).run) for count in COUNTS] for name, stage in stages.items()}
    rows = [[name, *(f"{python}+{c}" for python, c in calls)] for name, calls in counted.items()]
    saved, loaded = trace.save_and_load()
    traces = {"a plain step": trace.step(), "a step with a hook at each stage": trace.step(trace.Inside())}
    traces |= {"100 steps": trace.steps(), "100 with the default extensions": trace.steps(default_extensions())}
    traces |= {"a save": saved, "a load": loaded}
    traced = [[name, *map(str, (one.opcodes, one.calls, one.moves, len(+one.called)))] for name, one in traces.items()]
    text = TEXT.format(
        traces=table(["", "opcodes", "calls", "moves", "files"], traced),
        table=table(["", *(f"H = {count}" for count in COUNTS)], rows),
        notes=lines(skipped),
    )
    claims = [
        Claim(f"calls in one stage, H = {count}", sum(calls), 11 + 2 * count, 4 + 2 * count, "calls")
        for count, calls in zip(COUNTS, counted[OURS], strict=True)
    ]
    return Section("Calls in one stage", text, claims, on_page=False)


def calls_of(run: Callable[[int], object]) -> tuple[int, int]:
    """Calls of Python functions and of C functions that ``run(2)`` makes beyond those of ``run(1)``.

    >>> calls_of(lambda times: [abs(number) for number in range(times)])
    (0, 1)
    """
    run(3)  # what is done once is done
    once, twice = (_calls_while(run, times) for times in (1, 2))
    return twice["call"] - once["call"], twice["c_call"] - once["c_call"]


def _calls_while(run: Callable[[int], object], times: int) -> Counter[str]:
    seen: Counter[str] = Counter()

    def note(frame: FrameType, what: str, argument: object) -> None:
        seen[what] += 1

    sys.setprofile(note)
    try:
        run(times)
    finally:
        sys.setprofile(None)
    return seen
