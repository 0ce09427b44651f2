"""The contrastive loss: whether two results of the same example are found among those of others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from train_manager.rebuilding.recorded import recorded


@recorded
def contrast(one: Tensor, other: Tensor, temperature: float = 0.5) -> Tensor:
    """Return how badly each row of one tensor is found among the rows of another: the loss of SimCLR and CLIP.

    The rows of the same number belong together; all other rows are examples of what does not. Chen et al. 2020,
    arXiv:2002.05709, and Radford et al. 2021, arXiv:2103.00020, where the two are found in both directions.

    >>> contrast(torch.eye(3), torch.eye(3), temperature=0.01) < 1e-6
    tensor(True)

    Args:
        one: (examples, features).
        other: (examples, features).
        temperature: divides the cosine similarities, which lie from -1 to 1.
    """
    similar = F.normalize(one.flatten(1), dim=1) @ F.normalize(other.flatten(1), dim=1).T / temperature
    own = torch.arange(len(one), device=one.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2
