"""Features: what is made of the input columns of a dataset, once, before the training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from train_manager.checkpoints.weights_file import read_weights
from train_manager.learner import transforms  # noqa: F401  # registers its words
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.learner.words import Entry, Filled, Kind, is_function, is_module, read_entry

EXAMPLES: Final = 256  # that a pretrained module is given at once


def _is_feature(thing: Any) -> bool:
    has_fit = isinstance(thing, type) and hasattr(thing, "fit")
    return is_function(thing) or is_module(thing) or has_fit


FEATURE: Final = Kind("features: functions, classes with fit() and modules with weights", _is_feature)


class Feature:
    """One entry of ``features``.

    Args:
        entry: the function, the class with ``fit``, or the module.
        column: the name of the column.
        weights: the file with the weights of a module.
    """

    def __init__(self, entry: Entry, column: str, weights: Path | None) -> None:
        self.entry, self.column, self.weights = entry, column, weights

    def applied(self, column: Tensor, train: Tensor) -> Tensor:
        """Return a column with the feature; what is fitted is fitted on the training rows alone.

        Args:
            column: all rows.
            train: the numbers of the training rows.
        """
        thing, arguments = self.entry.thing, self.entry.arguments
        if is_function(thing):
            return thing(column, **arguments)  # type: ignore[no-any-return]
        made = thing(**arguments)
        if isinstance(made, nn.Module):
            return self._encoded(made, column)
        made.fit(column[train])
        return made(column)  # type: ignore[no-any-return]

    def _encoded(self, module: nn.Module, column: Tensor) -> Tensor:
        assert self.weights is not None, "a module without weights is a mistake"
        module.load_state_dict(read_weights(self.weights))
        module.eval()
        with torch.no_grad():
            return torch.cat([module(part) for part in column.split(EXAMPLES)])

    @property
    def sha256(self) -> str | None:
        """The digest of the file with the weights."""
        return None if self.weights is None else hashlib.sha256(self.weights.read_bytes()).hexdigest()


def read_features(
    description: Description, path: Place, given: Any, inputs: list[str], mistakes: Mistakes
) -> list[Feature]:
    """Read the list ``features`` of a dataset with these input columns."""
    found = []
    for index, table in enumerate(given):
        place = (*path, index)
        entry = read_entry(description, place, table, FEATURE, mistakes, keys=("of", "weights"), filled=Filled(1))
        column = read_column(description, place, table, inputs, mistakes)
        if entry is not None and column is not None:
            weights = _read_weights_file(description, place, table, entry, mistakes)
            found.append(Feature(entry, column, weights))
    return found


def read_column(description: Description, path: Place, table: Any, inputs: list[str], mistakes: Mistakes) -> str | None:
    """Return the column that an entry of ``features`` or ``augment`` is of; None if it is a mistake."""
    given = table.get("of") if isinstance(table, Mapping) else None
    if given is None and len(inputs) == 1:
        return inputs[0]
    if given is None:
        mistakes.add(description, path, f'lacks of = "...", one of the inputs {" and ".join(inputs)}')
    elif given not in inputs:
        mistakes.add(
            description, (*path, "of"), f"{given!r:.60} is not one of the inputs", nearest_of=inputs, name=str(given)
        )
    return given if given in inputs else None


def _read_weights_file(
    description: Description, path: Place, table: Mapping[str, Any], entry: Entry, mistakes: Mistakes
) -> Path | None:
    given: Any = table.get("weights")
    if given is None and is_module(entry.thing):
        mistakes.add(description, path, f'lacks weights = "...", the file with the weights of {entry.word}')
    elif given is not None and not is_module(entry.thing):
        mistakes.add(description, (*path, "weights"), f"is given, but {entry.word} is not a module")
    elif given is not None and not (isinstance(given, str) and (description.folder / given).is_file()):
        mistakes.add(description, (*path, "weights"), f"is {told(given)}, which is not a file")
    return None if given is None else description.folder / str(given)
