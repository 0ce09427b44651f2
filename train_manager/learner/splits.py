"""The rows of a dataset, split into parts with the same shares of each label."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


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
