"""What the extension ``Compile`` keeps while a run is open: how batches run, and what it tells of their graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import is_
from typing import Any, Final, Literal, TextIO, TypeAlias, final

from train_manager.loop.graphs_by_shape import Attempt, GraphsByShape
from train_manager.loop.ways import Way

KINDS: Final = {"train": "batches", "eval": "batches of evaluations", "predict": "batches of predict"}
"""The kinds of batches, and what a line calls them."""

Mode: TypeAlias = Literal["train", "eval"]


@final
class Compiling:
    """The ways of batches, found anew as parts of the training are replaced, and the lines that tell of graphs.

    Args:
        file: where a line says what a graph costs, or why there is none; None is ``sys.stderr`` at that time.
        graph_made: called with "train" or "eval" as a graph is made.

    Attributes:
        round: an object of its own for each evaluation, and each call of ``predict``.
    """

    def __init__(self, file: TextIO | None = None, graph_made: Callable[[Mode], Any] | None = None) -> None:
        self._file, self._graph_made = file, graph_made
        self.round = object()
        self._ways: dict[tuple[str, str], tuple[tuple[Any, ...], Way]] = {}  # the parts, and what they allow

    def way(self, kind: str, of: str, parts: tuple[Any, ...], find: Callable[[str, tuple[Any, ...]], Way]) -> Way:
        """Return how batches of a kind run as far as some parts say, which is found anew if a part is another object.

        Args:
            kind: "train", "eval" or "predict".
            of: what the parts are.
            parts: the parts.
            find: finds the way.
        """
        known = self._ways.get((kind, of))
        if known is None or not all(map(is_, known[0], parts)):
            known = self._ways[kind, of] = parts, find(kind, parts)
        return known[1]

    def tell(self, attempt: Attempt) -> None:
        """Tell what a batch has shown: why there is no graph, what the graph costs, that it is new."""
        kind, graphs = attempt.kind, attempt.graphs
        told = attempt.note_time()
        if graphs.refused:
            self._print(f"{KINDS[kind]} run eagerly: {graphs.refused}")
        elif told:
            self._print(told if kind == "train" else f"{KINDS[kind]}: {told}")
        if graphs.new:
            made, graphs.new = graphs.new, 0
            if self._graph_made is not None:
                for _ in range(made):
                    self._graph_made("train" if kind == "train" else "eval")

    def _print(self, line: str) -> None:
        print(f"Compile: {line}", file=self._file or sys.stderr)


def how_it_runs(way: Way, graphs: GraphsByShape) -> str:
    """Return how a batch runs, for ``explain``."""
    if way.name == "eager" or graphs.refused:
        return f"runs eagerly: {graphs.refused or way.reason}"
    found = "one graph" if way.name == "whole" else f"two graphs, cut before the step: {way.reason}"
    return f"{found}; runs eagerly at present: {graphs.resting}" if graphs.resting else found
