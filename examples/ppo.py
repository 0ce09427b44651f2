"""Proximal policy optimization: each batch is what was just played, and is trained on for several epochs.

    python examples/ppo.py

There is no data set: ``rollouts`` plays with the present policy when it is asked for the next batch. Poles are to be
held upright, eight at once; the game is in this file. Schulman et al. 2017, "Proximal policy optimization algorithms",
arXiv:1707.06347.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from train_manager import TrainManager
from train_manager.extensions import ClipGradients, Log

ROLLOUTS, LENGTH, POLES = 20, 64, 8
EPOCHS, MINIBATCH = 4, 128  # epochs of each rollout
LEARNING_RATE, LARGEST_NORM = 3e-3, 0.5
DISCOUNT, TRACE, CLIP = 0.98, 0.95, 0.2
ENTROPY_WEIGHT, VALUE_WEIGHT = 0.01, 0.5
LOG_EVERY = 4


class Poles:
    """Poles that fall if they are not pushed; one that has fallen is put up again."""

    def reset(self) -> Tensor:
        self.state = 0.1 * torch.randn(POLES, 2)
        return self.state

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Push each pole to the left or to the right; return the state then, the rewards, and which have fallen."""
        angle, speed = self.state.unbind(dim=1)
        speed = speed + 0.02 * (15 * angle.sin() + 20 * actions - 10)
        angle = angle + 0.02 * speed
        fallen = angle.abs() > 0.5
        self.state = torch.where(fallen.unsqueeze(1), 0.1 * torch.randn(POLES, 2), torch.stack([angle, speed], dim=1))
        return self.state, 1 - fallen.float(), fallen.float()


class Agent(nn.Module):
    """A policy, and an estimate of the rewards to come."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, outputs))
            for outputs in (2, 1)
        )

    def value(self, seen: Tensor) -> Tensor:
        value: Tensor = self.critic(seen)
        return value.squeeze(-1)

    def forward(self, seen: Tensor, actions: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return actions, drawn if none are given, their log-probabilities, the entropy, and the estimate."""
        policy = Categorical(logits=self.actor(seen))
        actions = policy.sample() if actions is None else actions
        return actions, policy.log_prob(actions), policy.entropy(), self.value(seen)


def rollouts(agent: Agent) -> Iterator[dict[str, Tensor]]:
    """Play, and say of each action how much better than expected it was."""
    game, (seen, *others) = Poles(), (torch.zeros(LENGTH, POLES, *shape) for shape in [(2,), (), (), (), (), ()])
    actions, log_probs, values, rewards, falls = others
    state, fallen = game.reset(), torch.zeros(POLES)
    while True:
        for step in range(LENGTH):
            seen[step], falls[step] = state, fallen
            with torch.no_grad():
                actions[step], log_probs[step], _, values[step] = agent(state)
            state, rewards[step], fallen = game.step(actions[step])
        with torch.no_grad():
            surplus, later, later_value = torch.zeros_like(rewards), torch.zeros(POLES), agent.value(state)
            for step in reversed(range(LENGTH)):
                goes_on = 1 - (fallen if step == LENGTH - 1 else falls[step + 1])
                expected = rewards[step] + DISCOUNT * later_value * goes_on
                surplus[step] = later = expected - values[step] + DISCOUNT * TRACE * goes_on * later
                later_value = values[step]
        played = {"seen": seen, "actions": actions, "log_probs": log_probs, "values": values, "falls": falls}
        played |= {"surplus": surplus, "returns": surplus + values}
        yield {name: tensor.flatten(0, 1) for name, tensor in played.items()}


class PPO(TrainManager):
    """Train on each rollout for several epochs of minibatches."""

    def train_batch(self, batch: dict[str, Tensor], model: Agent) -> None:
        for _ in range(EPOCHS):
            for chosen in torch.randperm(len(batch["seen"])).split(MINIBATCH):
                played = {name: tensor[chosen] for name, tensor in batch.items()}
                _, log_probs, entropy, values = model(played["seen"], played["actions"])
                ratio = (log_probs - played["log_probs"]).exp()
                surplus = (played["surplus"] - played["surplus"].mean()) / (played["surplus"].std() + 1e-8)
                policy_loss = torch.max(-surplus * ratio, -surplus * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                clipped = played["values"] + (values - played["values"]).clamp(-CLIP, CLIP)
                errors = (values - played["returns"]) ** 2, (clipped - played["returns"]) ** 2
                value_loss = 0.5 * torch.max(*errors).mean()
                self.update(policy_loss - ENTROPY_WEIGHT * entropy.mean() + VALUE_WEIGHT * value_loss)
        self.fixtures["parts"] = {"policy": policy_loss, "value": value_loss, "entropy": entropy.mean()}
        self.fixtures["falls"] = int(batch["falls"].sum())


def manager() -> TrainManager:
    agent = Agent()
    return PPO(
        model=agent,
        optimizer=lambda parameters: Adam(parameters, lr=LEARNING_RATE, eps=1e-5),
        lr_schedule=lambda optimizer: LambdaLR(optimizer, lambda done: 1 - done / ROLLOUTS),
        train_data=rollouts(agent),
        steps_per_epoch=1,
        epochs=ROLLOUTS,
        extensions=[
            ClipGradients(LARGEST_NORM),
            Log(every=LOG_EVERY, show=["loss", "parts", "falls"], counts="step", rate=None),
        ],
    )


def main() -> None:
    """Train; each line says how many poles have fallen in a rollout."""
    torch.manual_seed(0)
    manager().train()


if __name__ == "__main__":
    main()
