"""The examples of an evaluation with the largest keys, which are found without a wait for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from train_manager.metrics.confusion import Classified, ClassReader
from train_manager.telling.errors import InputError


@final
class Largest:
    """The examples with the largest keys.

    >>> largest = Largest(2)
    >>> for keys in ([1., 3.], [2., 0.]):
    ...     largest.append(torch.tensor(keys), {"value": torch.tensor(keys) * 10})
    >>> largest.columns["value"]
    tensor([30., 20.])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.columns: dict[str, Tensor] = {}  # of the examples so far, at most `most`; "key" is one of them

    def append(self, keys: Tensor, columns: Mapping[str, Tensor]) -> None:
        """Add examples: a key and one value of each column for each of them."""
        given = {"key": keys, **columns}
        # The best so far compete with the new batch, so that at most `most` examples and one batch are in memory.
        whole = {name: torch.cat([self.columns.get(name, value[:0]), value]) for name, value in given.items()}
        best = whole["key"].topk(min(self._most, len(whole["key"]))).indices
        self.columns = {name: value[best] for name, value in whole.items()}


@final
class Gallery:
    """The surest mistakes of an evaluation, and then random examples, the same ones in each evaluation.

    Args:
        mistakes: how many mistakes at most.
        others: how many random examples.
    """

    def __init__(self, mistakes: int, others: int) -> None:
        self.reader = ClassReader("PredictionGallery")
        self._mistakes, self._others = Largest(mistakes), Largest(others)
        self._count = 0  # examples so far, for their places
        self._random: torch.Generator | None = None  # a generator apart, so that the training draws the same

    @torch.no_grad()
    def append(self, inputs: Tensor, found: Classified) -> None:
        """Look at a batch, without reading it on the host."""
        if self._random is None:
            self._random = torch.Generator(found.said.device).manual_seed(0)
        places = torch.arange(len(inputs), device=inputs.device) + self._count
        self._count += len(inputs)
        classes = {"said": found.said, "true": found.true, "sure": found.sure}
        columns = {"inputs": inputs.detach(), "place": places, **classes}
        is_mistake = (found.said != found.true) & (found.true >= 0)
        # The key -1 stands for an example that is not a mistake: leaving it out here would wait for the device.
        self._mistakes.append(torch.where(is_mistake, found.sure, -1.0), columns)
        # The largest of random keys are a random sample.
        keys = torch.rand(len(inputs), generator=self._random, device=found.said.device)
        self._others.append(keys, columns)

    def examples(self) -> dict[str, Tensor]:
        """Return the mistakes, then random examples, on the host: this waits for the device."""
        parts = [self._mistakes.columns, self._others.columns]
        if not parts[0]:
            return {}
        whole = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
        is_shown = whole.pop("key") >= 0  # below 0: among the mistakes, but right
        return {name: value[is_shown] for name, value in whole.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dict: an evaluation that ends early begins anew."""
        return {}

    def load_state_dict(self, state: Any) -> None:
        """Do nothing: there is no state."""


@final
class ExamplesByName(dict[str, dict[str, Tensor]]):
    """The examples of evaluation sets, which a checkpoint holds."""

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return all of them."""
        return {name: dict(examples) for name, examples in self.items()}

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self.update({name: dict(examples) for name, examples in state.items()})


def require_one_for_each(inputs: Any, predictions: int, asked_by: str) -> None:
    """Refuse inputs that are not a tensor with one for each prediction.

    Raises:
        InputError: inputs are not such a tensor.
    """
    if not isinstance(inputs, Tensor) or len(inputs) != predictions:
        kind = f"of shape {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else f"a {type(inputs).__name__}"
        what = f"{asked_by} needs one input for each of {predictions} predictions, but inputs is {kind}"
        raise InputError(what, name="inputs", asked_by=asked_by, cure=f"leave {asked_by} out")
