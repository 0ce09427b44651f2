"""Histograms of weights and gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from train_manager import InputError
from train_manager.extensions import MetricStore, WeightHistograms
from train_manager.runs.store.reader import MetricReader
from train_manager.testing import tiny_manager


def test_each_weight_is_counted_once() -> None:
    weights = WeightHistograms(every=3)
    tiny_manager(weights).train()

    assert {name: sum(counts) for name, (_, counts) in weights.histograms.items()} == {
        "weights/0 Linear": 24,
        "weights/2 Linear": 18,
    }


def test_gradients_are_counted_if_asked_for() -> None:
    weights = WeightHistograms(gradients=True, every=3)
    tiny_manager(weights).train()

    assert [*weights.histograms] == [
        *("gradients/0 Linear", "gradients/2 Linear"),
        *("weights/0 Linear", "weights/2 Linear"),
    ]


def test_a_number_of_steps_in_the_place_of_gradients_is_refused() -> None:
    with pytest.raises(InputError) as error:
        WeightHistograms(500)  # type: ignore[arg-type]

    assert str(error.value) == (
        "gradients must be True or False, but is 500\n"
        "  how many steps there are for each look is `every`: WeightHistograms(every=500)"
    )


def test_the_store_gets_the_same(tmp_path: Path) -> None:
    weights = WeightHistograms(every=3)
    tiny_manager(weights, MetricStore(), train_dir=tmp_path).train()

    stored = {
        series.name: [(step, list(edges), list(counts)) for step, edges, counts in rows]
        for series, rows in MetricReader(tmp_path).histograms().items()
    }
    assert stored == {name: [(3, edges, counts)] for name, (edges, counts) in weights.histograms.items()}


def test_weights_that_are_all_the_same_have_a_histogram() -> None:
    weights, tm = WeightHistograms(every=1), tiny_manager()
    for parameter in tm.model.parameters():
        torch.nn.init.zeros_(parameter)
    tm.add_extension(weights)
    tm.train_steps(1)

    assert 'src="data:image/svg+xml;base64,' in weights._repr_html_()
