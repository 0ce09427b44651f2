"""Runs of a model on the examples of a batch, each of which starts from the same state."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import PackedSequence, unpack_sequence
from torch.overrides import TorchFunctionMode

from train_manager.checks.batch_leaves import Path, leaves_of, put_together
from train_manager.checks.contents import Contents
from train_manager.checks.leak_batch import ExampleBatch, Values
from train_manager.data.random_state import random_state, set_random_state

PLACES: Final = 4096
"""Elements from which the usual size of all is estimated."""

SHARE_OF_DIGITS: Final = 2 / 3
"""The share of the digits of a number that must be equal; the others may differ by rounding."""

CallModel = Callable[[nn.Module, Any], Any]

Outputs = Mapping[Path, Tensor]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def differ(new: Tensor, base: Tensor, tolerance: float, size: float | None = None) -> Tensor:
    """Return for each element whether it differs by more than rounding.

    >>> differ(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.1, 3.0]), 1e-5)
    tensor([False,  True, False])

    Args:
        new: a tensor.
        base: another tensor of the same shape.
        tolerance: the relative difference that rounding may make.
        size: the size of the numbers whose sums these are; None for the usual size of these numbers.
    """
    if new.is_complex():
        return differ(torch.view_as_real(new), torch.view_as_real(base), tolerance, size).any(-1)
    if not new.is_floating_point():
        return new != base
    # The usual size is added: a number near zero may be the difference of large ones, and has their rounding.
    sizes = torch.maximum(new.abs(), base.abs()) + (usual_size(base) if size is None else size)
    is_far = (new - base).abs() > tolerance * sizes
    is_finite = new.isfinite() & base.isfinite()
    # nan equals nan, and an infinity equals one of its sign: a mask of -inf is not a difference.
    return torch.where(is_finite, is_far, ~((new == base) | (new.isnan() & base.isnan())))


def usual_size(tensor: Tensor) -> float:
    """Return the median size of the elements that are not zero; one huge element, as in a mask, does not change it."""
    flat = tensor.detach().flatten()
    some = flat[:: max(1, flat.numel() // PLACES)].abs().float()
    some = some[some.isfinite() & (some > 0)]
    return float(some.median()) if some.numel() else 0.0


def tolerance_of(*dtypes: torch.dtype) -> float:
    """Return the relative difference that rounding may make in a computation in these dtypes."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    eps = max((torch.finfo(dtype).eps for dtype in floats), default=torch.finfo(torch.float32).eps)
    return float(eps**SHARE_OF_DIGITS)


def digest(rows: Tensor, places: int) -> Tensor:
    """Return a few numbers of each row, and their scaled sum; digests of two rows add up as the rows do.

    >>> digest(torch.ones(1, 4), 2)
    tensor([[1., 1., 2.]])
    """
    rows = (torch.view_as_real(rows) if rows.is_complex() else rows).detach().unsqueeze(-1).flatten(1)
    count = rows.shape[1]
    at = torch.linspace(0, count - 1, min(count, places)).long().to(rows.device)
    wide = torch.promote_types(rows.dtype, torch.float32)
    # Divided by the root of the count, the sum of random numbers is as large as one of them.
    sums = rows.sum(1, keepdim=True, dtype=wide) / max(count, 1) ** 0.5
    return torch.cat([rows[:, at].to(wide), sums], 1).cpu()


# ---- modules that mix the examples on purpose ------------------------------------------------------------------------


def norms_over_the_batch(model: nn.Module) -> dict[str, nn.Module]:
    """Return the norms that use the batch's own statistics in train mode, by name.

    >>> list(norms_over_the_batch(nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2).eval(), nn.LayerNorm(2))))
    ['0']
    """
    return {name: one for name, one in model.named_modules() if isinstance(one, _BatchNorm) and one.training}


