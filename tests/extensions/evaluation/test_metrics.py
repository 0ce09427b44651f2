from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch import Tensor, nn

from tests.support.adding import mean_of_parts
from tests.support.fork_server import ForkServer
from tests.support.host_reads import HostReads
from tests.support.programs import code
from tests.support.resuming import assert_resumes
from train_manager import Extension, InputError, SkipBatch, TrainManager, modifies
from train_manager.errors import OrderError
from train_manager.extensions import Metrics
from train_manager.metrics import whole
from train_manager.metrics.history_rows import PLACE
from train_manager.metrics.shelf import from_shelf
from train_manager.testing import tiny_manager


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


def ones(p: Tensor, t: Tensor) -> float:
    return 1.0


def loss_of_batch(loss: Tensor, prediction: Tensor) -> Tensor:
    return loss


class Seen(Extension):
    """Record every loss, and the fixture ``metrics`` at the end of each batch."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.metrics: list[dict[str, float]] = []

    def post_train_step_batch(self, loss: Tensor, metrics: dict[str, Tensor]) -> None:
        self.losses.append(loss.item())
        self.metrics.append({name: value.item() for name, value in metrics.items()})


def silent(*functions: Any, **options: Any) -> Metrics:
    return Metrics(*functions, **options)


def macro_f1(prediction: Tensor, targets: Tensor) -> float:
    return float(f1_score(targets, prediction.argmax(1), average="macro"))


def count(prediction: Tensor, targets: Tensor) -> int:
    return len(prediction)


def refusal(*functions: Any, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        Metrics(*functions, **options)
    return str(caught.value)


# ---- in the training ---------------------------------------------------------------------------------------------


def test_a_moving_average_is_over_all_batches_so_far() -> None:
    seen = Seen()
    tiny_manager(silent(same=loss_of_batch, share=0.01), seen, epochs=2).train()

    expected = [pytest.approx(sum(seen.losses[:end]) / end, abs=1e-6) for end in range(1, 7)]
    assert [metrics["moving_loss"] for metrics in seen.metrics] == expected
    assert [metrics["same"] for metrics in seen.metrics] == expected


def test_the_history_has_their_means_over_the_examples_of_each_epoch() -> None:
    tm = tiny_manager(silent(same=loss_of_batch), epochs=2)
    tm.train()

    assert [row["same"] for row in tm.history.epochs] == pytest.approx([row["loss"] for row in tm.history.epochs])


def test_every_batch_counts_if_no_hook_reads_the_metrics() -> None:
    metrics = silent(accuracy=accuracy)
    tiny_manager(metrics, epochs=2).train()

    assert metrics._means["accuracy"].count == 6


def test_metrics_are_alive_as_soon_as_the_loss_is() -> None:
    metrics, seen = silent(accuracy=accuracy), Seen()
    tiny_manager(metrics, seen, Extension.of(post_train_loss_forward=lambda metrics: None)).train()

    assert metrics._means["accuracy"].count == 3
    assert [found["loss"] for found in seen.metrics] == seen.losses


def test_a_batch_that_is_skipped_does_not_count() -> None:
    def skip(step_num: int) -> None:
        if step_num == 1:
            raise SkipBatch

    metrics = silent(accuracy=accuracy)
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))] * 3
    tm = tiny_manager(metrics, Extension.of(pre_train_backward=skip), train_data=batches)
    tm.train()

    assert (tm.step_num, metrics._means["accuracy"].count) == (1, 1)


def test_a_metric_is_computed_without_gradients() -> None:
    metrics = silent(grad=lambda p, t: float(torch.is_grad_enabled()))
    tiny_manager(metrics).train()

    assert metrics.training["grad"] == 0


# ---- in an evaluation --------------------------------------------------------------------------------------------


def test_each_set_and_each_evaluation_is_measured_alone() -> None:
    inputs = torch.rand(4, 2)
    sets = {"all zero": [(inputs, torch.zeros(4).long())], "all one": [(inputs, torch.ones(4).long())]}
    tm = tiny_manager(silent(ones=lambda p, t: t.float().mean()), eval_data=sets)

    for _ in range(2):
        assert {name: result["ones"] for name, result in tm.eval().items()} == {"all zero": 0.0, "all one": 1.0}


def test_an_evaluation_within_an_epoch_does_not_change_the_averages() -> None:
    class EvalSoon(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.eval_soon()

    first, second = Seen(), Seen()
    tiny_manager(silent(accuracy=accuracy), first).train()
    tiny_manager(silent(accuracy=accuracy), second, EvalSoon()).train()

    assert first.metrics == second.metrics


def test_training_and_evaluation_may_have_different_metrics_or_none() -> None:
    seen = Seen()
    tm = tiny_manager(silent(train={"half": lambda p, t: 0.5}, eval=[accuracy]), seen)
    tm.train()

    assert list(seen.metrics[0]) == ["loss", "moving_loss", "half"]
    assert list(tm.eval()["valid"]) == ["loss", "accuracy"]
    assert list(tiny_manager(silent()).eval()["valid"]) == ["loss"]


def test_metrics_without_a_name_have_that_of_their_function() -> None:
    metrics = silent(accuracy, ones)

    assert metrics.train_metrics == metrics.eval_metrics == {"accuracy": accuracy, "ones": ones}


def test_another_hook_that_modifies_the_result_needs_a_priority() -> None:
    class Other(Extension):
        @modifies("eval_result")
        def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
            return eval_result

    with pytest.raises(OrderError):
        tiny_manager(silent(accuracy=accuracy), Other())


# ---- objects of torchmetrics -------------------------------------------------------------------------------------


def test_a_metric_of_torchmetrics_returns_what_the_function_returns() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    given = torchmetrics.Accuracy("multiclass", num_classes=2, average="micro")
    seen = Seen()
    tm = tiny_manager(silent(given=given, accuracy=accuracy), seen, epochs=2)
    tm.train()

    for metrics in seen.metrics:
        assert metrics["given"] == pytest.approx(metrics["accuracy"])
    result = tm.eval()["valid"]
    assert result["given"] == pytest.approx(result["accuracy"])


def test_functions_need_no_torchmetrics(fork_server: ForkServer) -> None:
    program = """
