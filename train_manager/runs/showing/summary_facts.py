"""The summary of a run at the top of its page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from train_manager.metrics.history_rows import is_loss
from train_manager.reporting.values import number_text, seconds_text
from train_manager.runs.comparing.measured import is_setting
from train_manager.runs.comparing.run_list import outcome_in_short
from train_manager.runs.record.environment import chosen_seed
from train_manager.runs.record.run_file import Entry
from train_manager.runs.record.run_summary import RunSummary
from train_manager.runs.record.trained_parts import part_facts

BEST: Final = ", best"  # the end of the names of best metrics


def facts(summary: RunSummary, entry: Entry, metrics: Mapping[str, str | None]) -> Iterator[tuple[str, str, str]]:
    """Yield the summary of a run: in each line a name, a value, and a note beside it."""
    yield "outcome", outcome_in_short(summary.outcome), ""
    if summary.done:
        yield "done", summary.done, ""
    if decides := summary.best:
        side, by = "lowest" if decides.mode == "min" else "highest", f", monitored by {decides.by}" * bool(decides.by)
        yield "best epoch", f"{decides.epoch:,}", f"{side} {decides.metric}: {number_text(decides.value)}{by}"
    yield from part_facts(summary.trains)
    for name, text in metrics.items():
        if text is not None and not name.endswith(BEST) and not is_setting(name):
            best = metrics.get(name + BEST)
            yield (f"epoch {name}" if is_loss(name) else name), text, f"best {best}" if best else ""
    yield "commit", summary.commit or "not recorded", ""
    seed, seeds = entry.get("seed"), (entry.get("environment") or {}).get("seeds") or {}
    of_torch = chosen_seed(seeds)
    yield "seed", str(seed) if seed is not None else "not given" if of_torch is None else f"{of_torch} of torch", ""
    yield "began", summary.began_in_minutes, ""
    if summary.seconds is not None:
        yield "took", seconds_text(summary.seconds), ""
    yield "run", summary.id, ""
    yield "folder", str(summary.train_dir), ""
