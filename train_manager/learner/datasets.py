"""The data of a learner: the columns of its datasets, the rows of their parts, and their batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.data.interleaved import Interleaved
from train_manager.data.passes import RowBatches, epoch_order
from train_manager.data.rows import as_column
from train_manager.extensions import Curriculum
from train_manager.learner.dataset_file import CurriculumTable, DatasetTable, read_curriculum, read_datasets
from train_manager.learner.description import Description, FileMistakes, Spot
from train_manager.learner.entries import is_among
from train_manager.learner.transforms import Augment, try_changes

MORE_ROWS: Final = "give it a larger share, or the dataset more rows"


@final
class ColumnBatches(RowBatches):
    """Batches of some rows of columns: ``{"inputs": ..., "targets": ...}``; without targets, the inputs alone.

    A single column is a tensor, several are a dict of tensors.

    Args:
        inputs: the columns by name.
        targets: the columns by name; none are read if it is empty.
        rows: the numbers of the rows.
        batch_size: the rows of a batch; the last batch may have fewer.
        shuffle: draw a new order for each epoch.
        seed: determines the orders.
        as_dicts: whether also a single column of inputs, or of targets, is a dict: if other data have several.
    """

    def __init__(
        self,
        inputs: Mapping[str, Tensor],
        targets: Mapping[str, Tensor],
        rows: Tensor,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        as_dicts: tuple[bool, bool] = (False, False),
    ) -> None:
        self._as_dicts = as_dicts
        self._inputs, self._targets, self._numbers = dict(inputs), dict(targets), rows
        super().__init__(len(rows), batch_size, shuffle, seed, drop_last=False)

    @property
    def source(self) -> dict[str, Tensor]:
        """The columns, with the rows that are read."""
        return {name: column[self._numbers] for name, column in {**self._inputs, **self._targets}.items()}

    @property
    def _device(self) -> torch.device:
        return self._numbers.device

    def all(self) -> dict[str, Any]:
        """Return all rows in their order, as one batch."""
        return self._batch(slice(None))  # type: ignore[no-any-return]

    def _batch(self, rows: Tensor | slice) -> Any:
        chosen = self._numbers[rows]
        inputs_as_dict, targets_as_dict = self._as_dicts
        batch = {"inputs": _chosen(self._inputs, chosen, as_dict=inputs_as_dict)}
        if self._targets:
            batch["targets"] = _chosen(self._targets, chosen, as_dict=targets_as_dict)
        return batch


def _chosen(columns: Mapping[str, Tensor], rows: Tensor, *, as_dict: bool) -> Any:
    found = {name: column[rows] for name, column in columns.items()}
    return found if as_dict or len(found) > 1 else next(iter(found.values()))


class TooFewRows(ValueError):
    """A part would have no row of a label."""


def split_rows(labels: Tensor | None, count: int, shares: Mapping[str, float], seed: int) -> dict[str, Tensor]:
    """Return the numbers of the rows of each part, in ascending order; each row is in one part.

    >>> parts = split_rows(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 8, {"train": 0.75, "test": 0.25}, seed=0)
    >>> {name: len(rows) for name, rows in parts.items()}
    {'train': 6, 'test': 2}

    Args:
        labels: a whole number for each row, whose shares each part has too; None if there are none.
        count: the number of rows.
        shares: of each part; their sum is 1.
        seed: determines the split.

    Raises:
        TooFewRows: a part has no row of a label, or none at all.
    """
    generator = torch.Generator().manual_seed(seed)
    groups = {None: torch.arange(count)} if labels is None else rows_by_label(labels)
    found: dict[str, list[Tensor]] = {name: [] for name in shares}
    for label, rows in groups.items():
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        for name, part in _cut(shuffled, shares).items():
            if not len(part):
                of_label = "" if label is None else f" of label {label}"
                number = f"{len(rows)} row{'s' * (len(rows) != 1)}{of_label}"
                raise TooFewRows(f"{number} {'is' if len(rows) == 1 else 'are'} too few: {name} would have none")
            found[name].append(part)
    return {name: torch.cat(parts).sort().values for name, parts in found.items()}


def rows_by_label(labels: Tensor) -> dict[int | None, Tensor]:
    """Return the numbers of the rows of each label."""
    return {int(label): (labels == label).nonzero().flatten() for label in labels.unique()}


def _cut(rows: Tensor, shares: Mapping[str, float]) -> dict[str, Tensor]:
    ends, total = [], 0.0
    for share in shares.values():
        total += share
        ends.append(round(total * len(rows)))
    ends[-1] = len(rows)
    starts = [0, *ends[:-1]]
    return {name: rows[start:end] for name, start, end in zip(shares, starts, ends, strict=True)}


# ---- one dataset ---------------------------------------------------------------------------------------------------


@final
class Dataset:
    """The columns of a dataset, with its features, and the rows of its parts.

    Args:
        table: what the file says of it.
        columns: all columns, as the function has returned them.
        rows: the numbers of the rows of each part.
        labelled: the numbers of the training rows whose targets may be read.
    """

    def __init__(
        self, table: DatasetTable, columns: dict[str, Tensor], rows: dict[str, Tensor], labelled: Tensor
    ) -> None:
        self.table, self.rows, self.labelled = table, rows, labelled
        self.inputs = {name: columns[name] for name in table.inputs}
        self.targets = {name: columns[name] for name in table.targets}
        for feature in table.features:
            self.inputs[feature.column] = feature.applied(self.inputs[feature.column], rows["train"])


def made_dataset(table: DatasetTable) -> Dataset | None:
    """Call the function of a dataset, and split its rows; None if there is a mistake in what it returns."""
    spot = table.entry.spot
    before = len(spot.mistakes)
    columns = _columns(spot, table)
    if len(spot.mistakes) > before:
        return None
    labels, count = _labels(columns, table.targets), len(next(iter(columns.values())))
    key, cannot = "split", "made"
    try:
        rows = split_rows(labels, count, table.split, table.seed)
        key, cannot = "labelled", "chosen"
        labelled = _labelled(rows["train"], labels, table)
    except TooFewRows as error:
        spot.below(key).wrong(f"cannot be {cannot}: {error}", cure=MORE_ROWS)
        return None
    made = Dataset(table, columns, rows, labelled)
    try_changes(spot.below("augment"), table.changes, made.inputs)
    return made


def _labelled(train: Tensor, labels: Tensor | None, table: DatasetTable) -> Tensor:
    """Return the numbers of the training rows whose targets may be read."""
    if table.labelled == 1:
        return train
    shares = {"the labelled part": table.labelled, "the rest": 1 - table.labelled}
    chosen = split_rows(None if labels is None else labels[train], len(train), shares, table.seed)
    return train[chosen["the labelled part"]]


def _columns(spot: Spot, table: DatasetTable) -> dict[str, Tensor]:
    """Return the columns that are inputs or targets, as the function of the dataset returns them."""
    given, word = table.entry.made(), table.entry.word
    if not isinstance(given, Mapping) or not given:
        what = f"is {word}, which must return a dict of columns, but returned a {type(given).__name__}"
        spot.below("use").wrong(what)
        return {}
    names, columns = [str(name) for name in given], {}
    for key, asked in (("inputs", table.inputs), ("targets", table.targets)):
        for name in asked:
            if not is_among(spot.below(key), name, names, f"is not a column of {word}"):
                continue
            column = _numbers(given[name], is_target=key == "targets")
            if column is None:
                what = f"names {name!r:.60}, which must have numbers, one or more for each row"
                spot.below(key).wrong(what, cure=f"return a tensor or a list from {word}")
            else:
                columns[name] = column
    lengths = {name: len(column) for name, column in columns.items()}
    if 0 in lengths.values():
        empty = " and ".join(name for name, length in lengths.items() if not length)
        spot.below("use").wrong(f"is {word}, which returned no rows of {empty}")
    elif len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        spot.below("use").wrong(f"is {word}, which returned columns of different lengths: {shown}")
    return columns


def _numbers(given: Any, *, is_target: bool) -> Tensor | None:
    """Return a column in the types that layers and losses of torch take; None if it does not have numbers."""
    try:
        column = as_column(given)
    except (TypeError, ValueError):
        return None
    if not isinstance(column, Tensor) or not column.dim():
        return None
    if column.dtype == torch.float64:  # of numpy, which has twice as many bits
        return column.float()
    is_whole = not column.is_floating_point() and not column.is_complex() and column.dtype != torch.bool
    return column.long() if is_target and is_whole else column


def _labels(columns: Mapping[str, Tensor], targets: list[str]) -> Tensor | None:
    """Return the targets whose shares all parts have: the first column of whole numbers."""
    for name in targets:
        if not columns[name].is_floating_point() and columns[name].dim() == 1:
            return columns[name]
    return None


# ---- all datasets --------------------------------------------------------------------------------------------------


@final
class Datasets:
    """The data of a learner; made by ``create_dataloader``.

    Attributes:
        train_data: the labelled batches of all datasets; Interleaved, if there are several.
        eval_data: batches of the other parts: ``"test"``; of several datasets ``"digits test"``.
        augment: the extension that changes training batches; None if no dataset has ``augment``.
        curriculum: the extension that chooses the dataset of each batch; None without ``curriculum``.
        steps_per_epoch: the steps that an epoch has with a curriculum; None without.
        description: the tables, as they were read.
    """

    def __init__(
        self, description: Description, datasets: list[Dataset], curriculum: CurriculumTable | None = None
    ) -> None:
        self.description, self._datasets = description, datasets
        inputs = {name for dataset in datasets for name in dataset.inputs}
        targets = {name for dataset in datasets for name in dataset.targets}
        self._as_dicts = (len(inputs) > 1, len(targets) > 1)
        self.input_names, self.target_names = sorted(inputs), sorted(targets)
        self.curriculum: Curriculum | None = None
        self.steps_per_epoch: int | None = None
        self.train_data = _joined({d.table.name: self._batches(d, d.labelled, shuffle=True) for d in datasets})
        if curriculum is not None:
            self._begin(curriculum)
        self.eval_data = {
            name if len(datasets) == 1 else f"{d.table.name} {name}": self._batches(d, rows)
            for d in datasets
            for name, rows in d.rows.items()
            if name != "train"
        }
        augment = [table for column in self.input_names for table in _changes_of(column, datasets)]
        self.augment = Augment(augment, self.input_names) if augment else None

    def __repr__(self) -> str:
        return f"Datasets({', '.join(d.table.name for d in self._datasets)}: {self.train_data!r})"

    def _begin(self, given: CurriculumTable) -> None:
        """Let a teacher choose the dataset of each batch, by probes that are not trained on."""
        probes, sets = {}, {}
        for d in self._datasets:
            # In an order of their own: data may be sorted by label.
            rows = d.labelled[epoch_order(len(d.labelled), d.table.seed, 0)]
            probe, rest = rows[: given.probe], rows[given.probe :]
            probes[d.table.name] = self._batches(d, probe).all()
            sets[d.table.name] = self._batches(d, rest, shuffle=True)
        teacher: Curriculum = given.entry.made(probes)
        self.curriculum, self.steps_per_epoch = teacher, given.steps_per_epoch
        self.train_data = Interleaved(sets, choose=teacher.choose)

    def examples(self) -> dict[str, dict[str, Any]]:
        """Return a few labelled examples of each dataset, among them those of the least and the largest label."""
        found = {}
        for dataset in self._datasets:
            rows = dataset.labelled[:2]
            for column in dataset.targets.values():
                if column.dim() == 1:
                    of_rows = column[dataset.labelled]
                    rows = torch.cat([rows, dataset.labelled[torch.stack([of_rows.argmin(), of_rows.argmax()])]])
            found[dataset.table.name] = self._batches(dataset, rows).all()
        return found

    def unlabelled(self, batch_size: int | None = None) -> ColumnBatches | Interleaved:
        """Return batches of all training rows, without targets.

        Args:
            batch_size: the rows of a batch; None for that of the dataset.
        """
        return _joined(
            {
                d.table.name: self._batches(d, d.rows["train"], shuffle=True, targets={}, batch_size=batch_size)
                for d in self._datasets
            }
        )

    def _batches(
        self,
        dataset: Dataset,
        rows: Tensor,
        *,
        shuffle: bool = False,
        targets: dict[str, Tensor] | None = None,
        batch_size: int | None = None,
    ) -> ColumnBatches:
        table, given = dataset.table, dataset.targets if targets is None else targets
        options: dict[str, Any] = {"batch_size": batch_size or table.batch_size, "shuffle": shuffle, "seed": table.seed}
        return ColumnBatches(dataset.inputs, given, rows, **options, as_dicts=self._as_dicts)


def _changes_of(column: str, datasets: list[Dataset]) -> list[dict[str, Any]]:
    """Return the tables of ``augment`` of a column; those of its datasets are the same."""
    return next((d.table.augment.get(column, []) for d in datasets if column in d.inputs), [])


def _joined(sets: dict[str, ColumnBatches]) -> ColumnBatches | Interleaved:
    return next(iter(sets.values())) if len(sets) == 1 else Interleaved(sets)


def create_dataloader(dataset_file: str | Path | Mapping[str, Any]) -> Datasets:
    """Make the data that a file describes.

    >>> import torch
    >>> from train_manager import recorded
    >>> @recorded
    ... def points(number: int):
    ...     x = torch.rand(number, 2)
    ...     return {"point": x, "label": (x.sum(1) > 1).long()}
    >>> data = create_dataloader({"dataset": {"points": {
    ...     "use": "points", "number": 40, "inputs": "point", "targets": "label",
    ...     "split": {"train": 0.75, "test": 0.25}}}})
    >>> len(data.train_data), list(data.eval_data)
    (1, ['test'])

    Args:
        dataset_file: the path of a TOML file, or what such a file says as a dict.

    Raises:
        InputError: all mistakes in the file, with their lines.
    """
    description, mistakes = Description.read(dataset_file, "the dataset file"), FileMistakes()
    spot = description.root(mistakes)
    tables = read_datasets(spot)
    mistakes.raise_all()
    datasets = [dataset for table in tables if (dataset := made_dataset(table)) is not None]
    mistakes.raise_all()
    curriculum = None
    if "curriculum" in description.tree:
        fewest = min((len(dataset.labelled) for dataset in datasets), default=0)
        curriculum = read_curriculum(spot.below("curriculum"), len(datasets), fewest)
        mistakes.raise_all()
    return Datasets(description, datasets, curriculum)
