"""The example ``examples/graph_network.py``: a graph as one batch, of which few nodes have a label."""

from __future__ import annotations

import pytest
import torch

from examples import graph_network as example
from tests.examples.comparison import assert_equal, by_hand, by_manager, lines_of_example, lines_of_twin
from tests.examples.twins import graph_network as twin
from tests.support.training import Values


def test_it_equals_the_loop_by_hand() -> None:
    assert_equal(by_manager(example.manager), by_hand(twin.train))


def test_it_has_no_more_lines_than_the_loop_by_hand() -> None:
    assert lines_of_example("graph_network") <= lines_of_twin("graph_network")


def test_a_node_learns_from_its_neighbours() -> None:
    """Without the edges, each node sees its own features alone."""
    torch.manual_seed(0)
    tm = example.manager()
    tm.train()
    (nodes, _), _, test = example.graph()
    with_edges = tm.eval()["test"]["accuracy"]
    without = tm.eval({"alone": [((nodes, torch.empty(2, 0, dtype=torch.long)), test)]})["alone"]["accuracy"]

    assert with_edges > 0.9 > without + 0.2


def test_a_batch_counts_as_many_examples_as_labels() -> None:
    torch.manual_seed(0)
    tm = example.manager()
    tm.add_extension(sizes := Values("post_eval_step_batch", "true_batch_size"))
    tm.train_epochs(1)

    assert (tm.samples_seen, sizes.seen) == (15, [135])


def test_the_program_says_how_often_it_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "EPOCHS", 1)
    example.main()

    assert capsys.readouterr().out.splitlines()[-1].startswith("test accuracy ")
