"""Whether the gradient of a loss for an example depends on the other examples of its batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.checks.batch_leaves import Path, leaves_of
from train_manager.checks.leak_batch import Change, Changes, ExampleBatch
from train_manager.checks.leak_runs import ModelRun, Runner, tolerance_of
from train_manager.loop.stretched import stretched
from train_manager.telling.findings import Coverage, Finding, Findings

CHECK: Final = "loss leak"

FACTOR: Final = 100.0
"""Times the tolerance of numbers: gradients that nearly cancel have more rounding."""


def check_loss_leak(loss: Callable[..., Any], predictions: Any, targets: Any, *, batch_axis: int = 0) -> Findings:
    """Find out whether a loss compares examples with the targets of others.

    The gradient at the predictions of the examples that are kept may change with the others by one factor, as in a mean
    over tokens, but not in direction.

    >>> predictions, targets = torch.randn(8, 1), torch.randn(8)
    >>> found = check_loss_leak(lambda output, targets: (output - targets).square().mean(), predictions, targets)
    >>> found[0].level, found[0].what
    ('error', 'the loss compares each prediction with the targets of all examples: (8, 1) against (8,)')

    Losses that compare the examples with each other on purpose, as contrastive ones do, give a note.

    Args:
        loss: the loss function, called with the predictions and the targets.
        predictions: the outputs of the model for a batch.
        targets: the targets of the batch.
        batch_axis: the axis along which the examples lie.
    """
    examples = ExampleBatch((predictions, targets), batch_axis)
    if examples.size < 2:
        return Findings(covered=[Coverage(CHECK, "there are less than two examples", could_look=False)])
    # The loss is checked like a model: it gets changed batches of predictions and targets.
    runner = Runner(_Loss(loss), lambda model, pair: model(*pair), examples)
    try:
        base = _gradients(runner.base(), examples)
        if not base:
            reason = "the loss has no gradient at the predictions"
            return Findings(covered=[Coverage(CHECK, reason, could_look=False)])
        changes = Changes(examples)
        asked = (None if change is None else _is_turned(runner, change, base) for change in changes.made())
        turned = [one for one in asked if one is not None]
    finally:
        runner.put_back()
    covered = Coverage(CHECK, f"{len(turned)} of {len(changes)} changes ran", could_look=bool(turned))
    return Findings([_finding(stretched_shapes(predictions, targets))] if any(turned) else [], [covered])


@final
class _Loss(nn.Module):
    """A loss as a module, whose state is kept and put back."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, predictions: Any, targets: Any) -> Any:
        return self.loss(predictions, targets)


def _gradients(run: ModelRun, examples: ExampleBatch) -> dict[Path, Tensor]:
    """Return the gradient at each prediction, with a row for each example."""
    loss = next(iter(run.outputs.values()))
    roots = {path: root for path, root in run.roots.items() if path[0] == 0}
    if not loss.requires_grad or not roots:
        return {}
    # The mean makes one number of a loss that has one for each example.
    gradients = torch.autograd.grad(loss.mean(), list(roots.values()), allow_unused=True)
    pairs = zip(roots, gradients, strict=True)
    return {path: examples.axis_in(path).rows(one) for path, one in pairs if one is not None}


def _is_turned(runner: Runner, change: Change, base: dict[Path, Tensor]) -> bool | None:
    """Return whether the gradient of the kept examples has another direction; None if the loss fails on the batch."""
    try:
        run = runner.run(change.values)
    except Exception:
        return None
    if not run.is_finite():
        return None
    new = _gradients(run, runner.batch)
    for path, rows in base.items():
        kept = ~change.changed[runner.batch.axis_in(path).numbers].to(rows.device)
        if path not in new or _differ_in_direction(rows[kept], new[path][kept]):
            return True
    return False


def _differ_in_direction(before: Tensor, after: Tensor) -> bool:
    # The direction and not the size: in a mean over tokens, longer examples make the others count less.
    cosine = F.cosine_similarity(before.flatten().double(), after.flatten().double(), dim=0, eps=1e-300)
    # The cosine of a small angle is 1 - angle**2 / 2.
    least = 1 - (FACTOR * tolerance_of(before.dtype)) ** 2 / 2
    return bool(after.any()) and bool(cosine < max(least, 0.0))


def stretched_shapes(predictions: Any, targets: Any) -> str:
    """Return the shapes of a prediction and a target that have as many numbers, and are stretched to more."""
    outputs, others = (
        [one for _, one in leaves_of(value) if isinstance(one, Tensor)] for value in (predictions, targets)
    )
    return next(filter(None, (stretched(one, other) for one, other in product(outputs, others))), "")


def _finding(stretched: str) -> Finding:
    if stretched:
        what = f"the loss compares each prediction with the targets of all examples: {stretched}"
        cure = "give both one shape: targets.view_as(predictions)"
        return Finding(CHECK, "error", what, "the loss", cure, code="stretched-targets")
    what = "the loss of an example depends on the others in its batch, as that of a contrastive loss does on purpose"
    cure = "if yours does not: look in it for sums and shapes over the batch"
    return Finding(CHECK, "note", what, "the loss", cure, code="loss-across-examples")
