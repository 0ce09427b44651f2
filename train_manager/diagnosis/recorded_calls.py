"""The calls of a module's children in one run, with their inputs and outputs."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.differences import differ, tolerance_of
from train_manager.diagnosis.output_places import outputs_of

Key = tuple[str, int]
"""A call: the name of a module, and the number of the call among the calls of this module."""

Spot = tuple[Key, str, Path]
"""A tensor of a call: the call, "in" for an argument or "out" for an output, and the path to the tensor."""

Marks = list[Tensor]
"""For each axis of a tensor, whether there is a marked element at each of its indexes."""


@final
class RecordedCalls:
    """The calls of a module, and the calls that it makes itself.

    Args:
        inside: the module; modules that are called from outside of the model count as called by it.
        base: the calls of a run to compare with.
        has_graph: whether the tensors are kept, and with them the graph.
    """

    def __init__(self, inside: nn.Module, base: RecordedCalls | None = None, *, has_graph: bool = False) -> None:
        self.modules: dict[Key, nn.Module] = {}  # the module of each call, in the order in which the calls began
        self.completed: list[Key] = []  # the calls in the order in which they ended
        self.tensors: dict[Spot, Tensor] = {}  # inputs and outputs, with their graph; only with has_graph
        # Copies of inputs and outputs; with a run to compare with, the marks of the places where they differ from it.
        self.seen: dict[Spot, Any] = {}
        self._inside, self._base, self._has_graph = inside, base, has_graph
        # The calls that have begun and not ended, from the outermost to the innermost.
        self._open: list[tuple[nn.Module, Key]] = []
        self._counts: Counter[str] = Counter()  # calls by the names of modules
        # By the id of a tensor: the tensor, its version at the copy, and the copy.
        self._copies: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def begin(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Note a call, and return aliases of its arguments, which no other call shares."""
        self._counts[name] += 1
        key = name, self._counts[name]
        is_inside = module is self._inside or self._open[-1][0] is self._inside
        self._open.append((module, key))
        if not is_inside:
            return args, kwargs
        self.modules[key] = module
        # An alias has a gradient of its own: that of a tensor given to two calls would be the sum of both.
        passed: dict[int, Tensor] = {}
        given = tuple(_passed_on(one, passed) for one in args), {at: _passed_on(kwargs[at], passed) for at in kwargs}
        for path, tensor in _tensors_in((args, kwargs)).items():
            self._note((key, "in", path), tensor, passed.get(id(tensor), tensor))
        return given

    def end(self, module: nn.Module, _: Any, output: Any) -> None:
        """Note the outputs of a call."""
        while self._open[-1][0] is not module:
            self._open.pop()  # this call ended with an error, which the model has caught
        _, key = self._open.pop()
        if key not in self.modules:
            return
        self.completed.append(key)
        for path, tensor in _tensors_in(output).items():
            self._note((key, "out", path), tensor, tensor)

    def _note(self, spot: Spot, tensor: Tensor, in_graph: Tensor) -> None:
        if self._has_graph:
            self.tensors[spot] = in_graph
        elif self._base is None:
            self.seen[spot] = self._copy(tensor)
        base = None if self._base is None else self._base.seen.get(spot)
        if base is not None and base.shape == tensor.shape:
            # A leak may be small before it reaches the output: in 16 bits a tolerance would hide it.
            tolerance = 0.0 if tensor.dtype in (torch.bfloat16, torch.float16) else tolerance_of(tensor.dtype)
            self.seen[spot] = marks_of(differ(tensor.detach(), base, tolerance))

    def _copy(self, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor; the output of one call that is the input of the next is copied once."""
        version = 0 if tensor.is_inference() else tensor._version
        known = self._copies.get(id(tensor))
        # A new tensor may have the id of a freed one, and an in-place operation raises the version.
        if known is None or known[0]() is not tensor or known[1] != version:
            known = self._copies[id(tensor)] = weakref.ref(tensor), version, tensor.detach().clone()
        return known[2]

    def forget(self) -> None:
        """Free the tensors, their copies and marks."""
        for held in (self.tensors, self.seen, self._copies):
            held.clear()

    @contextmanager
    def recording(self, model: nn.Module) -> Iterator[None]:
        """Record calls in a ``with`` block."""
        self._open.append((model, ("", 0)))
        handles = []
        for name, module in model.named_modules():
            if takes_hooks(module):
                # prepend: the hooks of the user run after this one, so their work counts as the module's.
                before = module.register_forward_pre_hook(partial(self.begin, name), prepend=True, with_kwargs=True)
                after = module.register_forward_hook(self.end)
                handles += [before, after]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def takes_hooks(module: nn.Module) -> bool:
    """Return whether hooks can be registered on a module; torch refuses it for scripted ones."""
    return not isinstance(module, torch.jit.ScriptModule)


def marks_of(chosen: Tensor) -> Marks:
    """Return along each axis which indexes have a chosen element.

    >>> marks_of(torch.tensor([[True, True], [False, False]]))
    [tensor([ True, False]), tensor([True, True])]
    """
    chosen = chosen.reshape(*(chosen.shape or (1,)), 1)
    return [chosen.movedim(axis, 0).flatten(1).any(1) for axis in range(chosen.dim() - 1)]


def _tensors_in(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in a value, without tensors of ``vmap``, which cannot be used after it."""
    is_of_vmap = torch._C._functorch.is_functorch_wrapped_tensor
    return {path: one for path, one in outputs_of(value).items() if not one.is_nested and not is_of_vmap(one)}


def _passed_on(value: Any, passed: dict[int, Tensor]) -> Any:
    """Return an alias of a tensor with gradients; any other value as it is."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or not value.requires_grad or value.is_nested:
        return value
    # One alias per tensor: attention asks whether query and key are the same object.
    if id(value) not in passed:
        passed[id(value)] = value.view_as(value)
    return passed[id(value)]
