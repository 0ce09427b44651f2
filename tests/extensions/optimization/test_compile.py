"""Compile: which batches are graphs, that they train as eager batches do, and what bounds them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import get_total_norm
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import OneCycleLR

from tests.support.graphs import PlainGraph, batches, differences, manager, net, note, use_plain_graphs
from tests.support.training import At
from train_manager import Extension, TrainManager, modifies
from train_manager.extensions import (
    EMA,
    SAM,
    Accumulate,
    Checkpoints,
    ClipGradients,
    Compile,
    LRSchedule,
    MixedPrecision,
)
from train_manager.loop import graphs_by_shape as of_loop

NEAR = 1e-6


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> type[PlainGraph]:
    return use_plain_graphs(monkeypatch)


def calls() -> list[int]:
    return [graph.calls for graph in PlainGraph.made]


def one_cycle() -> LRSchedule:
    return LRSchedule(lambda optimizer: OneCycleLR(optimizer, 0.01, total_steps=12), per="step")


# ---- which batches are graphs ----------------------------------------------------------------------------------------


def test_a_batch_is_one_graph_from_the_third_of_its_shape_on(plain: type[PlainGraph]) -> None:
    difference, tm = differences(list)

    assert calls() == [12 - 3 - 2]  # three batches of an own shape, one at the end of each epoch; two eager ones
    assert note(tm) == "one graph"
    assert difference < NEAR


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: SGD(parameters, lr=0.1),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
        lambda parameters: Adam(parameters, lr=0.01, weight_decay=0.1),
        lambda parameters: AdamW(parameters, lr=0.01, betas=(0.8, 0.99)),
        lambda parameters: AdamW([{"params": [one], "lr": 0.01 * n} for n, one in enumerate(parameters, 1)]),
    ],
    ids=["SGD", "momentum", "nesterov", "Adam", "AdamW", "groups"],
)
def test_the_arithmetic_is_that_of_the_optimizer(optimizer: Any, plain: type[PlainGraph]) -> None:
    difference, _ = differences(list, optimizer=lambda: optimizer)

    assert calls() == [7]
    assert difference < NEAR


def test_a_batch_is_two_graphs_if_a_hook_looks_at_the_gradients(plain: type[PlainGraph]) -> None:
    norms: list[float] = []

    def look(optimizer: Any) -> None:
        norms.append(float(get_total_norm(one.grad for one in optimizer.param_groups[0]["params"])))

    difference, tm = differences(lambda: [ClipGradients(0.5), one_cycle(), At("pre_train_optimizer_step", look)])

    assert calls() == [7, 7]
    assert note(tm) == "two graphs, cut before the step: At, ClipGradients, LRSchedule looks into train_optimizer_step"
    assert difference < NEAR
    assert min(norms) > 0


@pytest.mark.parametrize(
    "clip",
    [
        lambda: ClipGradients(0.5),
        lambda: ClipGradients(value=0.01),
        lambda: ClipGradients(0.5, 0.1, norm_type=inf),
    ],
    ids=["norm", "value", "both"],
)
def test_gradients_are_clipped_and_rates_are_read_in_one_graph(
    clip: Callable[[], ClipGradients], plain: type[PlainGraph]
) -> None:
    norms: list[float] = []

    def look(grad_norm: Tensor) -> None:
        norms.append(float(grad_norm))

    difference, tm = differences(lambda: [clip(), one_cycle(), At("post_train_step_batch", look)])

    assert (calls(), note(tm)) == ([7], "one graph")
    assert difference < NEAR
    assert norms[:12] == pytest.approx(norms[12:], abs=NEAR)  # eager, and by graphs


def test_a_limit_that_changes_needs_no_new_graph(plain: type[PlainGraph]) -> None:
    def tighten(tm: TrainManager) -> None:
        tm["clip_gradients"].max_norm = 0.01

    difference, _ = differences(lambda: [ClipGradients(5.0), *changed(tighten)()])

    assert calls() == [7]
    assert difference < NEAR


@pytest.mark.parametrize(
    "clips",
    [
        lambda: [type("Own", (ClipGradients,), {"clip": lambda self, parameters: torch.zeros(())})(0.5)],
        lambda: [ClipGradients(0.5), ClipGradients(0.2, optimizer="optimizer")],
    ],
    ids=["a subclass", "two"],
)
def test_other_clippings_stay_between_two_graphs(clips: Callable[[], list[Extension]], plain: type[PlainGraph]) -> None:
    difference, tm = differences(clips)

    assert calls() == [7, 7]
    assert note(tm).startswith("two graphs")
    assert difference < NEAR


def test_the_gradients_of_a_window_are_graphs(plain: type[PlainGraph]) -> None:
    difference, tm = differences(lambda: [Accumulate(2)])

    assert calls() == [7, 2]  # of six windows, three end with the smaller batch, and one is the first
    assert "Accumulate looks into train_backward" in note(tm)
    assert difference < NEAR


def test_hooks_before_the_forward_pass_and_after_the_step_leave_a_batch_one_graph(plain: type[PlainGraph]) -> None:
    class Doubled(Extension):
        @modifies("inputs")
        def pre_train_model_forward(self, inputs: Tensor) -> Tensor:
            return inputs * 2

    difference, tm = differences(lambda: [Doubled(), EMA(0.9)])

    assert (calls(), note(tm)) == ([7], "one graph")
    assert difference < NEAR


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"extensions": [Compile(), SAM()]}, "SAM computes the loss anew"),
        ({"extensions": [Compile(), MixedPrecision()]}, "MixedPrecision looks into train_backward"),
        ({"extensions": [Compile(), At("post_train_loss_forward", lambda: None)]}, "At looks into train_loss_forward"),
        ({"extensions": [Compile(), At("pre_train_backward", lambda: None)]}, "At looks into train_backward"),
        ({"optimizer": RMSprop}, "RMSprop is not one of SGD, Adam and AdamW"),
        ({"optimizer": lambda p: AdamW(p, amsgrad=True)}, "the optimizer has amsgrad=True"),
        ({"optimizer": lambda p: AdamW([*p][:1])}, "the parameter 1.weight gets a gradient, but is in no optimizer"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
@pytest.mark.filterwarnings("ignore:.*in no optimizer")
def test_else_it_runs_eagerly_and_explain_says_why(
    options: dict[str, Any], reason: str, plain: type[PlainGraph]
) -> None:
    tm = manager(**{"extensions": [Compile()], **options})
    tm.train()

    assert note(tm) == f"runs eagerly: {reason}"
    assert not any(calls())


def test_a_method_of_your_own_runs_eagerly(plain: type[PlainGraph]) -> None:
    class Own(TrainManager):
        def loss_forward(self, prediction: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(prediction, targets) * 2

    tm = Own(model=net(), optimizer=AdamW, train_data=batches(), extensions=[Compile()])
    tm.train()

    assert note(tm) == "runs eagerly: Own has a loss_forward of its own"


def test_explain_says_before_a_run_what_bounds_a_batch() -> None:
    tm = manager(Compile(), MixedPrecision())

    assert note(tm) == "runs eagerly: MixedPrecision looks into train_backward"
    assert "(runs eagerly:" in str(tm.explain(all=True))


def test_at_most_twenty_shapes_have_a_graph(plain: type[PlainGraph]) -> None:
    shapes = [(torch.zeros(size, 6), torch.zeros(size, dtype=torch.long)) for size in range(2, 27)]
    tm = manager(Compile(), train_data=[batch for batch in shapes for _ in range(5)], epochs=1)
    tm.train()

    assert len(calls()) == of_loop.MOST


# ---- what changes while it trains ------------------------------------------------------------------------------------


def changed(change: Callable[[TrainManager], None], at: int = 6) -> Callable[[], list[Extension]]:
    """Return an extension that changes something after a step."""

    def hook(train_manager: TrainManager, step_num: int) -> None:
        if step_num == at:
            change(train_manager)

    return lambda: [At("post_train_step_batch", hook)]


def load_own_state(tm: TrainManager) -> None:
    tm.optimizer.load_state_dict(tm.optimizer.state_dict())


def empty_the_state(tm: TrainManager) -> None:
    tm.optimizer.state.clear()


def freeze(tm: TrainManager) -> None:
    tm.model[0].requires_grad_(False)


def maximize(tm: TrainManager) -> None:
    tm.optimizer.param_groups[0]["maximize"] = True


@pytest.mark.parametrize("change", [load_own_state, empty_the_state, freeze, maximize])
def test_what_changes_the_optimizer_is_seen(change: Callable[[TrainManager], None], plain: type[PlainGraph]) -> None:
    difference, _ = differences(changed(change))

    assert sum(calls()) >= 3
    assert difference < NEAR


def test_a_parameter_that_is_trained_later_gets_its_state_in_an_eager_step(plain: type[PlainGraph]) -> None:
    def unfreeze(tm: TrainManager) -> None:
        tm.model[0].requires_grad_(True)

    def frozen() -> nn.Module:
        model = net()
        model[0].requires_grad_(False)  # type: ignore[index]
        return model

    difference, _ = differences(changed(unfreeze), model=frozen)

    assert len(calls()) == 2
    assert difference < NEAR


def test_a_hook_of_torch_is_called_while_it_is_there(plain: type[PlainGraph]) -> None:
    seen: list[int] = []

    def watch(tm: TrainManager) -> None:
        tm.model[0].register_forward_hook(lambda *_: seen.append(1))

    tm = manager(Compile(), *changed(watch)())
    tm.train()

    assert len(seen) == 6
    assert note(tm) == "one graph; runs eagerly at present: a module has a hook of torch"


def test_an_extension_that_joins_leaves_the_graph(plain: type[PlainGraph]) -> None:
    def join(tm: TrainManager) -> None:
        tm.add_extension(At("post_train_step_batch", lambda: None), "joined")

    manager(Compile(), *changed(join)()).train()

    assert calls() == [7]


def test_phases_keep_the_graph_of_a_model_that_they_share(plain: type[PlainGraph]) -> None:
    tm = manager(Compile())
    with tm.run():
        tm.train_epochs(2)
        with tm.phase("more"):
            tm.train_epochs(1)

    assert calls() == [7]


def test_a_scheduler_of_torch_sees_the_steps(plain: type[PlainGraph]) -> None:
    tm = manager(Compile())
    optimizer: Any = tm.optimizer
    tm.train_steps(5)
    schedule = OneCycleLR(optimizer, 0.01, total_steps=12)
    tm.train_steps(3)
    schedule.step()  # warns if no step was seen, and warnings are errors

    assert optimizer._opt_called


def test_functions_around_the_step_are_called(plain: type[PlainGraph]) -> None:
    seen: list[int] = []

    def watch(tm: TrainManager) -> None:
        tm.optimizer.register_step_post_hook(lambda *_: seen.append(1))

    manager(Compile(), *changed(watch)()).train()

    assert len(seen) == 6


# ---- what fails ------------------------------------------------------------------------------------------------------


def test_a_graph_that_cannot_be_made_is_told_and_the_run_goes_on(
    plain: type[PlainGraph], capsys: pytest.CaptureFixture[str]
) -> None:
    plain.fails = "torch is tired"
    tm = manager(Compile())
    tm.train()

    assert tm.step_num == 12
    assert note(tm) == "runs eagerly: torch is tired"
    assert capsys.readouterr().err == "Compile: batches run eagerly: torch is tired\n"


def test_what_a_graph_costs_is_told_once(plain: type[PlainGraph], capsys: pytest.CaptureFixture[str]) -> None:
    tm = manager(Compile(), epochs=12)
    tm.train()

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Compile: the graph was made in ")


@pytest.mark.filterwarnings("ignore:this program is not the one")
def test_checkpoints_fit_eager_and_compiled_trainings(plain: type[PlainGraph], tmp_path: Path) -> None:
    def trained(folder: str, *extensions: Extension, epochs: int) -> TrainManager:
        tm = manager(Checkpoints(resume=True), *extensions, train_dir=tmp_path / folder, epochs=epochs)
        tm.train()
        return tm

    first, second = trained("a", Compile(), epochs=2), trained("b", epochs=2)
    assert [*first.model.state_dict()] == [*second.model.state_dict()]
    one, other = trained("a", epochs=3), trained("b", Compile(), epochs=3)
    states = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    assert all(torch.allclose(a.double(), b.double(), atol=NEAR) for a, b in states)
