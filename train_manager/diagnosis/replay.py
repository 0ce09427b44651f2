"""Where nan and infinities come from: a forward or backward pass is run again, and each step of it is looked at.

The first call of a module that made them of finite inputs and finite weights is the place: the innermost one, in the
order in which calls end. A pass is run again only after something was found, so each look may wait for the device.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from train_manager.diagnosis.recorded_calls import takes_hooks
from train_manager.model.layers import OWN_OF_PYTORCH
from train_manager.telling.source_locations import shown_path

PLACES_NUMBERS: Final = {"masked_fill", "masked_fill_", "full", "full_like", "new_full", "fill_", "where", "tensor"}
"""Functions that put given numbers where they belong, such as -inf where a mask hides a score."""

TAKES_HIDDEN: Final = {"softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention"}
"""Functions that make finite numbers of scores of which some are -inf."""

DEEPEST: Final = 6  # levels of containers in which tensors are looked for
INSIDE: Final = tuple(os.path.join(path, "") for path in (os.path.dirname(torch.__file__), Path(__file__).parents[1]))
"""The folders of torch and of this library."""


# ---- numbers ---------------------------------------------------------------------------------------------------------


def tensors_in(value: Any, name: str = "", deep: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in a value, also in dicts, lists, dataclasses and objects, with where they are in it.

    >>> [name for name, _ in tensors_in({"x": torch.ones(1), "more": [torch.ones(1)]}, "inputs")]
    ["inputs['x']", "inputs['more'][0]"]
    """
    if isinstance(value, Tensor):
        yield name, value
    elif deep == DEEPEST or isinstance(value, str | bytes | nn.Module | type):
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from tensors_in(inner, f"{name}[{key!r}]", deep + 1)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from tensors_in(inner, f"{name}[{number}]", deep + 1)
    elif is_dataclass(value):
        for one in fields(value):
            yield from tensors_in(getattr(value, one.name, None), f"{name}.{one.name}", deep + 1)
    elif hasattr(value, "__dict__") and not callable(value):
        for key, inner in vars(value).items():
            yield from tensors_in(inner, f"{name}.{key}", deep + 1)


def is_broken(value: Any, *, may_hide: bool = False) -> bool:
    """Return whether a tensor in a value has a nan or an infinity; if ``may_hide``, -inf may stand for what is hidden.

    >>> is_broken([torch.tensor(-torch.inf)]), is_broken([torch.tensor(-torch.inf)], may_hide=True)
    (True, False)
    """
    return any(_is_broken(tensor, may_hide) for _, tensor in tensors_in(value))


def _is_broken(tensor: Tensor, may_hide: bool) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.is_meta:
        return False
    tensor = _dense(tensor.detach())
    broken = tensor.isnan() | tensor.isposinf() if may_hide and not tensor.is_complex() else ~tensor.isfinite()
    try:
        return bool(broken.any())
    except RuntimeError:  # inside of vmap no number can be read
        return False


def how_broken(value: Any) -> str:
    """Return how many numbers of a value are nan or infinite, as ``of 16 numbers 3 are nan, 1 is infinite``.

    >>> how_broken(torch.tensor([torch.nan, torch.inf, 1.0]))
    'of 3 numbers 1 is nan, 1 is infinite'
    """
    tensors = [_dense(tensor.detach()) for _, tensor in tensors_in(value) if tensor.is_floating_point()]
    total = sum(tensor.numel() for tensor in tensors)
    counts = {
        "nan": sum(int(tensor.isnan().sum()) for tensor in tensors),
        "infinite": sum(int(tensor.isinf().sum()) for tensor in tensors),
    }
    told = [f"{count:,} {'is' if count == 1 else 'are'} {kind}" for kind, count in counts.items() if count]
    return f"of {total:,} {'number' if total == 1 else 'numbers'} {', '.join(told) or 'all are finite'}"


