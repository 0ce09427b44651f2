"""The usual mistakes with batches, losses and outputs: each answer ends with the line of code that mends it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau

from train_manager import InputError, TrainManager
from train_manager.errors import ArgumentError
from train_manager.extensions import LRSchedule, Metrics
from train_manager.metrics import whole
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
        "  pass loss=F.cross_entropy, return one from it or from loss_forward(self, ...), return a dict of scalar "
        "losses from the model, or call add_loss(value) in its forward; beside an own train_batch, override "
        "eval_batch too, or give eval_data=None; an evaluation with Metrics needs no loss"
    )


def test_a_loss_without_a_graph() -> None:
    assert answer_to(loss=lambda prediction: prediction.mean().detach()) == (
        "the loss does not require grad, so nothing would be trained\n"
        "  is it computed under no_grad, from detached tensors or from an argmax, or are all parameters frozen?"
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
            "it has submodules only: override train_batch, and eval_batch, which sets self.fixtures['loss'] "
            "(or give eval_data=None); for predictions, override model_forward(self, model, inputs)"
        ) in caught.value.__notes__


class TrainsParts(TrainManager):
    def train_batch(self, batch: Any) -> None:
        inputs, targets = batch
        self.update(F.cross_entropy(self.model["net"](inputs), targets))


class EvaluatesParts(TrainsParts):
    def eval_batch(self, batch: Any) -> None:
        inputs, targets = batch
        self.fixtures["loss"] = F.cross_entropy(self.model["net"](inputs), targets)


@pytest.mark.parametrize(("manager", "data"), [(TrainsParts, None), (EvaluatesParts, [(X, Y)])])
def test_the_two_cures_for_the_evaluation_of_a_model_of_submodules_train(
    manager: type[TrainManager], data: Any
) -> None:
    model = nn.ModuleDict({"net": nn.Linear(2, 2)})

    assert "override train_batch, and eval_batch" in answer_to(TrainsParts, model=model, loss=None, eval_data=[(X, Y)])
    assert manager(model=model, optimizer=SGD, train_data=[(X, Y)], eval_data=data).train().steps == 1


# ---- what a manager is made with, and asked for ----------------------------------------------------------------------


def test_a_metric_for_a_schedule_is_called_monitor_and_trains() -> None:
    with pytest.raises(ArgumentError) as caught:
        LRSchedule(ReduceLROnPlateau, metric="valid/loss")  # type: ignore[call-arg]

    assert str(caught.value) == "LRSchedule has no argument 'metric'\n  it is called 'monitor' here"
    assert tiny_manager(LRSchedule(ReduceLROnPlateau, monitor="valid/loss")).train().steps == 3


def test_the_cure_for_a_schedule_that_wants_a_metric_trains() -> None:
    cure = refused_at_once(lr_schedule=ReduceLROnPlateau).cure

    made = eval(cure.partition("extensions=")[2], {"LRSchedule": LRSchedule, "torch": torch})
    assert tiny_manager(*made).train().steps == 3


def test_a_scheduler_where_a_function_makes_one_is_named_in_the_cure() -> None:
    with pytest.raises(InputError) as caught:
        LRSchedule(ReduceLROnPlateau(SGD([nn.Parameter(X)])), monitor="valid/loss")  # type: ignore[arg-type]

    example = "LRSchedule(lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, ...))"
    assert caught.value.cure == example


@pytest.mark.parametrize("make", [lambda: None, lambda net: SGD(net.parameters())])
def test_a_function_that_makes_an_optimizer_of_something_else_than_parameters(make: Any) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught:
        tiny_manager(optimizer=make)

    assert caught.value.__notes__ == [
        "the optimizer is made of a list of parameters: optimizer=lambda parameters: torch.optim.SGD(parameters, "
        "lr=0.1); or of the model: optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1)"
    ]


def test_a_function_that_makes_a_model_is_called() -> None:
    def network() -> nn.Module:
        return nn.Linear(2, 2)

    assert refused_at_once(model=network).cure == "give an instance: model=network()"


def test_a_metric_that_cannot_take_what_it_is_given_says_the_shapes() -> None:
    metrics = Metrics(right=lambda prediction, targets: prediction[:, 0] == targets[:, 0])

    said = answer_to(extensions=[metrics], eval_data=[(X, Y)])

    assert "\nin metric 'right' of prediction of shape (4, 2) and targets of shape (4,)\n" in said


LABELS = "  labels: prediction.argmax(1); over a whole set: whole(...)"


@pytest.mark.parametrize("score", [f1_score, whole(f1_score)], ids=["of a batch", "whole"])
def test_a_metric_of_labels_that_is_given_scores_of_classes_says_how_to_get_labels(score: Any) -> None:
    said = answer_to(extensions=[Metrics(eval=[score])], eval_data=[(X, Y)])

    assert "Classification metrics can't handle" in said
    assert f"\nin metric 'f1_score' of prediction of shape (4, 2) and targets of shape (4,)\n{LABELS}\n" in said


def test_a_metric_that_lacks_an_argument_says_what_a_metric_takes() -> None:
    def reward(targets: Tensor) -> Tensor:
        return targets.float().mean()

    said = answer_to(extensions=[Metrics(reward=lambda *values: reward(*values))], eval_data=[(X, Y)])

    note = "in metric 'reward' of prediction of shape (4, 2) and targets of shape (4,): a metric takes "
    assert f"\n{note}(prediction, targets), or fixtures by name if one of them is prediction\n" in said


@pytest.mark.parametrize("method", ["train_on_batch", "eval_on_batch"])
def test_inputs_and_targets_as_two_arguments_are_refused(method: str) -> None:
    tm = tiny_manager()
    with pytest.raises(InputError) as caught:
        getattr(tm, method)(X, Y)

    what = f"{method} takes one batch, but its second argument is a Tensor"
    assert str(caught.value) == f"{what}\n  {method}((inputs, targets))"
    assert tm.step_num == 0


def test_weights_that_are_saved_as_the_error_says_are_loaded_as_the_error_says(tmp_path: Path) -> None:
    tm, path = tiny_manager(), tmp_path / "weights.pt"
    with pytest.raises(
        AttributeError, match=r"did you mean torch.save\(tm.model.state_dict\(\), path\); the extension"
    ):
        tm.save(path)  # type: ignore[attr-defined]
    torch.save(tm.model.state_dict(), path)
    with pytest.raises(AttributeError, match=r"did you mean tm.load_weights\(path\); Checkpoints"):
        tm.load(path)  # type: ignore[attr-defined]
    other = tiny_manager(model=nn.Sequential(*map(copy.deepcopy, tm.model)).apply(zeros))
    other.load_weights(path)

    assert all(map(torch.equal, other.model.parameters(), tm.model.parameters()))


def zeros(module: nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        nn.init.zeros_(parameter)
