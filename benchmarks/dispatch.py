"""What one hook point costs, with 0 to 20 subscribers that are called before and after it.

python -m benchmarks dispatch
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from benchmarks import peers
from benchmarks.measure import Spread, interleaved, ratios, seconds_each, spread
from benchmarks.section import Claim, Costs, Section, better, lines, table
from benchmarks.stages import BY_HAND, FLOOR, KINDS, OURS
from benchmarks.subscribers import Stage, require_calls

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTS: Final = (0, 1, 5, 20)
LIMITS: Final = {1: (7, 3.3), 5: (2.7, 1.5), 20: (1.5, 1.2)}  # must and goal; a stage without hooks is only shown
QUICK: dict[str, Any] = {"rounds": 3, "calls": 50}

TEXT: Final = """\
One hook point calls H subscribers, once before and once after; each gets one value, and counts. The times are ratios to
two loops over bound methods by hand, which take {nanoseconds} ns. Quartiles are within {widest:.0%} of a median.

{table}

![Time of a hook point over that of calls by hand, for 0 to 20 subscribers](benchmarks/dispatch.png)

"{floor}": an empty `with self.staged(name, {{...}})` between the two loops, the least cost of this form.{notes}
"""


def section(rounds: int = 21, calls: int = 2000, with_peers: bool = True) -> Section:
    """Measure.

    Args:
        rounds: how often all cases take their turn.
        calls: how often in a turn a stage with few subscribers is run through; one with many less often.
        with_peers: whether to compare with the toolkits that are installed.
    """
    usable, skipped = peers.with_hook_points() if with_peers else ({}, [])
    stages = {**KINDS, **{name: module.stage for name, module in usable.items()}}
    costs: dict[str, dict[int, Spread]] = {name: {} for name in stages}
    nanoseconds = []
    for count in COUNTS:
        cases = {name: turn(stage(count), max(1, calls // (1 + count // 2))) for name, stage in stages.items()}
        measured = interleaved(cases, rounds)
        nanoseconds.append(f"{spread(measured[BY_HAND]).median * 1e9:.0f}")
        for name, values in measured.items():
            costs[name][count] = ratios(values, measured[BY_HAND])
    text = TEXT.format(
        nanoseconds=", ".join(nanoseconds),
        table=table(["", *(f"H = {count}" for count in COUNTS)], rows(costs)),
        floor=FLOOR,
        widest=max(one.width() for by_count in costs.values() for one in by_count.values()),
        notes=lines([better(costs, OURS, usable), *skipped]),
    )
    claims = [
        Claim(f"one stage over calls by hand, H = {count}", costs[OURS][count].median, *limits)
        for count, limits in LIMITS.items()
    ]
    return Section("One stage", text, claims, {"dispatch": picture(costs)})


def turn(stage: Stage, calls: int) -> Callable[[], float]:
    """A case for ``interleaved``, which makes sure that each subscriber was called once before and once after."""

    def measured() -> float:
        seconds = seconds_each(stage.run, calls)
        require_calls(stage.subscribers, before=calls, after=calls)
        return seconds

    return measured


def rows(costs: Costs) -> list[list[str]]:
    """The table, cheapest first."""
    by_last = sorted(costs.keys() - {BY_HAND}, key=lambda name: costs[name][COUNTS[-1]].median)
    return [[name, *(f"{costs[name][count].median:.2f}" for count in COUNTS)] for name in by_last]


def picture(costs: Costs) -> Figure:
    """Lines over the number of subscribers, on a log scale."""
    from benchmarks.pictures import figure, lines_of

    made, (axes,) = figure(1, height=4.2)
    lines_of(axes, {name: {str(count): s for count, s in by_count.items()} for name, by_count in costs.items()})
    axes.set_xlabel("H, subscribers")
    axes.set_ylabel("time over calls by hand")
    return made