@final
class AllowedModules:
    """Holds the outputs of allowed modules: a row with the inputs of the first run gets the output of the first run.

    In the backward pass such a row passes its gradient to its own inputs alone, summed up where the shapes differ.

    Args:
        modules: the modules that may mix examples.
    """

    def __init__(self, modules: Collection[nn.Module]) -> None:
        self._modules = list(dict.fromkeys(modules))
        self._first: dict[tuple[int, int], list[Tensor]] = {}  # the inputs and outputs of each call in the first run

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the modules for a run."""
        # A module may be called several times in a run, so each call is held apart.
        counts: Counter[int] = Counter()

        def hold(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            counts[id(module)] += 1
            return self._held((id(module), counts[id(module)]), (args, kwargs), output)

        handles = [module.register_forward_hook(hold, with_kwargs=True) for module in self._modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _held(self, call: tuple[int, int], given: Any, output: Any) -> Any:
        inputs, outputs = list(outputs_of(given).values()), outputs_of((output,))
        tensors = [*inputs, *outputs.values()]
        first = self._first.setdefault(call, [one.detach().clone() for one in tensors])
        if [one.shape for one in first] != [one.shape for one in tensors]:
            return output  # a batch of another size, from the search for the axes of the examples
        pairs = list(zip(inputs, first, strict=False))
        befores = zip(outputs.items(), first[len(inputs) :], strict=True)
        return put_together((output,), {path: _row_by_row(one, before, pairs) for (path, one), before in befores})[0]


def _row_by_row(output: Tensor, before: Tensor, inputs: list[tuple[Tensor, Tensor]]) -> Tensor:
    pairs = [(one, other) for one, other in inputs if one.shape[:1] == output.shape[:1]]
    # Without rows of examples, or with outputs of integers, the output is held as a whole or not at all.
    if not output.dim() or not pairs or not output.is_floating_point():
        return before if all(torch.equal(*pair) for pair in inputs) else output
    changed = torch.stack([_any_of_rows(differ(one.detach(), other, tolerance_of(one.dtype))) for one, other in pairs])
    values = torch.where(_as_rows(changed.any(0), output), output.detach(), before)
    # The values have no graph. The sum adds zeros that carry the gradients of each row.
    return values + sum(_way_back(one, output) for one, _ in pairs if one.requires_grad)


def _any_of_rows(differs: Tensor) -> Tensor:
    return differs.unsqueeze(-1).flatten(1).any(1)


def _as_rows(of_rows: Tensor, output: Tensor) -> Tensor:
    return of_rows.view([-1] + [1] * (output.dim() - 1))


def _way_back(given: Tensor, output: Tensor) -> Tensor:
    """Return zeros that pass gradients back from each row of an output to the same row of an input."""
    rows = given.to(output.dtype)
    if given.shape != output.shape:
        rows = _as_rows(rows.unsqueeze(-1).flatten(1).sum(1), output).expand_as(output)
    return rows - rows.detach()


# ---- runs ------------------------------------------------------------------------------------------------------------


def outputs_of(value: Any) -> dict[Path, Tensor]:
    """Return the tensors in the outputs of a model; a packed sequence gives one tensor for each example."""
    found: dict[Path, Tensor] = {}
    for path, leaf in leaves_of(value):
        if isinstance(leaf, PackedSequence):
            found |= {(*path, number): entry for number, entry in enumerate(unpack_sequence(leaf))}
        elif isinstance(leaf, Tensor):
            found[path] = leaf.to_dense() if leaf.layout != torch.strided else leaf
    return found


class ModelRun(NamedTuple):
    """The result of a run."""

    outputs: Outputs  # the tensors that the model has returned
    roots: dict[Path, Tensor]  # the float tensors among its inputs, at which gradients can be asked for
    drawn: bytes  # the random states at the end
    dtypes: set[torch.dtype]  # of all results of the computation

    def is_finite(self) -> bool:
        """Return whether no output is nan."""
        return not any(bool(output.isnan().any()) for output in self.outputs.values() if output.is_floating_point())

    def without_graph(self) -> ModelRun:
        """Return the run with copies of its outputs, so that the memory of its graph is free."""
        return self._replace(outputs={path: one.detach().clone() for path, one in self.outputs.items()}, roots={})


@final
class DropoutOff(TorchFunctionMode):
    """A ``with`` block without dropout that notes the dtypes of all results, which show an autocast inside of a model.

    >>> with DropoutOff() as seen:
    ...     torch.nn.functional.dropout(torch.ones(2, dtype=torch.bfloat16))
    tensor([1., 1.], dtype=torch.bfloat16)
    >>> torch.bfloat16 in seen.dtypes
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        if "dropout" in name or "attention" in name:
            kwargs |= {key: off for key, off in (("training", False), ("dropout_p", 0.0)) if key in kwargs}
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self.dtypes.add(result.dtype)
        return result


