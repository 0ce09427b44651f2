"""Mixup: training on blends of two examples, with blended targets (Zhang et al. 2018, arXiv:1710.09412)."""

from __future__ import annotations

from torch import Tensor

from train_manager.core.declarations import modifies
from train_manager.data.mixing import MixingExtension, blend, require_mixable, soft_targets
from train_manager.rebuilding.recorded import recorded


@recorded
class Mixup(MixingExtension):
    """Blend each training example with another example of its batch, and their targets in the same proportion.

    Class numbers become rows of probabilities, which ``F.cross_entropy`` accepts too. For a loss that is linear in its
    targets, such as cross entropy, the result is ``share * loss(a) + (1 - share) * loss(b)``. Targets that are floating
    point numbers (regression, probabilities) are blended as they are.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Mixup(alpha=0.2, num_classes=2))
    >>> result = tm.train()

    The loss must read the fixture ``targets``, not ``batch``, which is not changed. Evaluation is not changed either.

    *Runs at:* the start of ``train_model_forward``.

    *Asks for:* ``inputs`` and ``targets``, both tensors.

    *Leaves behind:* modified ``inputs`` and ``targets``. It has a random state of its own.

    Args:
        alpha: the shares are drawn from Beta(alpha, alpha): mostly one example if alpha is small, both if it is large.
        num_classes: the number of classes; required if the targets are class numbers.
        probability: the probability that a batch is mixed.
        seed: the seed of its random state.

    Raises:
        InputError: an argument is invalid, or a batch cannot be mixed.
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
        # One share for the whole batch, as in the code of the paper;
        # each example is blended with the example `partners` names.
        share = self.draws.share()
        partners = self.draws.partners(len(inputs), inputs.device)
        # Class numbers cannot be blended, rows of probabilities can.
        soft = soft_targets(targets, self.num_classes, inputs.dtype)
        # `@modifies`: the two values take the places of the fixtures `inputs` and `targets` for the rest of the batch.
        return blend(inputs, inputs[partners], share), blend(soft, soft[partners], share)
