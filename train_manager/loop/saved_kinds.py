"""Refuses a saved state with values of another kind than those here: a text where a number belongs.

A file whose hash is right may hold anything. A wrong value that is first used many steps later would raise an error
there that says nothing of the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor

from train_manager.files.json_values import Path, display_keys
from train_manager.telling.errors import CheckpointError

KINDS: Final = {
    bool: "a number",
    int: "a number",
    float: "a number",
    str: "a text",
    dict: "a dict",
    list: "a list",
    tuple: "a list",
}
COMPONENTS: Final = (
    *("counts", "data", "epoch", "epoch_num", "extensions", "fixtures", "lr_schedule", "model", "optimizers", "run"),
    *("schedules", "windows"),
)


def require_kinds(own: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse a state with values of another kind than the values of the present state.

    Raises:
        CheckpointError: with the first of them.
    """
    for component in COMPONENTS:
        if component in own and component in saved:
            for what in other_kinds(own[component], saved[component], (component,)):
                cure = "it was edited, or is of another program; take another checkpoint"
                raise CheckpointError(f"the checkpoint does not fit this training: {what}", name=component, cure=cure)


def other_kinds(own: Any, saved: Any, path: Path = ()) -> Iterator[str]:
    """Say which values of a saved state are of another kind than the values of the present state.

    Arrays, None and the tensors of extensions are not compared: the objects that load them check these values.

    >>> list(other_kinds({"counts": {"step_num": 0}}, {"counts": {"step_num": "x"}}))
    ['counts > step_num is a number here, but a text in the checkpoint']
    """
    here, there = KINDS.get(type(own)), KINDS.get(type(saved))  # None for a type that is not compared
    if saved is None and path[:1] == ("counts",):  # a count is a number from the first step on
        there = "None"
    # A count may be a tensor of one number. An extension may begin with a plain number, and later have a tensor.
    if isinstance(saved, Tensor) and saved.numel() != 1 and path[:1] != ("extensions",):
        there = f"a tensor of {saved.numel()} numbers"
    if here is None or there is None:
        return
    if here != there:
        yield f"{display_keys(path)} is {here} here, but {there} in the checkpoint"
    elif isinstance(own, Mapping):
        for key in own:
            if key in saved:
                yield from other_kinds(own[key], saved[key], (*path, key))
    elif here == "a list" and len(own) == len(saved):
        for number, (one, other) in enumerate(zip(own, saved, strict=True)):
            yield from other_kinds(one, other, (*path, number))
    elif type(own) is int and not math.isfinite(saved):  # nan and inf are numbers too, but no count
        yield f"{display_keys(path)} is {own} here, but {saved} in the checkpoint"