@final
class Runner:
    """Runs a model on other examples of a batch, each time from the same state.

    Norms use their running statistics, because those of a batch mix its examples. Dropout is off, because its numbers
    for an example depend on the number of examples before it.

    Args:
        model: the model.
        call: calls the model with a batch.
        batch: the batch.
        allow: the modules that may mix the examples.

    Attributes:
        undrawn: the random states before each run, as in ``ModelRun.drawn``.
    """

    def __init__(self, model: nn.Module, call: CallModel, batch: ExampleBatch, allow: Sequence[nn.Module] = ()) -> None:
        self.model, self.batch, self._call = model, batch, call
        # A scripted module has its parameters in no attribute, where ``Contents`` would find them.
        self._before = Contents([model, *model.modules(), *model.parameters(), *model.buffers()])
        self._random = random_state()
        self.undrawn = _as_bytes(self._random)
        norms = norms_over_the_batch(model).values()
        self._with_statistics = [norm for norm in norms if getattr(norm, "running_mean", None) is not None]
        # Norms without running statistics must use those of the batch, so they are held like allowed modules.
        self._allowed = AllowedModules([*allow, *(norm for norm in norms if norm not in self._with_statistics)])
        self._recurrent = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]
        self._takes_gradients = True

    def put_back(self) -> None:
        """Put back the state that the runs have changed."""
        self._before.put_back()
        set_random_state(self._random)

    def base(self, recording: AbstractContextManager[Any] | None = None) -> ModelRun:
        """Run the unchanged batch; without gradients at its inputs if the model refuses such inputs."""
        try:
            return self.run(self.batch.values, recording)
        except RuntimeError:  # such as a model that calls numpy() on its inputs
            if not self._takes_gradients:
                raise
            self._takes_gradients = False
            return self.run(self.batch.values, recording)

    def run(self, values: Values, recording: AbstractContextManager[Any] | None = None) -> ModelRun:
        """Run the batch with other values.

        Args:
            values: the values of all leaves.
            recording: a ``with`` block around the call.
        """
        leaves = (leaf for path, value in values.items() for leaf in leaves_of(value, path))
        tensors = {at: one.detach() for at, one in leaves if isinstance(one, Tensor)}
        roots = {at: one.detach().requires_grad_() for at, one in tensors.items() if self._has_gradient(one)}
        copies = {at: roots.get(at, one).clone() for at, one in tensors.items()}  # the model may write into them
        given = {path: put_together(value, copies, path) for path, value in values.items()}
        self._begin()
        quiet = warnings.catch_warnings(action="ignore")  # such as those of item() on inputs with gradients
        with quiet, torch.enable_grad(), DropoutOff() as seen, self._allowed.held(), recording or nullcontext():
            outputs = outputs_of(self._call(self.model, self.batch.with_values(given)))
        return ModelRun(outputs, roots, _as_bytes(random_state()), seen.dtypes)

    def _has_gradient(self, tensor: Tensor) -> bool:
        return self._takes_gradients and (tensor.is_floating_point() or tensor.is_complex())

    def _begin(self) -> None:
        self.put_back()
        for norm in self._with_statistics:
            norm.training = False  # the next put_back() restores it
        for layer in self._recurrent:
            vars(layer)["dropout"] = 0.0  # the dropout between its layers is inside a function of cuDNN or ATen


def plain(model: nn.Module) -> nn.Module:
    """Return the model inside a compiled or distributed one, whose modules have the names that the user knows."""
    inner = getattr(model, "_orig_mod", None) or (model.module if isinstance(model, DistributedDataParallel) else None)
    return plain(inner) if isinstance(inner, nn.Module) else model


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled modules without their compiled code."""
    # Compiled code calls no hooks, and each batch size would be compiled. Nothing can be compiled if torch._dynamo was
    # not imported, which takes seconds.
    if "torch._dynamo" in sys.modules:
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield


def _as_bytes(state: dict[str, Any]) -> bytes:
    """Return random states as bytes, which can be compared."""
    numbers, (_, others, place, *_) = state["python"][1], state["numpy"]
    tensors = [one.numpy().tobytes() for one in (state["torch"], *state["cuda"])]
    return b"".join([numbers.tobytes(), others.tobytes(), str(place).encode(), *tensors])
