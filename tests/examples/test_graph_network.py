"""The example ``examples/graph_network.py``: a graph as one batch, of which few nodes have a label."""

from __future__ import annotations

import torch

from examples import graph_network as example
from tests.support.training import Values


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
