"""A saved state whose values are of another kind than those here: a text where a number belongs.

Files whose hashes are right may hold anything. What is only used steps later would fail there, with an error that tells
nothing of the checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from torch import Tensor

from train_manager.checkpoints.state_tree import Path, shown_keys
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
PARTS: Final = (
    *("counts", "data", "epoch", "epoch_num", "extensions", "fixtures", "lr_schedule", "model", "optimizers", "run"),
    *("schedules", "windows"),
)


def require_kinds(own: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse a state with values of another kind than those of the present one.

    Raises:
        CheckpointError: with the first of them.
    """
    for part in PARTS:
        if part in own and part in saved:
            for what in other_kinds(own[part], saved[part], (part,)):
                cure = "it was edited, or is of another program; take another checkpoint"
                raise CheckpointError(f"the checkpoint does not fit this training: {what}", name=part, cure=cure)


def other_kinds(own: Any, saved: Any, path: Path = ()) -> Iterator[str]:
    """Say which values of a saved state are of another kind than those of the present one.

    Arrays and None are left to what loads them; so are the tensors of extensions, which may begin with a plain number.

    >>> list(other_kinds({"counts": {"step_num": 0}}, {"counts": {"step_num": "x"}}))
    ['counts > step_num is a number here, but a text in the checkpoint']
    """
    here, there = KINDS.get(type(own)), KINDS.get(type(saved))
    if saved is None and path[:1] == ("counts",):
        there = "None"
    if isinstance(saved, Tensor) and saved.numel() != 1 and path[:1] != ("extensions",):
        there = f"a tensor of {saved.numel()} numbers"
    if here is None or there is None:
        return
    if here != there:
        yield f"{shown_keys(path)} is {here} here, but {there} in the checkpoint"
    elif isinstance(own, Mapping):
        for key in own:
            if key in saved:
                yield from other_kinds(own[key], saved[key], (*path, key))
    elif here == "a list" and len(own) == len(saved):
        for number, (one, other) in enumerate(zip(own, saved, strict=True)):
            yield from other_kinds(one, other, (*path, number))
    elif type(own) is int and not math.isfinite(saved):
        yield f"{shown_keys(path)} is {own} here, but {saved} in the checkpoint"
