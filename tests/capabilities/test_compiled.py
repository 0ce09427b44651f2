"""The rows on compiled batches: A12 of Axon, G02 and G40 of GoMLX."""

from __future__ import annotations

import pytest
import torch

from tests.support.graphs import PlainGraph, batches, differences, manager, net, use_plain_graphs
from tests.support.training import At
from train_manager.extensions import Compile, WarmUp


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> type[PlainGraph]:
    return use_plain_graphs(monkeypatch)


def test_a12_a_batch_is_one_compiled_call_and_its_hooks_still_run(plain: type[PlainGraph]) -> None:
    steps: list[int] = []
    difference, _ = differences(lambda: [At("post_train_step_batch", lambda step_num: steps.append(step_num))])

    assert [graph.calls for graph in plain.made] == [7]
    assert steps == [*range(1, 13)] * 2  # of the eager training and of the compiled one
    assert difference < 1e-6


def test_a12_one_batch_alone_is_compiled(plain: type[PlainGraph]) -> None:
    tm = manager(Compile())
    for _ in range(4):
        tm.train_on_batch(batches()[0])

    assert [graph.calls for graph in plain.made] == [2]


def test_g02_each_structure_of_batch_has_one_graph_and_from_the_21st_on_they_run_eagerly(
    plain: type[PlainGraph],
) -> None:
    shapes = [(torch.zeros(size, 6), torch.zeros(size, dtype=torch.long)) for size in range(2, 23)]
    tm = manager(Compile(), train_data=[batch for batch in shapes for _ in range(6)], epochs=1)
    tm.train()

    assert len(shapes) == 21
    assert len(plain.made) == 20
    assert tm.step_num == 21 * 6


def test_g40_a_function_is_called_as_a_graph_is_made_and_told_if_it_trains_or_evaluates(
    plain: type[PlainGraph],
) -> None:
    modes: list[tuple[str, int]] = []
    tm = manager(Compile(graph_made=lambda mode: modes.append((mode, tm.step_num))), eval_data=batches())
    tm.train()
    tm.predict([inputs for inputs, _ in batches()])

    assert modes == [("eval", 0), ("train", 2), ("eval", 12)]


def test_g40_a_batch_of_two_graphs_tells_both(plain: type[PlainGraph]) -> None:
    modes: list[str] = []
    manager(Compile(graph_made=modes.append), WarmUp(steps=3), model=net()).train()

    assert modes == ["train", "train"]
