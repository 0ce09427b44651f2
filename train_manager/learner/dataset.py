"""One dataset of a file: its table, its columns, and the rows of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor

from train_manager.data.rows import as_column
from train_manager.learner.augment import read_augment, try_augment
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.features import Feature, read_features
from train_manager.learner.keys import COUNT, NAMES, SHARE, TABLE, TABLES, WHOLE, Key, as_names, read_keys
from train_manager.learner.places import Place
from train_manager.learner.showing import told
from train_manager.learner.splits import TooFewRows, split_rows
from train_manager.learner.words import Entry, Kind, is_function, read_entry

KEYS: Final = {
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

MORE_ROWS: Final = "give it a larger share, or the dataset more rows"
SUM: Final = "each row is in one part: split = { train = 0.75, test = 0.25 }"

# The words of this room are functions of columns that are there already.
OURS: Final = ("train_manager.learner.transforms", "train_manager.learner.tasks", "train_manager.learner.contrast")
DATASET: Final = Kind(
    "a function of the program that is @recorded, and returns columns",
    lambda thing: is_function(thing) and thing.__module__ not in OURS,
)


class Plan(NamedTuple):
    """A dataset as its table says, before its function was called."""

    name: str
    entry: Entry
    inputs: list[str]
    targets: list[str]
    split: dict[str, float]
    labelled: float
    features: list[Feature]
    augment: dict[str, list[dict[str, Any]]]  # by column
    batch_size: int
    seed: int


@final
class Dataset:
    """The columns of a dataset, with its features, and the rows of its parts.

    Args:
        plan: the table.
        columns: all columns, as the function has returned them.
        rows: the numbers of the rows of each part.
        labelled: the numbers of the training rows whose targets may be read.
    """

    def __init__(self, plan: Plan, columns: dict[str, Tensor], rows: dict[str, Tensor], labelled: Tensor) -> None:
        self.plan, self.rows, self.labelled = plan, rows, labelled
        inputs = {name: columns[name] for name in plan.inputs}
        for feature in plan.features:
            inputs[feature.column] = feature.applied(inputs[feature.column], rows["train"])
        self.inputs, self.targets = inputs, {name: columns[name] for name in plan.targets}


def read_plan(description: Description, name: str, table: Mapping[str, Any], mistakes: Mistakes) -> Plan | None:
    """Read the table of a dataset; None if there is a mistake in it."""
    path = ("dataset", name)
    entry = read_entry(description, path, table, DATASET, mistakes, keys=KEYS)
    found = read_keys(description, path, table, KEYS, mistakes, has_arguments=True)
    if "split" in found:
        _check_split(description, (*path, "split"), found["split"], mistakes)
    inputs = as_names(found.get("inputs", []))
    features = read_features(description, (*path, "features"), found.get("features", []), inputs, mistakes)
    read_augment(description, (*path, "augment"), found.get("augment", []), inputs, mistakes)
    if entry is None or len(mistakes):
        return None
    targets, labelled = as_names(found.get("targets", [])), float(found.get("labelled", 1.0))
    options = found.get("batch_size", 32), found.get("seed", 0)
    augment = {column: [t for t in found.get("augment", []) if t.get("of", inputs[0]) == column] for column in inputs}
    return Plan(name, entry, inputs, targets, found["split"], labelled, features, augment, *options)


def _check_split(description: Description, path: Place, split: Mapping[str, Any], mistakes: Mistakes) -> None:
    unfit = [name for name, share in split.items() if not SHARE.fits(share)]
    for name in unfit:
        mistakes.add(description, (*path, name), f"must be {SHARE.words}, but is {told(split[name])}")
    if not split:
        mistakes.add(description, path, "is empty", cure="write split = { train = 0.75, test = 0.25 }")
    elif "train" not in split:
        mistakes.add(
            description, path, "lacks train, the share of the rows that are trained on", nearest_of=split, name="train"
        )
    elif not unfit and abs(sum(split.values()) - 1) > 1e-6:
        mistakes.add(description, path, f"has the sum {sum(split.values()):g}, but must have 1", cure=SUM)


# ---- after the function was called ---------------------------------------------------------------------------------


def made_dataset(description: Description, plan: Plan, mistakes: Mistakes) -> Dataset | None:
    """Call the function of a dataset, and split its rows; None if there is a mistake in what it returns."""
    columns = _columns(description, plan, mistakes)
    if columns is None:
        return None
    labels = _labels(columns, plan.targets)
    path = ("dataset", plan.name)
    try:
        rows = split_rows(labels, len(next(iter(columns.values()))), plan.split, plan.seed)
    except TooFewRows as error:
        mistakes.add(description, (*path, "split"), f"cannot be made: {error}", cure=MORE_ROWS)
        return None
    labelled, train = rows["train"], rows["train"]
    if plan.labelled < 1:
        shares = {"the labelled part": plan.labelled, "the rest": 1 - plan.labelled}
        try:
            chosen = split_rows(None if labels is None else labels[train], len(train), shares, plan.seed)
        except TooFewRows as error:
            mistakes.add(description, (*path, "labelled"), f"cannot be chosen: {error}", cure=MORE_ROWS)
            return None
        labelled = train[chosen["the labelled part"]]
    made = Dataset(plan, columns, rows, labelled)
    augment = description.tree["dataset"][plan.name].get("augment", [])
    try_augment(description, (*path, "augment"), augment, made.inputs, mistakes)
    return made


def _columns(description: Description, plan: Plan, mistakes: Mistakes) -> dict[str, Tensor] | None:
    """Return the columns that are inputs or targets, as the function of the dataset returns them."""
    path, before = ("dataset", plan.name), len(mistakes)
    given = plan.entry.made()
    if not isinstance(given, Mapping) or not given:
        what = f"is {plan.entry.word}, which must return a dict of columns, but returned a {type(given).__name__}"
        mistakes.add(description, (*path, "use"), what)
        return None
    columns = {}
    for key, names in (("inputs", plan.inputs), ("targets", plan.targets)):
        for name in names:
            if name not in given:
                what = f"names {name!r:.60}, which is not a column of {plan.entry.word}"
                mistakes.add(description, (*path, key), what, nearest_of=map(str, given), name=name)
            elif (column := _numbers(given[name])) is None:
                what = f"names {name!r:.60}, which must have numbers, one or more for each row"
                mistakes.add(description, (*path, key), what, cure=f"return a tensor or a list from {plan.entry.word}")
            else:
                columns[name] = _as_torch_counts(column, is_target=key == "targets")
    lengths = {name: len(column) for name, column in columns.items()}
    if 0 in lengths.values():
        empty = " and ".join(name for name, length in lengths.items() if not length)
        mistakes.add(description, (*path, "use"), f"is {plan.entry.word}, which returned no rows of {empty}")
        return None
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        mistakes.add(
            description, (*path, "use"), f"is {plan.entry.word}, which returned columns of different lengths: {shown}"
        )
    return columns if len(mistakes) == before else None


def _numbers(given: Any) -> Tensor | None:
    """Return a column of numbers; None if it is something else."""
    try:
        column = as_column(given)
    except (TypeError, ValueError):
        return None
    return column if isinstance(column, Tensor) and column.dim() else None


def _as_torch_counts(column: Tensor, *, is_target: bool) -> Tensor:
    """Return numbers in the types that layers and losses of torch take: numpy has twice, or half, as many bits."""
    if column.dtype == torch.float64:
        return column.float()
    is_whole = not column.is_floating_point() and not column.is_complex() and column.dtype != torch.bool
    return column.long() if is_target and is_whole else column


def _labels(columns: Mapping[str, Tensor], targets: list[str]) -> Tensor | None:
    """Return the targets whose shares all parts have: the first column of whole numbers."""
    for name in targets:
        if not columns[name].is_floating_point() and columns[name].dim() == 1:
            return columns[name]
    return None
