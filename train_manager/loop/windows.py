"""The windows of optimizers: each reaches from the first backward after a step to the next step.

    batch       1          2          3          4
    generator   backward   backward, step        backward ...       two batches gather one gradient
    critic      backward, step   (the same)                         a window inside each batch

A window begins with gradients of zero and leaves none behind, so no gradient enters a step that it is not of.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from inspect import Parameter, signature
from typing import Any, final

from torch import Tensor
from torch.optim import Optimizer

from train_manager.model.optimizers import parameters_in
from train_manager.telling.errors import InputError, StageError
from train_manager.telling.source_locations import users_level


@final
class Window:
    """What an optimizer has gathered since its last step.

    Attributes:
        optimizer: the optimizer.
        backwards: how many backward passes the gradients are the sum of.
        is_modified: a hook has modified a loss, so the gradients are not those of the loss computed anew.
    """

    __slots__ = ("backwards", "is_modified", "optimizer")

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.backwards = 0
        self.is_modified = False

    def state_dict(self) -> dict[str, Any]:
        """Return the gradients, and what they are made of."""
        gradients = [parameter.grad for parameter in parameters_in(self.optimizer)]
        return {"gradients": gradients, "backwards": self.backwards, "is_modified": self.is_modified}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the gradients back."""
        self.backwards, self.is_modified = state["backwards"], state["is_modified"]
        for parameter, gradient in zip(parameters_in(self.optimizer), state["gradients"], strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter, copy=True)

    def require_loss_again(self, loss_again: Callable[[], Tensor] | None, name: str) -> Callable[[], Tensor]:
        """Return the function that computes the loss anew; the gradients must be those of this loss alone.

        Raises:
            InputError: it is None, or the gradients are those of more.
        """
        if self.is_modified or self.backwards != 1:
            what = f"the loss of optimizer {name!r} must be computed anew, but its gradients are not those of one loss"
            cure = "leave out Accumulate, float16 and hooks that modify the loss"
        elif loss_again is None:
            what = f"the loss of optimizer {name!r} must be computed anew, but it was given as a tensor"
            cure = "give a function: self.update(lambda: loss_of(model(inputs), targets))"
        else:
            return loss_again
        raise InputError(what, name="optimizer", cure=cure)


