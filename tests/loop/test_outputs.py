"""What a batch, a prediction and a loss must be: the text of each refusal, and what passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from train_manager import InputError
from train_manager.loop.outputs import (
    count_rows,
    loss_in,
    no_targets,
    require_batch_size,
    require_modified_loss,
    require_prediction,
    require_scalar_loss,
    require_training_loss,
    require_unpacked,
)


def refusal(call: Callable[[], object]) -> str:
    """Return the text of the InputError that the call raises."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


# ---- the parts of a batch ------------------------------------------------------------------------------------------


def test_a_pair_is_inputs_and_targets() -> None:
    assert require_unpacked((1, 2)) == {"inputs": 1, "targets": 2}


@pytest.mark.parametrize("parts", [{}, {"inputs": 1}, {"targets": 2}, {"inputs": 1, "targets": 2}])
def test_a_dict_of_inputs_and_targets_may_lack_some(parts: dict[str, int]) -> None:
    assert require_unpacked(parts) == parts


@pytest.mark.parametrize(
    ("value", "shown"), [((1, 2, 3), "3 values"), ((1,), "1 values"), ([1, 2], "a list"), (None, "a NoneType")]
)
def test_batch_parts_that_are_neither_a_pair_nor_a_dict_are_refused(value: Any, shown: str) -> None:
    text = refusal(lambda: require_unpacked(value))

    assert text == (
        f"unpack_batch must return a pair or a dict, but returned {shown}\n"
        '  return (inputs, targets), or a dict: {"inputs": ...}'
    )


def test_a_part_with_another_name_is_refused() -> None:
    text = refusal(lambda: require_unpacked({"inputs": 1, "mask": 2}))

    assert text == (
        "unpack_batch must return inputs and targets only, but returned 'mask' too\n"
        '  write a fixture of its own: @fixture("train_step_batch") def mask(self, batch): ...'
    )


def test_a_batch_without_targets_is_named_by_its_type() -> None:
    assert str(no_targets({"x": 1})) == (
        "the loss needs targets, but a batch (dict) has none: it is not a pair\n"
        "  give batches as (inputs, targets), or override unpack_batch(self, batch); "
        "or name fixtures in the loss: loss(prediction, inputs)"
    )


# ---- the batch size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch", [torch.zeros(3, 2), [torch.zeros(()), torch.zeros(3)], {"n": 1, "x": torch.zeros(3, 1)}]
)
def test_rows_are_those_of_the_first_tensor_that_has_any(batch: Any) -> None:
    assert count_rows(batch) == 3


@pytest.mark.parametrize("batch", ["text", [], torch.zeros(())])
def test_a_batch_whose_rows_cannot_be_counted_is_refused(batch: Any) -> None:
    text = refusal(lambda: count_rows(batch))

    assert text == (
        f"a batch ({type(batch).__name__}) has no tensor whose rows can be counted\n"
        "  give tensors: Rows(data, batch_size=64) makes them of examples; or override get_true_batch_size(self, batch)"
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (-1, "-1"), (2.5, "2.5"), (None, "None"), (True, "True"), ("3", "'3'")]
)
def test_a_batch_size_is_a_whole_number_of_examples(value: Any, shown: str) -> None:
    assert refusal(lambda: require_batch_size(value)) == (
        f"get_true_batch_size must return a whole number of at least 1, but returned {shown}\n"
        "  return how many examples the batch has"
    )


@pytest.mark.parametrize("value", [3, np.int64(3), torch.tensor(3)])
def test_a_batch_size_may_be_a_whole_number_of_another_kind(value: Any) -> None:
    assert require_batch_size(value) == 3


# ---- the prediction ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, [], {"x": 1}])
def test_a_prediction_without_a_tensor_is_refused(value: object) -> None:
    text = refusal(lambda: require_prediction(value, nn.Identity()))

    assert text == (
        f"Identity must return a prediction with a tensor, but returned a {type(value).__name__}\n"
        "  does its forward() end with `return`?"
    )


NORMAL = torch.distributions.Normal(0.0, 1.0)


@pytest.mark.parametrize("value", [torch.zeros(1), (1, torch.zeros(1)), {"logits": torch.zeros(1)}, NORMAL])
def test_a_prediction_with_a_tensor_somewhere_passes(value: object) -> None:
    assert require_prediction(value, nn.Identity()) is value


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_a_number_as_loss_is_refused() -> None:
    text = refusal(lambda: require_scalar_loss(0.5))  # type: ignore[arg-type]

    assert text == "the loss must be a tensor, but is a float\n  leave out .item(): return the tensor itself"


def test_a_loss_per_example_is_refused() -> None:
    text = refusal(lambda: require_scalar_loss(torch.zeros(4)))

    assert text == "the loss must be a scalar, but has shape (4,)\n  reduce it: loss.mean()"


def test_a_loss_that_needs_no_gradient_is_refused_in_training_only() -> None:
    loss = torch.zeros(())
    text = refusal(lambda: require_training_loss(loss))

    assert require_scalar_loss(loss) is loss
    assert text == (
        "the loss does not require grad, so nothing would be trained\n"
        "  is it computed under no_grad, from detached tensors or from an argmax, or are all parameters frozen?"
    )


def test_a_loss_that_a_hook_modified_into_a_number_is_refused() -> None:
    assert refusal(lambda: require_modified_loss("backward_loss", 0.5, "Half.pre_train_backward")) == (
        "Half.pre_train_backward made backward_loss a float, but it must be a scalar\n"
        "  give a tensor, such as loss / 2, without .item() or float(...)"
    )


# ---- the loss in an output -----------------------------------------------------------------------------------------

GRAPH = torch.tensor(2.0, requires_grad=True)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param({"a": GRAPH, "b": torch.ones(1)}, id="not a scalar"),
        pytest.param({"a": GRAPH, "b": 1.0}, id="not a tensor"),
        pytest.param({"a": GRAPH, "b": torch.tensor(1)}, id="a whole number"),
        pytest.param({"a": torch.tensor(1.0)}, id="without a graph"),
        pytest.param({}, id="empty"),
        pytest.param([GRAPH], id="a list"),
    ],
)
def test_an_output_that_is_no_dict_of_scalars_with_a_graph_has_no_loss(output: Any) -> None:
    assert loss_in(output) is None


def test_a_dict_of_scalars_of_which_one_has_a_graph_has_their_sum() -> None:
    assert loss_in({"a": GRAPH, "b": torch.tensor(0.5)}).item() == 2.5  # type: ignore[union-attr]


def test_a_loss_of_its_own_in_a_dict_of_scalars_is_the_loss() -> None:
    assert loss_in({"loss": GRAPH, "b": torch.tensor(0.5, requires_grad=True)}) is GRAPH


def test_in_an_evaluation_a_dict_of_scalars_needs_no_graph() -> None:
    with torch.no_grad():
        assert loss_in({"a": torch.tensor(1.0)}).item() == 1.0  # type: ignore[union-attr]
