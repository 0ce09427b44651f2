"""The data of a learner: the batches of all datasets of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor

from train_manager.data.interleaved import Interleaved
from train_manager.data.passes import epoch_order
from train_manager.extensions import Curriculum
from train_manager.learner.augment import Augment
from train_manager.learner.column_batches import ColumnBatches
from train_manager.learner.dataset import Dataset, Plan, made_dataset, read_plan
from train_manager.learner.description import Description, Mistakes
from train_manager.learner.keys import TABLE, Key, read_keys, read_tables
from train_manager.learner.lessons import Lessons, read_lessons

TOP: Final = {
    "dataset": Key(TABLE, "the datasets by name", required=True),
    "curriculum": Key(TABLE, "how the extension `Curriculum` chooses the dataset of each batch"),
}
"""The keys of a data file."""


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

    def __init__(self, description: Description, datasets: list[Dataset], lessons: Lessons | None = None) -> None:
        self.description, self._datasets = description, datasets
        inputs = {name for dataset in datasets for name in dataset.inputs}
        targets = {name for dataset in datasets for name in dataset.targets}
        self._as_dicts = (len(inputs) > 1, len(targets) > 1)
        self.input_names, self.target_names = sorted(inputs), sorted(targets)
        self.curriculum: Curriculum | None = None
        self.steps_per_epoch: int | None = None
        self.train_data = _joined({d.plan.name: self._batches(d, d.labelled, shuffle=True) for d in datasets})
        if lessons is not None:
            self._begin(lessons)
        self.eval_data = {
            name if len(datasets) == 1 else f"{d.plan.name} {name}": self._batches(d, rows)
            for d in datasets
            for name, rows in d.rows.items()
            if name != "train"
        }
        augment = [table for column in self.input_names for table in _changes_of(column, datasets)]
        self.augment = Augment(augment, self.input_names) if augment else None

    def __repr__(self) -> str:
        return f"Datasets({', '.join(d.plan.name for d in self._datasets)}: {self.train_data!r})"

    def _begin(self, lessons: Lessons) -> None:
        """Let a teacher choose the dataset of each batch, by probes that are not trained on."""
        probes, sets = {}, {}
        for d in self._datasets:
            # In an order of their own: data may be sorted by label.
            rows = d.labelled[epoch_order(len(d.labelled), d.plan.seed, 0)]
            probe, rest = rows[: lessons.probe], rows[lessons.probe :]
            probes[d.plan.name] = self._batches(d, probe).all()
            sets[d.plan.name] = self._batches(d, rest, shuffle=True)
        teacher: Curriculum = lessons.entry.made(probes)
        self.curriculum, self.steps_per_epoch = teacher, lessons.steps_per_epoch
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
            found[dataset.plan.name] = self._batches(dataset, rows).all()
        return found

    def unlabelled(self, batch_size: int | None = None) -> ColumnBatches | Interleaved:
        """Return batches of all training rows, without targets.

        Args:
            batch_size: the rows of a batch; None for that of the dataset.
        """
        return _joined(
            {
                d.plan.name: self._batches(d, d.rows["train"], shuffle=True, targets={}, batch_size=batch_size)
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
        plan, given = dataset.plan, dataset.targets if targets is None else targets
        options: dict[str, Any] = {"batch_size": batch_size or plan.batch_size, "shuffle": shuffle, "seed": plan.seed}
        return ColumnBatches(dataset.inputs, given, rows, **options, as_dicts=self._as_dicts)


def _changes_of(column: str, datasets: list[Dataset]) -> list[dict[str, Any]]:
    """Return the tables of ``augment`` of a column; those of its datasets are the same."""
    return next((d.plan.augment.get(column, []) for d in datasets if column in d.inputs), [])


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
    description, mistakes = Description.read(dataset_file, "the dataset file"), Mistakes()
    top = read_keys(description, (), description.tree, TOP, mistakes)
    tables = read_tables(description, ("dataset",), top.get("dataset", {}), mistakes)
    plans = [read_plan(description, name, table, mistakes) for name, table in tables]
    _check_augment(description, [plan for plan in plans if plan is not None], mistakes)
    mistakes.raise_all()
    made = [made_dataset(description, plan, mistakes) for plan in plans if plan is not None]
    mistakes.raise_all()
    datasets = [dataset for dataset in made if dataset is not None]
    lessons = None
    if "curriculum" in top:
        fewest = min(len(dataset.labelled) for dataset in datasets)
        lessons = read_lessons(description, top["curriculum"], len(datasets), fewest, mistakes)
        mistakes.raise_all()
    return Datasets(description, datasets, lessons)


def _check_augment(description: Description, plans: list[Plan], mistakes: Mistakes) -> None:
    """Refuse datasets that change the same column differently: a model has one form of it."""
    first: dict[str, Plan] = {}
    for plan in plans:
        for column, tables in plan.augment.items():
            other = first.setdefault(column, plan)
            if _without_of(tables) != _without_of(other.augment[column]):
                what = f"changes {column} otherwise than dataset.{other.name} does"
                mistakes.add(description, ("dataset", plan.name, "augment"), what, cure="write the same list in both")


def _without_of(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in table.items() if key != "of"} for table in tables]
