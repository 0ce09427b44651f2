"""Numbers of extensions and managers that count, and that no checkpoint holds: a resume begins them anew."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from train_manager.core.extension import Extension
from train_manager.telling.source_locations import users_level

Numbers = dict[tuple[str, str], float]
"""Numbers, by what has them and the name of the attribute."""


def numbers_of_all(train_manager: Any) -> Numbers:
    """Return the numbers that are plain attributes of a manager, and of its extensions without a state of their own."""
    holders: dict[str, Any] = {type(train_manager).__name__: train_manager}
    holders |= {f"extension {name!r}": one for name, one in train_manager.extensions.items() if _has_no_state(one)}
    return {(label, name): value for label, one in holders.items() for name, value in _numbers(one)}


def _has_no_state(extension: Extension) -> bool:
    kind = type(extension)
    return kind.state_dict is Extension.state_dict and not kind.__module__.startswith("train_manager.")


def _numbers(holder: object) -> Iterator[tuple[str, float]]:
    for name, value in vars(holder).items():
        if not name.startswith("_") and type(value) in (int, float):
            yield name, value


def warn_of_forgotten(before: Numbers, train_manager: Any) -> None:
    """Warn of numbers that have changed since the training began; each is told once.

    Args:
        before: what ``numbers_of_all`` returned then; what is told is taken out.
        train_manager: as it is saved.
    """
    now = numbers_of_all(train_manager)
    changed = [key for key, value in before.items() if now.get(key, value) != value and value == value]
    for key in changed:
        del before[key]
    if changed:
        listed = ", ".join(f"{name} of {label}" for label, name in changed)
        what = f"no checkpoint holds {listed}, which has changed since the training began"
        cure = "return it in state_dict(), and set it in load_state_dict()"
        warnings.warn(f"{what}: a training that goes on begins it anew ({cure})", stacklevel=users_level())
