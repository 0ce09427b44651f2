"""The choices of a user about the content of a checkpoint: tensors of the model left out, and fixtures added."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, final

from torch import Tensor, nn

from train_manager.core.fixtures import Fixtures
from train_manager.model.modules import has_state, plain_name
from train_manager.telling.errors import CheckpointError, InputError
from train_manager.telling.source_locations import users_level

TRAINABLE: Final = "trainable"


@final
@dataclass(frozen=True)
class SavedWeights:
    """Which names of a model's state a checkpoint holds: those that match ``only``, or all but those of ``exclude``.

    >>> SavedWeights(exclude=("backbone.*",)).left_out(["backbone.weight", "head.weight"], model=None)
    ['backbone.weight']

    ``only="trainable"`` leaves out the frozen parameters.
    """

    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.exclude and self.only:
            what = f"exclude={self.exclude} and only={self.only} are both given"
            cure = "give one of them: only names the weights that are saved, exclude those that are not"
            raise InputError(what, name="only", asked_by="Checkpoints", cure=cure)

    @property
    def is_trainable(self) -> bool:
        """Whether the flags ``requires_grad`` decide, and not patterns."""
        return self.only == (TRAINABLE,)

    def of(self, state: Mapping[str, Any], model: Any, base: Collection[str]) -> dict[str, Any]:
        """Return the saved entries of a model's state.

        Args:
            state: the state.
            model: the model.
            base: the plain names of tensors that are as they were: of frozen parameters these alone are left out.
        """
        left_out = {name for name in self.left_out(state, model) if not self.is_trainable or plain_name(name) in base}
        return {name: value for name, value in state.items() if name not in left_out}

    def left_out(self, names: Iterable[str], model: Any) -> list[str]:
        """Return those of the names in a model's state that a checkpoint leaves out."""
        if self.is_trainable:
            named = model.named_parameters(remove_duplicate=False) if isinstance(model, nn.Module) else ()
            frozen = {name for name, parameter in named if not parameter.requires_grad}
            return [name for name in names if name in frozen]
        patterns = self.only or self.exclude
        return [name for name in names if _matches(name, patterns) != bool(self.only)]

    def warn_of_no_match(self, model: Any) -> None:
        """Warn of a pattern that matches nothing, since it is misspelt or of another model."""
        names = list(model.state_dict()) if has_state(model) else []
        if self.is_trainable:
            return
        for pattern in self.only or self.exclude:
            if not any(_matches(name, [pattern]) for name in names):
                there = f"its state has {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
                argument = "only" if self.only else "exclude"
                what = f"{argument} has {pattern!r}, which matches nothing in the model: {there}"
                warnings.warn(what, stacklevel=users_level())

    def put_back(self, state: Mapping[str, Any], model: Any, base: Iterable[str] = ()) -> dict[str, Any]:
        """Return a saved state of a model with the entries that were not saved, as the model has them now.

        Args:
            state: the saved state.
            model: the model.
            base: the plain names of what the checkpoint says that it leaves out, whatever is left out now.
        """
        own = model.state_dict() if has_state(model) else {}
        # load_state_dict(strict=True) wants every name, so the names left out get the values that are there.
        left_out, saved = {*self.left_out(own, model)}, {*map(plain_name, state)}
        base = {*base}
        kept = {name: value for name, value in own.items() if name in left_out or plain_name(name) in base}
        return {name: value for name, value in kept.items() if plain_name(name) not in saved} | {**state}


def several(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return (value,) if isinstance(value, str) else tuple(value)


def state_of_fixtures(fixtures: Fixtures, names: Iterable[str]) -> dict[str, Any]:
    """Return the states of live fixtures, or their values if they are plain.

    Raises:
        CheckpointError: one of them is not alive.
    """
    # All names are checked before the first state is taken.
    for name in names:
        if name not in fixtures:
            cure = "define it in a hook of run, or in the stages around the batch"
            raise CheckpointError(f"the fixture {name!r} must be saved, but is not alive", name=name, cure=cure)
    return {name: _state_of(fixtures[name]) for name in names}


def restore_fixtures(fixtures: Fixtures, states: Mapping[str, Any]) -> None:
    """Restore live fixtures, and define in ``run`` those that are not."""
    for name, saved in states.items():
        if name not in fixtures:
            # The program has not made the fixture yet: it gets the saved value for the whole run.
            fixtures.define(name, saved["value"], stage="run")
        # An object with a state is filled in place, because hooks may hold it; a plain value is replaced.
        elif "state" in saved:
            fixtures[name].load_state_dict(saved["state"])
        else:
            fixtures.modify(name, saved["value"])


def numbers_of(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the results of an evaluation that are single numbers, for the manifest."""
    return {
        name: {metric: float(value) for metric, value in result.items() if _is_scalar(value)}
        for name, result in results.items()
    }


def _state_of(value: Any) -> dict[str, Any]:
    return {"state": value.state_dict()} if has_state(value) else {"value": value}


def _is_scalar(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.dim() == 0)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
