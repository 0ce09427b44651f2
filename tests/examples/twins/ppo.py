"""The training of ``examples/ppo.py``, written by hand.

In the form of ``cleanrl/ppo.py`` of vwxyzjn/cleanrl at 020cf0e, with all random numbers from torch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Adam

from examples.ppo import (
    CLIP,
    DISCOUNT,
    ENTROPY_WEIGHT,
    EPOCHS,
    LARGEST_NORM,
    LEARNING_RATE,
    LENGTH,
    LOG_EVERY,
    MINIBATCH,
    POLES,
    ROLLOUTS,
    TRACE,
    VALUE_WEIGHT,
    Agent,
    Poles,
)
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    agent = Agent()
    optimizer = Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    game = Poles()
    seen = torch.zeros(LENGTH, POLES, 2)
    actions, log_probs, values, rewards, falls = (torch.zeros(LENGTH, POLES) for _ in range(5))
    next_seen, next_fallen = game.reset(), torch.zeros(POLES)
    for update in range(1, ROLLOUTS + 1):
        optimizer.param_groups[0]["lr"] = (1 - (update - 1) / ROLLOUTS) * LEARNING_RATE
        for step in range(LENGTH):
            seen[step] = next_seen
            falls[step] = next_fallen
            with torch.no_grad():
                actions[step], log_probs[step], _, values[step] = agent(next_seen)
            next_seen, rewards[step], next_fallen = game.step(actions[step])
        with torch.no_grad():
            next_value = agent.value(next_seen)
            surplus, last_surplus = torch.zeros_like(rewards), torch.zeros(POLES)
            for step in reversed(range(LENGTH)):
                if step == LENGTH - 1:
                    goes_on, later_value = 1 - next_fallen, next_value
                else:
                    goes_on, later_value = 1 - falls[step + 1], values[step + 1]
                error = rewards[step] + DISCOUNT * later_value * goes_on - values[step]
                surplus[step] = last_surplus = error + DISCOUNT * TRACE * goes_on * last_surplus
            returns = surplus + values
        all_seen, all_actions, all_log_probs = seen.flatten(0, 1), actions.flatten(), log_probs.flatten()
        all_surplus, all_returns, all_values = surplus.flatten(), returns.flatten(), values.flatten()
        losses = []
        for _ in range(EPOCHS):
            for chosen in torch.randperm(LENGTH * POLES).split(MINIBATCH):
                _, new_log_probs, entropy, new_values = agent(all_seen[chosen], all_actions[chosen])
                ratio = (new_log_probs - all_log_probs[chosen]).exp()
                normal = (all_surplus[chosen] - all_surplus[chosen].mean()) / (all_surplus[chosen].std() + 1e-8)
                policy_loss = torch.max(-normal * ratio, -normal * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)).mean()
                unclipped_loss = (new_values - all_returns[chosen]) ** 2
                clipped = all_values[chosen] + torch.clamp(new_values - all_values[chosen], -CLIP, CLIP)
                clipped_loss = (clipped - all_returns[chosen]) ** 2
                value_loss = 0.5 * torch.max(unclipped_loss, clipped_loss).mean()
                loss = policy_loss - ENTROPY_WEIGHT * entropy.mean() + VALUE_WEIGHT * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), LARGEST_NORM)
                optimizer.step()
                record(loss)
                losses.append(loss.item())
        if update % LOG_EVERY == 0:
            print(
                f"step {update}, loss {sum(losses) / len(losses):.4g}, policy {policy_loss.item():.4g}, "
                f"value {value_loss.item():.4g}, entropy {entropy.mean().item():.4g}, falls {int(falls.sum())}"
            )
    return agent
