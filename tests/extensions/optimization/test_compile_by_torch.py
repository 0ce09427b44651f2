"""Compile with the graphs that torch makes: how far its numbers are from eager ones, and what torch is asked for."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR

from tests.support.graphs import batches, differences, manager, note
from tests.support.training import At
from train_manager import Extension, TrainManager, add_loss
from train_manager.extensions import EMA, ClipGradients, Compile, LRSchedule, Metrics

pytestmark = pytest.mark.whole  # torch takes seconds to make a graph, and to be imported for it

NEAR = 1e-6


@pytest.fixture
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch trace a graph, and run it without generated code, which takes most of the time to make."""
    usual = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **options: usual(function, backend="aot_eager", **options))


def one_cycle() -> LRSchedule:
    return LRSchedule(lambda optimizer: OneCycleLR(optimizer, 0.01, total_steps=60), per="step")


def graphs_made() -> int:
    """How many graphs torch has made so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def test_evaluations_and_predictions_are_those_of_an_eager_training() -> None:
    def evaluated(*extensions: Extension) -> tuple[list[float], Tensor, TrainManager]:
        tm = manager(EMA(0.9), Metrics("accuracy"), *extensions, eval_data=batches(), epochs=5)
        tm.train()
        found = [row[name] for row in tm.history.evaluations for name in ("loss", "accuracy")]
        return found, tm.predict([inputs for inputs, _ in batches()]), tm

    (eager, prediction, _), (compiled, other, tm) = evaluated(), evaluated(Compile())

    assert [note(tm, kind) for kind in ("train", "eval", "predict")] == ["one graph"] * 3
    assert [len(graphs._made) for graphs in tm._setup.eval_graphs.values()] == [1, 1]
    assert compiled == pytest.approx(eager, abs=NEAR)
    assert torch.allclose(prediction, other, rtol=0, atol=NEAR)


def some() -> list[Extension]:
    return [one_cycle(), ClipGradients(1.0, 0.1)]


def some_and_a_look_at_gradients() -> list[Extension]:
    return [*some(), At("pre_train_optimizer_step", lambda: None)]


@pytest.mark.parametrize("extensions", [list, some, some_and_a_look_at_gradients], ids=["whole", "clipped", "two"])
def test_sixty_steps_with_dropout_and_a_smaller_batch_are_those_of_an_eager_training(extensions: Any) -> None:
    difference, tm = differences(extensions, epochs=lambda: 15)

    assert note(tm).startswith("two graphs" if extensions is some_and_a_look_at_gradients else "one graph")
    assert tm._setup.graphs.refused == ""
    assert difference < NEAR


def test_a_mode_and_a_gradient_that_change_make_a_second_graph(traced_only: None) -> None:
    before = graphs_made()

    def rest(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 20:
            train_manager.model[1].eval()

    difference, tm = differences(lambda: [At("post_train_step_batch", rest)], epochs=lambda: 8)

    assert (note(tm), graphs_made() - before) == ("one graph", 2)
    assert difference < NEAR


def test_frozen_layers_make_a_second_graph(traced_only: None) -> None:
    def freeze(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 8:
            train_manager.model[0].requires_grad_(False)

    difference, tm = differences(lambda: [At("post_train_step_batch", freeze)], epochs=lambda: 8)

    assert note(tm) == "one graph"
    assert difference < NEAR


def test_all_evaluations_have_one_graph_and_smaller_batches_none(traced_only: None) -> None:
    before, modes = graphs_made(), list[str]()
    manager(Compile(graph_made=modes.append), epochs=4, eval_data=batches(3)).train()

    assert (graphs_made() - before, modes) == (2, ["train", "eval"])


def test_twenty_trainings_of_a_process_are_compiled(traced_only: None) -> None:
    notes = []
    for _ in range(20):
        tm = manager(Compile(), model=nn.Linear(6, 2), optimizer=lambda p: SGD(p, lr=0.1), epochs=2)
        tm.train()
        notes.append(tm._setup.graphs.refused or tm._setup.graphs._made)

    assert all(len(one) == 1 for one in notes)


def test_a_model_that_adds_a_loss_runs_eagerly(traced_only: None) -> None:
    class Penalized(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            add_loss(self.weight.square().mean())
            return super().forward(inputs)

    def seeded() -> nn.Module:
        torch.manual_seed(0)
        return Penalized(6, 2)

    difference, tm = differences(list, model=seeded)

    assert note(tm).startswith("runs eagerly: torch cannot make a graph of it (Unsupported: ")
    assert difference == 0
    tm.eval({"eval": batches()})
    assert note(tm, "eval").startswith("runs eagerly: torch cannot make a graph of it (Unsupported: ")


def test_a_model_that_changes_in_each_step_runs_eagerly_and_one_line_says_what_changes(
    traced_only: None, capfd: pytest.CaptureFixture[str]
) -> None:
    class Scaled(nn.Linear):
        factor = 0.0

        def forward(self, inputs: Tensor) -> Tensor:
            self.factor += 1
            return super().forward(inputs) * self.factor

    tm = manager(Compile(), model=Scaled(6, 2), epochs=5)
    tm.train()

    assert note(tm).startswith("runs eagerly: what it computes changes too often for a graph: model.factor == ")
    (line,) = capfd.readouterr().err.splitlines()
    assert line == f"Compile: batches {note(tm).replace('runs', 'run')}"


def test_a_model_with_a_random_number_generator_of_python_runs_eagerly(traced_only: None) -> None:
    class Scaled(nn.Linear):
        def __init__(self) -> None:
            super().__init__(6, 2)
            self.drawing = [random.Random(0)]

        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) * self.drawing[0].uniform(0, 1)

    def seeded() -> nn.Module:
        torch.manual_seed(0)
        return Scaled()

    difference, tm = differences(list, model=seeded)

    assert "it draws from a random.Random" in note(tm)
    assert difference == 0


def test_a_new_state_of_the_optimizer_is_used(traced_only: None) -> None:
    def load(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 7:
            train_manager.optimizer.load_state_dict(train_manager.optimizer.state_dict())
            train_manager.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})

    difference, tm = differences(lambda: [At("post_train_step_batch", load)])

    assert note(tm) == "one graph"
    assert difference < NEAR


def test_a_parameter_that_replaces_another_is_trained(traced_only: None) -> None:
    def replace(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 7:
            old = train_manager.model[4].weight
            train_manager.model[4].weight = new = nn.Parameter(old.detach() * 2)
            group = train_manager.optimizer.param_groups[0]
            group["params"] = [new if one is old else one for one in group["params"]]

    difference, tm = differences(lambda: [At("post_train_step_batch", replace)], epochs=lambda: 4)

    assert note(tm) == "one graph"
    assert difference < NEAR


@pytest.mark.parametrize("hint", [{}, {"is_causal": True}, {"is_causal": False}], ids=["", "causal", "any"])
def test_a_transformer_with_a_mask_is_a_graph_if_it_is_told_of_what_kind_the_mask_is(
    hint: dict[str, bool], traced_only: None
) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, inputs: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            found: Tensor = self.encoder(inputs.unsqueeze(1).expand(-1, 4, -1), mask=mask, **hint)
            return found.mean(1)

    tm = manager(Compile(), model=Reader(), optimizer=lambda p: SGD(p, lr=0.1))
    tm.train()

    cure = "give nn.TransformerEncoder is_causal=True or False beside it"
    assert note(tm) == ("one graph" if hint else f"runs eagerly: the model decides by the numbers of a mask: {cure}")


def test_half_a_file_in_the_cache_of_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        def call(*arguments: Any) -> Any:
            raise OSError("/tmp/torchinductor/x.so: file too short")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    tm = manager(Compile())
    tm.train()

    assert note(tm).startswith("runs eagerly: torch's cache has a file that was not written to its end: delete ")
