"""Blending examples with one another, for the extensions ``Mixup`` and ``CutMix``: the random draws and the tensors.

The draws have a random state of their own, so that mixing changes nothing else that is random in a training.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor

from train_manager.core.extension import Extension
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_number


def draw_share(alpha: float, source: random.Random) -> float:
    """Draw the share of an example in its mixture from Beta(alpha, alpha).

    A small alpha draws near 0 or 1, a large one near 1/2.

    >>> round(draw_share(0.2, random.Random(3)), 3)
    0.099
    """
    return source.betavariate(alpha, alpha)


def draw_box(height: int, width: int, share: float, source: random.Random) -> tuple[int, int, int, int]:
    """Draw a box that covers ``1 - share`` of an image. Its centre is anywhere, so that borders may cut it.

    >>> draw_box(8, 8, 0.75, random.Random(0))
    (4, 8, 4, 8)

    Returns:
        top, bottom, left and right: the rows from ``top`` up to ``bottom``, the columns from ``left`` up to ``right``.
    """
    # The sides shrink with the root of the area.
    half_height = int(height * math.sqrt(1 - share)) // 2
    half_width = int(width * math.sqrt(1 - share)) // 2
    y, x = source.randrange(height), source.randrange(width)
    return max(y - half_height, 0), min(y + half_height, height), max(x - half_width, 0), min(x + half_width, width)


def blend(values: Tensor, others: Tensor, share: float) -> Tensor:
    """Return ``share`` of the values plus the rest of the others.

    >>> blend(torch.tensor([4.]), torch.tensor([8.]), 0.75)
    tensor([5.])
    """
    return share * values + (1 - share) * others


def soft_targets(targets: Tensor, num_classes: int | None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return targets that can be blended: class numbers as probabilities, floating point targets as they are.

    >>> soft_targets(torch.tensor([1, 0]), 2)
    tensor([[0., 1.],
            [1., 0.]])

    Raises:
        InputError: the targets are class numbers, and ``num_classes`` is None.
    """
    # Regression targets, or probabilities already.
    if targets.is_floating_point():
        return targets
    if num_classes is None:
        raise InputError(
            f"targets are class numbers ({targets.dtype}), which can be mixed only as probabilities",
            name="num_classes",
            cure="give the number of classes: num_classes=10",
        )
    shape = (len(targets), num_classes, *targets.shape[1:])  # F.cross_entropy wants the classes in dimension 1
    rows = torch.zeros(shape, dtype=dtype, device=targets.device)
    # F.one_hot would read the largest class number on the host, which waits for the GPU.
    return rows.scatter_(1, targets.long().unsqueeze(1), 1.0)


def require_mixable(inputs: Any, targets: Any, min_dim: int) -> None:
    """Refuse a batch that cannot be mixed.

    Raises:
        InputError: the inputs or the targets are not tensors, or the inputs are integers or have too few dimensions.
    """
    for name, value in (("inputs", inputs), ("targets", targets)):
        if not isinstance(value, Tensor):
            raise InputError(f"{name} must be a tensor to be mixed, but is a {type(value).__name__}", name=name)
    if not inputs.is_floating_point():
        raise InputError(
            f"inputs must be floating point numbers to be mixed, but are {inputs.dtype}",
            name="inputs",
            cure="convert the images: images / 255",
        )
    if inputs.dim() < min_dim:
        what = f"inputs must have the shape (batch, ..., height, width) to cut boxes, but have {tuple(inputs.shape)}"
        raise InputError(what, name="inputs")


@final
class Draws:
    """The random draws of a batch: whether it is mixed, with what share, and which examples with which.

    >>> draws = Draws(alpha=1.0, probability=1.0, seed=0)
    >>> state = draws.state_dict()
    >>> first = draws.share()
    >>> draws.load_state_dict(state)
    >>> draws.share() == first
    True

    Args:
        alpha: the share is drawn from Beta(alpha, alpha).
        probability: the probability that a batch is mixed.
        seed: of the random state.

    Raises:
        InputError: an argument is not a number or out of its range.
    """

    def __init__(self, alpha: float, probability: float, seed: int) -> None:
        self.alpha = require_number(alpha, "alpha", above=0)
        self.probability = require_number(probability, "probability", at_least=0, at_most=1)
        self.source = random.Random(require_count(seed, "seed"))
        self._permutations = torch.Generator()  # seeded anew for each batch, so that `source` is the only state

    def should_mix(self) -> bool:
        """Draw whether the next batch is mixed."""
        return self.source.random() < self.probability

    def share(self) -> float:
        """Draw how much of each example stays in its mixture."""
        return draw_share(self.alpha, self.source)

    def partners(self, size: int, device: torch.device) -> Tensor:
        """Draw for each of ``size`` examples the index of the example that it is mixed with."""
        self._permutations.manual_seed(self.source.getrandbits(62))
        # Drawn on the CPU, so that the partners are the same on every device.
        return torch.randperm(size, generator=self._permutations).to(device, non_blocking=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the random state, as plain lists and numbers."""
        version, numbers, following = self.source.getstate()
        return {"version": version, "numbers": list(numbers), "following": following}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the draws where ``state_dict`` was called."""
        self.source.setstate((state["version"], tuple(state["numbers"]), state["following"]))


class MixingExtension(Extension):
    """The base of ``Mixup`` and ``CutMix``: their arguments, and draws that a checkpoint continues.

    Processes that train together draw alike, one share for all rows of a step; each row is blended with a row of its
    process. So the random state is the same in all of them.

    Args:
        alpha: the shares are drawn from Beta(alpha, alpha).
        num_classes: the number of classes; None if the targets are not class numbers.
        probability: the probability that a batch is mixed.
        seed: of the random state.
    """

    def __init__(self, alpha: float, num_classes: int | None, probability: float, seed: int) -> None:
        self.num_classes = None if num_classes is None else require_count(num_classes, "num_classes", at_least=2)
        self.draws = Draws(alpha, probability, seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the random state."""
        return {**super().state_dict(), **self.draws.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the draws where ``state_dict`` was called."""
        super().load_state_dict(state)
        self.draws.load_state_dict(state)
