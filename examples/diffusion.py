"""A denoising diffusion model (DDPM) that makes points of a spiral, with an average of its weights.

    python examples/diffusion.py

The model learns to tell the noise from noisy points. Points are made with the averaged weights, from noise, step by
step. Ho, Jain and Abbeel 2020, "Denoising diffusion probabilistic models", arXiv:2006.11239.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.utils.data import DataLoader

from train_manager import Endless, TrainManager
from train_manager.extensions import EMA, ClipGradients, Log

STEPS, SAMPLE_EVERY = 2400, 800
DECAY, LARGEST_NORM = 0.995, 1.0
LOG_EVERY = 400
NOISES, WIDTH = 50, 64  # how many steps lead from a point to noise


class Diffusion(nn.Module):
    """Points in, the error in telling their noise out; ``sample`` makes points."""

    shares: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NOISES, WIDTH)
        self.first = nn.Linear(2, WIDTH)
        self.rest = nn.Sequential(
            *(nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()), nn.Linear(WIDTH, 2)
        )
        self.register_buffer("shares", (1 - torch.linspace(1e-3, 0.15, NOISES)).cumprod(dim=0))  # of a point, left over

    def noise_in(self, points: Tensor, times: Tensor) -> Tensor:
        noise: Tensor = self.rest(self.first(points) + self.embedding(times))
        return noise

    def forward(self, points: Tensor) -> Tensor:
        times = torch.randint(NOISES, (len(points),))
        noise, share = torch.randn_like(points), self.shares[times].unsqueeze(1)
        noisy = share.sqrt() * points + (1 - share).sqrt() * noise
        return F.mse_loss(self.noise_in(noisy, times), noise)

    @torch.no_grad()
    def sample(self, n: int) -> Tensor:
        """Make points."""
        points = torch.randn(n, 2)
        for time in reversed(range(NOISES)):
            share, share_before = self.shares[time], self.shares[time - 1] if time else torch.ones(())
            kept = share / share_before
            noise = self.noise_in(points, torch.full((n,), time))
            points = (points - (1 - kept) / (1 - share).sqrt() * noise) / kept.sqrt()
            if time:
                points += ((1 - kept) * (1 - share_before) / (1 - share)).sqrt() * torch.randn(n, 2)
        return points


def spiral(n: int = 2048) -> Tensor:
    angles = torch.linspace(1.5, 8, n)
    return torch.stack([angles.cos(), angles.sin()], dim=1) * angles.unsqueeze(1) / 4


def batches() -> DataLoader[Tensor]:
    return DataLoader(spiral(), batch_size=128, shuffle=True)  # type: ignore[arg-type]


def show(model: nn.Module, step: int) -> None:
    """Make points, and print how far from the spiral they are."""
    distances = torch.cdist(model.sample(500), spiral()).amin(dim=1)  # type: ignore[operator]
    print(f"step {step}, made points are {distances.mean():.4f} from the spiral")


class DDPM(TrainManager):
    """Train a model that makes its own loss; each epoch ends with points made by the average."""

    def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
        self.update(model(inputs))

    def post_train_step_epoch(self, step_num: int) -> None:
        with self["ema"].applied(self.model), self.mode(training=False):
            show(self.model, step_num)


def manager() -> TrainManager:
    return DDPM(
        model=Diffusion(),
        optimizer=lambda parameters: Adam(parameters, lr=2e-3, betas=(0.9, 0.99)),
        train_data=Endless(batches()),
        steps_per_epoch=SAMPLE_EVERY,
        epochs=STEPS // SAMPLE_EVERY,
        extensions=[
            ClipGradients(LARGEST_NORM),
            EMA(DECAY, begin="model"),
            Log(every=LOG_EVERY, counts="step", rate=None),
        ],
    )


def picture(points: Tensor) -> str:
    """Return points as text."""
    columns, rows = ((points + 2) * torch.tensor([9.0, 4.5])).round().long().unbind(dim=1)
    found = set(zip(rows.tolist(), columns.tolist(), strict=True))
    return "\n".join("".join(" #"[(row, column) in found] for column in range(37)).rstrip() for row in range(19))


def main() -> None:
    """Train, and show made points."""
    torch.manual_seed(0)
    tm = manager()
    tm.train()
    with tm["ema"].applied(tm.model), tm.mode(training=False):
        print(picture(tm.model.sample(500)))


if __name__ == "__main__":
    main()
