"""The calls right inside of a module in one run, with what went in and came out."""

from __future__ import annotations

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
"""A call: a module's name, and which of its calls it is."""

Spot = tuple[Key, str, Path]
"""A tensor of a call: whether it went "in" or came "out", and where in the arguments, or in the output, it is."""

Marks = list[Tensor]
"""For each axis of a tensor, which of its indexes have something in them that is looked for."""


@final
class RecordedCalls:
    """The calls of a module, and of those that it calls itself.

    Args:
        inside: the module; also the outermost calls are recorded.
        base: the calls of a run to compare with.

    Attributes:
        modules: the module of each call, in the order in which they began.
        completed: the calls in the order in which they ended.
        tensors: those that went into each call and came out of it.
        seen: their values at that time, or where they are not as in the run to compare with; the same of inputs that a
            call has written into, as of what came out.
    """

    def __init__(self, inside: nn.Module, base: RecordedCalls | None = None) -> None:
        self.modules: dict[Key, nn.Module] = {}
        self.completed: list[Key] = []
        self.tensors: dict[Spot, Tensor] = {}
        self.seen: dict[Spot, Any] = {}
        self._inside, self._base = inside, base
        self._open: list[tuple[nn.Module, Key]] = []
        self._counts: Counter[str] = Counter()
        self._versions: dict[Spot, int] = {}
        self._copies: dict[tuple[Any, ...], Tensor] = {}

    def begin(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Note a call, and return its arguments as parts of the graph that no other call has."""
        self._counts[name] += 1
        key = name, self._counts[name]
        is_inside = module is self._inside or not self._open or self._open[-1][0] is self._inside
        self._open.append((module, key))
        if not is_inside:
            return args, kwargs
        self.modules[key] = module
        passed: dict[int, Tensor] = {}
        given = tuple(_passed_on(one, passed) for one in args), {at: _passed_on(kwargs[at], passed) for at in kwargs}
        self._note(key, "in", given)
        return given

    def end(self, module: nn.Module, output: Any) -> None:
        """Note what a call has returned."""
        while self._open[-1][0] is not module:
            self._open.pop()  # it ended with an error that the model has caught
        _, key = self._open.pop()
        if key not in self.modules:
            return
        self.completed.append(key)
        given = [(spot, one) for spot, one in self.tensors.items() if spot[0] == key]
        for (_, _, path), tensor in given:
            if _version(tensor) != self._versions[key, "in", path]:
                self._look((key, "out", ("written", *path)), tensor)
        self._note(key, "out", output)

    def _note(self, key: Key, part: str, value: Any) -> None:
        for path, tensor in outputs_of(value).items():
            # One inside of ``vmap`` lives no longer than it.
            if not tensor.is_nested and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                spot = key, part, path
                self.tensors[spot], self._versions[spot] = tensor, _version(tensor)
                self._look(spot, tensor)

    def _look(self, spot: Spot, tensor: Tensor) -> None:
        """Keep a copy, one of what one call returns and the next one is given; or compare with one."""
        if self._base is None:
            memory = tensor.data_ptr(), _version(tensor), tensor.shape, tensor.stride()
            if memory not in self._copies:
                self._copies[memory] = tensor.detach().clone()
            self.seen[spot] = self._copies[memory]
        elif spot in self._base.seen and self._base.seen[spot].shape == tensor.shape:
            # A leak may be small before the output: in 16 bits any bit counts.
            tolerance = 0.0 if tensor.dtype in (torch.bfloat16, torch.float16) else tolerance_of(tensor.dtype)
            self.seen[spot] = marks_of(differ(tensor.detach(), self._base.seen[spot], tolerance))

    @contextmanager
    def recording(self, model: nn.Module) -> Iterator[None]:
        """Record calls in a ``with`` block."""
        handles = []
        for name, module in model.named_modules():
            if takes_hooks(module):
                # Before hooks of the model itself, whose work is the module's.
                before = module.register_forward_pre_hook(partial(self.begin, name), prepend=True, with_kwargs=True)
                after = module.register_forward_hook(lambda module, _, output: self.end(module, output))
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


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _passed_on(value: Any, passed: dict[int, Tensor]) -> Any:
    """Return an alias of a tensor; the same one for the same tensor, since modules ask whether two are one."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or not value.requires_grad or value.is_nested:
        return value
    if id(value) not in passed:
        passed[id(value)] = value.view_as(value)
    return passed[id(value)]
