"""The windows of optimizers: each reaches from the first backward after a step to the next step.

    batch       1          2          3          4
    generator   backward   backward, step        backward ...       two batches gather one gradient
    critic      backward, step   (the same)                         a window inside each batch

A window begins with gradients of zero and leaves none behind, so no gradient enters the step of another window.
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

from train_manager.checkpoints.parameter_order import gradients_for, parameters_of
from train_manager.model.optimizers import parameters_in
from train_manager.model.sharding import as_sharded
from train_manager.model.weighted_loss import WeightedLoss
from train_manager.telling.errors import InputError, StageError
from train_manager.telling.source_locations import users_level


@final
class Window:
    """The gradients of an optimizer since its last step; they lie in ``.grad`` of its parameters."""

    __slots__ = ("backwards", "is_gathered", "is_modified", "optimizer")

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.backwards = 0  # how many backward passes the gradients are the sum of
        self.is_gathered = False  # the gradients are the mean over all processes, if several train together
        self.is_modified = False  # a hook has modified a loss: a loss computed anew would have other gradients

    def state_dict(self, of_all: WeightedLoss | None, names: Mapping[int, str]) -> dict[str, Any]:
        """Return the gradients with the names of their parameters, and how many backward passes they are the sum of."""
        # Each of several processes has gradients of its own rows, and their mean is taken as the window ends. The mean
        # of sums is the sum of means: each process that resumes begins with the mean so far, on any number of them.
        gradients = (
            [p.grad for p in parameters_in(self.optimizer)] if of_all is None else of_all.mean_gradients(self.optimizer)
        )
        passes = {"backwards": self.backwards, "is_modified": self.is_modified}
        return {"gradients": gradients, "parameters": parameters_of(self.optimizer, names), **passes}

    def load_state_dict(self, state: Mapping[str, Any], names: Mapping[int, str]) -> None:
        """Put the gradients back, each to the parameter of its name."""
        self.backwards, self.is_modified = state["backwards"], state["is_modified"]
        gradients = gradients_for(self.optimizer, state["gradients"], state["parameters"], names)
        for parameter, gradient in zip(parameters_in(self.optimizer), gradients, strict=True):
            # A copy: the next backward pass adds to .grad in place, and the state may be loaded once more.
            copied = None if gradient is None else gradient.to(parameter.device, parameter.dtype, copy=True)
            parameter.grad = as_sharded(copied, parameter)

    def require_loss_again(self, loss_again: Callable[[], Tensor] | None, name: str) -> Callable[[], Tensor]:
        """Return the function that computes the loss anew; the gradients must be those of this loss alone.

        Raises:
            InputError: the function is None, or the gradients are the sum of several backward passes.
        """
        if self.is_modified or self.backwards != 1:
            what = f"the loss of optimizer {name!r} must be computed anew, but its gradients are not those of one loss"
            cure = "leave out Accumulate, CombineGradients, float16 and hooks that modify the loss"
        elif loss_again is None:
            what = f"the loss of optimizer {name!r} must be computed anew, but it was given as a tensor"
            cure = "give a function: self.update(lambda: loss_of(model(inputs), targets))"
        else:
            return loss_again
        raise InputError(what, name="optimizer", cure=cure)


@final
class Windows:
    """The open windows, by the names of their optimizers."""

    def __init__(self) -> None:
        self._open: dict[str, Window] = {}
        self.ended = True  # whether the last counted batch ended all windows (its fixture update_ends)
        # Where several processes train together, this object makes their gradients one, before hooks and the step see
        # them. None in one process.
        self.gradients: WeightedLoss | None = None

    def __getitem__(self, name: str) -> Window:
        return self._open[name]

    def get(self, name: str) -> Window | None:
        """Return the window of an optimizer, or None if it is not open."""
        return self._open.get(name)

    def __enter__(self) -> None:
        """Keep windows for the time of a ``with`` block, a run or a phase, at whose end all are dropped."""

    def __exit__(self, *error: object) -> None:
        # At a usual end drop_all has closed all windows, with a warning; the ones here are of a run that has failed.
        self.drop_all()

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
        self,
        name: str,
        optimizer: Optimizer,
        loss: Tensor,
        retain_graph: bool,
        *,
        is_modified: bool,
        is_last: bool,
        known: Callable[[], None] | None = None,
    ) -> None:
        """Run a backward pass for one optimizer; a window that it begins, begins with gradients of zero.

        Args:
            name: the name of the optimizer.
            optimizer: the optimizer.
            loss: the loss that is differentiated.
            retain_graph: keep the graph for another backward.
            is_modified: a hook has put this loss in the place of the loss that ``train_batch`` has given.
            is_last: the window ends with this batch.
            known: adds the gradients, which a graph has computed, in place of the backward pass.
        """
        window = self._open.get(name)
        if window is None:
            window = self._open[name] = Window(optimizer)
            free_gradients(optimizer)
        window.backwards += 1
        if is_modified:
            window.is_modified = True
        if known is not None:
            known()
            return
        gradients = self.gradients
        if gradients is not None:
            loss = gradients.weigh(loss)
        if len(self._open) > 1:
            # The loss may reach parameters of other optimizers too (a generator's loss goes through the critic):
            # those gradients must not enter the other windows.
            with self._set_aside(name):
                loss.backward(retain_graph=retain_graph)
        else:
            loss.backward(retain_graph=retain_graph)
        if gradients is not None:
            window.is_gathered = is_last
            if is_last:
                gradients.gather(optimizer)

    def complete(self, name: str) -> None:
        """Make the gradients of all processes one before a step, unless the last backward pass has done so."""
        window = self._open[name]
        if self.gradients is not None and not window.is_gathered:
            self.gradients.gather_late(window.optimizer)

    def backward_again(self, name: str, loss: Tensor) -> None:
        """Run the backward pass of a loss that was computed anew; its gradients take the place of the former ones."""
        gradients = self.gradients
        with self._set_aside(name):
            (loss if gradients is None else gradients.weigh(loss)).backward()
        if gradients is not None:
            gradients.gather(self._open[name].optimizer)

    def drop(self, names: Iterable[str]) -> None:
        """End the windows of some optimizers."""
        for name in names:
            self.close(name)

    def drop_all(self, when: str | None = None) -> None:
        """End all windows, and warn of gradients that no step has used; without ``when``, they are not lost."""
        names = list(self._open)
        for name in names:
            self.close(name)
        self.ended = True
        if names and when is not None:
            warnings.warn(
                f"{when} within a window, so the gradients gathered for {' and '.join(map(repr, names))} are dropped "
                "(to continue in the same window, hold a run open: `with tm.run():`)",
                stacklevel=users_level(),
            )

    def state_dict(self, names_of_parameters: Callable[[], Mapping[int, str]]) -> dict[str, Any]:
        """Return the gradients of the open windows."""
        names = names_of_parameters() if self._open else {}
        open_now = {name: window.state_dict(self.gradients, names) for name, window in self._open.items()}
        return {"ended": self.ended, "open": open_now}

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        optimizers: Mapping[str, Optimizer],
        names_of_parameters: Callable[[], Mapping[int, str]],
    ) -> None:
        """Open the windows that were open when ``state_dict`` was called."""
        for name in list(self._open):
            self.close(name)
        self.ended, names = state["ended"], names_of_parameters() if state["open"] else {}
        # In the saved order, which is that of all processes: each of their messages is of one window. The order of a
        # set differs from process to process.
        for name in [name for name in state["open"] if name in optimizers]:
            window = self._open[name] = Window(optimizers[name])
            window.load_state_dict(state["open"][name], names)

    def _set_aside(self, name: str) -> AbstractContextManager[None]:
        """Set the gradients of all other open windows aside, for a ``with`` block."""
        own = {id(parameter) for parameter in parameters_in(self._open[name].optimizer)}
        others: list[Tensor] = []
        for other, window in self._open.items():
            if other != name:
                parameters = list(parameters_in(window.optimizer))
                if not own.isdisjoint(map(id, parameters)):
                    raise _shared_parameters_error(name, other)
                others += parameters
        return preserve_gradients(others)


def warn_without_gradients(optimizer: Optimizer, name: str) -> None:
    """Warn of a step that changes nothing, since the loss does not depend on the optimizer's parameters."""
    if all(parameter.grad is None for group in optimizer.param_groups for parameter in group["params"]):
        what = f"no parameter of optimizer {name!r} has a gradient, so its step changes nothing"
        warnings.warn(f"{what} (is the loss computed with its parameters?)", stacklevel=users_level())


