"""How batches run beside ``Compile``, as far as components and hooks say: as one graph, as two, or eagerly, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from train_manager.core.hooks import Hook
from train_manager.core.plan import Plan
from train_manager.model.clipping import Limits

TRAIN_STAGES: Final = ("train_model_forward", "train_loss_forward", "train_backward", "train_optimizer_step")
EVAL_STAGES: Final = ("eval_model_forward", "eval_loss_forward")
STAGES: Final = {"train": TRAIN_STAGES, "eval": EVAL_STAGES, "predict": ()}
"""The kinds of batches, and the stages inside them that a graph takes the place of."""


class Way(NamedTuple):
    """How a batch runs."""

    name: str  # "whole", "two" or "eager"
    reason: str = ""
    limits: Callable[[], Limits | None] | None = None  # of a clipping that one graph makes before the step


WHOLE: Final = Way("whole")


def way_of_hooks(kind: str, plans: Sequence[Plan], again: Sequence[str]) -> Way:
    """Return the way of a batch into which hooks look.

    Args:
        kind: "train" or "eval".
        plans: the plans of its stages.
        again: the extensions that compute a loss anew.
    """
    stages = STAGES[kind]
    forward, loss, *others = plans
    is_trained = bool(others)
    # What runs before the forward pass may change the inputs.
    if forward.around or forward.providers or forward.run_post is not None:
        return Way("eager", _looking(forward, stages[0]))
    # What runs after the loss of an evaluation needs no graph of autograd.
    if loss.providers or loss.run_pre is not None or (loss.run_post is not None and (is_trained or loss.around)):
        return Way("eager", _looking(loss, stages[1]))
    return _way_of_update(others, again) if is_trained else WHOLE


def _way_of_update(plans: Sequence[Plan], again: Sequence[str]) -> Way:
    """Return the way of a batch if hooks run before the backward pass or later."""
    backward, step = plans
    if backward.around or backward.providers or not all(map(_only_scales, backward.pre)):
        return Way("eager", _looking(backward, TRAIN_STAGES[2]))
    if again:
        return Way("eager", f"{again[0]} computes the loss anew")
    if not backward.is_empty:
        return Way("two", _looking(backward, TRAIN_STAGES[2]))
    # What runs after the step may change the weights.
    return WHOLE if step.run_pre is None and not step.providers else _way_of_step(step)


def _way_of_step(step: Plan) -> Way:
    """Return the way of a batch if hooks run before the step."""
    known = [_in_graph(hook) for hook in step.pre]
    if known and all(known) and not (step.around or step.providers or step.sequences[0].tells):
        clips = [one for one in known if one is not None and one() is not None]
        if len(clips) <= 1:
            return Way("whole", limits=clips[0]) if clips else WHOLE
    return Way("two", _looking(step, TRAIN_STAGES[3]))


def _in_graph(hook: Hook) -> Callable[[], Limits | None] | None:
    """Return what stands for a hook of the step in a graph; None if the hook must run before the step."""
    if hook.schedules or hook.everywhere or hook.ranks is not None:
        return None
    found: Callable[[], Limits | None] | None = getattr(hook.call.function, "in_graph", None)
    return found


def _looking(plan: Plan, stage: str) -> str:
    return f"{', '.join(plan.lookers)} looks into {stage}"


def _only_scales(hook: Hook) -> bool:
    """Return whether a hook multiplies the loss by a number, and so needs nothing that a graph does not give."""
    function = getattr(hook.call.function, "__func__", None)
    kinds = type(getattr(hook.call.function, "__self__", None)).__mro__
    # Not that of a subclass, which may add a term of the prediction to the loss.
    return any(
        "only_scales_loss" in vars(kind) and vars(kind).get(f"{hook.kind}_{hook.stage}") is function for kind in kinds
    )
