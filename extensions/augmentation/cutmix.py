"""CutMix: training on images with a box of another image in them (Yun et al. 2019, arXiv:1905.04899)."""

from __future__ import annotations

from torch import Tensor

from train_manager.core.declarations import modifies
from train_manager.data.mixing import MixingExtension, blend, draw_box, require_mixable, soft_targets
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError


@recorded
class CutMix(MixingExtension):
    """Replace a box in each training image by the same box of another image, and blend the targets by area.

    Class numbers become rows of probabilities, which ``F.cross_entropy`` accepts too.

    >>> import torch
    >>> from torch import nn
    >>> from train_manager.testing import tiny_manager
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    >>> batches = [(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]))]
    >>> result = tiny_manager(CutMix(num_classes=2), model=net, train_data=batches, eval_data=None).train()

    The loss must read the fixture ``targets``, not ``batch``, which is not changed. Evaluation is not changed either.

    *Runs at:* the start of ``train_model_forward``.

    *Asks for:* ``inputs`` of the shape (batch, ..., height, width), and ``targets``.

    *Leaves behind:* modified ``inputs`` and ``targets``. It has a random state of its own.

    Args:
        alpha: the shares are drawn from Beta(alpha, alpha); with 1 all sizes of boxes are equally likely.
        num_classes: the number of classes; required if the targets are class numbers.
        probability: the probability that a batch is mixed.
        seed: the seed of its random state.

    Raises:
        InputError: an argument is invalid, or a batch cannot be mixed.
    """

    def __init__(
        self, alpha: float = 1.0, *, num_classes: int | None = None, probability: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(alpha, num_classes, probability, seed)

    @modifies("inputs", "targets")
    def pre_train_model_forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        require_mixable(inputs, targets, min_dim=3)
        if not self.draws.should_mix():
            return inputs, targets
        # The box and the partner images are drawn once for the whole batch.
        height, width = inputs.shape[-2:]
        top, bottom, left, right = draw_box(height, width, self.draws.share(), self.draws.source)
        partners = self.draws.partners(len(inputs), inputs.device)
        # A copy: `inputs` may be the tensor in `batch`, which other hooks read, or a view of the data.
        pasted = inputs.clone()
        pasted[..., top:bottom, left:right] = inputs[partners, ..., top:bottom, left:right]
        # The area that is really left of each image: a box at the
        # border is cut, and covers less than the drawn share says.
        share = 1 - (bottom - top) * (right - left) / (height * width)
        soft = soft_targets(targets, self.num_classes, inputs.dtype)
        # A target for each pixel (segmentation) would have to be pasted like the image, not blended by area.
        if soft.dim() > 2:
            what = f"targets must be those of whole images, but have the shape {tuple(targets.shape)}"
            raise InputError(what, name="targets")
        return pasted, blend(soft, soft[partners], share)
