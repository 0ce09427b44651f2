"""What a reader in a hurry wants to know of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from train_manager.reporting.values import plural, seconds_text
from train_manager.runs.comparing.compared import Compared
from train_manager.runs.comparing.run_figures import is_setting
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.run_summary import MALFORMED, summary_of
from train_manager.runs.showing.shown_run import ShownRun
from train_manager.telling.errors import TrainManagerError

BEST: Final = ", best"  # what the names of the best figures end with


def metrics_of(compared: Compared | None, number: int) -> dict[str, str]:
    """Return the last and the best figures of a run, by their names."""
    cells = {name: cells[number] for name, cells in compared.metrics.items()} if compared else {}
    return {name: text for name, text in cells.items() if text is not None}


def facts(run: ShownRun, metrics: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield what a reader in a hurry wants to know: its name, how it ended, and the best of it."""
    if run.found is None:
        yield "folder", str(run.train_dir), ""
        return
    try:
        told = summary_of(run.found)
    except (TrainManagerError, OSError, *MALFORMED) as error:
        yield "run.json", f"damaged: {error}", ""
        return
    yield "outcome", told.outcome, ""
    if told.steps is not None:
        yield "done", f"{plural(told.epochs or 0, 'epoch')}, {plural(told.steps, 'step')}", ""
    for name, text in metrics.items():
        if not name.endswith(BEST) and not is_setting(name):
            yield name, text, f"best {metrics[name + BEST]}" if name + BEST in metrics else ""
    yield "commit", told.commit or "not recorded", ""
    seed, seeds = run.found.entry.get("seed"), (run.found.entry.get("environment") or {}).get("seeds") or {}
    of_torch = chosen_seed(seeds)
    yield "seed", str(seed) if seed is not None else "not given" if of_torch is None else f"{of_torch} of torch", ""
    yield "began", told.began.astimezone().strftime("%Y-%m-%d %H:%M"), ""
    if told.seconds is not None:
        yield "took", seconds_text(told.seconds), ""
    yield "run", told.id, ""
    yield "folder", str(told.train_dir), ""
