"""The calls right inside of a module in one run, with what went in and came out."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.differences import differ, tolerance_of
from train_manager.diagnosis.output_places import outputs_of

Key = tuple[str, int]
"""A module's name, and which of its calls it is."""

Marks = list[Tensor]
"""For each axis of a tensor, which of its indexes have something in them that is looked for."""


@final
@dataclass
class Call:
    """One call of a module.

    Attributes:
        key: which call.
        module: the module.
        arguments: for each tensor that it was given, the argument that it is of.
        inputs: the tensors that it was given, as parts of the graph outside of it.
        outputs: the same of what it has returned.
        seen_in: the values of the inputs as it was called; in a run that is compared, where they are not as in the base
            run, and None where that is not known.
        seen_out: the same of what it has returned, and of inputs that it has written into.
    """

    key: Key
    module: nn.Module
    arguments: list[Any]
    inputs: list[Tensor]
    seen_in: list[Any]
    versions: list[int]
    outputs: list[Tensor] = field(default_factory=list)
    seen_out: list[Any] = field(default_factory=list)


@final
class RecordedCalls:
    """The calls of a module, and of those that it calls itself.

    Args:
        inside: the module; also the outermost calls are recorded.
        base: the calls of the run to compare with; None keeps the values themselves.

    Attributes:
        started: in the order in which they began.
        completed: in the order in which they ended.
    """

    def __init__(self, inside: nn.Module, base: RecordedCalls | None = None) -> None:
        self.started: list[Call] = []
        self.completed: list[Call] = []
        self._inside, self._base = inside, None if base is None else base.by_key()
        self._open: list[tuple[nn.Module, Call | None]] = []
        self._counts: Counter[str] = Counter()
        self._values: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def by_key(self) -> dict[Key, Call]:
        """Return the calls that ended, by which they are."""
        return {call.key: call for call in self.completed}

    def forget(self) -> None:
        """Let go of the graph."""
        for call in self.started:
            call.inputs, call.outputs = [], []

    def begin(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Note a call, and return its arguments: other parts of the graph, with which hooks inside have to do."""
        self._counts[name] += 1
        if module is not self._inside and self._open and self._open[-1][0] is not self._inside:
            self._open.append((module, None))
            return args, kwargs
        given = {path: one for path, one in outputs_of((args, kwargs)).items() if _is_plain(one)}
        call = Call((name, self._counts[name]), module, [path[:2] for path in given], list(given.values()), [], [])
        call.seen_in = self._seen(call.inputs, call.key, "seen_in")
        call.versions = list(map(_version, call.inputs))
        self.started.append(call)
        self._open.append((module, call))
        passed: dict[int, Tensor] = {}
        named = {key: _passed_on(one, passed) for key, one in kwargs.items()}
        return tuple(_passed_on(one, passed) for one in args), named

    def end(self, module: nn.Module, output: Any) -> Any:
        """Note what a call has returned, and return it as another part of the graph."""
        while self._open[-1][0] is not module:
            self._open.pop()  # it ended with an error that the model has caught
        _, call = self._open.pop()
        if call is None:
            return output
        passed: dict[int, Tensor] = {}
        is_tuple = type(output) is tuple
        output = tuple(_passed_on(one, passed) for one in output) if is_tuple else _passed_on(output, passed)
        written = [one for one, version in zip(call.inputs, call.versions, strict=True) if _version(one) != version]
        call.outputs = [one for one in outputs_of(output).values() if _is_plain(one)]
        call.seen_out = self._seen([*call.outputs, *written], call.key, "seen_out")
        self.completed.append(call)
        return output

    def _seen(self, tensors: list[Tensor], key: Key, part: str) -> list[Any]:
        if self._base is None:
            return list(map(self._value, tensors))
        base = getattr(self._base.get(key), part, [])
        if len(base) != len(tensors):
            return [None] * len(tensors)
        return [_changed(one.detach(), other) for one, other in zip(tensors, base, strict=True)]

    def _value(self, tensor: Tensor) -> Tensor:
        """Return a copy; what one call returns and the next one is given has one."""
        known = self._values.get(id(tensor))
        if known is None or known[0]() is not tensor or known[1] != _version(tensor):
            known = self._values[id(tensor)] = weakref.ref(tensor), _version(tensor), tensor.detach().clone()
        return known[2]

    @contextmanager
    def recording(self, model: nn.Module) -> Iterator[None]:
        """Record calls in a ``with`` block."""
        handles = []
        for name, module in model.named_modules():
            if takes_hooks(module):
                before = module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: self.begin(name, module, args, kwargs),
                    prepend=True,  # before hooks of the model itself, whose work is the module's
                    with_kwargs=True,
                )
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


def _changed(new: Tensor, base: Tensor) -> Marks | None:
    """Return where a tensor has changed; in 16 bits by any bit, since a leak may be small before the output."""
    if new.shape != base.shape:
        return None
    is_short = new.dtype in (torch.bfloat16, torch.float16)
    return marks_of(differ(new, base, 0.0 if is_short else tolerance_of(new.dtype)))


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor can be kept: one inside of ``vmap`` lives no longer than it."""
    return not tensor.is_nested and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _passed_on(value: Any, passed: dict[int, Tensor]) -> Any:
    """Return an alias of a tensor; the same one for the same tensor, since modules ask whether two are one."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or not _is_plain(value):
        return value
    if value.requires_grad and id(value) not in passed:
        passed[id(value)] = value.view_as(value)
    return passed.get(id(value), value)
