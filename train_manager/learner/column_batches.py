"""Batches of the rows of columns: inputs and targets by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from train_manager.data.passes import RowBatches


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
