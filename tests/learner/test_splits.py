"""Splits with the same shares of each label in each part."""

from __future__ import annotations

import pytest
import torch

from train_manager.learner.splits import TooFewRows, split_rows

DIGITS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
"""The rows of each digit in the 1,797 of scikit-learn."""


def test_each_part_has_its_share_of_each_label() -> None:
    labels = torch.tensor([0] * 40 + [1] * 20 + [2] * 4)
    parts = split_rows(labels, 64, {"train": 0.5, "test": 0.25, "valid": 0.25}, seed=0)

    assert {name: labels[rows].bincount().tolist() for name, rows in parts.items()} == {
        "train": [20, 10, 2],
        "test": [10, 5, 1],
        "valid": [10, 5, 1],
    }


def test_every_row_is_in_one_part() -> None:
    parts = split_rows(torch.arange(100) % 7, 100, {"train": 0.7, "test": 0.2, "valid": 0.1}, seed=3)

    assert torch.cat([*parts.values()]).sort().values.equal(torch.arange(100))


def test_the_labelled_twentieth_of_the_digits_has_sixty_nine_rows() -> None:
    labels = torch.cat([torch.full((count,), digit) for digit, count in enumerate(DIGITS)])
    train = split_rows(labels, len(labels), {"train": 0.75, "test": 0.25}, seed=0)["train"]
    chosen = split_rows(labels[train], len(train), {"labelled": 0.05, "rest": 0.95}, seed=0)["labelled"]

    assert (len(train), len(chosen)) == (1347, 69)
    assert set(labels[train][chosen].bincount().tolist()) == {6, 7}


def test_the_seed_determines_the_rows_and_no_random_state_does() -> None:
    labels = torch.arange(60) % 3
    shares = {"train": 0.5, "test": 0.5}
    torch.manual_seed(0)
    one = split_rows(labels, 60, shares, seed=0)["train"]
    torch.manual_seed(1)

    assert split_rows(labels, 60, shares, seed=0)["train"].equal(one)
    assert not split_rows(labels, 60, shares, seed=1)["train"].equal(one)


def test_rows_without_labels_are_split_by_their_number() -> None:
    parts = split_rows(None, 10, {"train": 0.7, "test": 0.3}, seed=0)

    assert {name: len(rows) for name, rows in parts.items()} == {"train": 7, "test": 3}


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (torch.tensor([0] * 9 + [5]), "1 row of label 5 is too few: test would have none"),
        (None, "3 rows are too few: test would have none"),
    ],
)
def test_a_part_that_would_be_empty_is_refused(labels: torch.Tensor | None, told: str) -> None:
    with pytest.raises(TooFewRows, match=f"^{told}$"):
        split_rows(labels, 3 if labels is None else 10, {"train": 0.9, "test": 0.1}, seed=0)
