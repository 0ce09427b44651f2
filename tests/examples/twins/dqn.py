"""The training of ``examples/dqn.py``, written by hand.

In the form of ``cleanrl/dqn.py`` of vwxyzjn/cleanrl at 020cf0e, with one game, and all random numbers from torch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Adam

from examples.dqn import (
    DISCOUNT,
    GAMES,
    LEARNING_STARTS,
    LOG_EVERY,
    STEPS,
    TARGET_EVERY,
    TRAIN_EVERY,
    Catch,
    Memory,
    network,
    randomness,
)
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    q_network = network()
    optimizer = Adam(q_network.parameters(), lr=1e-3)
    target_network = network()
    target_network.load_state_dict(q_network.state_dict())
    game, memory, rewards, updates = Catch(), Memory(), [], 0
    seen = game.reset()
    for step in range(STEPS):
        action = int(torch.randint(3, ()) if torch.rand(()) < randomness(step) else q_network(seen).argmax())
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
                    values = gained + DISCOUNT * target_network(after).amax(dim=1) * ~over
                old_values = q_network(observations).gather(1, actions.unsqueeze(1)).squeeze(1)
                loss = F.mse_loss(old_values, values)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                record(loss)
                updates += 1
                if updates % LOG_EVERY == 0:
                    print(f"step {updates}, loss {loss.item():.4g}")
            if step % TARGET_EVERY == 0:
                target_network.load_state_dict(q_network.state_dict())
    return q_network
