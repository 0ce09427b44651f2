"""Figures of evaluations: what is drawn, and that all of it can be read."""

from __future__ import annotations

import pytest
import torch

from tests.support.figures import examples_of, overlaps, texts_of
from train_manager.reporting.evaluation_figures import confusion_figure, gallery_figure


@pytest.mark.parametrize("classes", [2, 100])
def test_a_confusion_matrix_of_any_size_is_drawn(classes: int) -> None:
    figure = confusion_figure({"valid": torch.eye(classes, dtype=torch.long).tolist()}, [])

    assert "100.0% of 1 found, 100.0% of 1 right" in texts_of(figure)


def test_no_text_of_a_confusion_matrix_covers_another_or_is_cut_off() -> None:
    counts = torch.full((20, 20), 12_345).tolist()
    figure = confusion_figure({"valid": counts, "test": [[1, 0], [0, 0]]}, [f"class {n} of twenty" for n in range(20)])

    assert overlaps(figure) == []


def test_an_example_has_its_prediction_below_it() -> None:
    texts = texts_of(gallery_figure({"valid": examples_of(torch.rand(5, 3, 4, 6))}, ["cat", "dog", "bird"]))

    assert texts[:5] == ["valid: the surest mistakes, then random examples", "cat, 0%", "right", "dog, 12%", "right"]


@pytest.mark.parametrize("inputs", [torch.rand(5, 64), torch.rand(9, 3, 4, 9)])
def test_no_text_of_a_gallery_covers_another_or_is_cut_off(inputs: torch.Tensor) -> None:
    sets = {"valid": examples_of(inputs), "test": examples_of(inputs)}

    assert overlaps(gallery_figure(sets, ["a class with a long name"] * 3)) == []
