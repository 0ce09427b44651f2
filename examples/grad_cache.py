"""A contrastive loss over a batch whose graph does not fit into memory: each chunk of it gets its part of the gradient.

    python examples/grad_cache.py

Two noisy views of a digit are put near each other, and away from those of all other digits in the batch, so a large
batch teaches more. The loss needs the places of all examples at once, but not their graphs: the first pass computes the
places alone and how the loss depends on them, the second goes through the chunks again, one graph at a time. Gao et al.
2021, "Scaling deep contrastive learning batch size under memory limited setup", arXiv:2101.06983.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import InMemory, TrainManager
from train_manager.extensions import Log, Metrics

EPOCHS = 10
BATCH, CHUNK = 449, 64
NOISE, TEMPERATURE = 0.15, 0.1


class Encoder(nn.Module):
    """Views of shape (examples, 2, 64) in, their places on a sphere out: (examples, 2, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 16))

    def forward(self, inputs: Tensor) -> Tensor:
        return F.normalize(self.layers(inputs), dim=-1)


def similarities(prediction: Tensor) -> Tensor:
    """Return how near the first view of each example (row) is to the second view of each (column)."""
    return prediction[:, 0] @ prediction[:, 1].T / TEMPERATURE


def info_nce(prediction: Tensor) -> Tensor:
    """Return the loss of finding the second view of each example among those of the batch."""
    return F.cross_entropy(similarities(prediction), torch.arange(len(prediction)))


def found(prediction: Tensor) -> Tensor:
    """Return of each example whether its second view is the one nearest to its first."""
    return similarities(prediction).argmax(dim=1) == torch.arange(len(prediction))


class GradCache(TrainManager):
    """Train on a loss of the whole batch, with the graph of one chunk in memory."""

    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
        chunks, states, places = inputs.split(CHUNK), [], []
        with torch.no_grad():
            for chunk in chunks:
                states.append(torch.get_rng_state())
                places.append(model(chunk))
        all_places = torch.cat(places).requires_grad_()
        torch.clear_autocast_cache()  # of the pass without gradients, whose 16-bit weights have no graph
        loss = info_nce(all_places)
        (gradient,) = torch.autograd.grad(loss, all_places)
        for chunk, state, weight in zip(chunks, states, gradient.split(CHUNK), strict=True):
            with torch.random.fork_rng([]):
                torch.set_rng_state(state)  # the second pass must drop what the first has dropped
                self.backward(model(chunk), weight=weight)
        self.step()
        self.fixtures["loss"] = loss.detach()


def views() -> Tensor:
    """Return two noisy views of each digit."""
    from sklearn.datasets import load_digits

    images = torch.from_numpy(load_digits().data).float() / 16
    noise = NOISE * torch.randn(len(images), 2, 64, generator=torch.Generator().manual_seed(0))
    return images.unsqueeze(1) + noise


def manager(kind: type[TrainManager] = GradCache) -> TrainManager:
    data = views()
    return kind(
        model=Encoder(),
        loss=info_nce,
        optimizer=lambda parameters: Adam(parameters, lr=5e-3),
        train_data=InMemory(data[:1347], batch_size=BATCH, shuffle=True),
        eval_data={"test": InMemory(data[1347:], batch_size=450)},
        epochs=EPOCHS,
        extensions=[Log(), Metrics(eval={"found": found})],
    )


def main() -> None:
    """Train, and print how many of the second views are found."""
    torch.manual_seed(0)
    result = manager().train()
    print(f"found {result.metrics['test']['found']:.1%} of 450 second views")


if __name__ == "__main__":
    main()
