"""Whether one batch can be learned: what cannot do that learns nothing from many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final

from train_manager.telling.findings import Coverage, Finding, Findings, Level

CHECK: Final = "overfit"
STEPS: Final = 200
SECONDS: Final = 30.0

LEARNED: Final = 0.1
"""The part of its first loss, or of the loss of knowing nothing, below which a batch counts as learned."""

NEARLY: Final = 0.25
"""Below this part nothing is wrong: it takes longer."""

FALLS: Final = 0.9
"""A loss falls if the lowest of the last quarter is less than so much of the lowest before."""

UNCHANGED: Final = 1 - 1e-6
"""A loss that has not come below this part has not moved."""

FALLEN: Final = 0.75
"""A loss that cannot come near zero has to fall below this part."""


def check_overfit(
    step: Callable[[], float],
    *,
    rates: Sequence[float] = (),
    slowed_by: Sequence[str] = (),
    kept_up_by: Sequence[str] = (),
    share: float = 1.0,
    is_same_for_all: Callable[[], bool] = lambda: False,
    has_gradients: Callable[[], bool] = lambda: False,
    is_frozen: bool = False,
    may_compete: bool = False,
    steps: int = STEPS,
    seconds: float = SECONDS,
) -> Findings:
    """Find out whether a training learns one batch: its loss falls below a tenth of the first.

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
        rates: the learning rates of the optimizers, to be named.
        slowed_by: what may slow it on purpose, to be named: "weight_decay 0.1".
        kept_up_by: why the loss may not come near zero, as "an added loss"; then less is asked of it.
        share: the loss of knowing nothing, as a part of the first loss.
        is_same_for_all: returns whether the outputs of the last step are the same for all examples.
        has_gradients: returns whether a gradient has reached an optimizer.
        is_frozen: a part of the model is frozen, so that a batch may be learned slowly.
        may_compete: it is the sum of losses that may work against each other; then it need not fall.
        steps: at most so many.
        seconds: at most so long.
    """
    if rates and not any(rates):
        cure = "give the optimizer a learning rate; if a schedule raises it, ask again after some steps"
        return _found("warning", "the learning rate is 0, so nothing is learned", cure, [])
    losses, until = list[float](), perf_counter() + seconds
    while not losses or (len(losses) < steps and perf_counter() < until):
        losses.append(step())
        if not math.isfinite(losses[-1]):
            what = f"the loss of one batch became {losses[-1]} in step {len(losses)}"
            cure = "NonFiniteFinder names the module; is the learning rate too large? lr_finder(tm)"
            return _found("error", what, cure, losses)
        if losses[0] > 0 and losses[-1] < LEARNED * share * losses[0] and not is_same_for_all():
            text = f"learned: the loss of one batch fell from {losses[0]:.3g} to {losses[-1]:.3g} in {_steps(losses)}"
            return Findings(covered=[Coverage(CHECK, text)])
    if losses[0] <= 0:
        why = f"the first loss is {losses[0]:.3g}, and a tenth of it tells nothing"
        return Findings(covered=[Coverage(CHECK, why, could_look=False)])
    if len(losses) < steps and min(losses) < UNCHANGED * losses[0]:
        why = f"{_steps(losses)} were done in {seconds:.0f} seconds, in which the loss fell to {min(losses):.3g}"
        return Findings(covered=[Coverage(CHECK, f"{why} from {losses[0]:.3g}", could_look=False)])
    what = f"one batch was not learned: its loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {_steps(losses)}"
    named = [*kept_up_by, *slowed_by]
    what += f", with {' and '.join(named)}" if named else ""
    rate = f"the learning rate of {max(rates):.3g}" if rates else "the learning rate"
    if is_same_for_all():
        cure = "do all units of a layer give 0? look at the scale of the inputs, then at the learning rate"
        return _found("warning", f"{what}, and the outputs are the same for all examples", cure, losses)
    first, part, is_falling = losses[0], min(losses) / (share * losses[0]), _is_falling(losses)
    if kept_up_by and part < FALLEN:
        return _found("note", what, "it fell, and something keeps it up on purpose", losses)
    if may_compete and losses[-1] != first:
        cure = "losses that work against each other, as those of a GAN, need not fall: look at each of them"
        return _found("note", what, cure, losses)
    if part < NEARLY or (part < 0.5 and is_falling):
        what = what.replace("not learned", "nearly learned", 1)
        return _found("note", what, f"that is fine; to be sure, raise {rate}", losses)
    if min(losses) >= UNCHANGED * first and losses[-1] <= first / UNCHANGED:
        if has_gradients():
            return _found("warning", what, f"gradients arrive: is {rate} too small? lr_finder(tm)", losses)
        cure = "does the loss reach the model? look for detach(), no_grad(), argmax, and what the optimizer has"
        return _found("warning", what, cure, losses)
    if losses[-1] > first:
        cure = f"it grew: is {rate} too large (lr_finder(tm)), or the sign of the loss wrong?"
        return _found("warning", what, cure, losses)
    if is_frozen:
        return _found("note", what, f"a part of the model is frozen; else is {rate} too small (lr_finder(tm))?", losses)
    cure = f"is {rate} too small (lr_finder(tm)), or a part of the model cut off?"
    return _found("warning", what, cure, losses)


def _is_falling(losses: Sequence[float]) -> bool:
    before, end = losses[: max(1, 3 * len(losses) // 4)], losses[3 * len(losses) // 4 :]
    return min(end) < FALLS * min(before)


def _found(level: Level, what: str, cure: str, losses: Sequence[float]) -> Findings:
    numbers = {"first_loss": losses[0], "lowest_loss": min(losses)} if losses else {}
    return Findings(
        [Finding(CHECK, level, what, "", cure, numbers)], [Coverage(CHECK, f"{_steps(losses)} on one batch")]
    )


def _steps(losses: Sequence[float]) -> str:
    return f"{len(losses)} step{'' if len(losses) == 1 else 's'}"
