"""What the graphs of training and of evaluations share: one for each shape of batch, and what the first one saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from time import perf_counter
from typing import Any, Final, NamedTuple, final

from torch import Tensor, nn
from torch.nn.modules import module as of_torch

from train_manager.model.graph import Graph, NotMade

MOST: Final = 20
"""So many graphs are kept; batches of further shapes run eagerly, as do the first two of each shape."""

TIMES: Final = 3
"""A graph is made for a shape that comes the third time: a ragged last batch of an epoch does not pay."""

SAMPLES: Final = 10
"""So many batches of the first graph are timed, as single ones vary."""


class Call(NamedTuple):
    """How a batch goes through the model and the loss."""

    model: nn.Module
    loss: Callable[..., Tensor] | None  # None if only the prediction is asked for
    args: tuple[Any, ...]  # of the model
    options: Mapping[str, Any]  # its arguments by keyword
    others: tuple[Any, ...]  # what the loss takes after the prediction
    named: Mapping[str, Any]  # what it takes by keyword
    round: object  # through the data: the number of the epoch, or an object of the evaluation

    @property
    def shape(self) -> Hashable:
        """The shape of the batch."""
        return shape_of(self.args), shape_of(self.options), shape_of(self.others), shape_of(self.named)

    @property
    def modules(self) -> list[nn.Module]:
        """The model, and the loss if it is a module."""
        return [one for one in (self.model, self.loss) if isinstance(one, nn.Module)]


class Ran(NamedTuple):
    """What a graph has returned: prediction and loss, without a graph of autograd, and the gradients."""

    prediction: Any
    loss: Any  # None of `predict`
    gradients: Sequence[Tensor | None] | None = None  # None if the graph has made the step, or there is none
    parameters: Sequence[Tensor] = ()
    norm: Tensor | None = None  # of the gradients before the clipping that the graph has made


def shape_of(value: Any) -> Hashable:
    """Return the shape of a batch, or of a part of it: batches of one shape share a graph.

    >>> shape_of((Tensor(2, 3), None))
    ((torch.Size([2, 3]), torch.float32, device(type='cpu')), None)

    Raises:
        NotMade: a part is not a tensor, or requires a gradient.
    """
    kind = type(value)
    if kind is Tensor and not value.requires_grad:
        return value.shape, value.dtype, value.device
    if kind is tuple or kind is list:
        return tuple([shape_of(one) for one in value])
    if kind is dict:
        return tuple([(name, shape_of(one)) for name, one in value.items()])
    if value is None:
        return None
    raise NotMade(f"a batch has a {type(value).__name__}, which is not a plain tensor without a gradient")


@final
class Price:
    """What the first graph costs and saves, from the least times of batches of its shape."""

    def __init__(self) -> None:
        self.shape: Hashable = None  # of the graph; none has run yet if it is None
        self._eager: dict[Hashable, float] = {}
        self._made, self._graph, self._runs = 0.0, inf, 0

    def note(self, shape: Hashable, seconds: float, *, is_graph: bool) -> None:
        """Note the time of a batch."""
        if not is_graph:
            self._eager[shape] = min(self._eager.get(shape, inf), seconds)
        elif self.shape is None:
            self.shape, self._made = shape, seconds
        elif shape == self.shape:
            self._graph, self._runs = min(self._graph, seconds), self._runs + 1

    @property
    def is_known(self) -> bool:
        """Whether enough batches were timed."""
        return self._runs >= SAMPLES

    @property
    def saved(self) -> float:
        """The seconds that the graph saves in each batch."""
        return self._eager.get(self.shape, inf) - self._graph

    def __str__(self) -> str:
        """Return it as a sentence.

        >>> price = Price()
        >>> price.note("64x8", 0.003, is_graph=False)
        >>> for seconds in (8.0, 0.001):
        ...     price.note("64x8", seconds, is_graph=True)
        >>> print(price)
        the graph was made in 8.0 s, and has paid after 4,000 batches: each takes 1.00 ms in place of 3.00
        """
        saved, eager = self.saved, self._graph + self.saved
        pays = f"has paid after {self._made / saved:,.0f} batches" if saved > 0 else "does not pay"
        each = f"each takes {self._graph * 1000:.2f} ms in place of {eager * 1000:.2f}"
        return f"the graph was made in {self._made:.1f} s, and {pays}: {each}"


@final
class Shapes:
    """How often each shape of batch has come."""

    def __init__(self) -> None:
        self._seen: Counter[Hashable] = Counter()
        self._in_round: tuple[object, set[Hashable]] = None, set()  # the shapes that the present round has had

    def count(self, shape: Hashable, round: object) -> int:
        """Return how often a shape has come; the first time in a round does not count if there are several shapes.

        It is counted up to ``TIMES``.
        """
        if self._seen[shape] >= TIMES:
            return TIMES
        # So the last batch of each epoch, which is smaller, has no graph.
        known, shapes = self._in_round
        if known != round:
            self._in_round = _, shapes = round, set()
        self._seen[shape] += shape in shapes or len(self._seen.keys() | {shape}) == 1
        shapes.add(shape)
        return self._seen[shape]


class GraphsByShape:
    """Graphs of batches, one for each shape.

    Attributes:
        refused: why there are none; empty if there may be some.
        resting: why the last batch has run eagerly although there is a graph for it; empty if it has not.
        shape: the shape of the last batch.
        price: what the first graph costs; None once it was told.
        new: how many were made since the extension ``Compile`` was last told.
    """

    may_not_pay = False
    """Whether there are none if the first of them is slower than an eager batch."""

    def __init__(self) -> None:
        self.refused = ""
        self.resting = ""
        self.shape: Hashable = None
        self.price: Price | None = Price()
        self.new = 0
        self._made: dict[Hashable, Graph] = {}
        self._shapes = Shapes()
        self._watchers: list[Mapping[Any, Any]] = []  # the hooks of torch on modules, empty as a rule

    def note_time(self, seconds: float, *, is_graph: bool) -> str:
        """Note the time of the last batch, until the price is known; return the line that tells it then."""
        assert self.price is not None
        self.price.note(self.shape, seconds, is_graph=is_graph)
        if not self.price.is_known:
            return ""
        price, self.price = self.price, None
        if self.may_not_pay and price.saved <= 0:
            self.refused, self._made = str(price), {}
        return str(price)


@final
class Attempt:
    """One batch that a graph is tried for; its forward pass takes the place of that of the loop.

    Args:
        kind: "train", "eval" or "predict".
        graphs: the graphs of such batches.
        run: runs the batch by a graph, if there is one.
        eager: returns the prediction without a graph.
        wait: waits for the device, while batches are timed.

    Attributes:
        ran: what the graph has returned; None if there was none.
    """

    def __init__(
        self,
        kind: str,
        graphs: GraphsByShape,
        run: Callable[[], Ran | None],
        eager: Callable[[], Any],
        wait: Callable[[], None],
    ) -> None:
        self.kind, self.graphs = kind, graphs
        self._run, self._eager, self._wait = run, eager, wait
        self.ran: Ran | None = None
        self._start = 0.0 if graphs.price is None else self._now()

    def _now(self) -> float:
        self._wait()
        return perf_counter()

    def forward(self) -> Any:
        """Return the prediction: of the graph, which has done the rest too, or as always."""
        self.ran = self._run()
        return self._eager() if self.ran is None else self.ran.prediction

    def loss(self) -> Tensor:
        """Return the loss that the graph has computed."""
        assert self.ran is not None
        loss: Tensor = self.ran.loss
        return loss

    def note_time(self) -> str:
        """Note how long the batch has taken; return the line that tells the price of the graph, once it is known."""
        graphs = self.graphs
        if graphs.price is None or graphs.refused:
            return ""
        return graphs.note_time(self._now() - self._start, is_graph=self.ran is not None)


def watchers_of(modules: Iterable[nn.Module]) -> list[Mapping[Any, Any]]:
    """Return the hooks that torch calls around modules and their submodules: mappings, empty as a rule."""
    parts = chain.from_iterable(one.modules() for one in modules)
    return [*hooks_of_all(), *chain.from_iterable(map(hooks_of, parts))]


def hooks_of(module: nn.Module) -> list[Mapping[Any, Any]]:
    """Return the hooks that torch calls around a module."""
    return [
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    ]


def hooks_of_all() -> list[Mapping[Any, Any]]:
    """Return the hooks that torch calls around every module."""
    return [
        of_torch._global_forward_hooks,
        of_torch._global_forward_pre_hooks,
        of_torch._global_backward_hooks,
        of_torch._global_backward_pre_hooks,
    ]
