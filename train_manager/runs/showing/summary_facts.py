"""The summary of a run at the top of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from train_manager.reporting.values import seconds_text
from train_manager.runs.comparing.measured import is_setting
from train_manager.runs.comparing.run_list import outcome_in_short
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.run_file import Entry
from train_manager.runs.record.run_summary import RunSummary

BEST: Final = ", best"  # the end of the names of best metrics


def facts(summary: RunSummary, entry: Entry, metrics: Mapping[str, str | None]) -> Iterator[tuple[str, str, str]]:
    """Yield the summary of a run: in each line a name, a value, and a note beside it."""
    yield "outcome", outcome_in_short(summary.outcome), ""
    if summary.done:
        yield "done", summary.done, ""
    for name, text in metrics.items():
        if text is not None and not name.endswith(BEST) and not is_setting(name):
            best = metrics.get(name + BEST)
            yield name, text, f"best {best}" if best else ""
    yield "commit", summary.commit or "not recorded", ""
    seed, seeds = entry.get("seed"), (entry.get("environment") or {}).get("seeds") or {}
    of_torch = chosen_seed(seeds)
    yield "seed", str(seed) if seed is not None else "not given" if of_torch is None else f"{of_torch} of torch", ""
    yield "began", summary.began_in_minutes, ""
    if summary.seconds is not None:
        yield "took", seconds_text(summary.seconds), ""
    yield "run", summary.id, ""
    yield "folder", str(summary.train_dir), ""
