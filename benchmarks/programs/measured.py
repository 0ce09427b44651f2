"""What the trainings of one toolkit take, in a process of their own: prints it as JSON.

python -m benchmarks.programs.measured Lightning MLP '{"rounds": 3}'
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any, Final

import torch
from torch import nn

from benchmarks.measure import interleaved
from benchmarks.programs import FORMS, lines_of, module_of
from benchmarks.programs.problems import Problem, problems

FIRST: Final = 4
"""The batches of the first training, whose end is "the first steps": what compiles does so within them."""
EPOCHS: Final = 4
COUNTED: Final = 2
"""The last epochs of a training are measured, from evaluation to evaluation: by then all graphs are made."""

Program = Callable[[Problem, int], nn.Module]


def measure(tool: str, name: str, rounds: int = 3, scale: float = 1.0, started: float | None = None) -> dict[str, Any]:
    """Return seconds to the first steps, the peak of memory, and seconds per epoch of each form and by hand."""
    started = time() if started is None else started
    torch.set_num_threads(1)
    module, problem = importlib.import_module(module_of(tool)), problems(scale)[name]
    forms = [form for form in FORMS if hasattr(module, form)]
    first: Program = getattr(module, forms[0])
    first(problem.with_batches(FIRST), 1)
    to_first_steps = time() - started
    first(problem, 1)
    peak = peak_of_memory()
    plain = importlib.import_module(module_of("plain"))
    programs: dict[str, Program] = {form: getattr(module, form) for form in forms}
    programs |= {f"plain {form}": getattr(plain, form) for form in forms if hasattr(plain, form)}
    expected = weights(plain.bare(problem, 1))
    off = {form: distance(weights(program(problem, 1)), expected) for form, program in programs.items()}
    seconds = interleaved({form: turn(program, problem) for form, program in programs.items()}, rounds)
    return {
        "first": to_first_steps,
        "peak": peak,
        "off": off,
        "seconds": seconds,
        "lines": {form: lines_of(module, form) for form in forms},
    }


def peak_of_memory() -> float:
    """MB that this program has had at once; `getrusage` would begin with those of the process that starts it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def turn(program: Program, problem: Problem) -> Callable[[], float]:
    """CPU seconds of an epoch with its evaluation, the mean of the last ones of a training."""

    def measured() -> float:
        gc.collect()
        problem.marks.clear()
        program(problem, EPOCHS)
        return (problem.marks[-1] - problem.marks[-1 - COUNTED]) / COUNTED

    return measured


def weights(model: nn.Module) -> torch.Tensor:
    """All weights in one row."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def distance(of: torch.Tensor, to: torch.Tensor) -> float:
    """How far the weight that is farthest off is off."""
    return float((of - to).abs().max())


def main() -> None:
    tool, name, options = sys.argv[1:]
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()), open(os.devnull, "w") as nowhere:
        with contextlib.redirect_stderr(nowhere):
            made = measure(tool, name, **json.loads(options))
    print(json.dumps(made))


if __name__ == "__main__":
    main()
