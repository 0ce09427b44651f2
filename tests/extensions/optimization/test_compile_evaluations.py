"""Compile in evaluations and in ``predict``: which batches are graphs, their results, and what bounds them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.graphs import PlainGraph, batches, manager, net, note, use_plain_graphs
from tests.support.training import At, modes
from train_manager import Extension, TrainManager
from train_manager.extensions import EMA, Compile, Metrics
from train_manager.loop import graphs_by_shape as of_loop
from train_manager.loop.eval_graphs import EvalGraphs

NEAR = 1e-6


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> type[PlainGraph]:
    return use_plain_graphs(monkeypatch)


def calls(function: str = "run_forward") -> list[int]:
    return [graph.calls for graph in PlainGraph.made if graph.function.__name__ == function]


def evaluated(*extensions: Extension, **options: Any) -> TrainManager:
    tm = manager(*extensions, **{"eval_data": batches(), **options})
    tm.train()
    return tm


def figures(tm: TrainManager) -> list[float]:
    """Return all numbers of the evaluations."""
    return [row[name] for row in tm.history.evaluations for name in ("loss", "accuracy") if name in row]


def test_evaluations_have_a_graph_of_their_own_and_the_results_of_eager_ones(plain: type[PlainGraph]) -> None:
    eager, compiled = evaluated(Metrics("accuracy")), evaluated(Metrics("accuracy"), Compile())

    assert (calls(), calls("run_whole")) == ([10], [7])  # of four evaluations: three batches each and a smaller one
    assert note(compiled, "eval") == "one graph"
    assert figures(compiled) == pytest.approx(figures(eager), abs=NEAR)


def test_predict_has_a_graph_of_the_model_alone(plain: type[PlainGraph]) -> None:
    tm = manager(Compile())
    first, *_, last = [tm.predict([inputs for inputs, _ in batches()]) for _ in range(3)]

    assert (calls(), note(tm, "predict")) == ([7], "one graph")
    assert torch.equal(first, last)


def test_a_graph_runs_in_eval_mode_without_gradients(plain: type[PlainGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def watched(graph: PlainGraph, *arguments: Any) -> Any:
        seen.append((any(modes(arguments[0])), torch.is_grad_enabled()))
        return graph.function(*arguments)

    monkeypatch.setattr(PlainGraph, "__call__", watched)
    manager(Compile()).predict([batches()[0]] * 4)

    assert seen == [(False, False)] * 2


def test_the_averaged_weights_are_evaluated(plain: type[PlainGraph]) -> None:
    eager, compiled = evaluated(EMA(0.9)), evaluated(EMA(0.9), Compile())

    assert calls() == [10]
    assert figures(compiled) == pytest.approx(figures(eager), abs=NEAR)


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("post_eval_model_forward", "runs eagerly: At looks into eval_model_forward"),
        ("pre_eval_loss_forward", "runs eagerly: At looks into eval_loss_forward"),
        ("pre_eval_model_forward", "one graph"),
        ("post_eval_loss_forward", "one graph"),
        ("post_eval_step_batch", "one graph"),
    ],
)
def test_a_hook_bounds_an_evaluation_if_it_stands_between_its_parts(
    hook: str, reason: str, plain: type[PlainGraph]
) -> None:
    tm = evaluated(Compile(), At(hook, lambda: None))

    assert note(tm, "eval") == reason
    assert calls() == ([10] if reason == "one graph" else [])
    assert note(tm) == "one graph"


class OwnForward(TrainManager):
    def eval_model_forward(self, inputs: Tensor) -> Tensor:
        prediction: Tensor = self.model(inputs)
        return prediction


class OwnLoss(TrainManager):
    def eval_loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(prediction, targets)


class OwnBatch(TrainManager):
    def eval_batch(self) -> None:
        self.forward()


@pytest.mark.parametrize(
    ("kind", "method", "predict"),
    [
        (OwnForward, "eval_model_forward", "runs eagerly: OwnForward has a eval_model_forward of its own"),
        (OwnLoss, "eval_loss_forward", "one graph"),
        (OwnBatch, "eval_batch", "one graph"),
    ],
)
def test_a_method_of_your_own_makes_what_it_is_in_eager(
    kind: type[TrainManager], method: str, predict: str, plain: type[PlainGraph]
) -> None:
    parts: dict[str, Any] = {"model": net(), "loss": F.cross_entropy, "optimizer": torch.optim.AdamW}
    tm = kind(**parts, train_data=batches(), eval_data=[batches()[0]] * 4, extensions=[Compile()])
    tm.eval()

    assert not calls()
    assert note(tm, "eval") == f"runs eagerly: {kind.__name__} has a {method} of its own"
    assert (note(tm, "predict"), note(tm)) == (predict, "one graph")


def test_what_is_there_for_a_while_makes_a_batch_eager_and_then_the_graph_runs_again(plain: type[PlainGraph]) -> None:
    tm = manager(Compile(), eval_data=[batches()[0]] * 4)
    tm.eval()
    handle = tm.model[0].register_forward_hook(lambda *_: None)
    tm.eval()
    assert note(tm, "eval") == "one graph; runs eagerly at present: a module has a hook of torch"
    handle.remove()
    tm.eval()

    assert (calls(), note(tm, "eval")) == ([6], "one graph")


def test_a_hook_that_asks_for_gradients_makes_an_evaluation_eager(plain: type[PlainGraph]) -> None:
    tm = evaluated(Compile(), At("pre_eval_model_forward", lambda: torch.set_grad_enabled(True)))

    assert (calls(), note(tm, "eval")) == ([], "one graph; runs eagerly at present: gradients are on")


def test_at_most_twenty_shapes_of_an_evaluation_have_a_graph(plain: type[PlainGraph]) -> None:
    shapes = [torch.zeros(size, 6) for size in range(2, 27)]
    manager(Compile()).predict([one for one in shapes for _ in range(5)])

    assert len(calls()) == of_loop.MOST


def test_a_new_model_has_graphs_of_its_own_and_a_new_optimizer_keeps_them(plain: type[PlainGraph]) -> None:
    tm = manager(Compile(), eval_data=[batches()[0]] * 4)
    tm.eval()
    tm.optimizer = torch.optim.SGD(tm.model.parameters(), lr=0.1)
    tm.eval()
    assert calls() == [6]
    tm.model = net()
    tm.eval()

    assert calls() == [6, 2]


class Clock:
    """A clock that only moves as a batch of an evaluation is computed, eagerly or by a graph."""

    def __init__(self, patch: pytest.MonkeyPatch, *, eager: float, graph: float) -> None:
        self.now, self.eager = 0.0, eager
        run = PlainGraph.__call__

        def timed(plain: PlainGraph, *arguments: Any) -> Any:
            self.now += graph - eager  # the model inside adds what it takes
            return run(plain, *arguments)

        patch.setattr(PlainGraph, "__call__", timed)
        patch.setattr(of_loop, "perf_counter", lambda: self.now)
        patch.setattr(EvalGraphs, "may_not_pay", True)

    def manager(self) -> TrainManager:
        tm = manager(Compile(), eval_data=[batches()[0]] * 30)
        tm.model.append(Ticks(self))
        return tm


class Ticks(torch.nn.Module):
    """A layer that takes time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, inputs: Tensor) -> Tensor:
        self.clock.now += self.clock.eager
        return inputs


