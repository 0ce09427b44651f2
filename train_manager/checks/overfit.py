"""Whether one batch can be learned: a training that cannot learn one learns nothing from many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from train_manager.telling.findings import Coverage, Finding, Findings, Level

CHECK: Final = "overfit"
STEPS: Final = 200  # on the batch, at most
SECONDS: Final = 30.0  # for all steps, at most
LEARNED: Final = 0.1  # share of the first loss below which the batch counts as learned
NEARLY: Final = 0.25  # share of the first loss below which learning is slow, but works
SOME: Final = 0.05  # share of the first loss: a loss that has fallen by less is stuck
UNCHANGED: Final = 1 - 1e-6  # share of the first loss: a loss that stays above it has not moved


def check_overfit(
    step: Callable[[], float],
    *,
    rates: Sequence[float] = (),
    slowed_by: Callable[[], Sequence[str]] = tuple,
    kept_up_by: Callable[[], Sequence[str]] = tuple,
    may_compete: bool = False,
    seconds: float = SECONDS,
) -> Findings:
    """Find out whether a training learns one batch: its loss falls below a tenth of the first, or still falls.

    >>> import torch
    >>> layer, x = torch.nn.Linear(1, 1), torch.rand(4, 1)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    >>> def step():
    ...     loss = (layer(x.detach()) - 2 * x - 1).square().mean()
    ...     optimizer.zero_grad(), loss.backward(), optimizer.step()
    ...     return loss.item()
    >>> check_overfit(step).is_clean
    True

    Args:
        step: trains on the batch once, and returns its loss.
        rates: the learning rates of the optimizers, for the text.
        slowed_by: returns settings that slow the learning on purpose, for the text: "weight_decay 0.1". It is called
            only if the batch was not learned, as ``kept_up_by`` is.
        kept_up_by: returns reasons why the loss may not come near zero, as "the added loss 'size'"; then it need not
            fall far.
        may_compete: whether the loss is a sum of losses that may work against each other; then it need not fall.
        seconds: the time after which the check ends; it ends after 200 steps at the latest.
    """
    if rates and not any(rates):
        cure = "give the optimizer a learning rate; if a schedule raises it, ask again after some steps"
        return _found("warning", "the learning rate is 0, so nothing is learned", cure, [], code="zero-learning-rate")
    losses, until = list[float](), perf_counter() + seconds
    while not losses or (len(losses) < STEPS and perf_counter() < until):
        losses.append(step())
        if not math.isfinite(losses[-1]):
            what = f"the loss of one batch became {losses[-1]} in step {len(losses)}"
            cure = "NonFiniteFinder names the module; is the learning rate too large? lr_finder(tm)"
            return _found("error", what, cure, losses, code="batch-not-finite")
        # A tenth of a negative loss is larger than the loss.
        if losses[0] <= 0:
            return Findings.not_looked(CHECK, f"the first loss is {losses[0]:.3g}, and a tenth of it tells nothing")
        if losses[-1] < LEARNED * losses[0]:
            text = f"learned: the loss of one batch fell from {losses[0]:.3g} to {losses[-1]:.3g} in {_steps(losses)}"
            return Findings(covered=[Coverage(CHECK, text)])
    # The time was too short for a judgement, and the loss has moved.
    if len(losses) < STEPS and min(losses) < UNCHANGED * losses[0]:
        why = f"{_steps(losses)} were done in {seconds:.0f} seconds, in which the loss fell to {min(losses):.3g}"
        return Findings.not_looked(CHECK, f"{why} from {losses[0]:.3g}")
    rate = f"the learning rate of {max(rates):.3g}" if rates else "the learning rate"
    reasons = kept_up_by()
    level, how, cure = _judged(losses, rate, is_kept_up=bool(reasons), may_compete=may_compete)
    what = f"one batch was {how} learned: its loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {_steps(losses)}"
    named = [*reasons, *slowed_by()]
    return _found(
        level, what + (f", with {' and '.join(named)}" if named else ""), cure, losses, code="batch-not-learned"
    )


def _judged(losses: Sequence[float], rate: str, *, is_kept_up: bool, may_compete: bool) -> tuple[Level, str, str]:
    """Return the level of the finding about a batch that was not learned, how far it was learned, and the cure."""
    first, last, lowest, before = losses[0], losses[-1], min(losses), min(losses[: max(1, 3 * len(losses) // 4)])
    # `before` is the lowest loss of the first three quarters: a fall in the last quarter means that it continues.
    fall, at_the_end = first - lowest, before - lowest
    has_fallen = fall > SOME * first
    if lowest < NEARLY * first:
        return "note", "nearly", f"that is fine; to be sure, raise {rate}"
    if is_kept_up and has_fallen:
        return "note", "not", "it fell, and what is named may keep it up"
    if may_compete and last != first:
        why = "losses that work against each other, as those of a GAN, need not fall"
        return "note", "not", f"{why}: look at each of them"
    if lowest >= UNCHANGED * first and last <= first / UNCHANGED:
        reach = "does the loss reach the model? look for detach(), no_grad(), argmax, and what the optimizer has"
        return "warning", "not", f"is {rate} too small (lr_finder(tm))? else {reach}"
    if last > first:
        return "warning", "not", f"it grew: is {rate} too large (lr_finder(tm)), or the sign of the loss wrong?"
    if has_fallen and at_the_end > min(fall / 6, before / 10):  # the last quarter has its share of the fall
        return "note", "not yet", f"it still falls, so that it is learned slowly; to be sure, raise {rate}"
    return "warning", "not", f"is {rate} too small (lr_finder(tm)), or a part of the model cut off?"


def _found(level: Level, what: str, cure: str, losses: Sequence[float], *, code: str) -> Findings:
    numbers = {"first_loss": losses[0], "lowest_loss": min(losses)} if losses else {}
    covered = Coverage(CHECK, f"{_steps(losses)} on one batch")
    return Findings([Finding(CHECK, level, what, "", cure, numbers, code)], [covered])


def _steps(losses: Sequence[float]) -> str:
    return f"{len(losses)} step{'' if len(losses) == 1 else 's'}"
