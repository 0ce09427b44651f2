"""Evaluation: what its results are, when it comes, and where it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.training import At, Values, make_batches
from train_manager import Extension, InputError, TrainManager, modifies
from train_manager.errors import StageError
from train_manager.extensions import Checkpoints, Metrics, default_extensions
from train_manager.testing import tiny_manager


class Own(TrainManager):
    """Notes which of its methods were called."""

    def __init__(self, **options: Any) -> None:
        self.called: list[str] = []
        given = {"model": nn.Linear(2, 2), "loss": F.cross_entropy, "optimizer": SGD, "train_data": make_batches(1)}
        super().__init__(**{**given, **options})


def test_means_are_over_examples_not_over_batches() -> None:
    x, y = make_batches(1, size=5)[0]
    cut = tiny_manager(eval_data=[(x[:4], y[:4]), (x[4:], y[4:])])
    whole = tiny_manager(eval_data=[(x, y)])

    assert cut.eval()["eval"]["loss"] == pytest.approx(whole.eval()["eval"]["loss"])


def test_evaluation_alone_gives_the_metrics_of_a_run() -> None:
    results = Values("post_eval", "eval_results", "standalone_eval")
    tm = tiny_manager(results)
    tm.train()

    assert tm.eval() == results.seen[-2][0]
    assert [alone for _, alone in results.seen] == [False, False, True]


def test_a_result_is_a_fixture_of_its_sets_pass() -> None:
    result = Values("post_eval_step_epoch", "datasource_name", "eval_result")
    results = tiny_manager(result).eval()

    assert dict(result.seen) == results


def test_an_evaluation_that_is_asked_for_comes_before_the_next_step() -> None:
    soon = At(
        "post_train_step_batch", lambda train_manager, step_num: train_manager.eval_soon() if step_num == 1 else None
    )
    evals = Values("pre_eval", "step_num")
    tiny_manager(soon, evals).train()

    assert evals.seen == [0, 1, 3]


def test_an_evaluation_that_is_asked_for_in_the_last_step_is_that_of_the_epoch() -> None:
    soon = At(
        "post_train_step_batch", lambda train_manager, last_batch: train_manager.eval_soon() if last_batch else None
    )
    evals = Values("pre_eval", "step_num")
    tiny_manager(soon, evals, epochs=2).train()

    assert evals.seen == [0, 3, 6]


def test_an_evaluation_that_was_asked_for_in_a_run_that_failed_is_forgotten() -> None:
    class FailOnce(Extension):
        has_failed = False

        def post_train_step_batch(self, train_manager: TrainManager, epoch_num: int) -> None:
            if epoch_num == 1 and not self.has_failed:
                self.has_failed = True
                train_manager.eval_soon()
                raise ValueError("in a hook")

    evals = Values("pre_eval", "step_num")
    tm = tiny_manager(FailOnce(), evals, epochs=2)
    with pytest.raises(ValueError, match="in a hook"):
        tm.train()
    tm.train()

    assert evals.seen == [0, 3, 7]


def refused(hook_body: Callable[[TrainManager], object]) -> str:
    """What is said when a forward method calls this while a batch is alive."""

    class Impatient(Own):
        def model_forward(self, inputs: Tensor) -> Tensor:
            hook_body(self)
            raise AssertionError("it was not refused")

    with pytest.raises(StageError) as caught:
        Impatient(eval_data=make_batches(1)).train_epochs(1)
    return str(caught.value)


def test_evaluation_is_refused_while_a_batch_is_alive() -> None:
    class Impatient(Own):
        def train_model_forward(self) -> Tensor:
            self.eval()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError) as caught:
        Impatient(eval_data=make_batches(1)).train()
    assert str(caught.value) == (
        "eval() cannot be called inside stage 'train_step_batch'\n"
        "  open stages  run > train > train_step_epoch > train_step_batch > train_model_forward\n"
        "  in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)"
    )


def test_evaluation_inside_an_evaluation_is_refused() -> None:
    assert refused(lambda tm: tm.eval()).startswith("eval() cannot be called inside stage 'eval'\n")


def test_training_inside_an_evaluation_is_refused() -> None:
    assert refused(lambda tm: tm.train_epochs(1)).startswith("train_epochs() cannot be called inside stage 'train'\n")


def test_training_inside_a_standalone_evaluation_is_refused() -> None:
    class Impatient(Own):
        def eval_model_forward(self) -> Tensor:
            self.train()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError, match="cannot be called inside stage 'eval'"):
        Impatient(eval_data=make_batches(1)).eval()


def test_training_inside_training_is_refused() -> None:
    class Impatient(Own):
        def train_model_forward(self) -> Tensor:
            self.train()
            raise AssertionError("it was not refused")

    with pytest.raises(StageError, match="cannot be called inside stage 'train'"):
        Impatient().train()


def test_evaluation_in_a_run_between_trainings_is_allowed() -> None:
    tm = tiny_manager()
    with tm.run():
        assert list(tm.eval()) == ["valid"]


def test_what_hooks_make_of_the_results_of_an_evaluation_is_what_eval_returns() -> None:
    class Doubled(Extension):
        @modifies("eval_result")
        def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
            return {"loss": 1.0, "accuracy": 0.5}

        @modifies("eval_results")
        def post_eval(self, eval_results: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
            return {**eval_results, "copy": eval_results["valid"]}

    expected = {"loss": 1.0, "accuracy": 0.5}
    assert tiny_manager(Doubled()).eval() == {"valid": expected, "copy": expected}


# ---- without a loss --------------------------------------------------------------------------------------------------


class WithoutLoss(nn.Linear):
    """Returns its losses in train mode and predictions in eval mode."""

    def forward(self, inputs: Tensor) -> Any:
        output = super().forward(inputs)
        return {"size": output.square().mean(), "sum": output.mean()} if self.training else output


def without_loss(*extensions: Any, **options: Any) -> TrainManager:
    return tiny_manager(*extensions, model=WithoutLoss(2, 2), loss=None, **options)


def right(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def test_an_evaluation_with_a_metric_needs_no_loss() -> None:
    tm = without_loss(Metrics(eval={"right": right}), epochs=2)
    tm.train()

    assert [set(row) & {"loss", "right"} for row in tm.history.evaluations] == [{"right"}] * 3
    assert [set(row) & {"loss", "right"} for row in tm.history.epochs] == [{"loss"}] * 2
    assert list(tm.eval()["valid"]) == ["right"]


def test_an_evaluation_without_a_metric_needs_a_loss() -> None:
    with pytest.raises(InputError) as caught:
        without_loss().train()

    assert caught.value.what == "there is no loss: none was returned, and the model has added none"
    assert caught.value.cure.endswith("; an evaluation with Metrics needs no loss")


def test_a_metric_that_pauses_lets_no_evaluation_lack_a_loss() -> None:
    tm = without_loss(Metrics(eval={"right": right}))
    with tm.run(), pytest.raises(InputError), tm.phase("other", without=["metrics"]):
        tm.eval()


def test_a_loss_function_that_forgets_its_return_is_refused_also_beside_a_metric() -> None:
    with pytest.raises(InputError, match="there is no loss: none was returned"):
        tiny_manager(Metrics(eval={"right": right}), loss=lambda prediction, targets: None).eval()


def test_forward_of_an_own_evaluation_returns_none_where_there_is_no_loss() -> None:
    found: list[Any] = []

    class Evaluates(TrainManager):
        def eval_batch(self) -> None:
            found.append(self.forward())

    options: dict[str, Any] = {"model": WithoutLoss(2, 2), "optimizer": SGD, "eval_data": {"valid": make_batches(1)}}
    Evaluates(**options, extensions=[Metrics(eval={"right": right})]).eval()

    assert found == [None]


def test_the_losses_that_a_model_returns_in_its_evaluation_are_summed() -> None:
    class Always(nn.Linear):
        def forward(self, inputs: Tensor) -> Any:
            output = super().forward(inputs)
            return {"size": output.square().mean(), "more": output.square().mean()}

    batch = make_batches(1)[0]
    tm = tiny_manager(model=Always(2, 2), loss=None, eval_data=[batch])
    size = nn.functional.linear(batch[0], tm.model.weight, tm.model.bias).square().mean()

    assert tm.eval()["eval"]["loss"] == pytest.approx(2 * size.item())


def test_the_usual_extensions_work_in_evaluations_without_a_loss(tmp_path: Path) -> None:
    def manager(epochs: int) -> TrainManager:
        usual = default_extensions()
        del usual["code_record"]  # the tests may run outside of a repository
        own = Metrics(eval={"right": right}), Checkpoints(resume=True)
        return without_loss(*own, usual, train_dir=tmp_path, epochs=epochs)

    manager(2).train()

    assert manager(3).train().steps == 3
