"""What a batch, a prediction and a loss must be: the text of each refusal, and what passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.training import refusal, weights
from train_manager import InputError, TrainManager
from train_manager.data.batch import unpack
from train_manager.extensions import Accumulate
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import (
    count_rows,
    loss_in,
    require_batch_size,
    require_prediction,
    require_unpacked,
)
from train_manager.testing import tiny_manager

# ---- the parts of a batch ------------------------------------------------------------------------------------------


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


# ---- the batch size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "batch", [torch.zeros(3, 2), [torch.zeros(()), torch.zeros(3)], {"n": 1, "x": torch.zeros(3, 1)}]
)
def test_rows_are_those_of_the_first_tensor_that_has_any(batch: Any) -> None:
    assert count_rows(batch, ModelCall(Finder()).spreads, unpack(batch)) == 3


class Finder(nn.Module):
    """A detector, as torchvision has them: it takes a list of images of different sizes and gives a number each."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images: list[Tensor]) -> Tensor:
        return torch.stack([self.scale * image.mean() for image in images])


class Pairs(Finder):
    """A model whose forward has two arguments."""

    def forward(self, images: Tensor, others: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward([images, others])


def images_of(*values: float) -> list[Tensor]:
    """Images of these brightnesses, of different sizes, and of three channels each."""
    return [torch.full((3, 4 + number, 5), float(value)) for number, value in enumerate(values)]


def brightness(prediction: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
    return (prediction - torch.stack([one["value"].mean() for one in targets])).square().mean()


def batch_of(*values: float) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Images whose losses are the squares of these numbers, with a number of boxes of their own."""
    return images_of(*values), [{"value": torch.zeros(number)} for number in range(1, len(values) + 1)]


BATCHES = [batch_of(1, 1, 1, 1), batch_of(3)]


def detecting(kind: type[TrainManager] = TrainManager, *extensions: Any, lr: float = 0.0, **options: Any) -> Any:
    given = {"model": Finder(), "loss": brightness, "train_data": BATCHES, **options}
    return kind(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr), extensions=extensions, **given)


def test_a_list_of_images_counts_its_images() -> None:
    tm = detecting(eval_data={"valid": BATCHES})
    result = tm.train()

    assert result.metrics["valid"]["loss"] == pytest.approx(2.6)  # 4 images of loss 1 and one of loss 9
    assert tm.history.epochs[0]["loss"] == pytest.approx(2.6)
    assert tm.samples_seen == 5


def test_accumulated_lists_of_images_equal_one_large_list() -> None:
    accumulated = detecting(TrainManager, Accumulate(2), lr=0.1)
    accumulated.train()
    plain = detecting(train_data=[batch_of(1, 1, 1, 1, 3)], lr=0.1)
    plain.train()

    assert weights(accumulated.model).allclose(weights(plain.model))


def test_an_own_unpack_batch_that_gives_lists_of_images_counts_them() -> None:
    class Zipped(TrainManager):
        def unpack_batch(self, batch: Any) -> Any:
            return tuple(map(list, zip(*batch, strict=True)))

    tm = detecting(Zipped, train_data=[list(zip(*batch, strict=True)) for batch in BATCHES])
    tm.train()

    assert tm.samples_seen == 5


def test_a_probe_counts_the_images_of_a_list() -> None:
    sizes: list[int] = []

    class Probing(TrainManager):
        def model_forward(self, inputs: Any, true_batch_size: int) -> Any:
            sizes.append(true_batch_size)
            return self.model(inputs)

        def post_train_step_batch(self) -> None:
            self.probe(batch_of(1, 2))

    detecting(Probing).train()

    assert sizes == [4, 2, 1, 2]


@pytest.mark.parametrize(
    ("targets", "count"),
    [
        ([{}, {}], 2),
        ([torch.tensor(1), torch.tensor(0)], 2),
        (("cat", "dog"), 2),
        ([torch.zeros(1, 4), torch.zeros(7, 4)], 2),
        ([torch.zeros(3, 4), torch.zeros(3, 4)], 3),  # tensors with three rows each: two targets of one batch
        ([{}], 3),
        (torch.zeros(2), 3),
    ],
)
def test_a_list_has_examples_if_each_has_a_target_of_its_own(targets: Any, count: int) -> None:
    batch = {"inputs": tuple(images_of(1, 2)), "targets": targets}

    assert count_rows(batch, ModelCall(Finder()).spreads, unpack(batch)) == count


def test_several_inputs_and_several_targets_count_their_rows() -> None:
    x, y = torch.zeros(16, 2), torch.zeros(16)
    batch = (x, x), (y, y)

    assert count_rows(batch, ModelCall(Finder()).spreads, unpack(batch)) == 16


def test_inputs_that_are_spread_over_the_arguments_of_the_model_count_their_rows() -> None:
    x = torch.zeros(16, 2)
    batch = (x, x), ({"label": torch.zeros(16)}, {"label": torch.zeros(16)})

    assert count_rows(batch, ModelCall(Pairs()).spreads, unpack(batch)) == 16
    assert count_rows(batch, ModelCall(Finder()).spreads, unpack(batch)) == 2


def test_an_own_forward_may_take_a_list_of_as_many_images_as_the_model_has_arguments() -> None:
    class OneByOne(TrainManager):
        def model_forward(self, inputs: list[Tensor]) -> Tensor:
            return torch.stack([self.model(image, image)[0] for image in inputs])

    tm = detecting(OneByOne, model=Pairs(), train_data=[batch_of(1, 2)])
    tm.train()

    assert tm.samples_seen == 2


@pytest.mark.parametrize("batch", ["text", [], torch.zeros(())])
def test_a_batch_whose_rows_cannot_be_counted_is_refused(batch: Any) -> None:
    text = refusal(lambda: count_rows(batch, ModelCall(Finder()).spreads, unpack(batch)))

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


@pytest.mark.parametrize("method", ["train_model_forward", "model_forward"])
def test_a_method_of_ones_own_that_returns_nothing_is_named(method: str) -> None:
    def nothing(self: Any, model: nn.Module, inputs: Tensor) -> None:
        model(inputs)

    own, like = type("Own", (TrainManager,), {method: nothing}), tiny_manager()
    tm = own(model=like.model, loss=F.cross_entropy, optimizer=torch.optim.SGD, train_data=like.train_data)
    with pytest.raises(InputError) as caught:
        tm.train()

    assert str(caught.value).splitlines()[:2] == [
        f"Own.{method} must return a prediction with a tensor, but returned a NoneType",
        f"  does {method}() end with `return`?",
    ]


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
