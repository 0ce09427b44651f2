"""The source of nan and infinities: the batch of a run is repeated, and each call of a module in it is checked.

``train_batch`` runs from the same random state, without hooks, and nothing is updated. The source is the first call of
a module that makes nan or infinities of finite inputs: the innermost one, in the order in which calls end. In the
backward pass it is the first node of the graph. This happens once, at the end of a run, so a check may wait for the
device.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from train_manager.checks.batch_leaves import leaves_of, name_of
from train_manager.checks.leak_module import takes_hooks
from train_manager.data.random_state import preserve_random_state, random_state, set_random_state
from train_manager.loop.probe import beside_the_batch, calling_the_model_itself
from train_manager.loop.step import Backward
from train_manager.model.buffers import preserve_buffers
from train_manager.model.modules import plain_name
from train_manager.telling.showing import short
from train_manager.telling.source_locations import display_path

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

ANEW: Final = ("prediction", "loss", "train_batch", "loss_forward", "train_loss_forward", "model_forward")
"""The fixtures and methods of a batch that are made anew when it is repeated."""

CURES: Final = {
    "log": "give it numbers above 0: x.clamp_min(1e-6).log()",
    "div": "keep what it divides by away from 0: x / (y + 1e-6)",
    "exp": "subtract the largest number before it, or use logsumexp",
    "sqrt": "its gradient at 0 is infinite: (x + 1e-6).sqrt()",
    "norm": "its gradient at 0 is not a number: add a small number to what it is of",
    "pow": "keep what it is of away from 0",
}
"""The cures by a substring of the name of a node."""

HUGE: Final = 1e15  # above it float32 is soon infinite
GROWN: Final = "its inputs or weights are above 1e15: try a smaller learning rate, or ClipGradients"

LOOK: Final = "look at its logarithms, roots, powers and divisions; float16 ends at 65,504: take torch.bfloat16"

HOOK: Final = "look at what register_hook() was given"

INSIDE: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
"""The prefixes of paths that are not the user's: of torch, of this library, and of generated code."""


class Why(NamedTuple):
    """Why a number is not finite, where it was made, and the cure."""

    what: str
    where: str
    cure: str


# ---- numbers ---------------------------------------------------------------------------------------------------------


def floats_in(value: Any) -> dict[str, Tensor]:
    """Return the tensors of floating point numbers in a value, by their dotted paths."""
    found = {name_of(path): leaf.detach() for path, leaf in leaves_of(value) if isinstance(leaf, Tensor)}
    floats = {name: leaf for name, leaf in found.items() if leaf.is_floating_point() or leaf.is_complex()}
    return {name: leaf.to_dense() if leaf.is_sparse else leaf for name, leaf in floats.items()}


def is_broken(value: Any, *, may_hide: bool = False) -> bool:
    """Return whether a tensor in a value has a nan or an infinity; with ``may_hide``, -inf is a mask and allowed.

    >>> is_broken([torch.tensor(-torch.inf)]), is_broken([torch.tensor(-torch.inf)], may_hide=True)
    (True, False)
    """
    tensors = floats_in(value).values()
    return any(bool((~one.isfinite() & ~(may_hide & (one == -math.inf))).any()) for one in tensors)


def how_broken(value: Any) -> str:
    """Return how many numbers of a value are nan or infinite, as ``of 16 numbers 3 are nan, 1 is infinite``.

    >>> how_broken(torch.tensor([torch.nan, torch.inf, 1.0]))
    'of 3 numbers 1 is nan, 1 is infinite'
    """
    numbers = torch.cat([one.reshape(-1).cpu() for one in floats_in(value).values()])
    counts = {"nan": int(numbers.isnan().sum()), "infinite": int(numbers.isinf().sum())}
    texts = [f"{count:,} {'is' if count == 1 else 'are'} {kind}" for kind, count in counts.items() if count]
    return f"of {len(numbers):,} {'number' if len(numbers) == 1 else 'numbers'} {', '.join(texts)}"


def modules_of(train_manager: TrainManager) -> dict[str, nn.Module]:
    """Return the model and the loss, if they are modules, by their names in messages."""
    parts = {"": train_manager.model, "loss": train_manager.loss}
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}


