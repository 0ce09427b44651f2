"""What an own ``train_batch`` or ``eval_batch`` does that the default does not, and what is said of its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import At, Values
from train_manager import InputError, TrainManager, every
from train_manager.errors import CheckError, StageError
from train_manager.extensions import Log, LossCurves, Metrics
from train_manager.testing import tiny_manager


def with_batches(kind: type[TrainManager], *extensions: Any, **options: Any) -> TrainManager:
    tiny = tiny_manager()
    given: dict[str, Any] = {"train_data": tiny.train_data, "eval_data": tiny.eval_data, **options}
    return kind(model=tiny.model, loss=tiny.loss, optimizer=tiny.optimizer, extensions=list(extensions), **given)


class Sometimes(TrainManager):
    """Has a loss only in some batches of an evaluation, by their number of examples."""

    sizes: tuple[int, ...] = ()

    def eval_batch(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) in self.sizes:
            self.fixtures["loss"] = F.cross_entropy(model(inputs), targets)


def test_the_loss_of_an_evaluation_is_the_mean_over_the_batches_that_have_one() -> None:
    tiny = tiny_manager()
    batches: Any = tiny.train_data
    tm: Any = with_batches(Sometimes, eval_data=[batches[2], batches[0]])  # of 8 and of 16 examples
    tm.sizes = (8,)

    assert tm.eval() == {"eval": tiny.eval_on_batch(batches[2])}


def test_an_evaluation_without_any_loss_has_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tm = with_batches(Sometimes, LossCurves(), Log(every=100), train_dir=tmp_path)
    tm.train()

    assert tm.eval() == {"valid": {}}
    assert capsys.readouterr().out.startswith("done ")


def test_the_called_model_can_be_taken_back_within_a_run() -> None:
    models = Values("post_train_step_batch", "model")
    back = At("post_train_step_epoch", lambda train_manager: setattr(train_manager, "called_model", None))
    tm = tiny_manager(models, back, epochs=2, eval_at=())
    wrapped = nn.Sequential(tm.model)
    tm.called_model = wrapped
    tm.train()

    assert models.seen == [wrapped] * 3 + [tm.model] * 3


def test_eval_at_may_be_set_later() -> None:
    steps = Values("pre_eval", "step_num")
    tm = tiny_manager(steps, epochs=2)
    tm.eval_at = "end"
    tm.train_epochs(1)
    tm.eval_at = every(2)
    tm.train_epochs(1)
    tm.eval_at = tm.eval_at
    with pytest.raises(InputError, match="eval_at must be of 'start', 'epoch', 'end' and schedules, but has 'ends'"):
        tm.eval_at = "ends"

    assert steps.seen == [3, 5]


@pytest.mark.parametrize("loss", [None, 1.0, lambda: None])
def test_an_update_needs_a_tensor(loss: Any) -> None:
    class Wrong(TrainManager):
        def train_batch(self) -> None:
            self.update(loss)

    with pytest.raises(InputError, match=r"the loss given to update must be a tensor, but is a (NoneType|float)"):
        with_batches(Wrong).train()


def test_a_step_without_gradients_warns() -> None:
    class Crossed(TrainManager):
        def train_batch(self, model: Any, inputs: Tensor) -> None:
            self.update(model["critic"](inputs).mean(), optimizer="generator")

    model = nn.ModuleDict({"critic": nn.Linear(2, 1), "generator": nn.Linear(2, 1)})
    sgd = lambda parameters: SGD(parameters, lr=0.1)  # noqa: E731
    tm = Crossed(model=model, optimizer={"critic": sgd, "generator": sgd}, train_data=[torch.zeros(1, 2)])
    with pytest.warns(UserWarning, match="no parameter of optimizer 'generator' has a gradient, so its step changes"):
        tm.train()


def test_a_pair_is_not_taken_for_two_batches_to_predict() -> None:
    with pytest.raises(InputError) as caught:
        tiny_manager().predict((torch.zeros(3, 2), torch.zeros(3)))

    assert str(caught.value) == (
        "data is a tuple of 2 tensors, which may be one batch or several\n"
        "  give a list of batches: tm.predict([batch]), or the inputs alone"
    )


def test_a_hook_is_told_to_ask_for_an_evaluation() -> None:
    with pytest.raises(StageError) as caught:
        tiny_manager(At("post_train_step_epoch", lambda train_manager: train_manager.eval())).train()

    assert str(caught.value).splitlines() == [
        "eval() cannot be called in a hook (At.post_train_step_epoch)",
        "  open stages  run > train > train_step_epoch",
        "  in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)",
    ]


def test_a_run_cannot_be_closed_inside_a_phase() -> None:
    tm = tiny_manager()
    tm.open()
    with pytest.raises(StageError, match=r"close\(\) cannot be called inside stage 'phase'"), tm.phase("other"):
        tm.close()
    tm.close()

    assert tm.fixtures.path == ()


class WithoutPrediction(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.update(nn.functional.cross_entropy(model(inputs), targets))


class WithPrediction(TrainManager):
    def train_batch(self, model: Any, inputs: Tensor, targets: Tensor) -> None:
        self.fixtures["prediction"] = prediction = model(inputs)
        self.update(nn.functional.cross_entropy(prediction, targets))


def measured(cls: type[TrainManager], metrics: Metrics) -> TrainManager:
    data = [(torch.ones(4, 2), torch.zeros(4).long())]
    return cls(
        model=nn.Linear(2, 2),
        loss=nn.functional.cross_entropy,
        optimizer=torch.optim.SGD,
        train_data=data,
        eval_data=data,
        extensions=[metrics],
    )


def correct(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def test_metrics_beside_an_own_train_batch_without_prediction_are_told_to_define_it() -> None:
    with pytest.raises(CheckError) as caught:
        measured(WithoutPrediction, Metrics(correct)).train()

    assert {mistake.cure for mistake in caught.value.mistakes} == {
        'the own train_batch defines none; let it: self.fixtures["prediction"] = prediction (of Metrics, or take '
        "eval={...})"
    }


@pytest.mark.parametrize(
    ("cls", "metrics"),
    [
        (WithPrediction, Metrics(correct)),
        (WithoutPrediction, Metrics(eval={"correct": correct})),
    ],
)
def test_metrics_measure_beside_an_own_train_batch(cls: type[TrainManager], metrics: Metrics) -> None:
    tm = measured(cls, metrics)
    tm.train()

    assert "correct" in metrics.eval_sets["eval"]


def test_a_prediction_that_is_asked_for_too_early_is_told_the_later_point() -> None:
    with pytest.raises(CheckError) as caught:
        tiny_manager(At("pre_train_step_batch", lambda prediction: None)).train()

    assert "own train_batch" not in str(caught.value)
