"""What a data file says: its datasets, with their features, and its curriculum."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from train_manager.checkpoints.weights_file import read_weights
from train_manager.extensions import Curriculum
from train_manager.learner.description import Spot, told
from train_manager.learner.entries import (
    COUNT,
    NAMES,
    SHARE,
    TABLE,
    TABLES,
    WHOLE,
    Entry,
    Key,
    Kind,
    as_names,
    has_form,
    is_function,
    is_module,
    named_error,
    read_entry,
    read_keys,
    read_tables,
)
from train_manager.learner.transforms import ColumnChange, read_augment, read_column
from train_manager.telling.errors import InputError

KEYS: Final = {
    "dataset": Key(TABLE, "the datasets by name", required=True),
    "curriculum": Key(TABLE, "how the extension `Curriculum` chooses the dataset of each batch"),
}
"""The keys of a data file."""

DATASET_KEYS: Final = {
    "inputs": Key(NAMES, "the input columns", required=True),
    "targets": Key(NAMES, "the columns with the truth"),
    "split": Key(TABLE, "the share of each part; train is one of them, and their sum is 1", required=True),
    "labelled": Key(SHARE, "the share of the training rows whose targets may be read"),
    "features": Key(TABLES, "what is made of the inputs once, before the training"),
    "augment": Key(TABLES, "how the inputs of each training batch are changed"),
    "batch_size": Key(COUNT, "the rows of a batch; 32 if it is left out"),
    "seed": Key(WHOLE, "determines the split and the orders; 0 if it is left out"),
}
"""The keys of a dataset, beside ``use`` and its arguments."""

CURRICULUM_KEYS: Final = {
    "probe": Key(COUNT, "the labelled rows of each dataset that are not trained on: the teacher measures by them"),
    "steps_per_epoch": Key(COUNT, "the steps of an epoch, which has no end of its own", required=True),
}
"""The keys of a curriculum, beside the arguments of the extension ``Curriculum``."""

SUM: Final = "each row is in one part: split = { train = 0.75, test = 0.25 }"
WEIGHTS: Final = "write the path of a file of weights, from the folder of this file on"
EXAMPLES: Final = 256  # that a pretrained module is given at once
PROBE: Final = 64

# The words of this room are functions of columns that are there already.
_OURS: Final = ("train_manager.learner.transforms", "train_manager.learner.tasks", "train_manager.learner.objectives")
DATASET: Final = Kind(
    "a function of the program that is @recorded, and returns columns",
    lambda thing: is_function(thing) and thing.__module__ not in _OURS,
)
FEATURE: Final = Kind(
    "a feature: a function, a class with fit() or a module with weights",
    lambda thing: is_function(thing) or is_module(thing) or (isinstance(thing, type) and hasattr(thing, "fit")),
    data=1,
)
CURRICULUM: Final = Kind("an extension", lambda thing: thing is Curriculum, given=("probe",))


# ---- datasets ------------------------------------------------------------------------------------------------------


class DatasetTable(NamedTuple):
    """The table of a dataset.

    Attributes:
        entry: the function that returns the columns.
        augment: the tables of ``augment``, by column.
        changes: what ``augment`` names.
    """

    name: str
    entry: Entry
    inputs: list[str]
    targets: list[str]
    split: dict[str, float]
    labelled: float
    features: list[Feature]
    augment: dict[str, list[dict[str, Any]]]
    changes: list[ColumnChange]
    batch_size: int
    seed: int


def read_datasets(spot: Spot) -> list[DatasetTable]:
    """Read the tables of all datasets of a file; those with a mistake are left out."""
    found = read_keys(spot, KEYS)
    tables = read_tables(spot.below("dataset")) if "dataset" in found else ()
    datasets = [dataset for name, table in tables if (dataset := _read_dataset(name, table)) is not None]
    _check_augment(datasets)
    return datasets


def _read_dataset(name: str, spot: Spot) -> DatasetTable | None:
    before = len(spot.mistakes)
    entry = read_entry(spot, DATASET, keys=DATASET_KEYS)
    found = read_keys(spot, DATASET_KEYS, has_arguments=True)
    if "split" in found:
        _check_split(spot.below("split"))
    inputs = as_names(found.get("inputs", []))
    features = _read_features(spot.below("features"), inputs) if "features" in found else []
    changes = read_augment(spot.below("augment"), inputs) if "augment" in found else []
    if entry is None or len(spot.mistakes) > before:
        return None
    return DatasetTable(
        name,
        entry,
        inputs,
        targets=as_names(found.get("targets", [])),
        split=found["split"],
        labelled=float(found.get("labelled", 1.0)),
        features=features,
        augment=_by_column(found.get("augment", []), inputs),
        changes=changes,
        batch_size=found.get("batch_size", 32),
        seed=found.get("seed", 0),
    )


def _check_split(spot: Spot) -> None:
    split = spot.value
    fits = [has_form(spot.below(name), SHARE) for name in split]
    if not split:
        spot.wrong("is empty", cure="write split = { train = 0.75, test = 0.25 }")
    elif "train" not in split:
        spot.wrong("lacks train, the share of the rows that are trained on", nearest_of=split, name="train")
    elif all(fits) and abs(sum(split.values()) - 1) > 1e-6:
        spot.wrong(f"has the sum {sum(split.values()):g}, but must have 1", cure=SUM)


def _by_column(augment: list[dict[str, Any]], inputs: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of ``augment`` of each input column."""
    return {column: [table for table in augment if table.get("of", inputs[0]) == column] for column in inputs}