import sys
sys.modules["torchmetrics"] = None
from train_manager.extensions import Metrics
from train_manager.testing import tiny_manager
tiny_manager(Metrics(accuracy=lambda p, t: p.argmax(dim=1) == t)).train()
"""
    assert fork_server.run(code, program).code == 0


# ---- the shelf, and whole evaluation sets ------------------------------------------------------------------------


def trained_on_digits(*functions: Any, **named: Any) -> tuple[dict[str, float], Tensor, Tensor]:
    """Return the results of an evaluation in batches of very different classes, and all that was said and true."""
    generator = torch.Generator().manual_seed(3)
    targets = torch.randint(0, 4, (200,), generator=generator).sort().values
    inputs = torch.randn(200, 4, generator=generator) + torch.eye(4)[targets]
    batches = [(inputs[at : at + 16], targets[at : at + 16]) for at in range(0, 200, 16)]
    tm = tiny_manager(Metrics(*functions, **named), model=nn.Identity(), optimizer=None, train_data=None)
    return tm.eval(batches)["eval"], inputs.argmax(1), targets


@pytest.mark.parametrize("name", ["accuracy", "f1"])
def test_a_metric_on_the_shelf_is_that_of_the_whole_set(name: str) -> None:
    found, said, true = trained_on_digits(name)
    expected = {"accuracy": accuracy_score(true, said), "f1": f1_score(true, said, average="macro")}

    assert found[name] == pytest.approx(expected[name])


def test_a_plain_function_is_a_mean_over_batches_which_an_f1_score_is_not() -> None:
    found, said, true = trained_on_digits(f1=macro_f1)

    assert found["f1"] < 0.8 * f1_score(true, said, average="macro")


def test_a_function_of_the_whole_set_gets_all_batches_at_once() -> None:
    found, said, true = trained_on_digits(f1=whole(macro_f1))

    assert found["f1"] == pytest.approx(f1_score(true, said, average="macro"))


def test_of_two_classes_the_f1_score_is_that_of_class_1() -> None:
    metric = from_shelf("f1")
    prediction, targets = torch.tensor([1.0, -1.0, 1.0, 1.0]), torch.tensor([1, 1, 0, 1])
    metric.update(prediction, targets)

    assert metric.compute().item() == pytest.approx(f1_score(targets, prediction > 0))


def test_targets_that_do_not_count_are_left_out_of_a_metric_on_the_shelf() -> None:
    for name, expected in {"accuracy": 0.5, "f1": 2 / 3}.items():
        metric = from_shelf(name)
        metric.update(torch.eye(2)[[0, 1, 1]], torch.tensor([-100, 0, 1]))

        assert metric.compute().item() == pytest.approx(expected)


def test_in_a_training_batch_the_shelf_and_whole_read_that_batch_alone() -> None:
    seen = Seen()
    tiny_manager(Metrics("accuracy", whole=whole(count), train={"right": accuracy}), seen).train()

    assert seen.metrics[0]["accuracy"] == seen.metrics[0]["right"]
    assert seen.metrics[0]["whole"] == 16


def test_metrics_are_measured_on_the_device_without_a_read() -> None:
    metrics = [from_shelf("accuracy"), from_shelf("f1"), whole(lambda prediction, targets: prediction.sum())]
    with HostReads() as reads:
        for metric in metrics:
            metric.update(torch.eye(3), torch.tensor([0, 1, 1]))
            metric.compute()

    assert reads.count == 0


def test_the_f1_of_an_epoch_of_two_calls_is_that_of_its_counts() -> None:
    found = []
    for calls in ((3,), (2, 1)):
        tm = tiny_manager(Metrics("accuracy", "f1"))
        for steps in calls:
            tm.train_steps(steps)
        found.append([tm.history.epochs[-1][name] for name in ("accuracy", "f1")])

    assert found[0] == found[1]


def test_the_counts_of_an_epoch_resume_to_the_bit() -> None:
    assert_resumes(lambda: tiny_manager(Metrics("accuracy", "f1"), epochs=2), TrainManager.train, [4])


def test_the_moving_average_of_f1_is_over_the_scores_of_batches() -> None:
    seen, batches = Seen(), list[float]()
    look = Extension.of(
        post_train_step_batch=lambda prediction, targets: batches.append(f1_score(targets, prediction.argmax(1)))
    )
    tiny_manager(Metrics("f1"), seen, look).train()

    assert [found["f1"] for found in seen.metrics] == pytest.approx([sum(batches[:n]) / n for n in (1, 2, 3)])


def test_a_metric_that_is_not_on_the_shelf_is_refused_with_the_names_of_those_that_are() -> None:
    assert refusal("acuracy") == "Metrics knows no metric by the name 'acuracy'\n  did you mean 'accuracy'?"
    assert refusal("auroc") == (
        "Metrics knows no metric by the name 'auroc'\n  there are 'accuracy', 'f1', 'losses'; or give a function"
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [("acc", "accuracy"), ("macro_f1", "f1"), ("f1_macro", "f1"), ("f1_score", "f1"), ("F1_Score", "f1")],
)
def test_the_names_that_other_tools_have_for_a_metric_lead_to_it(name: str, meant: str) -> None:
    assert refusal(name) == f"Metrics knows no metric by the name {name!r}\n  did you mean {meant!r}?"


def test_a_whole_set_of_something_other_than_tensors_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        whole(accuracy).update({"logits": torch.eye(2)}, torch.tensor([0, 1]))
    assert str(caught.value) == (
        "whole(accuracy) needs tensors or lists for prediction and targets, but was given dict and Tensor\n"
        "  give a torchmetrics object, which takes what it can add up"
    )


# ---- the table ---------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_metric_and_a_column_for_each_set() -> None:
    printed = io.StringIO()
    tiny_manager(Metrics(one=ones, table=True, file=printed)).train()
    header, *rows = [line.split() for line in printed.getvalue().splitlines()]

    assert header == ["metric", "training", "valid"]
    assert [row[0] for row in rows] == ["loss", "one"]
    assert rows[1] == ["one", "1.0000", "1.0000"]


def test_the_table_has_the_means_over_the_examples_of_the_last_epoch() -> None:
    metrics, seen = Metrics(table=True, file=io.StringIO()), Seen()
    tm = tiny_manager(metrics, seen, epochs=2)
    tm.train()
    means = sum(loss * size for loss, size in zip(seen.losses[3:], (16, 16, 8), strict=True)) / 40

    assert metrics.epoch == {"loss": pytest.approx(means)} == {"loss": tm.history.epochs[-1]["loss"]}
    assert f"{means:.4f}" in metrics.file.getvalue()  # type: ignore[union-attr]


def test_the_table_comes_once_at_the_end_of_each_training_and_not_of_an_evaluation() -> None:
    printed = io.StringIO()
    tm = tiny_manager(Metrics(one=ones, table=True, file=printed), epochs=3)
    tm.eval()
    assert printed.getvalue() == ""
    tm.train()
    assert printed.getvalue().count("training") == 1


def test_by_default_there_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_manager(Metrics(one=ones)).train()

    assert capsys.readouterr().out == ""


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["loss", "moving_loss"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    assert refusal(**{name: accuracy}) == f"two metrics are called '{name}'\n  give one of them another name"


@pytest.mark.parametrize("name", PLACE)
@pytest.mark.parametrize("phase", ["train", "eval", None])
def test_a_name_that_the_history_has_is_refused(name: str, phase: str | None) -> None:
    given: dict[str, Any] = {name: accuracy}

    assert refusal(**(given if phase is None else {phase: given})) == (
        f"Metrics has a metric called '{name}', but in the history '{name}' tells where or how a row was measured\n"
        f"  give it another name: Metrics(my_{name}=...)"
    )


@pytest.mark.parametrize("phase", ["train", "eval"])
def test_a_name_that_is_given_twice_is_refused(phase: str) -> None:
    text = refusal(accuracy, **{phase: [accuracy]})

    assert text == "two metrics are called 'accuracy'\n  give one of them another name"


def test_a_list_of_metrics_is_refused_with_its_entries() -> None:
    assert refusal(["accuracy", accuracy]) == (
        "a metric must be a name or a function, but is a list\n  give its entries: Metrics('accuracy', accuracy)"
    )


def test_a_function_without_a_name_is_refused() -> None:
    text = refusal(lambda p, t: 1.0)

    assert text.startswith("a metric must have a name, but <function ")
    assert text.endswith("\n  give it one: Metrics(accuracy=...)")


def test_a_copy_has_measurements_of_its_own() -> None:
    extension = Metrics(accuracy=lambda prediction, targets: prediction.argmax(dim=1) == targets)
    expected = tiny_manager(extension, epochs=2).train().metrics
    again = copy.deepcopy(Metrics(accuracy=lambda prediction, targets: prediction.argmax(dim=1) == targets))
    assert tiny_manager(again, epochs=2).train().metrics == expected


def test_a_function_of_a_whole_set_is_given_lists_as_one_list() -> None:
    boxes = whole(lambda prediction, targets: len(prediction) + sum(one["count"] for one in targets))
    boxes.update([torch.zeros(1), torch.zeros(2)], [{"count": 1}, {"count": 2}])
    boxes.update([torch.zeros(3)], [{"count": 3}])

    assert boxes.compute() == 9
    with pytest.raises(InputError, match="cannot join the lists of several processes"):
        boxes.totals()


def test_totals_of_two_halves_of_an_epoch_give_the_mean_of_the_whole() -> None:
    inputs, targets = torch.rand(8, 2), torch.tensor([0, 1, 1, 1, 0, 1, 0, 0])
    batches = list(zip(inputs.split([3, 4, 1]), targets.split([3, 4, 1]), strict=True))
    found = []
    for part in (batches[:2], batches[2:], batches):
        metrics = silent(targets=lambda p, t: t.double())
        tiny_manager(metrics, train_data=part).train()
        found.append(metrics)

    first, second, whole = found
    assert whole.epoch["targets"] == mean_of_parts(first.totals()["targets"], second.totals()["targets"]) == 0.5
