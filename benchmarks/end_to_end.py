"""Whole trainings with each toolkit, as people use it and as bare as it gets: MLP, CNN, transformer.

python -m benchmarks end_to_end
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final

from benchmarks.measure import ROOT, Spread, ratios
from benchmarks.programs import TOOLS
from benchmarks.section import Claim, Section, lines, table

OURS: Final = "Train Manager"
PROBLEMS: Final = ("MLP", "CNN", "transformer")
NEAR: Final = 1e-4
"""How far the weights of an epoch may be off those of the script, for "the same arithmetic"."""
LIMIT: Final = 1.10  # times the script with the same tricks
QUICK: dict[str, Any] = {"rounds": 1, "scale": 0.1, "tools": ("plain", OURS)}

TEXT: Final = """\
Images of 28x28 for an MLP of 784, 256 and 10 units and for a CNN, and lines of 64 characters for a transformer of 2
layers of 64, with AdamW on DataLoaders and an evaluation after each epoch. CPU time of an epoch over that of the same
script by hand, in the order of the MLP; `benchmarks/programs/` has the programs. "usual": as people use it, with the
loss and the accuracy shown as the toolkit does by itself; "bare": all that can be left out is left out.

{epochs}

What a user writes and waits for, in the usual form on the MLP: lines of the program; seconds on the clock until the
program has trained {first} batches, with all imports; peak of the memory in MB.

{once}

All bare trainings end with the weights of the script, within {near:g}{inexact}.{notes}
"""

Measured = Mapping[str, Mapping[str, Any]]
"""Toolkit -> problem -> what ``benchmarks.programs.measured`` prints."""


def section(
    rounds: int = 2, scale: float = 1.0, tools: Sequence[str] = tuple(TOOLS), names: Sequence[str] = PROBLEMS
) -> Section:
    """Measure.

    Args:
        rounds: how often the forms of a toolkit and the scripts take their turn.
        scale: a share of the batches.
        tools: the toolkits, of which those are left out that are not installed; "plain" and ours are among them.
        names: the problems; the MLP is among them.
    """
    from benchmarks.programs.measured import FIRST

    measured, notes = run_all(rounds, scale, tools, names)
    others = [tool for tool in measured if tool != "plain"]
    order = sorted(others, key=lambda tool: over(measured[tool]["MLP"], "bare").median)
    heads = ["", *(f"{name}, {form}" for name in names for form in ("usual", "bare"))]
    text = TEXT.format(
        first=FIRST,
        near=NEAR,
        epochs=table(heads, [epoch_row(tool, measured[tool]) for tool in order]),
        once=table(["", "lines", "s", "MB"], [once_row(tool, measured[tool]["MLP"]) for tool in ("plain", *order)]),
        inexact=inexact(measured),
        notes=lines([*ahead(measured), *tuned(measured), *notes]),
    )
    return Section("End to end", text, claims(measured))


def run_all(rounds: int, scale: float, tools: Sequence[str], names: Sequence[str]) -> tuple[Measured, list[str]]:
    """Each toolkit on each problem in a process of its own, and a line for each that does not run."""
    measured: dict[str, dict[str, Any]] = {}
    notes = []
    for tool in tools:
        try:
            if (package := TOOLS[tool]) is not None:
                importlib.metadata.version(package)
            measured[tool] = {name: in_process(tool, name, rounds, scale) for name in names}
        except importlib.metadata.PackageNotFoundError:
            notes.append(f"skipped: {tool} is not installed")
        except RuntimeError as error:
            notes.append(f"skipped: {tool} does not run here ({str(error).splitlines()[-1]})")
    return measured, notes


def in_process(tool: str, name: str, rounds: int, scale: float) -> Any:
    """What a toolkit takes for a problem."""
    options = json.dumps({"rounds": rounds, "scale": scale, "started": time()})
    command = [sys.executable, "-m", "benchmarks.programs.measured", tool, name, options]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def over(measured: Mapping[str, Any], form: str, plain: str | None = None) -> Spread:
    """How many times the epoch of the script an epoch takes."""
    seconds = measured["seconds"]
    return ratios(seconds[form], seconds[f"plain {plain or form}"])


def epoch_row(tool: str, measured: Mapping[str, Any]) -> list[str]:
    """The ratios of a toolkit."""
    return [tool, *(f"{over(of, form).median:.2f}" for of in measured.values() for form in ("usual", "bare"))]


def once_row(tool: str, measured: Mapping[str, Any]) -> list[str]:
    """What is paid once."""
    return [tool, str(measured["lines"]["usual"]), f"{measured['first']:.1f}", f"{measured['peak']:.0f}"]


def inexact(measured: Measured) -> str:
    """The toolkits whose bare weights are those of another arithmetic."""
    found = [tool for tool, of in measured.items() if max(one["off"]["bare"] for one in of.values()) > NEAR]
    return f"; not those of {', '.join(found)}" if found else ""


def ahead(measured: Measured) -> list[str]:
    """A line for each problem and form in which another toolkit takes less, quartiles apart."""
    told = []
    for name, mine in measured[OURS].items():
        for form in ("usual", "bare"):
            ours = over(mine, form)
            rivals = [tool for tool in measured if tool not in (OURS, "plain")]
            found = [tool for tool in rivals if over(measured[tool][name], form).is_below(ours)]
            if found:
                told.append(f"Ahead of {OURS} ({name}, {form}): {', '.join(found)}.")
    return told


def with_tricks(measured: Measured) -> dict[str, Mapping[str, Any]]:
    """The problems that are trained with tricks, here and by hand."""
    tricks = {"tuned", "plain tuned"}
    return {name: mine for name, mine in measured[OURS].items() if tricks <= set(mine["seconds"])}


def tuned(measured: Measured) -> list[str]:
    """What the tricks give, here and by hand."""
    heads = [f"{OURS}, tuned", "over the bare script", "over the script with the same tricks"]
    rows = [
        [name, over(mine, "tuned", "bare").shown(2), over(mine, "tuned").shown(2)]
        for name, mine in with_tricks(measured).items()
    ]
    return [table(heads, rows)] if rows else []


def claims(measured: Measured) -> list[Claim]:
    """The limits of the tuned programs."""
    ratios_of = {name: over(mine, "tuned").median for name, mine in with_tricks(measured).items()}
    what = "a tuned epoch of the {} over the script with the same tricks"
    return [Claim(what.format(name), ratio, LIMIT, 1.0) for name, ratio in ratios_of.items()]