def broken_weights(modules: Mapping[str, nn.Module]) -> list[str]:
    """Return the names of parameters with a nan or an infinity, and of buffers with a nan: some hold -inf as a mask."""
    found: list[str] = []
    for prefix, module in modules.items():
        found += [name for name, one in module.named_parameters(prefix) if is_broken(one)]
        found += [name for name, one in module.named_buffers(prefix) if is_broken(one, may_hide=True)]
    return found


def _broken_data(fixtures: Mapping[str, Any]) -> Why | None:
    data = floats_in({name: fixtures[name] for name in ("inputs", "targets") if name in fixtures})
    for name, tensor in data.items():
        if is_broken(tensor):
            rows = (~tensor.isfinite()).reshape(len(tensor) if tensor.dim() else 1, -1).any(1)
            examples = short(rows.nonzero().flatten().tolist())
            what = f"the data were not finite: {how_broken(tensor)}, in the examples {examples} of {name}"
            return Why(what, name, "leave these examples out, or put a number in the place of what is missing")
    return None


# ---- the calls of modules --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Call:
    """The call of a module."""

    module: str  # its name and class
    is_clean: bool  # whether its arguments are finite
    known: int  # the number of places that were known as the call began
    begin: int  # the number of the next node of the graph as the call began
    end: float = math.inf  # the number of the next node as the call ended


class Calls:
    """The calls of modules in one forward pass."""

    def __init__(self) -> None:
        # Where finite numbers became nan or infinite, in the order in which the calls ended.
        self.places: list[Why] = []
        self._made: list[_Call] = []  # all calls, in the order in which they began
        self._open: list[_Call] = []  # the calls that have not ended, from the outermost to the innermost

    def begin(self, label: str, _: nn.Module, args: Any, kwargs: Any) -> None:
        # A mask or a bias may have -inf on purpose.
        is_clean = not is_broken(args) and not any(
            is_broken(given, may_hide="mask" in name or "bias" in name) for name, given in kwargs.items()
        )
        call = _Call(label, is_clean, len(self.places), _next_number())
        self._made.append(call)
        self._open.append(call)

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        call = self._open.pop()
        call.end = _next_number()
        if not is_broken(output):
            # The output is finite, so the infinities inside this call, such as -inf in a mask, do no harm.
            del self.places[call.known :]
        # An inner call that is the source is known already: the outer one only passes its nan on.
        elif call.is_clean and len(self.places) == call.known:
            is_huge = any(bool((one.abs() > HUGE).any()) for one in floats_in((args, [*module.parameters()])).values())
            self.places.append(_made_by(call.module, output, call.module, GROWN if is_huge else LOOK))

    def module_of(self, node: Any) -> str:
        """Return the innermost module whose call has made a node of the graph; empty if none has."""
        # torch numbers the nodes in the order in which they are made.
        number = node._sequence_nr()
        return next((call.module for call in reversed(self._made) if call.begin <= number < call.end), "")


def _next_number() -> int:
    return torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]


def _made_by(maker: str, made: Any, where: str, cure: str) -> Why:
    return Why(f"{maker} made it of finite numbers: {how_broken(made)}", where, cure)


@contextmanager
def watched(modules: Mapping[str, nn.Module]) -> Iterator[Calls]:
    """Give the calls of modules and their submodules that are made in a ``with`` block."""
    calls, known = Calls(), set[nn.Module]()
    with ExitStack() as hooks:
        for prefix, outer in modules.items():
            for name, module in outer.named_modules(known, prefix):
                plain = plain_name(name)
                label = f"module {plain!r}" if plain else "the model itself"
                begin = partial(calls.begin, f"{label} ({type(module).__name__})")
                if takes_hooks(module):
                    hooks.callback(module.register_forward_pre_hook(begin, with_kwargs=True).remove)
                    hooks.callback(module.register_forward_hook(calls.end).remove)
        yield calls


# ---- backward --------------------------------------------------------------------------------------------------------


