"""The batch that a TrainManager trains on is run again from the same random state, and nothing of it stays.

``train_batch`` is called as it was, but no stage opens, and nothing is updated: ``forward``, ``backward``, ``step`` and
``update`` are others for that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from torch import Tensor, nn

from train_manager.core.beside import beside_the_hooks, is_defined_in
from train_manager.core.scope import Cell
from train_manager.data.randomness import preserved_random_state, random_state, set_random_state
from train_manager.diagnosis.replay import (
    Place,
    Watched,
    backward_place,
    how_broken,
    is_broken,
    tensors_in,
    with_lines,
)
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.probe import OF_A_PASS, unpack
from train_manager.loop.windows import preserved_gradients
from train_manager.model.buffers import preserved_buffers

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class Moment(NamedTuple):
    """The state of random numbers before a batch.

    Attributes:
        step: the number of the batch's step, from 1.
        random: what ``random_numbers`` has returned.
        batch: the batch, if its gradients are added to those of others; None stands for the batch that is alive.
    """

    step: int
    random: Mapping[str, Any]
    batch: Any = None


@final
class Window:
    """The batches whose gradients are added up until the next update."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a window that is loaded is not looked into."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Take that back."""


def random_numbers(*, of_all: bool = False) -> dict[str, Any]:
    """Return the random state of torch, or also those of Python and numpy, which takes 80 times as long."""
    if of_all:
        return random_state()
    used_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if used_cuda else []}


def modules_of(train_manager: TrainManager) -> dict[str, nn.Module]:
    """Return the model and the modules of the loss, by the names that they are told by."""
    parts = {"": train_manager.model, "loss": train_manager.loss}
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}


def broken_data(train_manager: TrainManager) -> dict[str, Tensor]:
    """Return the tensors of the batch with a nan or an infinity, by fixtures and where they are in them."""
    fixtures = train_manager.fixtures
    found: dict[str, Tensor] = {}
    for part in ("inputs", "targets", "batch"):
        tensors = dict(tensors_in(fixtures.get(part), part))
        found |= {name: one for name, one in tensors.items() if not any(one is other for other in found.values())}
    return {name: tensor for name, tensor in found.items() if is_broken(tensor)}


def place_in(train_manager: TrainManager, moment: Moment | None, name: str, *, backward: bool) -> Place | None:
    """Run the batch again, and return where finite numbers became nan or infinite; None if they did not.

    A place without a module and a function is not known.

    Args:
        train_manager: trains on it, or on the last batch of its window.
        moment: the random state before the batch; None if it is not known.
        name: of the optimizer for whose loss that was found.
        backward: whether the loss was finite, and the gradients were not.
    """
    again = _Again(train_manager, name, backward=backward)
    modules = modules_of(train_manager)
    called = [part for part in (*modules.values(), train_manager.called_model) if isinstance(part, nn.Module)]
    with ExitStack() as stack:
        stack.enter_context(preserved_random_state())
        stack.enter_context(preserved_buffers(*called))
        stack.enter_context(preserved_gradients(train_manager._setup.parameters()))
        stack.enter_context(_beside(train_manager, moment))
        if moment is not None:
            set_random_state({**random_state(), **moment.random})
        stack.enter_context(with_lines(*called))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(train_manager.fixtures.get("autocast", nullcontext)())
        again.watched = stack.enter_context(Watched(modules))
        stack.enter_context(again.instead())
        try:
            train_manager.call_by_name(train_manager.train_batch)
        except Found as found:
            return found.place
    return None


@contextmanager
def _beside(train_manager: TrainManager, moment: Moment | None) -> Iterator[None]:
    """Let the fixtures of the batch be as they were before its forward pass, or those of an earlier batch."""
    store, is_earlier = train_manager._store, moment is not None and moment.batch is not None
    of_data = ("batch",) if is_earlier else ("batch", "inputs", "targets", "true_batch_size", "global_batch_size")
    given = {name: store.value(name) for name in of_data if store.has(name)}
    if moment is not None and is_earlier:
        given["batch"] = moment.batch
    methods = [
        vars(kind).get(name)
        for kind in type(train_manager).__mro__
        for name in ("train_batch", "loss_forward", "model_forward")
    ]
    own = frozenset(method.__code__ for method in methods if isinstance(method, FunctionType))

    def anew(cell: Cell) -> bool:
        return cell.name in OF_A_PASS or is_defined_in(cell, own)

    scope = store.open["train_step_batch"]
    with beside_the_hooks(store, scope, {**given, "losses": Losses()}, anew):
        if moment is not None and is_earlier:
            unpack(store, scope, train_manager._chosen, moment.batch)
        yield


class Found(BaseException):
    """Ends a pass that is run again; not an Exception, which a ``train_batch`` of the user's might catch."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place


class _Again:
    """What stands in for methods of a TrainManager while a batch is run again."""

    def __init__(self, train_manager: TrainManager, name: str, *, backward: bool) -> None:
        self._train_manager, self._name, self._backward = train_manager, name, backward
        self.watched = Watched({})
        self._losses = Losses()  # what the model adds in a train_batch beside forward()

    @contextmanager
    def instead(self) -> Iterator[None]:
        methods: dict[str, Callable[..., Any]] = {
            "forward": self.forward,
            "backward": self.backward,
            "update": self.backward,
            "step": lambda *_, **__: None,
        }
        own = vars(self._train_manager)
        kept = {name: own[name] for name in methods if name in own}
        own.update(methods)  # not by setattr, which refuses it while a batch is trained on
        try:
            with Collector(self._losses):
                yield
        finally:
            for name in methods:
                own.pop(name)
            own.update(kept)

    def forward(self) -> Tensor:
        """Return the loss of the forward pass, and put it and the prediction into their fixtures."""
        tm = self._train_manager
        with Losses() as losses:
            self._define("prediction", tm._chosen.train_model_forward())
            loss = losses.total(tm._chosen.train_loss_forward())
        self._define("loss", loss)
        return loss

    def _define(self, name: str, value: Any) -> None:
        store = self._train_manager._store
        if store.has(name):
            store.cells[name].value = value
        else:
            store.define(name, value, store.open["train_step_batch"], (_Again._define.__code__, 0))

    def backward(
        self, loss: Tensor | Callable[[], Tensor], optimizer: str | None = None, *, retain_graph: bool = False
    ) -> None:
        """Look at the loss, and at its gradients if they are asked for."""
        value = loss() if callable(loss) else loss
        if self._losses.added is not None:
            value, self._losses.added = value + self._losses.added, None
        if is_broken(value):
            raise Found(self.watched.place(value) or Place("", "", "", how_broken(value)))
        name, _ = self._train_manager._optimizer_in_batch(optimizer, "backward")
        if self._backward and name == self._name:
            place = backward_place(value, self.watched, lambda: value.backward(retain_graph=True))
            if place is not None:
                raise Found(place)
