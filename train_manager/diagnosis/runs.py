"""A run of a model on a batch that starts from the same state each time."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel

from train_manager.data.randomness import random_state, seed_all
from train_manager.diagnosis.allowed_modules import AllowedModules
from train_manager.diagnosis.batch_leaves import Path, copied
from train_manager.diagnosis.draws import Draws
from train_manager.diagnosis.examples import Examples
from train_manager.diagnosis.kept_state import KeptState, own_hooks
from train_manager.diagnosis.output_places import outputs_of

Call = Callable[[nn.Module, Any], Any]


class Run(NamedTuple):
    """What a run has given.

    Attributes:
        outputs: the tensors that the model has returned.
        roots: the float tensors that it was given, each with the leaf it is of, and its place in a list.
        drawn: the random states at the end.
    """

    outputs: dict[Path, Tensor]
    roots: dict[tuple[Path, int], Tensor]
    drawn: dict[str, Any]

    def is_finite(self) -> bool:
        """Return whether no output is nan."""
        return not any(bool(output.isnan().any()) for output in self.outputs.values() if output.is_floating_point())


@final
class Runner:
    """Runs a model on other examples of a batch.

    Args:
        model: the model.
        call: how it is called.
        examples: the batch.
        kept: what is put back before each run.
        allowed: the modules that are held in each run.
    """

    def __init__(
        self, model: nn.Module, call: Call, examples: Examples, kept: KeptState, allowed: AllowedModules
    ) -> None:
        self.model, self.examples = model, examples
        self._allowed = allowed
        self._call, self._kept = call, kept
        self._dropouts = [layer for layer in model.modules() if isinstance(layer, _DropoutNd)]
        self._droppers = [layer for layer in model.modules() if isinstance(layer, nn.RNNBase | nn.MultiheadAttention)]
        self._takes_gradients = True

    def base(self) -> Run:
        """Run the batch as it is; without gradients at its inputs if the model refuses those."""
        values = self.examples.own_values()
        try:
            return self.changed(values)
        except RuntimeError:
            if not self._takes_gradients:
                raise
            self._takes_gradients = False
            return self.changed(values)

    def draws(self, drawn: Mapping[str, Any]) -> bool:
        """Return whether a run that ended with these random states has drawn numbers."""
        return not are_as_drawn(drawn, self._kept.random)

    def seeded(self, values: Mapping[Path, Any], seed: int | None) -> tuple[Run, Draws]:
        """Run the batch with other values and without gradients, from another seed; return also what it has drawn.

        Without a seed the random states are as they were, and layers of dropout let all through.
        """
        with torch.no_grad(), Draws() as draws:
            batch = self.examples.with_values({path: copied(value) for path, value in values.items()})
            return self._run(batch, {}, seed, drops=seed is not None), draws

    def changed(self, values: Mapping[Path, Any]) -> Run:
        """Run the batch with other values, and with gradients."""
        roots = _roots_of(values) if self._takes_gradients else {}
        passed = {path: _with_roots(path, value, roots) for path, value in values.items()}
        with torch.enable_grad():
            return self._run(self.examples.with_values(passed), roots)

    def fewer(self, count: int) -> dict[Path, Tensor]:
        """Return the outputs for the first examples only."""
        with torch.no_grad():
            return self._run(self.examples.first(count), {}).outputs

    def _run(
        self, batch: Any, roots: dict[tuple[Path, int], Tensor], seed: int | None = None, *, drops: bool = True
    ) -> Run:
        self._kept.put_back()
        if seed is not None:
            seed_all(seed)
        for layer in () if drops else self._dropouts:
            layer.training = False  # until the state is put back
        for dropper in () if drops else self._droppers:
            dropper.__dict__["dropout"] = 0.0  # between its layers, or of its weights
        self._allowed.begin_run()
        with warnings.catch_warnings(), own_hooks(self.model):
            warnings.simplefilter("ignore")  # of what is not so in training, as numbers read from inputs with gradients
            outputs = outputs_of(self._call(self.model, batch))
        return Run(outputs, roots, random_state())


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


def are_as_drawn(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two runs have ended with the same random states."""
    if not torch.equal(one["torch"], other["torch"]) or not all(map(torch.equal, one["cuda"], other["cuda"])):
        return False
    is_python = bool((one["python"][1] == other["python"][1]).all())
    return is_python and bool((one["numpy"][1] == other["numpy"][1]).all()) and one["numpy"][2] == other["numpy"][2]


def _roots_of(values: Mapping[Path, Any]) -> dict[tuple[Path, int], Tensor]:
    listed = {path: value if isinstance(value, list) else [value] for path, value in values.items()}
    return {
        (path, place): one.detach().clone().requires_grad_()
        for path, entries in listed.items()
        for place, one in enumerate(entries)
        if isinstance(one, Tensor) and (one.is_floating_point() or one.is_complex())
    }


def _with_roots(path: Path, value: Any, roots: Mapping[tuple[Path, int], Tensor]) -> Any:
    """Return copies of the roots, since a model may write into what it is given, but into no leaf of a graph."""
    if isinstance(value, list):
        found = [roots.get((path, place), one) for place, one in enumerate(value)]
        return [copied(one) for one in found]
    root = roots.get((path, 0))
    return value.clone() if root is None else root.clone()
