"""Mixup: training on blends of two examples, with blended targets (Zhang et al. 2018, arXiv:1710.09412)."""

from __future__ import annotations

from torch import Tensor

from train_manager.core.decorators import modifies
from train_manager.data.mixing import MixingExtension, blend, require_mixable, soft_targets


class Mixup(MixingExtension):
    """Blends each training example with another one of its batch, and their targets in the same proportion.

    Class numbers become rows of probabilities, which ``F.cross_entropy`` takes as it takes numbers. For a loss that is
    linear in its targets, as cross entropy is, this is ``share * loss(a) + (1 - share) * loss(b)``. Targets that are
    floating point numbers (regression, probabilities) are blended as they are.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Mixup(alpha=0.2, num_classes=2))
    >>> result = tm.train()

    The loss must read the fixture ``targets``, not ``batch``, which stays as it was. Evaluation is not touched.

    *Runs at:* ``train_model_forward``.

    *Asks for:* ``inputs`` and ``targets``, both tensors.

    *Leaves behind:* both, mixed, for the rest of the batch. Its random state is its own.

    Args:
        alpha: the shares are drawn from Beta(alpha, alpha): mostly one example for a small alpha, both for a large one.
        num_classes: how many classes there are; needed where targets are class numbers.
        probability: how likely a batch is mixed at all.
        seed: of its own random state.

    Raises:
        InputError: an argument is of no use, or a batch cannot be mixed.
    """

    def __init__(
        self, alpha: float = 0.2, *, num_classes: int | None = None, probability: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(alpha, num_classes, probability, seed)

    @modifies("inputs", "targets")
    def pre_train_model_forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        require_mixable(inputs, targets, min_dim=1)
        if not self.draws.should_mix():
            return inputs, targets
        share = self.draws.share()
        partners = self.draws.partners(len(inputs), inputs.device)
        soft = soft_targets(targets, self.num_classes, inputs.dtype)
        return blend(inputs, inputs[partners], share), blend(soft, soft[partners], share)
