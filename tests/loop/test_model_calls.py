"""How a model is called: what is spread, what goes by keyword, and what is given as it is."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager import InputError, Objective, TrainManager
from train_manager.loop.model_calls import ModelCall
from train_manager.testing import tiny_manager


class Sum(nn.Module):
    """Needs two."""

    def forward(self, a: Any, b: Any, scale: int = 1) -> Any:
        return (a + b) * scale


class Encoder(nn.Module):
    """As those of Hugging Face: each has a default."""

    def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None) -> Any:
        return input_ids, attention_mask, labels


class Whole(nn.Module):
    """Takes what there is."""

    def forward(self, inputs: Any) -> Any:
        return inputs


class Mixed(nn.Module):
    """Has a rest."""

    def forward(self, image: Any, **others: Any) -> Any:
        return image, others


class Rest(nn.Module):
    def forward(self, **features: Any) -> Any:
        return features


def called(model: Any, inputs: Any) -> Any:
    return ModelCall(model)(model, inputs)


def refusal(model: Any, inputs: Any) -> str:
    with pytest.raises(InputError) as caught:
        called(model, inputs)
    return str(caught.value)


# ---- tuples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inputs", [(1, 2), [1, 2]])
def test_a_tuple_is_spread_if_the_forward_needs_several(inputs: Any) -> None:
    assert called(Sum(), inputs) == 3


def test_a_tuple_may_also_have_what_the_forward_does_not_need() -> None:
    assert called(Sum(), (1, 2, 10)) == 30


@pytest.mark.parametrize("model", [Whole(), Encoder(), Mixed()])
def test_a_tuple_is_one_argument_of_a_forward_that_needs_no_more(model: nn.Module) -> None:
    result = called(model, (1, 2))

    assert (result if isinstance(model, Whole) else result[0]) == (1, 2)


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        (torch.zeros(1), "a Tensor"),
        ((1,), "a tuple of 1"),
        ([1, 2, 3, 4], "a list of 4"),
        ({"a": 1, "c": 2}, "a dict of a, c"),
    ],
    ids=["tensor", "few", "many", "dict"],
)
def test_inputs_that_a_forward_cannot_take_are_refused(inputs: Any, found: str) -> None:
    assert refusal(Sum(), inputs) == (
        f"Sum.forward needs a, b, but the inputs are {found}\n"
        "  give batches of ((a, b), targets), or override model_forward(self, inputs)"
    )


def test_a_forward_whose_second_argument_goes_by_keyword_only_gets_no_tuple() -> None:
    class Keyword(nn.Module):
        def forward(self, a: Any, *, b: Any) -> Any:
            return a, b

    assert called(Keyword(), {"a": 1, "b": 2}) == (1, 2)
    assert refusal(Keyword(), (1, 2)).startswith("Keyword.forward needs a, b, but the inputs are a tuple of 2\n")


# ---- dicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_dict_goes_by_keyword_if_the_forward_names_its_keys(kind: Any) -> None:
    assert called(Encoder(), kind(input_ids=1, labels=3)) == (1, None, 3)


def test_a_dict_goes_by_keyword_to_a_forward_that_needs_several() -> None:
    assert called(Sum(), {"b": 1, "a": 2}) == 3


def test_a_dict_with_other_keys_goes_by_keyword_if_the_forward_has_a_rest() -> None:
    assert called(Mixed(), {"image": 1, "text": 2}) == (1, {"text": 2})


def test_a_dict_is_one_argument_of_a_forward_with_a_rest_that_names_none_of_its_keys() -> None:
    class Optional(nn.Module):
        def forward(self, image: Any = None, **others: Any) -> Any:
            return image, others

    assert called(Optional(), {"text": 2}) == ({"text": 2}, {})


def test_a_dict_goes_by_keyword_to_a_forward_that_has_a_rest_only() -> None:
    assert called(Rest(), {"image": 1}) == {"image": 1}


@pytest.mark.parametrize("inputs", [{"x": 1, "edges": 2}, {"inputs": 1, "edges": 2}, {0: 1}])
def test_a_dict_is_one_argument_of_a_forward_that_does_not_name_its_keys(inputs: Any) -> None:
    assert called(Whole(), inputs) == inputs


# ---- the model that is read ----------------------------------------------------------------------------------------


def test_a_model_that_torch_wraps_is_read_inside() -> None:
    class Compiled(nn.Module):  # as torch.compile's, which takes seconds to import
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self._orig_mod = module

        def forward(self, *args: Any, **named: Any) -> Any:
            return self._orig_mod(*args, **named)

    assert called(Compiled(Sum()), (1, 2)) == 3
    assert called(nn.DataParallel(Compiled(Sum())), {"a": 1, "b": 2}) == 3


def test_a_model_without_a_signature_gets_its_inputs_as_they_are() -> None:
    assert called(max, (1, 2)) == 2


class Timed(nn.Module):
    """A wrapper of the user's, whose forward tells nothing."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inside, self.calls = module, 0

    def forward(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        return self.inside(*args, **named)


class Classify(Objective):
    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)


