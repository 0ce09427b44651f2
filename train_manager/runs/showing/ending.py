"""The last lines of a training: how it ended, whose weights are in the model, and how to look at its files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train_manager.loop.progress import EVALUATIONS
from train_manager.metrics.monitor import Monitor, best_of
from train_manager.reporting.epoch_table import epoch_label
from train_manager.reporting.values import number_text
from train_manager.runs.record.run_file import has_runs
from train_manager.signals import where_it_goes_on
from train_manager.telling.source_locations import display_path

if TYPE_CHECKING:
    from train_manager.loop.run import Run


def ending_lines(train_manager: Run[Any], error: BaseException | None, monitor: Monitor) -> Iterator[str]:
    """Yield the last lines of a run; none of a run that has not trained, or is one of many.

    Args:
        train_manager: its run ends.
        error: the error by which it ends.
        monitor: the metric that says which evaluation is best.
    """
    run, step_num = train_manager._progress.run, train_manager.step_num
    reason = run.stop_reason if error is None else type(error).__name__
    has_ended = run.has_trained(step_num) or (error is None and reason is not None)
    if not has_ended or run.entry in EVALUATIONS or (reason is None and is_one_of_many(train_manager)):
        return
    if error is not None or train_manager._asked_from_outside is not None:
        then = where_it_goes_on(step_num, run.saved_at)
    else:
        then = weights_text(train_manager, monitor) if run.has_trained(step_num) else ""
    if reason is not None and run.restored_at is not None:
        reason = reason.removesuffix(restored_text(run.restored_at))  # told below, with the epoch
    head = f"done {place(train_manager)}" if reason is None else f"stopped {place(train_manager)}: {reason}"
    yield f"{head}; {then}" if then else head
    if train_manager.train_dir is not None:
        yield from files_lines(train_manager.train_dir)


def is_one_of_many(train_manager: Run[Any]) -> bool:
    """Return whether a run is a call that a program makes again and again: of a batch, or of one epoch."""
    run = train_manager._progress.run
    first_step = run.first_step or 0
    epochs = sum(row["step"] > first_step for row in train_manager.history.epochs)
    return run.entry in ("train_on_batch", "train_epoch") or (run.entry == "train_epochs" and epochs < 2)


def place(train_manager: Run[Any]) -> str:
    """Return where the training is: after its last epoch, in an epoch, or else at a step."""
    row, step_num = next(reversed(train_manager.history.epochs), {}), train_manager.step_num
    if row.get("step") == step_num and row.get("phase") is None and not row.get("partial"):
        return f"after epoch {epoch_label(row, train_manager.epochs).strip()} (step {step_num})"
    if train_manager._progress.run.entry in (None, "train_on_batch"):
        return f"at step {step_num}"  # the program, or a phase, may have trained it outside of epochs
    present = {"epoch": train_manager.epoch_num + 1}
    return f"in epoch {epoch_label(present, train_manager.epochs).strip()} (step {step_num})"


def weights_text(train_manager: Run[Any], monitor: Monitor) -> str:
    """Return whose weights are in the model; empty if nothing was evaluated, put back or averaged."""
    restored_at, step_num = train_manager._progress.run.restored_at, train_manager.step_num
    metric = monitor.metric or f"{next(iter(train_manager.eval_data), 'valid')}/loss"
    best = best_of(metric, monitor.mode, evaluations_so_far(train_manager))
    texts = []
    if restored_at is not None or best is not None:
        whose = "its last weights" if restored_at is None else f"the weights of {at_step(restored_at, train_manager)}"
        texts.append(f"the model has {whose}")
    if best is not None:
        value, row = best
        if row["step"] == (step_num if restored_at is None else restored_at):
            texts[-1] += f", the best by {metric} ({number_text(value)})"
        else:
            at = at_step(row["step"], train_manager)
            texts.append(f"the best by {metric} were those of {at} ({number_text(value)})")
    present = (one for name, one in train_manager.extensions.items() if name not in train_manager.paused_extensions)
    averages = [type(one).__name__ for one in present if callable(getattr(one, "applied", None))]
    texts += [f"the average of {name} is not in the model" for name in averages]
    return "; ".join(texts)


def at_step(step_num: int, train_manager: Run[Any]) -> str:
    """Return the place of an evaluation of the past: the start, the epoch that ended there, or else the step."""
    if step_num == train_manager.first_step:
        return "the start"
    for row in train_manager.history.epochs:
        if row["step"] == step_num and row.get("phase") is None and not row.get("partial"):
            return f"epoch {row['epoch']}"
    return f"step {step_num}"


def files_lines(train_dir: Path) -> Iterator[str]:
    """Yield the command that shows the files of a training; else where they are, if there are any."""
    folder = shlex.quote(display_path(str(train_dir.absolute())))
    if has_runs(train_dir):
        yield f"look at it: train-manager report {folder}"
    elif (train_dir / "checkpoints").is_dir():
        yield f"look at it: train-manager show {folder}"
    elif any(train_dir.glob("*")):
        yield f"its files are in {folder}"


def evaluations_so_far(train_manager: Run[Any]) -> Iterable[Mapping[str, Any]]:
    """Return the rows of the history for the evaluations of the training, or of the phase that is open."""
    phase, first_step, found = train_manager.fixtures["phase_name"], train_manager.first_step, {}
    for row in train_manager.history.evaluations:
        if row.get("phase") == phase and row["step"] >= first_step and "standalone" not in row:
            # The last evaluation at a step: at the first, an earlier phase of the same name may have had one.
            found[row["step"], row["set"]] = row
    return found.values()


def restored_text(step_num: int) -> str:
    """Return the end of the reason of a stop after which weights are restored, by their step."""
    return f"; the weights of step {step_num} are restored"
