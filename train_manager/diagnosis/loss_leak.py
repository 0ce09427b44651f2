"""Whether what a loss teaches about an example depends on the other examples of its batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.allowed_modules import AllowedModules
from train_manager.diagnosis.batch_leaves import Path, leaves_of, name_of
from train_manager.diagnosis.changes import Changes
from train_manager.diagnosis.differences import tolerance_of
from train_manager.diagnosis.examples import Examples
from train_manager.diagnosis.kept_state import KeptState
from train_manager.diagnosis.runs import Run, Runner
from train_manager.telling.findings import Coverage, Finding, Findings

CHECK: Final = "loss leak"

FACTOR: Final = 100.0
"""Rounding in gradients that nearly cancel: so many times what it may change in a number."""


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
        loss: called with the predictions and the targets.
        predictions: what the model returned for a batch.
        targets: those of the batch.
        batch_axis: the axis along which the examples lie.
    """
    examples = Examples((predictions, targets), batch_axis)
    if examples.size < 2:
        return Findings(covered=[Coverage(CHECK, "there are less than two examples", could_look=False)])
    model = _Loss(loss)
    kept = KeptState(model)
    try:
        runner = Runner(model, lambda model, pair: model(*pair), examples, kept, AllowedModules(model, (), ()))
        return _Look(runner).findings(_stretched(predictions, targets))
    finally:
        kept.put_back()


@final
class _Loss(nn.Module):
    """A loss as a module, whose state is kept and put back."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, predictions: Any, targets: Any) -> Any:
        return self.loss(predictions, targets)


@final
class _Look:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._changes = Changes(runner.examples)

    def findings(self, stretched: str) -> Findings:
        """Compare the directions of the gradients for all changes."""
        base = self._gradients(self._runner.base())
        if not base:
            return Findings(covered=[Coverage(CHECK, "the loss has no gradient at the predictions", could_look=False)])
        ran, turned = 0, ""
        for split, new in self._changed():
            ran += 1
            turned = turned or next((name_of(path) for path in base if self._is_turned(path, base, new, split)), "")
        covered = Coverage(CHECK, f"{ran} of {len(self._changes)} changes ran", could_look=ran > 0)
        return Findings([_finding(stretched)] if turned else [], [covered])

    def _changed(self) -> Iterator[tuple[Tensor, dict[Path, Tensor]]]:
        for kind in self._changes.kinds:
            for split in self._changes.splits:
                change = self._changes.make(kind, split)
                try:
                    run = None if change is None else self._runner.changed(change.values)
                except Exception:  # targets that this loss does not take; it is counted as one that did not run
                    continue
                if run is not None and run.is_finite():
                    yield split.changed, self._gradients(run)

    def _gradients(self, run: Run) -> dict[Path, Tensor]:
        """Return the gradient at each prediction, with the examples along the first axis."""
        loss = next(iter(run.outputs.values()))
        roots = {path: root for (path, _), root in run.roots.items() if path[0] == (0,)}
        if not loss.requires_grad or not roots:
            return {}
        gradients = torch.autograd.grad(loss.mean(), list(roots.values()), allow_unused=True)
        axes = {path: self._runner.examples.leaves[path].axis or 0 for path in roots}
        pairs = zip(roots, gradients, strict=True)
        return {path: one.movedim(axes[path], 0) for path, one in pairs if one is not None and one.dim()}

    def _is_turned(self, path: Path, base: dict[Path, Tensor], new: dict[Path, Tensor], changed: Tensor) -> bool:
        """Return whether the gradient of the kept examples has another direction."""
        if path not in new:
            return True
        before, after = (one[path][~changed.to(one[path].device)].flatten().double() for one in (base, new))
        size = before.square().sum()
        factor = (before @ after) / size if size > 0 else size
        far = (after - factor * before).norm()
        return bool(far > FACTOR * tolerance_of(base[path].dtype) * after.norm()) or bool(factor < 0)


def _stretched(predictions: Any, targets: Any) -> str:
    """Return the shapes of a prediction and a target that have as many numbers, and are stretched to more."""
    for _, one in leaves_of(predictions):
        for _, other in leaves_of(targets):
            if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape != other.shape:
                same = [length for length in one.shape if length > 1] == [
                    length for length in other.shape if length > 1
                ]
                if same:
                    return f"{tuple(one.shape)} against {tuple(other.shape)}"
    return ""


def _finding(stretched: str) -> Finding:
    if stretched:
        what = f"the loss compares each prediction with the targets of all examples: {stretched}"
        return Finding(CHECK, "error", what, "the loss", "give both one shape: targets.view_as(predictions)")
    what = "the loss of an example depends on the others in its batch, as that of a contrastive loss does on purpose"
    return Finding(CHECK, "note", what, "the loss", "if yours does not: look in it for sums and shapes over the batch")