def _dense(tensor: Tensor) -> Tensor:
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def broken_weights(modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the names of parameters with a nan or an infinity, and of buffers with a nan: some hold -inf as a mask."""
    found: dict[int, str] = {}
    for name, module in modules.items():
        for of, parameter in module.named_parameters(prefix=name):
            if is_broken(parameter):
                found.setdefault(id(parameter), of)
        for of, buffer in module.named_buffers(prefix=name):
            if is_broken(buffer, may_hide=True):
                found.setdefault(id(buffer), of)
    return list(found.values())


# ---- where they come from --------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Place:
    """The first place where finite numbers became nan or infinite.

    Attributes:
        module: the name and class of the module whose call it was; empty outside of modules.
        function: what was called there, as ``log`` or ``SqrtBackward0``; empty if that is not known.
        line: the line of the user's that called it, as ``file:line``; empty if that is not known.
        told: how many numbers are not finite.
        dtype: of these; None if there are several.
    """

    module: str
    function: str
    line: str
    told: str
    dtype: torch.dtype | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.module or self.function)

    def __str__(self) -> str:
        inside = f"in {self.module}" if self.module else "outside of the modules"
        return f"{self.function} {inside}" if self.function else inside.removeprefix("in ")


@dataclass(eq=False)
class _Call:
    """The call of a module.

    Attributes:
        module: its name and class.
        is_clean: what it was given and its weights are finite.
        first: how many places had been found as it began.
        begin: the number of the next node of the graph as it began, and as it ended.
        end: the same as it ended; None while it runs.
    """

    module: str
    is_clean: bool
    first: int
    begin: int
    end: int | None = None


@final
class Watched(TorchFunctionMode):
    """Looks at each call of modules and of torch's functions, while the ``with`` block is open.

    >>> class Log(nn.Module):
    ...     def forward(self, x):
    ...         return x.log()
    >>> with Watched({"": nn.Sequential(nn.Identity(), log := Log())}) as watched:
    ...     result = log(torch.zeros(2))
    >>> watched.place(result).module, watched.place(result).function
    ("module '1' (Log)", 'log')

    Args:
        modules: names, and the modules of which all inner ones are watched too.
    """

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._labels: dict[nn.Module, str] = {}
        for name, outer in modules.items():
            for of, module in outer.named_modules(prefix=name):
                self._labels.setdefault(module, _label(of, module))
        parameters = {id(one): one for outer in modules.values() for one in outer.parameters()}
        broken = {known for known, one in parameters.items() if is_broken(one)}
        self._unsound = {one for one in self._labels if not broken.isdisjoint(map(id, one.parameters()))}
        self._open: list[_Call] = []
        self._calls: list[_Call] = []
        self._places: list[tuple[_Call, Any]] = []
        self._functions: dict[_Call | None, tuple[str, str, Any]] = {}
        self._removes = ExitStack()

    def __enter__(self) -> Self:
        for module in filter(takes_hooks, self._labels):
            before = module.register_forward_pre_hook(self._begin, with_kwargs=True)
            after = module.register_forward_hook(self._end, with_kwargs=True)
            self._removes.callback(before.remove)
            self._removes.callback(after.remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._removes.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch, and note it if it is the first of its call to break finite numbers."""
        name, kwargs = getattr(func, "__name__", str(func)), kwargs or {}
        here = self._open[-1] if self._open else None
        is_known = here in self._functions or name in PLACES_NUMBERS or name.startswith("__get")
        was_clean = not is_known and not is_broken((args, kwargs), may_hide=name in TAKES_HIDDEN)
        result = func(*args, **kwargs)
        if was_clean and is_broken(result):
            self._functions[here] = name, line_outside(), result
        return result

    def place(self, result: Any) -> Place | None:
        """Return where the first numbers of a result came from that are not finite; None if all are, or it is unknown.

        Args:
            result: what came out of the pass.
        """
        if not is_broken(result):
            return None
        if self._places:
            call, output = self._places[0]
            function, line, _ = self._functions.get(call, ("", "", None))
            return Place(call.module, function, line, how_broken(output), _dtype(output))
        if None in self._functions:
            function, line, output = self._functions[None]
            return Place("", function, line, how_broken(output), _dtype(output))
        return None

    def module_of(self, node: Any) -> str:
        """Return the module whose call has made a node of the graph, by the numbers that nodes get; or nothing."""
        number = node._sequence_nr()
        around = [one for one in self._calls if one.begin <= number < (number + 1 if one.end is None else one.end)]
        return around[-1].module if around else ""  # the innermost, for it began last

    def _begin(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        given = _names(module, args, kwargs)
        is_clean = not any(is_broken(value, may_hide="mask" in name or "bias" in name) for name, value in given.items())
        number = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
        call = _Call(self._labels[module], is_clean and module not in self._unsound, len(self._places), number)
        self._open.append(call)
        self._calls.append(call)

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        call = self._open.pop()
        call.end = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
        if not is_broken(output):
            del self._places[call.first :]  # what they were for has no effect outside, such as -inf in a mask
        elif call.is_clean and len(self._places) == call.first:
            self._places.append((call, output))


def _label(name: str, module: nn.Module) -> str:
    kind, name = type(module).__name__, ".".join(part for part in name.split(".") if part != OWN_OF_PYTORCH)
    return f"module {name!r} ({kind})" if name else f"the model itself ({kind})"


def _names(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return what a module is called with by the names of its parameters, as far as these can be read."""
    try:
        return dict(inspect.signature(module.forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return {"args": args, "kwargs": kwargs}


def _dtype(value: Any) -> torch.dtype | None:
    found = {tensor.dtype for _, tensor in tensors_in(value) if is_broken(tensor)}
    return found.pop() if len(found) == 1 else None


def line_outside() -> str:
    """Return the innermost line of the stack that is neither torch's nor this library's; or nothing."""
    return _outside((frame.f_code.co_filename, number) for frame, number in traceback.walk_stack(None))


def _outside(lines: Any) -> str:
    for path, number in lines:
        if number and not path.startswith((*INSIDE, "<frozen")) and os.path.basename(path) != "contextlib.py":
            return f"{shown_path(path)}:{number}"
    return ""


# ---- backward --------------------------------------------------------------------------------------------------------


def backward_place(loss: Tensor, watched: Watched, backward: Callable[[], object]) -> Place | None:
    """Run a backward pass, and return the first node of the graph that made broken gradients of finite ones.

    Args:
        loss: its graph was made while ``torch.autograd.set_detect_anomaly(True, check_nan=False)`` was on, which keeps
            the line of each node.
        watched: the calls of modules in which the graph was made.
        backward: runs it.
    """
    found: list[Place] = []
    with ExitStack() as hooks:
        for node in _nodes(loss):
            hooks.callback(node.register_hook(partial(_look, node, watched, found)).remove)
        backward()
    return found[0] if found else None


def _look(node: Any, watched: Watched, found: list[Place], given_back: Any, given: Any) -> None:
    """Note a node that gives back broken gradients of finite ones, if it is the first."""
    if not found and is_broken(given_back) and not is_broken(given):
        line = _outside(_lines_in(node.metadata.get("traceback_", ())))
        name = node.name().rpartition("::")[2]
        found.append(Place(watched.module_of(node), name, line, how_broken(given_back), _dtype(given_back)))


def _lines_in(stack: Any) -> Iterator[tuple[str, int]]:
    """Yield path and number of the lines of a stack as torch keeps it, the innermost first."""
    for entry in reversed(stack):
        _, _, rest = entry.strip().partition('File "')
        path, _, rest = rest.partition('", line ')
        yield path, int(rest.partition(",")[0] or 0)


def _nodes(loss: Tensor) -> list[Any]:
    """Return the nodes of the graph of a loss, but for those that only add up gradients at parameters."""
    ahead, known = [loss.grad_fn], {}
    while ahead:
        node = ahead.pop()
        if node is not None and id(node) not in known:
            known[id(node)] = node
            ahead += [inner for inner, _ in node.next_functions]
    return [node for node in known.values() if not hasattr(node, "variable")]


# ---- the state of a pass ---------------------------------------------------------------------------------------------


@contextmanager
def with_lines(*modules: nn.Module) -> Iterator[None]:
    """Let torch keep the line that each node of a graph is made at, and run the code of compiled modules itself.

    A compiled module calls no hooks, and its nodes have no lines.
    """
    parts = [part for module in modules for part in module.modules()]
    is_compiled = any(hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) for one in parts)
    with ExitStack() as stack:
        stack.enter_context(torch.autograd.set_detect_anomaly(True, check_nan=False))
        if is_compiled:  # not always, for it imports the compiler
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
