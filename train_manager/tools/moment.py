"""The state of an Extensible at one point of a stage, which can be put back while the stage is open."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, final

from torch import Tensor

from train_manager.checks.contents import CLOSED, Contents
from train_manager.core.extensible import Extensible
from train_manager.core.store import Store
from train_manager.data.random_state import random_state, set_random_state
from train_manager.loop.step import StateOfBatch
from train_manager.manager import TrainManager
from train_manager.telling.errors import StageError


@final
class Moment:
    """The state at one point of a stage; ``restore`` puts it back, as often as wanted, and what follows runs again.

    >>> import torch
    >>> from train_manager import TrainManager
    >>> from train_manager.testing import tiny_manager
    >>> class Twice(TrainManager):
    ...     def train_batch(self, model, inputs, targets):
    ...         moment = Moment(self)
    ...         self.update(self.forward())
    ...         first, updates = self.fixtures["loss"], self.update_num
    ...         moment.restore()
    ...         self.update(self.forward())
    ...         print(torch.equal(self.fixtures["loss"], first), self.update_num == updates)
    >>> tiny = tiny_manager()
    >>> tm = Twice(model=tiny.model, loss=tiny.loss, optimizer=tiny.optimizer, train_data=tiny.train_data[:1])
    >>> result = tm.train()
    True True

    Put back are the fixtures of all open stages, the attributes of the Extensible, and what both refer to: tensors,
    modules, optimizers, lists, dicts and objects of your own classes, with gradients and random states; and what
    extensions keep. Of a TrainManager also its counts and the state of its batch, which must be open.

    Not put back are the place in the data; what was printed, written or sent; and values that autograd has computed
    before, whose graph a second backward pass cannot use: so a Moment comes before the forward pass. It holds copies of
    all tensors, as long as you hold it.

    Args:
        extensible: the object whose stage is open.

    Attributes:
        path: the names of the open stages, outermost first.
        fixtures: the values of the live fixtures that were computed by then, by name.

    Raises:
        StageError: no stage is open, or none of a batch of a TrainManager; a hook is running; or another thread has
            opened the stages.
    """

    def __init__(self, extensible: Extensible) -> None:
        self._store: Store = extensible._store
        self._refuse_in_hook("makes")
        self._cells = self._store.contents()
        if not self._cells:
            cure = "make it inside `with self.staged(...):`"
            raise StageError("a Moment is of an open stage, and no stage is open", cure=cure)
        state = _state_of(extensible)
        self.path: tuple[str, ...] = self._store.path
        self.fixtures: Mapping[str, Any] = MappingProxyType(self._store.computed)
        put_aside = [one.outer.hidden for one in self._cells if one.outer.hidden is not None]  # by recursions
        kept = [content for one in (*self._cells, *put_aside) for _, content in one.contents]
        values = [value for content in kept for value in content.values]
        left_out, looked_into = [*state.data, *state.extensions], [extensible, *state.own]
        self._contents = Contents([*values, *state.components], left_out, looked_into)
        # Apart from the others, since extensions of this library keep state in classes of their own: the average of EMA
        # is looked into, and the position in the data, which the loop keeps in such a class, is not.
        extensions = set(map(id, state.extensions))
        known = [one for one in self._contents.objects if id(one) not in extensions]
        self._of_extensions = Contents(state.extensions, left_out=known, closed=CLOSED - {"train_manager"})
        leaves = [one for one in self._of_extensions.objects if isinstance(one, Tensor) and one.is_leaf]
        self._gradients = [(leaf, leaf.grad) for leaf in leaves]
        # A backward pass adds to a gradient in place, or a step lets go of it: both its place and its values are kept.
        self._of_gradients = Contents(gradient for _, gradient in self._gradients if gradient is not None)
        self._random = random_state()

    def restore(self) -> None:
        """Put the state back.

        Raises:
            StageError: other stages are open than at the Moment; a hook is running; or it is another thread.
        """
        store = self._store
        store.require_own_thread()
        self._refuse_in_hook("restores")
        store.open_inner()
        if [one.outer for one in self._cells] != store.scopes():
            raise StageError(
                f"a Moment of {' > '.join(self.path)} is restored where these stages are not open, or others are too",
                stages=store.path,
                cure="restore it in the same `with` block, and outside of stages inside this block",
            )
        self._contents.put_back()
        self._of_extensions.put_back()
        for leaf, gradient in self._gradients:
            leaf.grad = gradient
        self._of_gradients.put_back()
        store.put_back(self._cells)
        set_random_state(self._random)

    def __repr__(self) -> str:
        return f"<moment of {' > '.join(self.path)}: {', '.join(self.fixtures) or 'no fixtures'}>"

    def _refuse_in_hook(self, does: str) -> None:
        caller = self._store.running
        if caller is not None:
            raise StageError(
                f"{caller.label} {does} a Moment, but the hooks of a stage cannot run again from their middle",
                name=caller.label,
                stages=self._store.path,
                cure="make it and restore it in a method of the extensible",
            )


def _state_of(extensible: Extensible) -> StateOfBatch:
    if isinstance(extensible, TrainManager):
        return extensible._state_of_batch()
    return StateOfBatch(own=(), components=(), extensions=[*extensible.extensions.values()], data=())
