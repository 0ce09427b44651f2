"""An actor and a critic that learn to hold a pole upright; each batch is an episode played by the policy as it is then.

    python examples/actor_critic.py

There is no data set: ``episodes`` plays when it is asked for the next batch, which is after the last update. So the
loop must not, and does not, read ahead. The game is in this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import TrainManager
from train_manager.extensions import Avg, Log

EPISODES, LONGEST = 100, 100
DISCOUNT = 0.98
LOG_EVERY = 25

Episode = tuple[Tensor, tuple[Tensor, Tensor]]  # what was seen, and what was done and what came of it
Outputs = tuple[Tensor, Tensor]


class ActorCritic(nn.Module):
    """What is seen in, scores of the actions and an estimate of the return out."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(nn.Linear(2, 32), nn.Tanh())
        self.actor, self.critic = nn.Linear(32, 2), nn.Linear(32, 1)

    def forward(self, seen: Tensor) -> Outputs:
        hidden = self.seen(seen)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def push(angle: float, speed: float, action: int) -> tuple[float, float]:
    """Return the angle and the speed of the pole, a fiftieth of a second after a push to the left or to the right."""
    speed += 0.02 * (15 * math.sin(angle) + (10 if action else -10))
    return angle + 0.02 * speed, speed


@torch.no_grad()
def play(policy: nn.Module) -> Episode:
    """Play until the pole has fallen; each push before that is rewarded with 1."""
    seen: list[Tensor] = []
    actions: list[int] = []
    angle, speed = (0.1 * torch.randn(2)).tolist()
    while abs(angle) < 0.5 and len(actions) < LONGEST:
        seen.append(torch.tensor([angle, speed]))
        scores, _ = policy(seen[-1])
        actions.append(int(torch.multinomial(scores.softmax(dim=0), 1)))
        angle, speed = push(angle, speed, actions[-1])
    returns = [0.0]
    for _ in actions:
        returns.insert(0, 1 + DISCOUNT * returns[0])
    return torch.stack(seen), (torch.tensor(actions), torch.tensor(returns[:-1]))


def episodes(policy: nn.Module) -> Iterator[Episode]:
    while True:
        yield play(policy)


def actor_critic_loss(prediction: Outputs, targets: tuple[Tensor, Tensor]) -> Tensor:
    """Return the actor's loss and the critic's: better actions than expected become likelier, and expected."""
    (scores, expected), (actions, returns) = prediction, targets
    surplus = (returns - expected).detach() / 10
    return (F.cross_entropy(scores, actions, reduction="none") * surplus).sum() + F.smooth_l1_loss(expected, returns)


SHOWN = {"loss": "loss", "pushes": "true_batch_size", "average": "avg_true_batch_size"}


def manager() -> TrainManager:
    policy = ActorCritic()
    return TrainManager(
        model=policy,
        loss=actor_critic_loss,
        optimizer=lambda parameters: Adam(parameters, lr=1e-2),
        train_data=episodes(policy),
        steps_per_epoch=EPISODES,
        extensions=[Avg("true_batch_size"), Log(every=LOG_EVERY, show=SHOWN, counts="step", rate=None)],
    )


def main() -> None:
    """Train, and print how long the pole stays upright before and after."""
    torch.manual_seed(0)
    tm = manager()
    before, _ = zip(*(play(tm.model) for _ in range(20)), strict=True)
    tm.train()
    after, _ = zip(*(play(tm.model) for _ in range(20)), strict=True)
    print(f"pushes before the fall: at first {sum(map(len, before)) / 20}, now {sum(map(len, after)) / 20}")


if __name__ == "__main__":
    main()
