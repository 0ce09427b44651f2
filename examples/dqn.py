"""Deep Q-learning in a loop of its own: the program plays, and now and then trains on what it remembers.

    python examples/dqn.py

A ball falls, and the agent must catch it. The loop is that of the game, which calls ``train_on_batch`` inside it. Mnih
et al. 2015, "Human-level control through deep reinforcement learning", Nature 518. The game is in this file.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

from train_manager import TrainManager
from train_manager.extensions import Log

STEPS, LEARNING_STARTS = 4000, 500
TRAIN_EVERY, TARGET_EVERY = 4, 100
BATCH, REMEMBERED, DISCOUNT = 64, 2000, 0.95
LOG_EVERY, GAMES = 100, 100
COLUMNS, ROWS = 5, 6

Played = tuple[Tensor, ...]  # seen, done, its reward, seen then, and whether the game was over


class Catch:
    """A ball falls row by row; the hand below moves to the left, not at all, or to the right."""

    def reset(self) -> Tensor:
        self.row = 0
        self.ball, self.hand = torch.randint(COLUMNS, (2,)).tolist()
        return self.seen()

    def step(self, action: int) -> tuple[Tensor, float, bool]:
        """Return what is seen then, the reward, and whether the game is over."""
        self.row += 1
        self.hand = min(max(self.hand + action - 1, 0), COLUMNS - 1)
        is_over = self.row == ROWS - 1
        return self.seen(), (1.0 if self.ball == self.hand else -1.0) if is_over else 0.0, is_over

    def seen(self) -> Tensor:
        return torch.tensor([self.row / ROWS, self.ball / COLUMNS, self.hand / COLUMNS])


class Memory:
    """What was played last."""

    def __init__(self) -> None:
        self.played: deque[tuple[Any, ...]] = deque(maxlen=REMEMBERED)

    def add(self, *played: Any) -> None:
        self.played.append(played)

    def sample(self) -> Played:
        chosen = [self.played[i] for i in torch.randint(len(self.played), (BATCH,)).tolist()]
        seen, actions, rewards, then, over = zip(*chosen, strict=True)
        return torch.stack(seen), torch.tensor(actions), torch.tensor(rewards), torch.stack(then), torch.tensor(over)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


def randomness(step: int) -> float:
    """Return the share of actions that are drawn at random."""
    return max(0.05, 1 - step / (STEPS / 2))


def q_loss(prediction: Tensor, targets: tuple[Tensor, Tensor]) -> Tensor:
    actions, values = targets
    return F.mse_loss(prediction.gather(1, actions.unsqueeze(1)).squeeze(1), values)


def manager() -> TrainManager:
    return TrainManager(
        model=network(),
        loss=q_loss,
        optimizer=lambda parameters: Adam(parameters, lr=1e-3),
        extensions=[Log(every=LOG_EVERY, counts="step", rate=None)],
    )


def play(tm: TrainManager) -> None:
    """Play, and train on what was played: an action is worth its reward, and what the target says of the next one."""
    target = network()
    target.load_state_dict(tm.model.state_dict())
    game, memory, rewards = Catch(), Memory(), []
    seen = game.reset()
    with tm.run():
        for step in range(STEPS):
            action = int(torch.randint(3, ()) if torch.rand(()) < randomness(step) else tm.model(seen).argmax())
            then, reward, is_over = game.step(action)
            memory.add(seen, action, reward, then, is_over)
            seen = game.reset() if is_over else then
            if is_over:
                rewards.append(reward)
                if len(rewards) % GAMES == 0:
                    print(f"game {len(rewards)}, mean reward {sum(rewards[-GAMES:]) / GAMES}")
            if step > LEARNING_STARTS:
                if step % TRAIN_EVERY == 0:
                    observations, actions, gained, after, over = memory.sample()
                    with torch.no_grad():
                        values = gained + DISCOUNT * target(after).amax(dim=1) * ~over
                    tm.train_on_batch((observations, (actions, values)))
                if step % TARGET_EVERY == 0:
                    target.load_state_dict(tm.model.state_dict())


def main() -> None:
    """Train, and print how many balls are caught by the actions that the model knows to be best."""
    torch.manual_seed(0)
    tm = manager()
    play(tm)
    game, caught = Catch(), 0
    for _ in range(100):
        seen, is_over = game.reset(), False
        while not is_over:
            seen, reward, is_over = game.step(int(tm.model(seen).argmax()))
        caught += reward == 1
    print(f"{caught} of 100 balls caught")


if __name__ == "__main__":
    main()
