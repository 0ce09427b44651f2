"""The calls of a model's modules in one run, with what went in and came out."""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.diagnosis.batch_leaves import Path
from train_manager.diagnosis.differences import differ, tolerance_of
from train_manager.diagnosis.output_places import outputs_of

Key = tuple[str, int]
"""A module's name, and which of its calls it is."""

ROOM: Final = 2**30
"""So many bytes of values of all calls are recorded; beyond them, one level of the tree after the other."""


class TooMuchRecordedError(Exception):
    """The values of all calls take too much room."""


@final
@dataclass
class Call:
    """One call of a module.

    Attributes:
        key: which call.
        module: the module.
        inputs: the tensors that it was given, as parts of the graph outside of it.
        outputs: the same of what it has returned.
        arguments: for each of the inputs, the argument that it is of.
        seen_in: their values as it was called; in a run that is compared, where they are not as in the base run, and
            None where that is not known.
        seen_out: the same of what it has returned, and of inputs that it has written into.
    """

    key: Key
    module: nn.Module
    inputs: list[Tensor]
    arguments: list[Any]
    seen_in: list[Tensor | None]
    versions: list[int]
    outputs: list[Tensor] = field(default_factory=list)
    seen_out: list[Tensor | None] = field(default_factory=list)


@final
class RecordedCalls:
    """The calls of one run.

    Attributes:
        started: in the order in which they began.
        completed: in the order in which they ended.

    Args:
        room: so many bytes of values may be recorded.
        base: the calls of the run to compare with; None keeps the values themselves.
        has_graph: whether the tensors are kept, and with them the graph.
    """

    def __init__(self, room: float = ROOM, base: RecordedCalls | None = None, *, has_graph: bool = False) -> None:
        self.started: list[Call] = []
        self.completed: list[Call] = []
        self._open: list[Call] = []
        self._counts: Counter[str] = Counter()
        self._room = room
        self._base = None if base is None else base.by_key()
        self._has_graph = has_graph
        self._values: dict[int, tuple[weakref.ref[Tensor], int, Tensor]] = {}

    def by_key(self) -> dict[Key, Call]:
        """Return the calls that ended, by which they are."""
        return {call.key: call for call in self.completed}

    def begin(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Note a call, and return its arguments: other parts of the graph, with which hooks inside have to do."""
        key = name, self._counts[name]
        self._counts[name] += 1
        given = _tensors_in((args, kwargs))
        inputs, arguments = list(given.values()), [path[:2] for path in given]
        base = None if self._base is None or key not in self._base else self._base[key].seen_in
        call = Call(key, module, inputs, arguments, self._seen(inputs, base), list(map(_version, inputs)))
        self.started.append(call)
        self._open.append(call)
        passed: dict[int, Tensor] = {}
        named = {key: _passed_on(one, passed) for key, one in kwargs.items()}
        return tuple(_passed_on(one, passed) for one in args), named

    def end(self, module: nn.Module, output: Any) -> Any:
        """Note what a call has returned, and return it as another part of the graph."""
        while self._open[-1].module is not module:
            self._open.pop()  # it ended with an error that the model has caught
        call = self._open.pop()
        passed: dict[int, Tensor] = {}
        is_tuple = type(output) is tuple
        output = tuple(_passed_on(one, passed) for one in output) if is_tuple else _passed_on(output, passed)
        written = [one for one, version in zip(call.inputs, call.versions, strict=True) if _version(one) != version]
        call.outputs = list(_tensors_in(output).values())
        base = None if self._base is None or call.key not in self._base else self._base[call.key].seen_out
        call.seen_out = self._seen([*call.outputs, *written], base)
        if not self._has_graph:
            call.inputs, call.outputs = [], []
        self.completed.append(call)
        return output

    def _seen(self, tensors: list[Tensor], base: Sequence[Tensor | None] | None) -> list[Tensor | None]:
        if self._base is None:
            return [self._value(one) for one in tensors]
        if base is None or len(base) != len(tensors):
            return [None] * len(tensors)
        return [_changed(one.detach(), other) for one, other in zip(tensors, base, strict=True)]

    def _value(self, tensor: Tensor) -> Tensor:
        """Return a copy; what one call returns and the next one is given has one."""
        known = self._values.get(id(tensor))
        if known is not None and known[0]() is tensor and known[1] == _version(tensor):
            return known[2]
        self._room -= tensor.numel() * tensor.element_size()
        if self._room < 0:
            raise TooMuchRecordedError
        value = tensor.detach().clone()
        self._values[id(tensor)] = weakref.ref(tensor), _version(tensor), value
        return value


@contextmanager
def recorded_calls(
    model: nn.Module,
    names: Collection[str] | None = None,
    *,
    base: RecordedCalls | None = None,
    has_graph: bool = False,
) -> Iterator[RecordedCalls]:
    """Record the calls of the modules of these names, or of all.

    Raises:
        TooMuchRecordedError: those of all take too much room.
    """
    calls = RecordedCalls(ROOM if names is None else math.inf, base, has_graph=has_graph)
    handles = []
    for name, module in model.named_modules():
        if (names is None or name in names) and takes_hooks(module):
            before = module.register_forward_pre_hook(
                lambda module, args, kwargs, name=name: calls.begin(name, module, args, kwargs),
                prepend=True,  # before hooks of the model itself, whose work is the module's
                with_kwargs=True,
            )
            after = module.register_forward_hook(lambda module, _, output: calls.end(module, output))
            handles += [before, after]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def takes_hooks(module: nn.Module) -> bool:
    """Return whether hooks can be registered on a module; torch refuses it for scripted ones."""
    return not isinstance(module, torch.jit.ScriptModule)


def _tensors_in(value: Any) -> dict[Path, Tensor]:
    return {path: one for path, one in outputs_of(value).items() if _is_plain(one)}


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor can be kept: one inside of ``vmap`` lives no longer than it."""
    return not tensor.is_nested and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _changed(new: Tensor, base: Tensor | None) -> Tensor | None:
    """Return which elements have changed; in 16 bits by any bit, since a leak may be small before the output."""
    if base is None or new.shape != base.shape:
        return None
    is_short = new.dtype in (torch.bfloat16, torch.float16)
    return differ(new, base, 0.0 if is_short else tolerance_of(new.dtype))


def _passed_on(value: Any, passed: dict[int, Tensor]) -> Any:
    """Return an alias of a tensor; the same one for the same tensor, since modules ask whether two are one."""
    if not isinstance(value, Tensor) or isinstance(value, nn.Parameter) or not _is_plain(value):
        return value
    if not value.requires_grad:
        return value
    if id(value) not in passed:
        passed[id(value)] = value.view_as(value)
    return passed[id(value)]
