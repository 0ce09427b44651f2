"""A run of a model on a batch that starts from the same state each time."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train_manager.data.random_state import random_state, seed_all
from train_manager.diagnosis.allowed_modules import AllowedModules, norms_over_the_batch
from train_manager.diagnosis.batch_leaves import Path, leaves_of, put_together
from train_manager.diagnosis.differences import Watched
from train_manager.diagnosis.examples import Examples, Values
from train_manager.diagnosis.kept_state import KeptState
from train_manager.diagnosis.output_places import Outputs, outputs_of

CallModel = Callable[[nn.Module, Any], Any]


class Run(NamedTuple):
    """The result of a run."""

    outputs: Outputs  # the tensors that the model has returned
    roots: dict[Path, Tensor]  # the float tensors among its inputs, at which gradients can be asked for
    drawn: tuple[Any, ...]  # the shapes of all random numbers, and the random states at the end
    dtypes: set[torch.dtype]  # of all results of the computation

    def is_finite(self) -> bool:
        """Return whether no output is nan."""
        return not any(bool(output.isnan().any()) for output in self.outputs.values() if output.is_floating_point())


@final
class Runner:
    """Runs a model on other examples of a batch, each time from the same state.

    Norms use their running statistics, because those of a batch mix its examples. Dropout is off, because its numbers
    for an example depend on the number of examples before it.

    Args:
        model: the model.
        call: calls the model with a batch.
        examples: the batch.
        allow: the modules that may mix the examples.
    """

    def __init__(self, model: nn.Module, call: CallModel, examples: Examples, allow: list[nn.Module]) -> None:
        self.model, self.examples, self._call = model, examples, call
        self._kept = KeptState(model)
        norms = norms_over_the_batch(model).values()
        self._with_statistics = [norm for norm in norms if getattr(norm, "running_mean", None) is not None]
        # Norms without running statistics must use those of the batch, so they are held like allowed modules.
        self._allowed = AllowedModules([*allow, *(norm for norm in norms if norm not in self._with_statistics)])
        self._recurrent = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]
        self._takes_gradients = True

    def put_back(self) -> None:
        """Put back the state that the runs have changed."""
        self._kept.put_back()

    def base(self, recording: AbstractContextManager[Any] | None = None) -> Run:
        """Run the unchanged batch; without gradients at its inputs if the model refuses such inputs."""
        try:
            return self.run(self.examples.values, recording)
        except RuntimeError:  # such as a model that calls numpy() on its inputs
            self._takes_gradients = False
            return self.run(self.examples.values, recording)

    def run(self, values: Values, recording: AbstractContextManager[Any] | None = None, seed: int | None = None) -> Run:
        """Run the batch with other values.

        Args:
            values: the values of all leaves.
            recording: a ``with`` block around the call.
            seed: a seed in place of the kept random states.
        """
        leaves = (leaf for path, value in values.items() for leaf in leaves_of(value, path))
        tensors = {at: one.detach() for at, one in leaves if isinstance(one, Tensor)}
        roots = {at: one.clone().requires_grad_() for at, one in tensors.items() if self._has_gradient(one)}
        copies = {at: roots.get(at, one).clone() for at, one in tensors.items()}  # the model may write into them
        given = {path: put_together(value, copies, path) for path, value in values.items()}
        self._begin(seed)
        quiet = warnings.catch_warnings(action="ignore")  # such as those of item() on inputs with gradients
        with quiet, torch.enable_grad(), Watched() as seen, self._allowed.held(), recording or nullcontext():
            outputs = outputs_of(self._call(self.model, self.examples.batch_of(given)))
        return Run(outputs, roots, (seen.drawn, _as_bytes(random_state())), seen.dtypes)

    def _has_gradient(self, tensor: Tensor) -> bool:
        return self._takes_gradients and (tensor.is_floating_point() or tensor.is_complex())

    def _begin(self, seed: int | None) -> None:
        self._kept.put_back()
        if seed is not None:
            seed_all(seed)
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
