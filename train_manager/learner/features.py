"""Features: what is made of the input columns of a dataset, once, before the training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from train_manager.checkpoints.weights_file import read_weights
from train_manager.learner import transforms  # noqa: F401  # registers its words
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.learner.words import Entry, Filled, Kind, is_function, is_module, named_error, read_entry
from train_manager.rebuilding.memory_limit import MemoryLimit
from train_manager.telling.errors import InputError

FOLDER: Final = "write the path of a file of weights, from the folder of this file on"
EXAMPLES: Final = 256  # that a pretrained module is given at once
ROOM: Final = 2**20  # bytes of a module, beside those in its file
OPERATIONS: Final = 10_000  # to make a pretrained module


def _is_feature(thing: Any) -> bool:
    has_fit = isinstance(thing, type) and hasattr(thing, "fit")
    return is_function(thing) or is_module(thing) or has_fit


FEATURE: Final = Kind("a feature: a function, a class with fit() or a module with weights", _is_feature)


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
        try:
            found = self._applied(column, train)
        except Exception as error:
            raise self._wrong(f"raised {named_error(error)}") from error
        if not isinstance(found, Tensor) or found.dim() == 0 or len(found) != len(column):
            raise self._wrong(f"must return a tensor of {len(column)} rows, as it was given")
        return found

    def _applied(self, column: Tensor, train: Tensor) -> Any:
        thing, arguments = self.entry.thing, self.entry.arguments
        if is_function(thing):
            return thing(column, **arguments)
        if self.weights is not None:
            return self._encoded(self.weights, column)
        made = thing(**arguments)
        made.fit(column[train])
        return made(column)

    def _encoded(self, file: Path, column: Tensor) -> Tensor:
        weights = read_weights(file)
        # A few bytes of a description can ask for a module of any size, which the weights would not fill.
        with MemoryLimit(2 * file.stat().st_size + ROOM, OPERATIONS):
            module = self.entry.thing(**self.entry.arguments).eval()
        module.load_state_dict(weights)
        with torch.no_grad():
            return torch.cat([module(part) for part in column.split(EXAMPLES)])

    def _wrong(self, what: str) -> InputError:
        at = self.entry.description.at(*self.entry.path)
        return InputError(f"{at}: {self.entry.word} {what}", name=self.entry.word, cure=f"it was given {self.column}")

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
    if not inputs:  # a mistake that is reported already
        return None
    if given is None:
        mistakes.add(description, path, f'lacks of = "...", one of the inputs {" and ".join(inputs)}')
    elif given not in inputs:
        mistakes.add(
            description,
            (*path, "of"),
            f"names {given!r:.60}, which is not one of the inputs",
            nearest_of=inputs,
            name=str(given),
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
        mistakes.add(description, (*path, "weights"), f"is {told(given)}, which is not a file", cure=FOLDER)
    return None if given is None else description.folder / str(given)
