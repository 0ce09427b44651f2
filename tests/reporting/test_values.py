from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.host_reads import HostReads
from train_manager.reporting.values import text_of, texts_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor(0.123456), "0.1235"),
        (torch.tensor([1234567]), "1234567"),
        (float("nan"), "nan"),
        (True, "True"),
        (None, "None"),
        ("x" * 100, "x" * 30),
        (torch.ones(2, 3), "2x3"),
        ((torch.ones(2), torch.ones(2)), "tuple"),
        ((), "tuple"),
        ((0.5, torch.tensor(1e-3)), "(0.5, 0.001)"),
        ((6e-4,), "0.0006"),
        ([1, 2], "(1, 2)"),
        (tuple(range(9)), "tuple"),
    ],
)
def test_a_value_is_a_few_characters(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_dict_is_shown_entry_by_entry() -> None:
    assert texts_of({"losses": {"main": torch.tensor(0.5), "aux": 0.25}}) == {"main": "0.5", "aux": "0.25"}


def test_another_value_is_shown_with_its_name() -> None:
    assert texts_of({"loss": 0.5}) == {"loss": "0.5"}


def test_a_name_that_comes_twice_has_its_first_text_and_its_first_place() -> None:
    texts = texts_of({"loss": 0.5, "metrics": {"accuracy": 0.25, "loss": 0.75}})
    assert list(texts.items()) == [("loss", "0.5"), ("accuracy", "0.25")]


def test_of_a_name_that_comes_twice_one_tensor_is_read() -> None:
    reads = HostReads()
    loss = torch.tensor(0.5)
    with reads:
        texts_of({"loss": loss, "metrics": {"loss": loss}})
    assert reads.count == 1
