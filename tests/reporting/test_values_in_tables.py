from __future__ import annotations

import math

import pytest

from train_manager.reporting.values import number_cell, text_table


def test_columns_are_as_wide_as_their_widest_cell_and_empty_places_stay_empty() -> None:
    table = text_table({"training": {"loss": 0.5}, "validation set": {"accuracy": 12345678.0}}, corner="metric")

    assert table == ("metric    training  validation set\nloss        0.5000\naccuracy                 1.235e+07")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (0.31234, "0.3123"),
        (-0.5, "-0.5000"),
        (1e-6, "1e-06"),
        (12345.0, "1.234e+04"),
        (math.nan, "nan"),
    ],
)
def test_a_number_takes_a_few_characters(value: float, text: str) -> None:
    assert number_cell({"loss": value}, "loss") == text