def test_a_graph_that_is_slower_than_the_eager_batch_is_given_up_after_ten_of_each(
    plain: type[PlainGraph], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tm = Clock(monkeypatch, eager=0.002, graph=0.003).manager()
    tm.eval()
    found = "the graph was made in 0.0 s, and does not pay: each takes 3.00 ms in place of 2.00"

    assert calls() == [11]  # the first of them is not timed, as the graph is made
    assert note(tm, "eval") == f"runs eagerly: {found}"
    assert capsys.readouterr().err == f"Compile: batches of evaluations run eagerly: {found}\n"


def test_a_graph_that_is_faster_runs_all_batches_once_that_is_known(
    plain: type[PlainGraph], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tm = Clock(monkeypatch, eager=0.003, graph=0.002).manager()
    tm.eval()
    eager = 2 + 10  # the first two of a shape, and those that are timed

    assert calls() == [30 - eager]
    assert note(tm, "eval") == "one graph"
    assert capsys.readouterr().err.startswith("Compile: batches of evaluations: the graph was made in 0.0 s, and has ")


def test_a_graph_that_cannot_be_made_is_told_and_the_training_keeps_its_own(
    plain: type[PlainGraph], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tm = manager(Compile(), eval_data=batches())
    tm.train()
    plain.fails = "torch is tired"
    tm.eval()
    tm.eval()
    plain.fails = ""

    assert (note(tm, "eval"), note(tm)) == ("runs eagerly: torch is tired", "one graph")
    assert capsys.readouterr().err == "Compile: batches of evaluations run eagerly: torch is tired\n"
