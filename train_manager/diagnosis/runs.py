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

from train_manager.data.randomness import random_state, seed_all
from train_manager.diagnosis.allowed_modules import AllowedModules, norms_over_the_batch
from train_manager.diagnosis.batch_leaves import Path, leaves_of, put_together
from train_manager.diagnosis.differences import Watched
from train_manager.diagnosis.examples import Examples, Values
from train_manager.diagnosis.kept_state import KeptState
from train_manager.diagnosis.output_places import Outputs, outputs_of

CallModel = Callable[[nn.Module, Any], Any]


class Run(NamedTuple):
    """What a run has given.

    Attributes:
        outputs: the tensors that the model has returned.
        roots: the float tensors that it was given.
        drawn: the shapes of what was drawn at random, and the random states at the end.
        dtypes: the types of number in which it has computed.
    """

    outputs: Outputs
    roots: dict[Path, Tensor]
    drawn: tuple[Any, ...]
    dtypes: set[torch.dtype]

    def is_finite(self) -> bool:
        """Return whether no output is nan."""
        return not any(bool(output.isnan().any()) for output in self.outputs.values() if output.is_floating_point())


@final
class Runner:
    """Runs a model on other examples of a batch; dropout lets all through, norms use running statistics.

    Args:
        model: the model.
        call: how it is called.
        examples: the batch.
        allow: the modules that may mix the examples.
    """

    def __init__(self, model: nn.Module, call: CallModel, examples: Examples, allow: list[nn.Module]) -> None:
        self.model, self.examples, self._call = model, examples, call
        self._kept = KeptState(model)
        norms = norms_over_the_batch(model).values()
        self._with_statistics = [norm for norm in norms if getattr(norm, "running_mean", None) is not None]
        self._allowed = AllowedModules([*allow, *(norm for norm in norms if norm not in self._with_statistics)])
        self._recurrent = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]
        self._takes_gradients = True

    def put_back(self) -> None:
        """Put back what the runs have changed."""
        self._kept.put_back()

    def base(self, recording: AbstractContextManager[Any] | None = None) -> Run:
        """Run the batch as it is; without gradients at its inputs if the model refuses those."""
        try:
            return self.run(self.examples.values, recording)
        except RuntimeError:  # as of a model that reads them by numpy
            self._takes_gradients = False
            return self.run(self.examples.values, recording)

    def run(self, values: Values, recording: AbstractContextManager[Any] | None = None, seed: int | None = None) -> Run:
        """Run the batch with other values.

        Args:
            values: of all leaves.
            recording: is entered around the call.
            seed: another one than the random states before.
        """
        leaves = (leaf for path, value in values.items() for leaf in leaves_of(value, path))
        tensors = {at: one.detach() for at, one in leaves if isinstance(one, Tensor)}
        roots = {at: one.clone().requires_grad_() for at, one in tensors.items() if self._has_gradient(one)}
        copies = {at: roots.get(at, one).clone() for at, one in tensors.items()}  # the model may write into them
        given = {path: put_together(value, copies, path) for path, value in values.items()}
        self._begin(seed)
        quiet = warnings.catch_warnings(action="ignore")  # of numbers read from inputs with gradients
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
            norm.training = False  # until the state is put back
        for layer in self._recurrent:
            vars(layer)["dropout"] = 0.0  # between its layers, in a function of its own


def plain(model: nn.Module) -> nn.Module:
    """Return the model inside of its compiled or distributed form, whose modules have the names that are known."""
    inner = getattr(model, "_orig_mod", None) or (model.module if isinstance(model, DistributedDataParallel) else None)
    return plain(inner) if isinstance(inner, nn.Module) else model


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled modules as they were written: no hook fires in them, and each size would be compiled."""
    if "torch._dynamo" in sys.modules:  # which takes seconds to import
        with torch.compiler.set_stance("force_eager"):
            yield
    else:
        yield


def _as_bytes(state: dict[str, Any]) -> bytes:
    """Return random states in a form in which they can be compared."""
    numbers, (_, others, place, *_) = state["python"][1], state["numpy"]
    tensors = [one.numpy().tobytes() for one in (state["torch"], *state["cuda"])]
    return b"".join([numbers.tobytes(), others.tobytes(), str(place).encode(), *tensors])
