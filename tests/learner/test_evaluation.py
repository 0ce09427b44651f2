"""An evaluation by plain functions: over whole parts of the data, with the weights that it says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.learner.files import dataset, learner_of, network, options, right
from train_manager import InputError
from train_manager.extensions import EMA
from train_manager.learner import create_dataloader, eval_model, load_model
from train_manager.learner.evaluation import Evaluation

AVERAGED = {"ema": {"use": "EMA", "decay": 0.9}}
SIDE = {"side": {"use": "Linear", "from": "trunk", "out_features": 3}}


def largest(prediction: Tensor, truth: Tensor) -> Tensor:
    """No mean over batches: only all rows together have it."""
    return (prediction.gather(1, truth[:, None])).max()


def rows(prediction: Tensor, truth: Tensor) -> int:
    assert len(prediction) == len(truth)
    return len(truth)


def evaluate(model: Any, *functions: Any, **more: Any) -> Evaluation:
    return eval_model(create_dataloader(dataset(**more)), model, functions)


def trained(**given: Any) -> Any:
    learner = learner_of(given=options(**given))
    learner.ss_learn()
    learner.train_epoch()
    return learner


def state(model: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_metrics_are_those_of_the_whole_part_over_unequal_batches() -> None:
    learner = trained()
    model = learner.tm.model
    found = evaluate(model, right, largest, rows, split={"train": 0.5, "test": 0.3, "valid": 0.2}, batch_size=7)
    assert list(found) == ["test", "valid"]
    for name, count in (("test", 18), ("valid", 12)):
        data: Any = create_dataloader(dataset(split={"train": 0.5, "test": 0.3, "valid": 0.2})).eval_data[name]
        batch = data.all()
        with torch.no_grad():
            prediction = model.eval()(batch["inputs"])
        accuracy = float((prediction.argmax(1) == batch["targets"]).double().mean())

        assert found[name].metrics == {
            "right": accuracy,
            "largest": float(largest(prediction, batch["targets"])),
            "rows": count,
        }
        assert found[name].predictions.equal(prediction)
        assert found[name].truth.equal(batch["targets"])
        assert found[name].inputs.equal(batch["inputs"])


def test_the_evaluation_is_printed_as_a_table() -> None:
    text = str(evaluate(learner_of().tm.model, rows, split={"train": 0.8, "test": 0.1, "valid": 0.1}))

    assert text == "test  rows 6\nvalid  rows 6"


@pytest.mark.parametrize("evaluates_before", ["ss_learn", "train_epoch"])
def test_an_evaluation_changes_nothing_of_the_training(evaluates_before: str) -> None:
    states = []
    for evaluates in (False, True):
        learner = learner_of()
        for call in ("ss_learn", "train_epoch", "train_epoch"):
            if evaluates and call == evaluates_before:
                evaluate(learner.tm.model, right)
            getattr(learner, call)()
        states.append(state(learner.tm.model))

    assert all(one.equal(other) for one, other in zip(states[0].values(), states[1].values(), strict=True))


def test_an_evaluation_uses_the_average_of_the_weights_says_so_and_puts_them_back() -> None:
    learner = trained(extension=AVERAGED)
    model, ema = learner.tm.model, learner.tm["ema"]
    before = state(model)
    result = evaluate(model, right)["test"]
    assert all(before[name].equal(tensor) for name, tensor in model.state_dict().items())

    averaged = load_model(network())
    averaged.load_state_dict(ema.average)
    with torch.no_grad():
        expected = averaged.eval()(result.inputs)
        plain = model.eval()(result.inputs)
    assert isinstance(ema, EMA)
    assert (result.weights, result.predictions.equal(expected), result.predictions.equal(plain)) == ("EMA", True, False)


def test_an_average_of_the_phase_alone_is_not_one_of_the_model() -> None:
    learner = learner_of(given=options(extension=AVERAGED))
    assert evaluate(learner.tm.model, right)["test"].weights == "trained"
    learner.ss_learn()
    assert evaluate(learner.tm.model, right)["test"].weights == "trained"
    learner.train_epoch()
    assert evaluate(learner.tm.model, right)["test"].weights == "EMA"


def test_a_closed_learner_evaluates_with_its_average() -> None:
    learner = trained(extension=AVERAGED)
    before = evaluate(learner.tm.model, right)["test"]
    learner.close()
    after = evaluate(learner.tm.model, right)["test"]

    assert (after.weights, after.predictions.equal(before.predictions)) == ("EMA", True)


def test_each_of_several_objectives_has_a_result() -> None:
    modules = {**network()["module"], **SIDE}
    objectives = {"class": {"use": "cross_entropy", "at": "head"}, "other": {"use": "multi_margin_loss", "at": "side"}}
    learner = learner_of(model=network(module=modules, objective=objectives))
    learner.train_epoch()
    found = evaluate(learner.tm.model, right)
    model: Any = learner.tm.model
    with torch.no_grad():
        outputs = model.eval()(found["test class"].inputs)

    assert list(found) == ["test class", "test other"]
    for name, module in (("test class", "head"), ("test other", "side")):
        assert (found[name].module, found[name].predictions.equal(outputs[module])) == (module, True)


def test_a_metric_that_returns_no_number_is_named() -> None:
    def words(prediction: Tensor, truth: Tensor) -> str:
        return "good"

    with pytest.raises(
        InputError, match=r"^words must return a number, but returned a str\n.*return a float or a tensor"
    ):
        evaluate(load_model(network()), words)
