"""The note on errors of torch: which errors get one, and how values are described."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.training import At
from train_manager import InputError, SkipBatch, TrainManager
from train_manager.data.cures import add_cure, cure_of, describe
from train_manager.testing import tiny_manager


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", ()))


def fail(*_: Any) -> Any:
    raise RuntimeError("mat1 and mat2 must have the same dtype")


@pytest.mark.parametrize("error", [InputError("no"), SkipBatch()])
def test_errors_of_this_library_get_no_note(error: Exception) -> None:
    add_cure(error, {"inputs": 1})

    assert notes(error) == []


def test_an_error_of_a_hook_gets_no_note_of_the_batch() -> None:
    with pytest.raises(RuntimeError) as caught:
        tiny_manager(At("pre_train_loss_forward", lambda: fail())).train()

    assert len(notes(caught.value)) == 1
    assert notes(caught.value)[0].startswith("in hook ")


def test_an_error_without_a_known_cure_gets_what_the_batch_is() -> None:
    def loss(prediction: Any) -> Any:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError) as caught:
        tiny_manager(loss=loss, eval_data=None).train()

    assert notes(caught.value)[1].splitlines() == [
        "inputs      float32 of shape (16, 2) on cpu",
        "prediction  float32 of shape (16, 2) on cpu",
        "targets     int64 of shape (16,) on cpu",
    ]


def test_an_error_of_any_type_gets_what_the_batch_is() -> None:
    def loss(prediction: Any) -> Any:
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose") as caught:
        tiny_manager(loss=loss, eval_data=None).train()

    assert notes(caught.value) == [
        "at stage run > train > train_step_epoch > train_step_batch > train_loss_forward",
        "inputs      float32 of shape (16, 2) on cpu\n"
        "prediction  float32 of shape (16, 2) on cpu\n"
        "targets     int64 of shape (16,) on cpu",
    ]


def test_too_little_memory_asks_for_smaller_batches() -> None:
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    add_cure(error, {"inputs": torch.zeros(1)})

    assert notes(error) == [
        "inputs      float32 of shape (1,) on cpu\n"
        "train on smaller batches, and gather several: batch_size=..., Accumulate(4)"
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.zeros(2, 3).bool(), "bool of shape (2, 3) on cpu"),
        (np.zeros((2, 3)), "an array of float64 of shape (2, 3)"),
        (["a", 1], "a list of a str, a int"),
        (OrderedDict(x=torch.zeros(1)), "a OrderedDict of x: float32 of shape (1,) on cpu"),
        (None, "a NoneType"),
    ],
)
def test_a_value_is_described_by_what_it_is_made_of(value: Any, text: str) -> None:
    assert describe(value) == text


def test_a_long_list_is_described_in_part() -> None:
    assert len(describe([1] * 1000)) < 320


@pytest.mark.parametrize("parts", [{}, {"inputs": 1, "batch": (1, 2)}, {"inputs": (batch := ()), "batch": batch}])
def test_no_cure_is_invented(parts: dict[str, Any]) -> None:
    assert cure_of("something else", parts) == ""


def test_an_output_without_parts_is_no_reason_to_fail() -> None:
    assert "prediction['']" in cure_of("must be Tensor, not dict", {"prediction": {}})


def test_a_long_list_of_one_kind_is_described_once() -> None:
    assert describe([1] * 40) == "a list of 40, each a int"


def test_targets_in_a_list_are_made_a_tensor() -> None:
    parts = {"prediction": torch.ones(2), "targets": [1, 0]}

    assert "torch.tensor(targets)" in cure_of("argument 'target' (position 2) must be Tensor, not list", parts)


def test_targets_that_are_none_are_told() -> None:
    parts = {"prediction": torch.ones(2), "targets": None}

    assert cure_of("must be Tensor, not NoneType", parts) == (
        "each batch must be (inputs, targets), but these targets are None"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ],
)
def test_two_devices_are_named_with_whose_they_are(text: str) -> None:
    parts = {"model": torch.nn.Linear(2, 2, device="meta"), "inputs": torch.ones(1), "targets": torch.ones(1)}

    assert cure_of(text, parts) == (
        'the model is on meta, the batch on cpu; pass device="cpu": the TrainManager moves both'
    )


def test_a_layer_of_another_type_on_the_same_device_is_no_matter_of_devices() -> None:
    parts = {"model": torch.nn.Linear(2, 2), "inputs": torch.ones(1).double()}

    assert cure_of("Input type (double) and bias type (float) should be the same", parts) == (
        "make them numbers as the weights are: inputs.float()"
    )


@pytest.mark.parametrize(
    ("fails", "cure"),
    [
        (
            lambda: torch.nn.functional.cross_entropy(torch.zeros(4, dtype=torch.long), torch.zeros(4, 2)),
            "the loss is called as loss(prediction, targets): take them in this order",
        ),
        (
            lambda: torch.nn.BatchNorm1d(2)(torch.zeros(2)),
            "the first dimension must be the batch; a single row is x[None]",
        ),
    ],
    ids=["swapped arguments", "single row"],
)
def test_an_error_of_torch_that_tells_too_little_has_a_cure(fails: Callable[[], object], cure: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of torch: the text tells
        fails()

    assert cure_of(str(caught.value), {}) == cure


def test_a_batch_of_inputs_alone_is_unpacked_by_a_dict() -> None:
    batch = [torch.rand(4, 2)]
    cure = cure_of("argument 'input' must be Tensor, not list", {"inputs": batch, "batch": batch})
    assert cure == 'this batch has inputs only: def unpack_batch(self, batch): return {"inputs": batch[0]}'


def test_a_loop_that_unpacks_a_batch_of_inputs_alone_trains() -> None:
    class OfInputs(TrainManager):
        def unpack_batch(self, batch: Any) -> dict[str, Any]:
            return {"inputs": batch[0]}

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loop = OfInputs(
        model=model,
        loss=lambda prediction: prediction.mean(),
        optimizer=optimizer,
        train_data=[[torch.ones(1, 2)]],
    )
    assert loop.train_steps(1).steps == 1
