"""The parameter groups of an optimizer as a table has them: their names, sizes, rates and weight decays."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from torch import Tensor
from torch.nn.parameter import is_lazy

from train_manager.model.combined_optimizer import CombinedOptimizer


@final
class GroupFacts(NamedTuple):
    """A parameter group: what a summary and the record of a run tell of it."""

    name: str  # empty if it has none
    optimizer: str  # the class that steps it
    tensors: int
    parameters: int  # numbers in these tensors
    lr: float | None  # as it was given, before a schedule has changed it; None if it is unknown
    weight_decay: float | None


def group_facts(optimizer: Any) -> list[GroupFacts]:
    """Return the facts of each group of an optimizer; one without groups is a group without parameters.

    >>> import torch
    >>> weight, bias = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3))
    >>> groups = [{"params": [weight], "name": "matrices"}, {"params": [bias], "weight_decay": 0}]
    >>> for group in group_facts(torch.optim.AdamW(groups, lr=0.1)):
    ...     print(*group)
    matrices AdamW 1 6 0.1 0.01
     AdamW 1 3 0.1 0
    """
    parts = optimizer.parts if isinstance(optimizer, CombinedOptimizer) else (optimizer,)
    return [
        _facts(type(part).__name__, group) for part in parts for group in getattr(part, "param_groups", None) or [{}]
    ]


def _facts(kind: str, group: dict[str, Any]) -> GroupFacts:
    rate, decay = _number(group.get("initial_lr", group.get("lr"))), _number(group.get("weight_decay"))
    sizes = [0 if is_lazy(parameter) else parameter.numel() for parameter in group.get("params", ())]
    return GroupFacts(str(group.get("name", "")), kind, len(sizes), sum(sizes), rate, decay)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return value.item() if value.device.type == "cpu" and value.numel() == 1 else None  # a GPU would have to wait
    return value if isinstance(value, int | float) else None