def updated_twice_error(name: str) -> StageError:
    """Return the error for a further update of an optimizer, in a batch of a window of several."""
    what = f"optimizer {name!r} is updated twice in one batch, but its gradients are gathered over several"
    cure = "leave out Accumulate, or call self.backward(...) for each loss and self.step() once"
    return StageError(what, name=name, cure=cure)


def _shared_parameters_error(name: str, other: str) -> StageError:
    return StageError(
        f"optimizers {name!r} and {other!r} share parameters, and both gather gradients, which would mix",
        name=name,
        cure="end the window of one before the backward of the other (update), or give each parameters of its own",
    )


def free_gradients(optimizer: Optimizer) -> None:
    """Free the gradients of an optimizer, as ``zero_grad`` does; a ``zero_grad`` of the optimizer's own is called."""
    # The loop below stands for Optimizer.zero_grad, which takes 6 us more in each step to mark itself for the profiler.
    if getattr(optimizer.zero_grad, "__func__", None) is not Optimizer.zero_grad:
        optimizer.zero_grad(set_to_none=True)
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


@contextmanager
def preserve_gradients(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Set all gradients aside for a ``with`` block, and put the same tensors back."""
    # By reference: a copy of the gradients would take as much memory as the model.
    kept = [(parameter, parameter.grad) for parameter in parameters]
    for parameter, _ in kept:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


@lru_cache(maxsize=64)  # as each step asks; by class and bounded, as the cache keeps what it is asked for alive
def requires_closure(step: Callable[..., Any]) -> bool:
    """Return whether the method ``step`` of a class of optimizers requires a closure, as ``LBFGS.step`` does."""
    closure = signature(step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def require_no_closure(optimizer: Optimizer, name: str, asked_by: str) -> None:
    """Refuse an optimizer with a closure, at the request of an extension that works on gradients before the step.

    Raises:
        InputError: the optimizer requires a closure.
    """
    if requires_closure(type(optimizer).step):
        kind = type(optimizer).__name__
        raise InputError(
            f"{asked_by} works on gradients before a step, but optimizer {name!r} ({kind}) computes more of them in it",
            name="optimizer",
            asked_by=asked_by,
            cure=f"leave {asked_by} out, or take an optimizer without a closure, such as AdamW",
        )


def once_known(loss: Any, again: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return a closure whose first call returns the loss whose gradients are there; later calls compute it anew."""
    known = [loss]  # a list, so that the first call takes the loss out, and lets its graph go

    def closure() -> Tensor:
        return known.pop() if known else again()

    return closure