@final
class Windows:
    """The open windows, by the names of their optimizers.

    Attributes:
        ended: whether the last counted batch ended all windows (``update_ends``).
        gathered: called with an optimizer whose gradients are complete, before hooks and its step see them; for what
            makes the gradients of several processes one. None if there is nothing to do.
    """

    def __init__(self) -> None:
        self._open: dict[str, Window] = {}
        self.ended = True
        self.gathered: Callable[[Optimizer], None] | None = None

    def __getitem__(self, name: str) -> Window:
        return self._open[name]

    def get(self, name: str) -> Window | None:
        """Return the window of an optimizer, or None if it is not open."""
        return self._open.get(name)

    def __enter__(self) -> None:
        """Keep windows for the time of a ``with`` block, a run; an error that ends it ends them too."""

    def __exit__(self, *error: object) -> None:
        for name in list(self._open):
            self.close(name)
        self.ended = True

    @property
    def is_any_open(self) -> bool:
        """Whether an optimizer has gathered gradients that no step has used."""
        return bool(self._open)

    def names(self) -> list[str]:
        """Return the names of the optimizers with an open window."""
        return list(self._open)

    @property
    def begin(self) -> bool:
        """Whether the next batch begins windows (``update_begins``)."""
        return self.ended or not self._open

    def close(self, name: str) -> None:
        """End a window, and free its gradients: the next forward pass has their memory."""
        window = self._open.pop(name, None)
        if window is not None:
            free_gradients(window.optimizer)

    def backward(
        self, name: str, optimizer: Optimizer, loss: Tensor, retain_graph: bool, *, is_modified: bool, is_last: bool
    ) -> None:
        """Run a backward pass for one optimizer; a window that it begins, begins with gradients of zero.

        Args:
            name: of the optimizer.
            optimizer: the optimizer.
            loss: is differentiated.
            retain_graph: keep the graph for another backward.
            is_modified: a hook has put the loss in the place of what ``train_batch`` has given.
            is_last: the window ends with this batch.
        """
        window = self._open.get(name)
        if window is None:
            window = self._open[name] = Window(optimizer)
            free_gradients(optimizer)
        window.backwards += 1
        if is_modified:
            window.is_modified = True
        if len(self._open) > 1:
            with self._set_aside(name):
                loss.backward(retain_graph=retain_graph)
        else:
            loss.backward(retain_graph=retain_graph)
        if is_last and self.gathered is not None:
            self.gathered(optimizer)

    def backward_again(self, name: str, loss: Tensor) -> None:
        """Run the backward pass of a loss that was computed anew, in place of the one before."""
        with self._set_aside(name):
            loss.backward()
        if self.gathered is not None:
            self.gathered(self._open[name].optimizer)

    def drop(self, names: Iterable[str]) -> None:
        """End the windows of some optimizers."""
        for name in names:
            self.close(name)

    def drop_all(self, when: str) -> None:
        """End all windows, and warn of gradients that no step has used."""
        names = list(self._open)
        for name in names:
            self.close(name)
        self.ended = True
        if names:
            warnings.warn(
                f"{when} within a window, so the gradients gathered for {' and '.join(map(repr, names))} are dropped "
                "(to go on in the same window, hold a run open: `with tm.run():`)",
                stacklevel=users_level(),
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the gradients of the open windows, in the order of each optimizer's parameters."""
        return {"ended": self.ended, "open": {name: window.state_dict() for name, window in self._open.items()}}

    def load_state_dict(self, state: Mapping[str, Any], optimizers: Mapping[str, Optimizer]) -> None:
        """Open the windows that were open when ``state_dict`` was called."""
        for name in list(self._open):
            self.close(name)
        self.ended = state["ended"]
        for name in state["open"].keys() & optimizers.keys():
            window = self._open[name] = Window(optimizers[name])
            window.load_state_dict(state["open"][name])

    def _set_aside(self, name: str) -> AbstractContextManager[None]:
        own = {id(parameter) for parameter in parameters_in(self._open[name].optimizer)}
        others: list[Tensor] = []
        for other, window in self._open.items():
            if other != name:
                parameters = list(parameters_in(window.optimizer))
                if not own.isdisjoint(map(id, parameters)):
                    raise _shared(name, other)
                others += parameters
        return preserved_gradients(others)


def warn_without_gradients(optimizer: Optimizer, name: str) -> None:
    """Warn of a step that changes nothing, since the loss was of other parameters."""
    if all(parameter.grad is None for group in optimizer.param_groups for parameter in group["params"]):
        what = f"no parameter of optimizer {name!r} has a gradient, so its step changes nothing"
        warnings.warn(f"{what} (is the loss computed with its parameters?)", stacklevel=users_level())


def updated_twice(name: str) -> StageError:
    """Return the error for a further update of an optimizer, in a batch of a window of several."""
    what = f"optimizer {name!r} is updated twice in one batch, but its gradients are gathered over several"
    cure = "leave out Accumulate, or call self.backward(...) for each loss and self.step() once"
    return StageError(what, name=name, cure=cure)


def _shared(name: str, other: str) -> StageError:
    return StageError(
        f"optimizers {name!r} and {other!r} share parameters, and both gather gradients, which would mix",
        name=name,
        cure="end the window of one before the backward of the other (update), or give each parameters of its own",
    )


def free_gradients(optimizer: Optimizer) -> None:
    """Free the gradients of an optimizer, as ``zero_grad`` does; a ``zero_grad`` of the optimizer's own is called.

    That of torch costs 6 us more in each step, for the profiler.
    """
    if getattr(optimizer.zero_grad, "__func__", None) is not Optimizer.zero_grad:
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@contextmanager
def preserved_gradients(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Set all gradients aside for a ``with`` block, and put the same tensors back."""
    kept = [(parameter, parameter.grad) for parameter in parameters]
    for parameter, _ in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


# ---- optimizers that call a closure ----------------------------------------------------------------------------------


def needs_closure(optimizer: Optimizer) -> bool:
    """Return whether ``step`` requires a closure, as that of LBFGS does."""
    return requires_closure(type(optimizer))


def _step_requires_closure(kind: Any) -> bool:
    closure = signature(kind.step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


requires_closure: Callable[[Any], bool] = lru_cache(maxsize=64)(_step_requires_closure)
"""Returns whether ``step`` of a class of optimizers requires a closure."""


def require_no_closure(optimizer: Optimizer, name: str, asked_by: str) -> None:
    """Refuse an optimizer with a closure, for an extension that works on the gradients from before the step.

    Raises:
        InputError: the optimizer requires a closure.
    """
    if needs_closure(optimizer):
        kind = type(optimizer).__name__
        raise InputError(
            f"{asked_by} works on gradients before a step, but optimizer {name!r} ({kind}) computes more of them in it",
            name="optimizer",
            asked_by=asked_by,
            cure=f"leave {asked_by} out, or take an optimizer without a closure, such as AdamW",
        )


def once_known(loss: Any, again: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a closure whose first call returns the loss whose gradients are there; later ones compute it anew."""
    known = [loss]

    def closure() -> Tensor:
        return known.pop() if known else again()

    return closure
