"""What the default extensions cost on the demo: bars, a line and a checkpoint for each epoch, and the picture.

    python -m benchmarks defaults

Each run is a process of its own, so that imports count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.measure import in_fresh_process, interleaved, ratios, spread
from benchmarks.section import Claim, Section, table

WITH: Final = "with the default extensions"
WITHOUT: Final = "without"
QUICK: dict[str, Any] = {"rounds": 1}

PROBE: Final = """
import contextlib, io, json, os, pathlib, tempfile, time
from train_manager import demo
if not {with_defaults}:
    made = demo.TrainManager
    metrics = lambda given: [one for one in given if isinstance(one, demo.Metrics)]
    demo.TrainManager = lambda extensions, **rest: made(extensions=metrics(extensions), **rest)
os.chdir(tempfile.mkdtemp())
with contextlib.redirect_stdout(io.StringIO()):
    demo.main()
print(json.dumps(time.process_time()))
"""

TEXT: Final = """\
CPU time of the demo (12 epochs of 22 batches on digits of 8x8 pixels), imports included, with and without
`default_extensions()`: a line and a checkpoint for each epoch, the records of the run, and the picture at the end,
which is drawn without matplotlib. Nearly all of the difference is imports, the twelve checkpoints and what git is
asked.

{table}
"""


def section(rounds: int = 2) -> Section:
    """Measure."""
    seconds = interleaved({WITH: training(True), WITHOUT: training(False)}, rounds)
    ratio = ratios(seconds[WITH], seconds[WITHOUT])
    rows = [
        [WITH, spread(seconds[WITH]).shown(2), ratio.shown(2)],
        [WITHOUT, spread(seconds[WITHOUT]).shown(2), ""],
    ]
    text = TEXT.format(table=table(["demo", "CPU s", "ratio"], rows))
    claim = Claim("the demo with the default extensions", ratio.median, 1.06, 1.03)
    return Section("Default extensions", text, [claim], on_page=False)


def training(with_defaults: bool) -> Callable[[], float]:
    """A function that runs the demo and returns its CPU seconds."""
    return lambda: float(in_fresh_process(PROBE.format(with_defaults=with_defaults)))
