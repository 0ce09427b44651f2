"""The augmentation of training batches, as a file describes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, final

from torch import Tensor

from train_manager.core.declarations import modifies
from train_manager.core.extension import Extension
from train_manager.data.random_state import preserve_random_state
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.features import read_column
from train_manager.learner.places import Place
from train_manager.learner.words import FUNCTION, Filled, named_error, read_entry
from train_manager.rebuilding.recorded import recorded


@final
@recorded
class Augment(Extension):
    """Change the inputs of each training batch by functions that a file names.

    >>> import torch
    >>> augment = Augment([{"use": "noise", "std": 0.1}], ["image"])
    >>> augment.views(torch.zeros(2, 8)).shape
    torch.Size([2, 8])

    The functions draw from torch's own random state, so a training resumes with the same numbers.

    *Runs at:* the start of ``train_step_batch``.

    *Asks for:* ``batch``.

    *Leaves behind:* the changed ``batch``.

    Args:
        functions: tables ``{use = "word"}`` with the arguments beside it, and ``of``, the column, if there are several.
        inputs: the names of the input columns.
    """

    def __init__(self, functions: list[dict[str, Any]], inputs: list[str]) -> None:
        description, mistakes = Description.read({"augment": functions}, "augment"), Mistakes()
        self._changes = read_augment(description, ("augment",), functions, inputs, mistakes)
        mistakes.raise_all()

    @modifies("batch")
    def pre_train_step_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "inputs": self.views(batch["inputs"])}

    def views(self, inputs: Any) -> Any:
        """Return changed copies of inputs; a column that is not there is left out."""
        for column, change in self._changes:
            if not isinstance(inputs, Mapping):
                inputs = change(inputs)
            elif column in inputs:
                inputs = {**inputs, column: change(inputs[column])}
        return inputs


def read_augment(
    description: Description, path: Place, given: Any, inputs: list[str], mistakes: Mistakes
) -> list[tuple[str, Any]]:
    """Return the columns and the functions that a list ``augment`` names."""
    found = []
    for index, table in enumerate(given):
        place = (*path, index)
        entry = read_entry(description, place, table, FUNCTION, mistakes, keys=("of",), filled=Filled(1))
        column = read_column(description, place, table, inputs, mistakes)
        if entry is not None and column is not None:
            found.append((column, partial(entry.thing, **entry.arguments)))
    return found


def try_augment(
    description: Description, path: Place, given: Any, inputs: Mapping[str, Tensor], mistakes: Mistakes
) -> None:
    """Call the functions of a list ``augment`` with two examples: an error comes now, not in the first batch."""
    for index, (column, change) in enumerate(read_augment(description, path, given, list(inputs), mistakes)):
        example = inputs[column][:2]
        try:
            with preserve_random_state():
                changed = change(example.clone())
            if changed.shape == example.shape:
                continue
            what = f"makes {list(changed.shape)} of {list(example.shape)}, but must keep the shape"
        except Exception as error:
            what = f"raised {named_error(error)}"
        mistakes.add(description, (*path, index), f"is {given[index]['use']}, which {what}")
