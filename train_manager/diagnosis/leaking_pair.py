"""Which of the changed examples a kept one depends on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from train_manager.diagnosis.changes import Change
from train_manager.diagnosis.forward_judge import Leak
from train_manager.diagnosis.runs import Runner


def source_of(runner: Runner, judge: Callable[..., Leak | None], leak: Leak) -> tuple[Leak, int | None]:
    """Halve the changed examples until one of them alone shows the leak; None if only several together do.

    The leak is that of the last half, so that both examples of the pair are of the same run.
    """
    left = leak.change.split.changed.nonzero().flatten()
    while len(left) > 1:
        halves = left[: len(left) // 2], left[len(left) // 2 :]
        shown = next(((half, found) for half in halves if (found := _shown(runner, judge, leak, half))), None)
        if shown is None:
            return leak, None
        left, leak = shown
    return leak, int(left[0])


def _shown(runner: Runner, judge: Callable[..., Leak | None], leak: Leak, numbers: Tensor) -> Leak | None:
    """Return the leak if a change of these examples alone shows it too."""
    change = leak.change
    chosen = torch.zeros_like(change.split.changed)
    chosen[numbers] = True
    values = runner.examples.mixed(change.values, runner.examples.own_values(), chosen)
    try:
        run = runner.changed(values)
    except Exception:  # as the whole change would have, had it been one like this
        return None
    found = judge(run.outputs, change)
    return None if found is None else found._replace(change=Change(change.kind, change.split, change.values))
