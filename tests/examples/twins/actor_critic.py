"""The training of ``examples/actor_critic.py``, written by hand."""

from __future__ import annotations

from torch import nn
from torch.optim import Adam

from examples.actor_critic import EPISODES, LOG_EVERY, ActorCritic, actor_critic_loss, play
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    policy = ActorCritic()
    optimizer = Adam(policy.parameters(), lr=1e-2)
    pushes = 0
    for episode in range(1, EPISODES + 1):
        seen, what_came = play(policy)
        optimizer.zero_grad()
        loss = actor_critic_loss(policy(seen), what_came)
        loss.backward()
        optimizer.step()
        record(loss)
        pushes += len(seen)
        if episode % LOG_EVERY == 0:
            print(f"step {episode}, loss {loss.item():.4g}, pushes {len(seen)}, average {pushes / episode:.4g}")
    return policy
