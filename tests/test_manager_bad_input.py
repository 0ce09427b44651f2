"""What a manager or a run refuses, and what it says then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import TensorDataset

from tests.support.training import At, loss_of, make_batches, modes, weights
from train_manager import InputError, TrainManager, modifies
from train_manager.core.fixtures import Fixtures
from train_manager.testing import tiny_manager


def rejected(**options: Any) -> str:
    """What is said when a manager is made with these options."""
    with pytest.raises(InputError) as caught:
        tiny_manager(**options)
    return str(caught.value)


def refused_run(call: Callable[[TrainManager], object] = TrainManager.train, **options: Any) -> str:
    """What a run says; nothing else may have happened: weights, stages and modes are as before."""
    tm = tiny_manager(**options)
    before = weights(tm.model)
    with pytest.raises(InputError) as caught:
        call(tm)

    assert torch.equal(weights(tm.model), before)
    assert (tm.fixtures.path, tm.step_num, tm.epoch_num) == ((), 0, 0)
    assert modes(tm.model) == [True] * len(modes(tm.model))
    still_good = tiny_manager()
    tm.model, tm.optimizer, tm.train_data = still_good.model, still_good.optimizer, still_good.train_data
    tm.eval_data, tm.loss = still_good.eval_data, still_good.loss
    tm.train_epochs(1)
    assert tm.epoch_num == 1
    return str(caught.value)


def test_no_training_data_is_refused() -> None:
    assert refused_run(train_data=None) == "there is no train_data to train on\n  pass train_data=batches"


def test_no_optimizer_is_refused() -> None:
    assert refused_run(optimizer=None) == ("there is no optimizer to train with\n  pass optimizer=torch.optim.AdamW")


def test_empty_training_data_is_refused() -> None:
    assert refused_run(train_data=[]) == (
        "train_data gave no batch in epoch 1\n"
        "  it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    )


def test_a_generator_for_several_epochs_is_refused() -> None:
    assert refused_run(train_data=iter(make_batches(3)), epochs=2) == (
        "train_data is a list_iterator, which can be read once, but 2 passes are needed\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_a_generator_for_one_epoch_is_trained_on() -> None:
    tm = tiny_manager(train_data=iter(make_batches(3)))
    tm.train()

    assert tm.step_num == 3


def test_no_evaluation_data_is_refused_by_eval_only() -> None:
    tiny_manager(eval_data=None).train()

    assert refused_run(TrainManager.eval, eval_data=None) == (
        'there is no eval_data to evaluate\n  pass eval_data={"valid": batches}'
    )


def test_evaluation_data_that_is_used_up_is_refused() -> None:
    used_up = iter(make_batches(1))
    next(used_up)

    assert refused_run(TrainManager.eval, eval_data={"valid": used_up}) == (
        "eval_data['valid'] gave no batch after epoch 0\n"
        "  a list_iterator can be read once; give a list, a DataLoader, or a class with __iter__"
    )


def test_evaluation_data_that_can_be_read_once_is_refused_by_train() -> None:
    assert refused_run(eval_data={"valid": iter(make_batches(1))}) == (
        "eval_data['valid'] is a list_iterator, which can be read once, but 2 passes are needed\n"
        "  give a list, a DataLoader, or an object with __iter__"
    )


def test_an_empty_evaluation_set_is_refused() -> None:
    assert refused_run(eval_data={"valid": make_batches(1), "test": []}) == (
        "eval_data['test'] gave no batch after epoch 0\n"
        "  it needs at least one batch; with drop_last, are there fewer examples than one batch?"
    )


def test_no_loss_is_refused() -> None:
    assert refused_run(loss=None) == (
        "there is no loss: none was returned, and the model has added none\n"
        "  pass loss=F.cross_entropy, return one from it or from loss_forward(self, ...), return a dict of scalar "
        "losses from the model, or call add_loss(value) in its forward; beside an own train_batch, override "
        "eval_batch too, or give eval_data=None; an evaluation with Metrics needs no loss"
    )


def test_a_model_that_returns_nothing_is_refused() -> None:
    class Forgetful(nn.Linear):
        def forward(self, input: Tensor) -> None:  # type: ignore[override]
            super().forward(input)

    assert refused_run(model=Forgetful(2, 2)) == (
        "Forgetful must return a prediction with a tensor, but returned a NoneType\n"
        "  does its forward() end with `return`?"
    )


@pytest.mark.parametrize("eval_data", [None, make_batches(1)])
def test_a_loss_per_example_is_refused(eval_data: Any) -> None:
    assert refused_run(loss=loss_of(lambda losses: losses), eval_data=eval_data, train_data=make_batches(1)) == (
        "the loss must be a scalar, but has shape (4,)\n  reduce it: loss.mean()"
    )


def test_a_loss_that_is_a_plain_number_is_refused() -> None:
    assert refused_run(loss=loss_of(lambda losses: losses.mean().item())) == (
        "the loss must be a tensor, but is a float\n  leave out .item(): return the tensor itself"
    )


def test_a_loss_without_gradient_is_refused() -> None:
    assert refused_run(loss=loss_of(lambda losses: losses.mean().detach())) == (
        "the loss does not require grad, so nothing would be trained\n"
        "  is it computed under no_grad, from detached tensors or from an argmax, or are all parameters frozen?"
    )


@pytest.mark.parametrize(("value", "shown"), [(-1, "-1"), ("3", "'3'"), (True, "True"), (1.5, "1.5")])
def test_epochs_that_are_no_number_of_epochs_are_refused(value: Any, shown: str) -> None:
    assert rejected(epochs=value) == f"epochs must be a whole number of at least 0, but is {shown}"


def test_epochs_may_be_numpys() -> None:
    tm = tiny_manager(epochs=np.int64(2))
    tm.train()

    assert (tm.epoch_num, type(tm.epochs)) == (2, int)


def test_a_seed_that_is_no_whole_number_is_refused() -> None:
    assert rejected(seed=1.5) == "seed must be a whole number of at least 0, but is 1.5"


def test_a_number_of_epochs_to_add_is_refused_if_negative() -> None:
    assert refused_run(lambda tm: tm.train_epochs(-1)) == "n must be a whole number of at least 0, but is -1"


def test_an_optimizer_of_another_model_is_refused() -> None:
    assert rejected(optimizer=SGD(nn.Linear(1, 1).parameters(), lr=0.1)) == (
        "the optimizer (SGD) has no parameter of the model, so nothing would be trained\n"
        "  make it with the parameters of this model, or give the class: optimizer=torch.optim.AdamW"
    )


@pytest.mark.parametrize("name", ["train_data", "eval_data"])
def test_a_dataset_instead_of_a_loader_is_refused(name: str) -> None:
    assert rejected(**{name: TensorDataset(torch.zeros(4, 2))}) == (
        f"{name} must be an iterable of batches, but is a TensorDataset of single examples\n"
        "  wrap it: Rows(data, batch_size=64, shuffle=True), or a DataLoader"
    )


def test_a_tensor_instead_of_batches_is_refused() -> None:
    assert rejected(train_data=torch.zeros(4, 2)) == (
        "train_data must be an iterable of batches, but is a tensor\n"
        "  cut it into batches: InMemory(x, y, batch_size=64)"
    )


def test_a_dict_instead_of_batches_is_refused() -> None:
    assert rejected(train_data={"train": make_batches(1)}) == (
        "train_data must be an iterable of batches, but is a dict, whose keys would be the batches\n"
        "  give the iterable of batches itself; several sets by name: Interleaved(sets), or Together(sets)"
    )


def test_a_model_class_is_refused() -> None:
    assert (
        rejected(model=nn.Linear)
        == "the model must be a torch.nn.Module, but is the class Linear\n  give an instance: model=Linear()"
    )


def test_a_loss_class_is_refused() -> None:
    assert rejected(loss=nn.CrossEntropyLoss) == (
        "the loss must be a function or a module, but is the class CrossEntropyLoss\n"
        "  give a function or an instance: loss=nn.CrossEntropyLoss()"
    )


def test_a_schedule_that_wants_a_metric_is_refused() -> None:
    assert rejected(lr_schedule=ReduceLROnPlateau) == (
        "lr_schedule steps without a metric, but ReduceLROnPlateau needs one\n"
        "  step it with a metric: "
        'extensions=[LRSchedule(torch.optim.lr_scheduler.ReduceLROnPlateau, monitor="valid/loss")]'
    )


def test_a_schedule_without_an_optimizer_is_refused() -> None:
    text = rejected(lr_schedule=lambda optimizer: StepLR(optimizer, 1), optimizer=None)

    assert text == "lr_schedule needs an optimizer, but there is none"


def test_a_batch_without_tensors_is_refused() -> None:
    assert refused_run(train_data=[("text", "label")]) == (
        "a batch (tuple) has no tensor whose rows can be counted\n"
        "  give tensors: Rows(data, batch_size=64) makes them of examples; or override get_true_batch_size(self, batch)"
    )


def test_a_batch_without_targets_is_refused_where_the_loss_wants_some() -> None:
    assert refused_run(train_data=[x for x, _ in make_batches(2)], eval_data=None) == (
        "the loss needs targets, but a batch (Tensor) has none: it is not a pair\n"
        "  give batches as (inputs, targets), or override unpack_batch(self, batch); "
        "or name fixtures in the loss: loss(prediction, inputs)"
    )


@pytest.mark.parametrize("name", ["loss", "backward_loss"])
def test_a_loss_that_a_hook_made_a_number_is_refused_with_the_name_of_the_hook(name: str) -> None:
    stage = "post_train_loss_forward" if name == "loss" else "pre_train_backward"
    with pytest.raises(InputError) as error:
        tiny_manager(At(stage, modifies(name)(lambda: 0.5))).train()
    assert str(error.value) == (
        f"At.{stage} made {name} a float, but it must be a scalar\n"
        "  give a tensor, such as loss / 2, without .item() or float(...)"
    )


@pytest.mark.parametrize("stage", ["post_train_loss_forward", "post_train_backward", "post_train_step_batch"])
def test_a_hook_that_writes_a_number_for_the_loss_is_named(stage: str) -> None:
    hook = At(stage, lambda fixtures, loss: fixtures.modify("loss", loss.item()))
    with pytest.raises(InputError) as error:
        tiny_manager(hook).train()
    assert (error.value.asked_by, error.value.what) == (
        f"At.{stage}",
        f"At.{stage} made loss a float, but it must be a scalar",
    )


def test_a_hook_that_makes_the_loss_of_an_evaluation_a_number_is_named() -> None:
    with pytest.raises(InputError, match=r"At\.post_eval_loss_forward made loss a float, but it must be a scalar"):
        tiny_manager(At("post_eval_loss_forward", modifies("loss")(lambda loss: loss.item()))).eval()


def test_a_hook_that_makes_several_numbers_of_the_loss_is_named() -> None:
    hook = At("post_train_loss_forward", modifies("loss")(lambda loss: loss.expand(4)))
    with pytest.raises(InputError) as error:
        tiny_manager(hook).train()
    assert str(error.value) == (
        "At.post_train_loss_forward made loss a tensor of shape (4,), but it must be a scalar\n  reduce it: loss.mean()"
    )


@pytest.mark.parametrize(
    ("stage", "name"), [("post_train_loss_forward", "loss"), ("pre_train_backward", "backward_loss")]
)
def test_a_hook_that_detaches_the_loss_is_named_with_its_line(stage: str, name: str) -> None:
    def detach(fixtures: Fixtures) -> None:
        fixtures.modify(name, fixtures[name].detach())

    with pytest.raises(InputError) as error:
        tiny_manager(At(stage, detach)).train()
    asked_at = f"tests/test_manager_bad_input.py:{detach.__code__.co_firstlineno}"
    assert str(error.value) == (
        f"At.{stage} made {name} a tensor that does not require grad, so nothing would be trained\n"
        f"  asked at     {asked_at}\n"
        f"  leave out .detach() and torch.no_grad() where {name} is computed"
    )


def test_a_hook_after_the_step_may_detach_the_loss() -> None:
    tm = tiny_manager(At("post_train_step_batch", lambda fixtures, loss: fixtures.modify("loss", loss.detach())))

    assert tm.train().steps == 3


def test_the_loss_of_a_stage_of_the_program_may_be_a_number() -> None:
    tm = tiny_manager()
    with tm.staged("lesson", {"loss": 1.0}):
        tm.fixtures.modify("loss", 0.5)
        assert tm.fixtures["loss"] == 0.5


def test_the_name_of_a_set_that_eval_is_given_is_refused_with_how_to_evaluate_the_set() -> None:
    tm: Any = tiny_manager()
    with pytest.raises(InputError) as caught:
        tm.eval("valid")
    assert str(caught.value) == (
        "eval() takes sets of batches, but was given the name 'valid'\n"
        '  evaluate this set alone: tm.eval({"valid": tm.eval_data["valid"]})'
    )
    assert [*tm.eval({"valid": tm.eval_data["valid"]})] == ["valid"]


def test_the_name_of_no_set_that_eval_is_given_is_refused_with_the_names_there_are() -> None:
    tm: Any = tiny_manager()
    with pytest.raises(InputError) as caught:
        tm.eval("validd")
    assert str(caught.value) == (
        "eval() takes sets of batches, but was given the name 'validd'\n"
        "  eval_data has 'valid'; other data: tm.eval({\"validd\": batches})"
    )


def test_a_path_in_place_of_evaluation_data_is_refused_with_eval_data_in_the_cure() -> None:
    assert rejected(eval_data="data/digits") == (
        "eval_data must be an iterable of batches, but is a path or a text, 'data/digits'\n"
        "  load it: eval_data=DataLoader(dataset, batch_size=64)"
    )
