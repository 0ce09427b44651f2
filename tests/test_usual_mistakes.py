"""The usual mistakes with batches, losses and outputs: each answer ends with the line of code that mends it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from train_manager import InputError, TrainManager
from train_manager.testing import tiny_manager

X, Y = torch.ones(4, 2), torch.zeros(4, dtype=torch.long)


class Returns(nn.Linear):
    """A model that returns something that is made of its prediction."""

    def __init__(self, returned: Any) -> None:
        super().__init__(2, 2)
        self.returned = returned

    def forward(self, input: Tensor) -> Any:
        return self.returned(super().forward(input))


def answer(error: BaseException) -> str:
    """All that is said, without where it happened."""
    lines = [*str(error).splitlines(), *(line for note in getattr(error, "__notes__", ()) for line in note.split("\n"))]
    return "\n".join(line for line in lines if not line.startswith("at stage "))


def answer_to(manager: type[TrainManager] = TrainManager, **options: Any) -> str:
    given = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "optimizer": SGD, "train_data": [(X, Y)], **options}
    tm = manager(**given)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of torch or of this library: the text tells
        tm.train()
    assert tm.step_num == 0
    return answer(caught.value)


def refused_at_once(**options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        tiny_manager(**options)
    return caught.value


# ---- the model and the loss ----------------------------------------------------------------------------------------


def test_a_model_that_returns_nothing() -> None:
    assert answer_to(model=Returns(lambda prediction: None)) == (
        "Returns must return a prediction with a tensor, but returned a NoneType\n"
        "  does its forward() end with `return`?"
    )


def test_a_model_that_returns_a_tuple_where_the_loss_takes_a_tensor() -> None:
    assert answer_to(model=Returns(lambda prediction: (prediction, None))) == (
        "cross_entropy_loss(): argument 'input' (position 1) must be Tensor, not tuple\n"
        "inputs      float32 of shape (4, 2) on cpu\n"
        "prediction  a tuple of float32 of shape (4, 2) on cpu, a NoneType\n"
        "targets     int64 of shape (4,) on cpu\n"
        "take a part of the output: loss=lambda prediction, targets: loss(prediction[0], targets)"
    )


def test_a_model_that_returns_a_dict_where_the_loss_takes_a_tensor() -> None:
    text = answer_to(model=Returns(lambda prediction: {"logits": prediction}), loss=F.mse_loss)

    assert text.splitlines()[0] == "'dict' object has no attribute 'size'"
    assert text.splitlines()[-1] == (
        "take a part of the output: loss=lambda prediction, targets: loss(prediction['logits'], targets)"
    )


def test_a_loss_of_each_example() -> None:
    assert answer_to(loss=nn.CrossEntropyLoss(reduction="none")) == (
        "the loss must be a scalar, but has shape (4,)\n  reduce it: loss.mean()"
    )


def test_a_loss_that_is_a_plain_number() -> None:
    assert answer_to(loss=lambda prediction: prediction.mean().item()) == (
        "the loss must be a tensor, but is a float\n  leave out .item(): return the tensor itself"
    )


def test_a_loss_without_return() -> None:
    assert answer_to(loss=lambda prediction: None) == (
        "there is no loss: none was returned, and the model has added none\n"
        "  pass loss=F.cross_entropy, return one from it or from loss_forward(self, ...), "
        "or call add_loss(value) in the model's forward; beside an own train_batch, override eval_batch too"
    )


def test_a_loss_without_a_graph() -> None:
    assert answer_to(loss=lambda prediction: prediction.mean().detach()) == (
        "the loss does not require grad, so nothing would be trained\n"
        "  is it computed under no_grad or from detached tensors, or are all parameters frozen?"
    )


def test_a_loss_that_calls_the_targets_by_another_name() -> None:
    text = answer_to(loss=lambda prediction, target: prediction.mean())

    assert text.splitlines()[0].endswith("<lambda> wants 'target', which no open stage provides")
    assert text.splitlines()[-1] == "  did you mean 'targets'?"


def test_a_loss_that_calls_the_targets_by_the_name_of_another_fixture() -> None:
    assert answer(refused_at_once(loss=lambda output, batch: output.mean())).splitlines()[1:] == [
        "  call its parameter for the prediction `prediction`: then all of them are fixtures, found by name"
    ]


# ---- the targets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "shown", "cure"),
    [
        pytest.param(
            Y.float(),
            "float32 of shape (4,) on cpu",
            "labels must be whole numbers: targets.long()",
            id="floats",
        ),
        pytest.param(
            Y[:, None],
            "int64 of shape (4, 1) on cpu",
            "labels must be of shape (batch,): targets.squeeze(1)",
            id="column",
        ),
        pytest.param(
            F.one_hot(Y, 2),
            "int64 of shape (4, 2) on cpu",
            "one-hot targets must be probabilities: targets.float()",
            id="one-hot",
        ),
        pytest.param(
            Y + 2,
            "int64 of shape (4,) on cpu",
            "labels must be from 0 to the number of outputs - 1, but one is 2: nn.Linear(..., number of classes)",
            id="out-of-range",
        ),
        pytest.param(
            Y[:3],
            "int64 of shape (3,) on cpu",
            "a batch has 4 inputs but 3 targets: they must be of the same examples",
            id="number",
        ),
    ],
)
def test_targets_that_cross_entropy_cannot_take(targets: Tensor, shown: str, cure: str) -> None:
    assert answer_to(train_data=[(X, targets)]).splitlines()[1:] == [  # the first is torch's, and changes with it
        "inputs      float32 of shape (4, 2) on cpu",
        "prediction  float32 of shape (4, 2) on cpu",
        f"targets     {shown}",
        cure,
    ]


@pytest.mark.parametrize(
    ("targets", "cure"),
    [
        (
            torch.zeros(8),
            "make them one shape: loss=lambda prediction, targets: loss(prediction, targets.view_as(prediction))",
        ),
        (torch.zeros(4), "the model must have as many outputs as the targets have numbers"),
        (torch.zeros(4, 2).long(), "these targets must not be whole numbers: targets.float()"),
    ],
    ids=["shape", "size", "integers"],
)
def test_targets_that_binary_cross_entropy_cannot_take(targets: Tensor, cure: str) -> None:
    loss = F.binary_cross_entropy_with_logits

    assert answer_to(train_data=[(X, targets)], loss=loss).splitlines()[-1] == cure


# ---- the batch -----------------------------------------------------------------------------------------------------


def test_a_batch_of_three() -> None:
    shown = "float32 of shape (4, 2) on cpu"

    assert answer_to(train_data=[(X, Y, X)]) == (
        "linear(): argument 'input' (position 1) must be Tensor, not tuple\n"
        f"inputs      a tuple of {shown}, int64 of shape (4,) on cpu, {shown}\n"
        "this batch is not a pair, so all of it is `inputs`: def unpack_batch(self, batch): return batch[0], batch[1]"
    )


def test_a_batch_that_is_a_dict_without_inputs() -> None:
    assert answer_to(train_data=[{"image": X, "label": Y}]) == (
        "linear(): argument 'input' (position 1) must be Tensor, not dict\n"
        "inputs      a dict of image: float32 of shape (4, 2) on cpu, label: int64 of shape (4,) on cpu\n"
        "this batch is not a pair, so all of it is `inputs`: "
        "def unpack_batch(self, batch): return batch['image'], batch['label']"
    )


def test_a_batch_without_targets() -> None:
    assert answer_to(train_data=[X]) == (
        "the loss needs targets, but a batch (Tensor) has none: it is not a pair\n"
        "  give batches as (inputs, targets), or override unpack_batch(self, batch); "
        "or name fixtures in the loss: loss(prediction, inputs)"
    )


def test_a_batch_of_arrays() -> None:
    assert answer_to(train_data=[(X.numpy(), Y.numpy())]) == (
        "a batch (tuple) has arrays of numpy, but a model takes tensors\n"
        "  give tensors: torch.from_numpy(x), or InMemory(x, y, batch_size=64)"
    )


def test_a_batch_of_which_one_part_is_an_array() -> None:
    assert answer_to(train_data=[(X.numpy(), Y)]) == (
        "linear(): argument 'input' (position 1) must be Tensor, not numpy.ndarray\n"
        "inputs      an array of float32 of shape (4, 2)\n"
        "targets     int64 of shape (4,) on cpu\n"
        "make tensors of arrays: torch.from_numpy(x).float(), or train_data=InMemory(x, y, batch_size=64)"
    )


@pytest.mark.parametrize(
    ("inputs", "cure"),
    [
        (X.double(), "make them numbers as the weights are: inputs.float()"),
        (X.long(), "make them numbers as the weights are: inputs.float()"),
        (torch.ones(4, 5), "a layer for 2 features is given 5: nn.Linear(5, ...)"),
        (
            torch.ones(4, 2, device="meta"),
            'the model is on cpu, the batch on meta and cpu; pass device="cpu": the TrainManager moves both',
        ),
    ],
    ids=["float64", "integers", "features", "device"],
)
def test_inputs_that_a_layer_cannot_take(inputs: Tensor, cure: str) -> None:
    text = answer_to(train_data=[(inputs, Y)])

    assert text.splitlines()[-1] == cure


@pytest.mark.parametrize(
    ("model", "inputs", "cure"),
    [
        (
            nn.Conv2d(1, 2, 3),
            torch.ones(4, 8, 8),
            "a convolution of 1 channels is given 4: nn.Conv2d(4, ...), or inputs.unsqueeze(1) if they have none",
        ),
        (nn.Embedding(3, 2), torch.ones(4), "indices must be whole numbers: inputs.long()"),
        (nn.BatchNorm1d(2), torch.ones(1, 2), "BatchNorm needs two examples: drop_last=True"),
    ],
    ids=["channels", "indices", "one"],
)
def test_inputs_that_other_layers_cannot_take(model: nn.Module, inputs: Tensor, cure: str) -> None:
    assert answer_to(model=model, train_data=[(inputs, Y)]).splitlines()[-1] == cure


def test_data_that_is_one_tensor() -> None:
    assert answer(refused_at_once(train_data=X)) == (
        "train_data must be an iterable of batches, but is a tensor\n"
        "  cut it into batches: InMemory(x, y, batch_size=64)"
    )


# ---- train_batch ---------------------------------------------------------------------------------------------------


def test_a_train_batch_that_returns_the_loss() -> None:
    class Own(TrainManager):
        def train_batch(self) -> Any:
            return self.forward()

    assert answer_to(Own) == "train_batch must return nothing, but returned a Tensor\n  call self.update(loss)"


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.b(self.a(inputs))  # type: ignore[no-any-return]


def answer_to_updates(*, retain_graph: bool) -> str:
    class Own(TrainManager):
        def train_batch(self) -> None:
            loss = self.forward()
            self.update(loss, "b", retain_graph=retain_graph)
            self.update(loss, "a")

    return answer_to(Own, model=Two(), optimizer={"a": SGD, "b": SGD}).splitlines()[-1]


def test_two_updates_of_one_graph() -> None:
    assert answer_to_updates(retain_graph=False) == (
        "several updates of one graph: self.update(loss, ..., retain_graph=True) for all but the last"
    )


def test_an_update_whose_weights_a_later_backward_needs() -> None:
    assert answer_to_updates(retain_graph=True) == (
        "weights were stepped before a later backward: call self.backward(...) for all losses, then self.step(...)"
    )


# ---- evaluation and prediction -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["eval", "predict"])
def test_evaluation_and_prediction_say_the_same(call: str) -> None:
    tm = tiny_manager(eval_data=[(torch.ones(4, 5), Y)])
    with pytest.raises(RuntimeError) as caught:
        tm.eval() if call == "eval" else tm.predict(torch.ones(4, 5))

    assert answer(caught.value).splitlines()[1:] == [
        "inputs      float32 of shape (4, 5) on cpu",
        *(["targets     int64 of shape (4,) on cpu"] if call == "eval" else []),
        "a layer for 2 features is given 5: nn.Linear(5, ...)",
    ]


def test_a_model_of_parts_has_no_forward_to_evaluate_or_predict_with() -> None:
    model = nn.ModuleDict({"generator": nn.Linear(2, 2)})
    tm = TrainManager(model=model, eval_data=[torch.zeros(4, 2)])
    for call in (tm.eval, lambda: tm.predict(torch.zeros(4, 2))):
        with pytest.raises(NotImplementedError) as caught:
            call()

        assert (
            "inputs      float32 of shape (4, 2) on cpu\n"
            "it has parts only: override train_batch, eval_batch, or model_forward(self, model, inputs) for predictions"
        ) in caught.value.__notes__
