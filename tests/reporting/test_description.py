"""The repr of a TrainManager, as text and as HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from train_manager import Endless, Extension, InMemory, Interleaved, Together, TrainManager
from train_manager.data.batch import batches_text
from train_manager.extensions import EMA
from train_manager.model.combined_optimizer import CombinedOptimizer
from train_manager.reporting.description import model_text, optimizer_text
from train_manager.testing import tiny_manager


def test_a_manager_says_what_is_trained_on_what_and_how_far_it_is() -> None:
    tm = tiny_manager(EMA(), epochs=5, train_dir=Path("runs"))

    assert repr(tm) == (
        "TrainManager(model=Sequential(42 parameters on cpu), loss=cross_entropy, optimizer=SGD(lr=0.5),\n"
        "             train_data=list(3 batches), eval_data=[valid], train_dir=runs,\n"
        "             epoch 0 of 5, step 0, extensions=[ema])"
    )


def test_the_table_of_a_notebook_has_a_line_for_each_set_and_extension() -> None:
    shown = tiny_manager(EMA(decay=0.9), eval_data={"valid": [1], "test": [1, 2]})._repr_html_()

    assert "valid: list(1 batch)\ntest: list(2 batches)" in shown
    assert "ema: EMA(decay=0.9)" in shown


def test_a_manager_says_how_far_it_is() -> None:
    tm = tiny_manager(epochs=2)
    tm.train_steps(4)

    assert "epoch 1 of 2, step 4" in repr(tm)


def test_a_training_that_resumed_after_its_epochs_does_not_count_them_of_a_smaller_number() -> None:
    tm = tiny_manager(epochs=1)
    tm.train_epochs(2)
    assert "epoch 2, step 6" in repr(tm)


def test_a_subclass_that_has_not_called_super_is_shown_by_its_extensions() -> None:
    class Half(TrainManager):
        def __init__(self) -> None:
            assert repr(self) == "Half()"

    Half()


class Broken(nn.Module):
    def parameters(self, recurse: bool = True) -> Any:
        raise KeyError("no parameters")


def test_a_repr_does_not_raise_for_a_model_that_does() -> None:
    tm = tiny_manager()
    tm.model = Broken()

    assert repr(tm).startswith("TrainManager(model=Broken(its parameters raise KeyError), ")
    assert "Broken(its parameters raise KeyError)" in tm._repr_html_()


def test_the_table_of_a_notebook_escapes_what_it_shows() -> None:
    class Sign(Extension):
        def __init__(self, text: str) -> None:
            self.text = text

        def post_train(self) -> None: ...

    shown = tiny_manager(Sign("<b>"))._repr_html_()

    assert "<td" in shown
    assert "sign: Sign(&#x27;&lt;b&gt;&#x27;)" in shown
    assert "<b>" not in shown


def test_a_repr_reads_no_batch() -> None:
    batches = iter([(torch.rand(2, 2), torch.zeros(2, dtype=torch.long))])

    assert "train_data=list_iterator" in repr(tiny_manager(train_data=batches))
    assert len(list(batches)) == 1


def test_a_lazy_model_has_no_number_of_parameters_yet() -> None:
    assert model_text(nn.LazyLinear(2)) == "LazyLinear(parameters not initialized)"


def test_several_optimizers_are_shown_by_name_and_a_rate_in_a_tensor_is_not_read() -> None:
    one, two = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    first, second = torch.optim.SGD([one], lr=0.1 + 0.2), torch.optim.Adam([two], lr=torch.tensor(0.1))

    assert optimizer_text({"first": first, "second": second}) == "{'first': SGD(lr=0.3), 'second': Adam()}"
    assert optimizer_text(CombinedOptimizer([first, second])) == "SGD(lr=0.3) and Adam()"


def endless() -> Any:
    yield from ()


ROWS = torch.zeros(10, 2)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([1, 2], "list(2 batches)"),
        (endless(), "generator"),
        (DataLoader(ROWS, batch_size=4), "DataLoader(3 batches of 4)"),  # type: ignore[arg-type]
        (InMemory(ROWS, batch_size=4), "InMemory(10 rows, 3 batches of 4)"),
        (InMemory(ROWS, batch_size=10, shuffle=True), "InMemory(10 rows, 1 batch of 10, shuffle=True)"),
        (Endless([1]), "Endless(list(1 batch))"),
        (Together({"a": [1], "b": [1, 2]}), "Together({'a': list(1 batch), 'b': list(2 batches)}, until='longest')"),
        (Interleaved({"a": [1]}, ratios={"a": 3}), "Interleaved({'a': list(1 batch)}, ratios={'a': 3})"),
        (Interleaved({"a": [1]}, choose=lambda: "a"), "Interleaved({'a': list(1 batch)}, choose=<lambda>)"),
    ],
)
def test_data_say_how_many_batches_they_have(data: Any, text: str) -> None:
    assert batches_text(data) == text


def test_data_whose_length_raises_are_shown_by_their_class() -> None:
    class Stream:
        def __iter__(self) -> Any: ...

        def __len__(self) -> int:
            raise TypeError("no length")

    assert batches_text(Stream()) == "Stream"


def test_the_device_of_a_model_is_named_and_no_tensor_is_read() -> None:
    assert model_text(nn.Linear(1, 1, device="meta")) == "Linear(2 parameters on meta)"
