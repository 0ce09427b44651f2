"""The summary of a run at the top of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from train_manager.reporting.values import plural, seconds_text
from train_manager.runs.comparing.columns import outcome_in_short
from train_manager.runs.comparing.compared import Compared
from train_manager.runs.comparing.run_metrics import is_setting
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.run_summary import MALFORMED, summary_of
from train_manager.runs.showing.shown_run import ShownRun
from train_manager.telling.errors import TrainManagerError

BEST: Final = ", best"  # the end of the names of best metrics


def metrics_of(compared: Compared | None, number: int) -> dict[str, str]:
    """Return the last and the best metrics of a run, by their names."""
    cells = {name: cells[number] for name, cells in compared.metrics.items()} if compared else {}
    return {name: text for name, text in cells.items() if text is not None}


def message_of(compared: Compared | None, number: int) -> str:
    """Return the outcome of a run with its message; empty if the short outcome has no less."""
    outcome = compared.runs[number].outcome if compared else ""
    return outcome if outcome_in_short(outcome) != outcome else ""


def facts(run: ShownRun, metrics: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the summary of a run: in each line a name, a value, and a note beside it."""
    if run.found is None:
        yield "folder", str(run.train_dir), ""
        return
    try:
        summary = summary_of(run.found)
    except (TrainManagerError, OSError, *MALFORMED) as error:
        yield "record", f"damaged: {error}", ""
        return
    yield "outcome", outcome_in_short(summary.outcome), ""
    if summary.steps is not None:
        yield "done", f"{plural(summary.epochs or 0, 'epoch')}, {plural(summary.steps, 'step')}", ""
    for name, text in metrics.items():
        if not name.endswith(BEST) and not is_setting(name):
            yield name, text, f"best {metrics[name + BEST]}" if name + BEST in metrics else ""
    yield "commit", summary.commit or "not recorded", ""
    seed, seeds = run.found.entry.get("seed"), (run.found.entry.get("environment") or {}).get("seeds") or {}
    of_torch = chosen_seed(seeds)
    yield "seed", str(seed) if seed is not None else "not given" if of_torch is None else f"{of_torch} of torch", ""
    yield "began", summary.began.astimezone().strftime("%Y-%m-%d %H:%M"), ""
    if summary.seconds is not None:
        yield "took", seconds_text(summary.seconds), ""
    yield "run", summary.id, ""
    yield "folder", str(summary.train_dir), ""
