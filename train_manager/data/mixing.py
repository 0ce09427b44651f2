"""Examples mixed with one another, for extensions that train on mixtures: what is drawn, and what is made of it.

The draws come from a random state of their own, so that the mixing changes nothing else that is random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.validation import require_count, require_number


def draw_share(alpha: float, source: random.Random) -> float:
    """The share of an example in its mixture: Beta(alpha, alpha), near 0 or 1 for a small alpha, near 1/2 for a large.

    >>> round(draw_share(0.2, random.Random(3)), 3)
    0.099
    """
    return source.betavariate(alpha, alpha)


def draw_box(height: int, width: int, share: float, source: random.Random) -> tuple[int, int, int, int]:
    """A box that covers ``1 - share`` of an image, with its centre anywhere, so that borders may cut it.

    >>> draw_box(8, 8, 0.75, random.Random(0))
    (4, 8, 4, 8)

    Returns:
        top, bottom, left and right: the rows from ``top`` up to ``bottom``, the columns from ``left`` up to ``right``.
    """
    half_height = int(height * math.sqrt(1 - share)) // 2
    half_width = int(width * math.sqrt(1 - share)) // 2
    y, x = source.randrange(height), source.randrange(width)
    return max(y - half_height, 0), min(y + half_height, height), max(x - half_width, 0), min(x + half_width, width)


def blend(values: Tensor, others: Tensor, share: float) -> Tensor:
    """``share`` of the one and the rest of the other.

    >>> blend(torch.tensor([4.]), torch.tensor([8.]), 0.75)
    tensor([5.])
    """
    return share * values + (1 - share) * others


def soft_targets(targets: Tensor, num_classes: int | None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Targets that can be blended: class numbers as probabilities, floating point numbers as they are.

    >>> soft_targets(torch.tensor([1, 0]), 2)
    tensor([[0., 1.],
            [1., 0.]])

    Raises:
        InputError: there are class numbers, and nobody has said how many classes there are.
    """
    if targets.is_floating_point():
        return targets
    if num_classes is None:
        raise InputError(
            f"targets are {targets.dtype}, class numbers, which cannot be mixed as they are",
            name="num_classes",
            cure="say how many classes there are: num_classes=10",
        )
    shape = (len(targets), num_classes, *targets.shape[1:])  # classes where `F.cross_entropy` wants them
    rows = torch.zeros(shape, dtype=dtype, device=targets.device)
    return rows.scatter_(1, targets.long().unsqueeze(1), 1.0)  # `one_hot` reads the largest number on the host


def mixable(inputs: Any, targets: Any, min_dim: int) -> None:
    """Refuse a batch that cannot be mixed.

    Raises:
        InputError: its inputs or targets are no tensors, or the inputs are whole numbers or have too few dimensions.
    """
    for name, value in (("inputs", inputs), ("targets", targets)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} are a {type(value).__name__}, and only tensors can be mixed", name=name)
    if not inputs.is_floating_point():
        raise InputError(
            f"inputs are {inputs.dtype}, and only floating point numbers can be mixed",
            name="inputs",
            cure="convert the images: images / 255",
        )
    if inputs.dim() < min_dim:
        raise InputError(
            f"inputs have the shape {tuple(inputs.shape)}, and a box is cut out of images: (batch, ..., height, width)",
            name="inputs",
        )


@final
class Draws:
    """What is drawn for a batch: whether it is mixed, with what share, and who with whom.

    >>> draws = Draws(alpha=1.0, probability=1.0, seed=0)
    >>> state = draws.state_dict()
    >>> first = draws.share()
    >>> draws.load_state_dict(state)
    >>> draws.share() == first
    True

    Args:
        alpha: of the Beta distribution that the share is drawn from.
        probability: how likely a batch is mixed.
        seed: of the random state.

    Raises:
        InputError: one of them is of no use.
    """

    def __init__(self, alpha: float, probability: float, seed: int) -> None:
        self.alpha = require_number(alpha, "alpha", above=0)
        self.probability = require_number(probability, "probability", at_least=0, at_most=1)
        self.source = random.Random(require_count(seed, "seed"))
        self._permutations = torch.Generator()

    def is_due(self) -> bool:
        """Whether the next batch is mixed."""
        return self.source.random() < self.probability

    def share(self) -> float:
        """How much of each example stays in its mixture."""
        return draw_share(self.alpha, self.source)

    def partners(self, size: int, device: torch.device) -> Tensor:
        """For each of ``size`` examples the index of the one that it is mixed with."""
        self._permutations.manual_seed(self.source.getrandbits(62))
        return torch.randperm(size, generator=self._permutations).to(device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        """The random state, as plain lists and numbers."""
        version, numbers, following = self.source.getstate()
        return {"version": version, "numbers": list(numbers), "following": following}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw on from what ``state_dict`` gave."""
        self.source.setstate((state["version"], tuple(state["numbers"]), state["following"]))


class MixesExamples(Extension):
    """What ``Mixup`` and ``CutMix`` have in common: their arguments, and a random state that is theirs and survives.

    Args:
        alpha: the shares are drawn from Beta(alpha, alpha).
        num_classes: how many classes there are; None where targets are no class numbers.
        probability: how likely a batch is mixed at all.
        seed: of the random state.
    """

    def __init__(self, alpha: float, num_classes: int | None, probability: float, seed: int) -> None:
        self.num_classes = None if num_classes is None else require_count(num_classes, "num_classes", at_least=2)
        self.draws = Draws(alpha, probability, seed)

    def state_dict(self) -> dict[str, Any]:
        """The random state."""
        return {**super().state_dict(), **self.draws.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Draw on from what ``state_dict`` gave."""
        super().load_state_dict(state)
        self.draws.load_state_dict(state)
