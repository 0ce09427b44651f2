"""How the cost of a stage grows: with extensions, with stages around it, with fixtures that are alive.

python -m benchmarks scale
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import Spread, growth, interleaved, ratios, seconds_each, spread
from benchmarks.section import Claim, Section, table
from benchmarks.stages import HOOKS, ours
from benchmarks.subscribers import require_calls, subscribers
from train_manager import Extensible, Extension

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENSIONS: Final = (1, 3, 10, 30, 100, 300, 1000)
DEPTHS: Final = (1, 2, 5, 10, 20, 50)
FIXTURES: Final = (10, 100, 1000, 10_000)
FLAT: Final = (  # what makes no difference
    ("with 1000 extensions that have no hook in it", "with 1"),
    ("inside 49 others", "inside none"),
    ("among 10000 fixtures", "among 10"),
)
QUICK: dict[str, Any] = {"rounds": 2, "calls": 100}

TEXT: Final = """\
The cost of one stage as its surroundings grow. "Growth" is the exponent of a fit: 0 is flat, 1 is a straight line. The
stage has one extension with a pre and a post hook in it, or the number in the row.

{table}

![Cost of a stage against the number of extensions, depth and fixtures](benchmarks/scale.png)
"""


class Around(Extensible):
    """A stage that can be run through inside others."""

    def work(self, times: int) -> None:
        for _ in repeat(None, times):
            with self.staged("work", {"value": 1}):
                pass

    def inside(self, depth: int, do: Callable[[], float]) -> float:
        """Do something in the innermost of so many stages, the one of ``work`` counted."""
        if depth == 1:
            return do()
        with self.staged("around"):
            return self.inside(depth - 1, do)

    def among(self, fixtures: int, do: Callable[[], float]) -> float:
        """Do something while so many fixtures are alive."""
        with self.staged("around", {f"fixture_{number}": number for number in range(fixtures)}):
            return do()


@dataclass(frozen=True)
class Growth:
    """How a cost grew: for each size the seconds, and how many times those of the first size."""

    sizes: Sequence[int]
    seconds: list[Spread]
    over_first: list[Spread]

    @property
    def exponent(self) -> float:
        """0 is flat, 1 a straight line; from 10 on, where a constant part no longer hides the growth."""
        return growth(self.sizes[-3:], [point.median for point in self.seconds[-3:]])

    def row(self, name: str) -> list[str]:
        """A row of the table."""
        first, last = (self.seconds[place].times(1e6) for place in (0, -1))
        return [
            name,
            f"{self.sizes[0]} to {self.sizes[-1]}",
            first.shown(2),
            last.shown(2),
            self.over_first[-1].shown(2),
            f"{self.exponent:.2f}",
        ]


def section(rounds: int = 21, calls: int = 2000, most: int = 10_000) -> Section:
    """Measure.

    Args:
        rounds: how often all sizes take their turn.
        calls: how often in a turn a stage is run through; one with many hooks less often.
        most: sizes beyond it are left out.
    """
    extensions, depths, fixtures = (
        [size for size in sizes if size <= most] for sizes in (EXTENSIONS, DEPTHS, FIXTURES)
    )
    grown = {
        "extensions with hooks in it": measured(extensions, partial(with_hooks, calls=calls), rounds),
        "extensions without a hook in it": measured(extensions, partial(without_hooks, calls=calls), rounds),
        "stages, one in the other": measured(depths, partial(at_depth, calls=calls), rounds),
        "fixtures alive": measured(fixtures, partial(among_fixtures, calls=calls), rounds),
    }
    heads = ["", "how many", "us at first", "us at last", "last over first", "growth"]
    text = TEXT.format(table=table(heads, [one.row(name) for name, one in grown.items()]))
    line, *flat = grown.values()
    claims = [Claim("exponent of growth with extensions that have hooks in the stage", line.exponent, 1.2, 1.1, "")]
    claims += [
        Claim(f"a stage {what} over one {instead}", one.over_first[-1].median, 1.2, 1.1)
        for one, (what, instead) in zip(flat, FLAT, strict=True)
    ]
    return Section("Growth", text, claims, {"scale": picture(grown)}, on_page=False)


def measured(sizes: Sequence[int], case: Callable[[int], Callable[[], float]], rounds: int) -> Growth:
    """A cost at several sizes, which take turns."""
    seconds = interleaved({size: case(size) for size in sizes}, rounds)
    first = seconds[sizes[0]]
    return Growth(sizes, [spread(seconds[size]) for size in sizes], [ratios(seconds[size], first) for size in sizes])


def with_hooks(count: int, calls: int) -> Callable[[], float]:
    """So many extensions with hooks in the stage."""
    stage = ours(count)
    return partial(checked, stage.run, stage.subscribers, max(5, calls // count))


def without_hooks(count: int, calls: int) -> Callable[[], float]:
    """One extension with hooks in the stage, so many with hooks in another."""
    objects = subscribers(1, **HOOKS, base=Extension)
    others = subscribers(count, before="pre_around(self)", after="post_around(self)", base=Extension)
    return partial(checked, Around([*others, *objects]).work, objects, calls)


def at_depth(depth: int, calls: int) -> Callable[[], float]:
    """The innermost of so many stages."""
    objects = subscribers(1, **HOOKS, base=Extension)
    around = Around(objects)
    return partial(around.inside, depth, partial(checked, around.work, objects, calls))


def among_fixtures(count: int, calls: int) -> Callable[[], float]:
    """A stage inside one that has so many fixtures."""
    objects = subscribers(1, **HOOKS, base=Extension)
    around = Around(objects)
    return partial(around.among, count, partial(checked, around.work, objects, calls))


def checked(run: Callable[[int], object], objects: list[Any], calls: int) -> float:
    """CPU seconds of one stage; each subscriber was called once in it, before and after."""
    seconds = seconds_each(run, calls)
    require_calls(objects, before=calls, after=calls)
    return seconds


def picture(grown: dict[str, Growth]) -> Figure:
    """To the left what is a straight line, to the right what is flat."""
    from benchmarks.pictures import figure, flat_of, line_of

    made, (left, right) = figure(2, height=3.8)
    (name, line), *flat = grown.items()
    line_of(left, line.sizes, [point.times(1e6) for point in line.seconds])
    left.set_xlabel(name)
    left.set_ylabel("us for one stage")
    flat_of(right, {name: (one.sizes, one.over_first) for name, one in flat})
    right.set_xlabel("how many")
    right.set_ylabel("over the first")
    return made
