"""Runs the benchmarks; see ``__init__.py``."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Final

from benchmarks import page
from benchmarks.measure import ROOT

NAMES: Final = (
    "dispatch",
    "counts",
    "loop",
    "usual",
    "compiled",
    "end_to_end",
    "epoch",
    "import_cost",
    "check_time",
    "scale",
    "in_memory",
    "checkpoint_cost",
    "run_records",
    "code_record_cost",
    "metric_cost",
    "curve_cost",
    "batch_leak",
    "moment",
    "ranks",
    "watchers",
    "change_log",
    "sinks",
    "defaults",
    "learner",
    "soak",
    "gpu",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"some of: {', '.join(NAMES)}; default all")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for a look")
    parser.add_argument("--stages", type=float, help="how many stages the soak runs; default 3e6")
    parser.add_argument("--device", default="cuda", help="where `gpu` runs; default cuda")
    options = parser.parse_args()
    sections = []
    for name in options.names or NAMES:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        module = importlib.import_module(f"benchmarks.{name}")
        sizes = dict(module.QUICK) if options.quick else {}
        if name == "soak" and options.stages:
            sizes["stages"] = int(options.stages)
        if name == "gpu":
            sizes["device"] = options.device
        sections.append(module.section(**sizes))
        print(page.shown(sections[-1]), flush=True)
    if not options.names and not options.quick:
        page.write(sections)
        print(f"\nwritten: {page.PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