def backward_places(loss: Tensor, calls: Calls) -> list[Why]:
    """Run a backward pass, and return the nodes that made broken gradients of finite ones, in their order.

    Args:
        loss: its graph was made while ``torch.autograd.set_detect_anomaly(True)`` was on, which keeps the line of each
            node.
        calls: the calls of modules in which the graph was made.
    """
    found: list[Why] = []

    def look(node: Any, given_back: Any, given: Any) -> None:
        # The first broken gradient is an input of this node, so no node has made it.
        by_hook = is_broken(given) and not found
        if not by_hook and (is_broken(given) or not is_broken(given_back)):
            return
        name, module = node.name().rpartition("::")[2], calls.module_of(node)
        # Anomaly detection keeps the stack in which a node was made; the last line of the user is the innermost.
        lines = re.findall(r'File "(.+)", line (\d+)', "".join(node.metadata.get("traceback_", ())))
        outside = [f"{display_path(path)}:{line}" for path, line in lines if not path.startswith(INSIDE)]
        where = ", ".join(text for text in (module, *outside[-1:]) if text)
        maker = f"{name} in {module}" if module else f"{name} outside of the modules"
        cure = next((cure for part, cure in CURES.items() if part in name.lower()), LOOK)
        if by_hook:
            maker, cure = f"a hook of a tensor, or a sum of gradients, at {maker}", HOOK
        found.append(_made_by(maker, given if by_hook else given_back, where, cure))

    with ExitStack() as hooks:
        for node in _nodes(loss):
            hooks.callback(node.register_hook(partial(look, node)).remove)
        loss.backward(retain_graph=True)
    return found


def _nodes(loss: Tensor) -> list[Any]:
    """Return the nodes of the graph of a loss, without the leaves, which only add up gradients of parameters."""
    known: dict[Any, None] = {}
    ahead = [loss.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in known:
            known[node] = None
            ahead += [inner for inner, _ in node.next_functions]
    return [node for node in known if not hasattr(node, "variable")]


# ---- the batch -------------------------------------------------------------------------------------------------------


def why_broken(
    train_manager: TrainManager, random: Mapping[str, Any], optimizer_name: str, *, backward: bool
) -> Why | None:
    """Run the batch again, and return why its loss or its gradients are not finite; None if they are.

    Args:
        train_manager: the manager that trains on the batch.
        random: the random states before the batch.
        optimizer_name: the name of the optimizer whose loss or gradients were not finite.
        backward: whether the loss was finite, and the gradients were not.
    """
    modules, fixtures = modules_of(train_manager), train_manager.fixtures
    called = [part for part in (*modules.values(), train_manager.called_model) if isinstance(part, nn.Module)]
    found: list[Why] = []

    def look(given: Backward, name: str, *_: Any) -> None:
        assert given.loss is not None, "it was given"
        if is_broken(given.loss):
            # The first module counts; if all calls were clean, the data or code between the modules are the source.
            why = calls.places[0] if calls.places else _broken_data(fixtures)
            found.append(why or _made_by("code outside of the modules", given.loss, "", LOOK))
        elif backward and name == optimizer_name:
            found.extend(backward_places(given.loss, calls))

    with (
        preserve_random_state(),
        preserve_buffers(*called),
        calling_the_model_itself(train_manager),
        beside_the_batch(train_manager._store, "train_step_batch", {}, ANEW),
        # Compiled modules call no hooks. Without an import of torch._dynamo, which takes seconds, nothing is compiled.
        torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext(),
        # check_nan would raise at the first nan, before the hooks have seen it.
        torch.autograd.set_detect_anomaly(True, check_nan=False),
        torch.enable_grad(),
        fixtures.get("autocast", nullcontext)(),
        watched(modules) as calls,
        _replaced(train_manager, _train_backward=look, _step_if_window_ends=lambda name: None),
    ):
        set_random_state({**random_state(), **random})
        try:
            train_manager._chosen.train_batch()
        except Exception:  # an error after the source was found, such as of code that expects a finite loss
            if not found:
                raise
    return found[0] if found else None


@contextmanager
def _replaced(holder: object, **methods: Any) -> Iterator[None]:
    """Replace methods of an object for a ``with`` block."""
    # Attributes of the object hide the methods of its class.
    vars(holder).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(holder)[name]