@pytest.mark.parametrize("loss", [F.cross_entropy, Classify()], ids=["function", "objective"])
def test_the_model_that_is_called_gets_what_the_users_model_takes(loss: Any) -> None:
    tm = two_inputs(loss=loss)
    tm.called_model = timed = Timed(tm.model)
    tm.train()

    assert (timed.calls, tm.step_num) == (4, 2)


# ---- in a training -------------------------------------------------------------------------------------------------


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.layer(left - right)  # type: ignore[no-any-return]


def two_inputs(**options: Any) -> TrainManager:
    x, y = torch.rand(4, 2), torch.zeros(4, dtype=torch.long)
    batches = [((x, x + 1), y)] * 2
    return tiny_manager(**{"model": Pair(), "train_data": batches, "eval_data": batches[:1], **options})


def test_a_model_of_two_inputs_is_trained_evaluated_and_asked() -> None:
    tm = two_inputs()
    tm.train()

    assert tm.samples_seen == 8
    assert tm.train_data is not None
    assert tm.predict(tm.train_data).shape == (8, 2)


def test_an_objective_calls_the_model_as_the_loop_does() -> None:
    class Twice(Classify):
        def predict(self, model: nn.Module, inputs: Any) -> Any:
            return super().predict(model, tuple(2 * part for part in inputs))

    for objective in (Classify(), Twice()):
        tm = two_inputs(loss=objective)
        tm.train()
        assert tm.step_num == 2


def test_a_model_that_is_replaced_is_called_as_it_takes_its_inputs() -> None:
    tm = two_inputs(eval_data=None)
    tm.train_steps(1)
    tm.model = nn.Linear(2, 2)
    tm.optimizer = torch.optim.SGD(tm.model.parameters(), lr=0.1)
    tm.train_data = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))]
    tm.train_steps(1)

    assert tm.step_num == 2


# ---- outputs with a loss of their own ------------------------------------------------------------------------------


class Classifier(nn.Module):
    """As those of Hugging Face: the batch has the labels, the output the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, pixels: Tensor | None = None, labels: Tensor | None = None) -> dict[str, Any]:
        logits = self.layer(pixels)
        return {"loss": None if labels is None else F.cross_entropy(logits, labels), "logits": logits}


class Output:
    def __init__(self, loss: Tensor | None, logits: Tensor) -> None:
        self.loss, self.logits = loss, logits


class WithAttributes(Classifier):
    def forward(self, pixels: Tensor | None = None, labels: Tensor | None = None) -> Any:
        return Output(**super().forward(pixels, labels))


def labelled(kind: Any = dict) -> Any:
    return kind(pixels=torch.ones(4, 2), labels=torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("model", [Classifier, WithAttributes])
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_the_loss_of_an_output_is_trained_on_if_there_is_no_other(model: Any, kind: Any) -> None:
    tm = tiny_manager(model=model(), loss=None, train_data=[labelled(kind)] * 3, eval_data=[labelled(kind)])
    before = tm.eval()["eval"]["loss"]
    tm.train()

    assert tm.eval()["eval"]["loss"] < before
    assert tm.samples_seen == 12


def test_the_loss_of_an_output_does_not_count_beside_another() -> None:
    tm = tiny_manager(
        model=Classifier(),
        loss=lambda prediction: prediction["logits"].sum() * 0 + 7,
        train_data=[labelled()],
        eval_data=[labelled()],
    )

    assert tm.eval() == {"eval": {"loss": 7.0}}


@pytest.mark.parametrize(("model", "name"), [(Classifier, "dict"), (WithAttributes, "Output")])
def test_an_output_whose_loss_is_none_asks_for_the_targets(model: Any, name: str) -> None:
    tm = tiny_manager(model=model(), loss=None, train_data=[{"pixels": torch.ones(4, 2)}], eval_data=None)
    with pytest.raises(InputError) as caught:
        tm.train()

    assert str(caught.value) == (
        f"there is no loss: the `loss` of the model's output ({name}) is None\n"
        "  does the batch have the targets under the name that the model takes, such as `labels`?"
    )
