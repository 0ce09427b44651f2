"""What a checkpoint holds by a user's choice: variables of the model that are left out, and fixtures that are added."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from train_manager.core.fixtures import Fixtures
from train_manager.model.modules import has_state
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_level


def without(state: Mapping[str, Any], patterns: Iterable[str]) -> dict[str, Any]:
    """Return a model's state without the names that match a pattern.

    >>> without({"backbone.weight": 1, "head.weight": 2}, ["backbone.*"])
    {'head.weight': 2}
    """
    return {name: value for name, value in state.items() if not any(fnmatchcase(name, one) for one in patterns)}


def warn_of_no_match(model: Any, patterns: Iterable[str]) -> None:
    """Warn of a pattern that leaves nothing out, since it is misspelt or of another model."""
    names = list(model.state_dict()) if has_state(model) else []
    for pattern in patterns:
        if len(without(dict.fromkeys(names), [pattern])) == len(names):
            there = f"its state has {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
            told = f"exclude has {pattern!r}, which matches nothing in the model: {there}"
            warnings.warn(told, stacklevel=users_level())


def put_back(state: Mapping[str, Any], model: Any, patterns: Iterable[str]) -> dict[str, Any]:
    """Return a saved state of a model with what was left out of it, as the model has it now."""
    own = model.state_dict() if has_state(model) else {}
    kept = without(own, patterns)
    return {**{name: value for name, value in own.items() if name not in kept}, **state}


def state_of_fixtures(fixtures: Fixtures, names: Iterable[str]) -> dict[str, Any]:
    """Return the states of live fixtures, or their values if they are plain.

    Raises:
        CheckpointError: one of them is not alive.
    """
    for name in names:
        if name not in fixtures:
            cure = "define it in a hook of run, or in the stages around the batch"
            raise CheckpointError(f"the fixture {name!r} must be saved, but is not alive", name=name, cure=cure)
    return {name: _state_of(fixtures[name]) for name in names}


def restore_fixtures(fixtures: Fixtures, states: Mapping[str, Any]) -> None:
    """Restore live fixtures, and define in ``run`` those that are not."""
    for name, saved in states.items():
        if name not in fixtures:
            fixtures.define(name, saved["value"], stage="run")
        elif "state" in saved:
            fixtures[name].load_state_dict(saved["state"])
        else:
            fixtures.modify(name, saved["value"])


def numbers_of(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the results of an evaluation that are single numbers, for the manifest."""
    return {
        name: {metric: float(value) for metric, value in result.items() if _is_number(value)}
        for name, result in results.items()
    }


def _state_of(value: Any) -> dict[str, Any]:
    return {"state": value.state_dict()} if has_state(value) else {"value": value}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.dim() == 0)