def _check_augment(datasets: list[DatasetTable]) -> None:
    """Refuse datasets that change the same column differently: a model has one form of it."""
    first: dict[str, DatasetTable] = {}
    for dataset in datasets:
        for column, tables in dataset.augment.items():
            other = first.setdefault(column, dataset)
            if _without_of(tables) != _without_of(other.augment[column]):
                what = f"changes {column} otherwise than dataset.{other.name} does"
                dataset.entry.spot.below("augment").wrong(what, cure="write the same list in both")


def _without_of(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in table.items() if key != "of"} for table in tables]


# ---- features ------------------------------------------------------------------------------------------------------


class Feature(NamedTuple):
    """One entry of ``features``: what is made of an input column once, before the training.

    Attributes:
        entry: the function, the class with ``fit``, or the module.
        column: the name of the column.
        weights: the file with the weights of a module.
    """

    entry: Entry
    column: str
    weights: Path | None

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
        made = thing(**arguments)
        if self.weights is None:
            made.fit(column[train])
            return made(column)
        made.eval().load_state_dict(read_weights(self.weights))
        with torch.no_grad():
            return torch.cat([made(part) for part in column.split(EXAMPLES)])

    def _wrong(self, what: str) -> InputError:
        word = self.entry.word
        return InputError(f"{self.entry.where}: {word} {what}", name=word, cure=f"it was given {self.column}")


def _read_features(spot: Spot, inputs: list[str]) -> list[Feature]:
    found = []
    for index in range(len(spot.value)):
        entry = read_entry(spot.below(index), FEATURE, keys=("of", "weights"))
        column = read_column(spot.below(index), inputs)
        if entry is not None and column is not None:
            found.append(Feature(entry, column, _read_weights_file(entry)))
    return found


def _read_weights_file(entry: Entry) -> Path | None:
    spot, takes_weights = entry.spot.below("weights"), is_module(entry.thing)
    if spot.value is None:
        if takes_weights:
            entry.spot.wrong(f'lacks weights = "...", the file with the weights of {entry.word}')
        return None
    file = spot.description.folder / str(spot.value)
    if not takes_weights:
        spot.wrong(f"is given, but {entry.word} is not a module")
    elif not isinstance(spot.value, str) or not file.is_file():
        spot.wrong(f"is {told(spot.value)}, which is not a file", cure=WEIGHTS)
    return file


# ---- the curriculum ------------------------------------------------------------------------------------------------


class CurriculumTable(NamedTuple):
    """The table of a curriculum.

    Attributes:
        entry: the extension and its arguments.
        probe: the rows of each dataset that are not trained on.
        steps_per_epoch: the steps of an epoch.
    """

    entry: Entry
    probe: int
    steps_per_epoch: int


def read_curriculum(spot: Spot, datasets: int, fewest: int) -> CurriculumTable | None:
    """Read the table ``curriculum``; None if there is a mistake in it.

    Args:
        spot: of the table.
        datasets: their number.
        fewest: the labelled rows of the dataset that has the fewest.
    """
    found = read_keys(spot, CURRICULUM_KEYS, has_arguments=True)
    named = replace(spot, value={"use": "Curriculum", **spot.value})
    entry = read_entry(named, CURRICULUM, keys=CURRICULUM_KEYS)
    probe = found.get("probe", PROBE)
    if datasets < 2:
        spot.wrong("chooses between datasets, but there is one")
    elif probe >= fewest:
        what = f"is {probe}, but a dataset has {fewest} labelled rows, of which some must be left to train on"
        spot.below("probe").wrong(what)
    if entry is None or "steps_per_epoch" not in found:
        return None
    return CurriculumTable(entry, probe, found["steps_per_epoch"])
