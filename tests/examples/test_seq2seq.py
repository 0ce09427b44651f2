"""The example ``examples/seq2seq.py``: padded batches, in which each token counts alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import Adam
from torch.optim.lr_scheduler import LambdaLR

from examples import seq2seq as example
from tests.examples.twins import seq2seq as twin
from train_manager.extensions import Accumulate


@pytest.fixture(autouse=True, scope="module")
def shorter() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (example, twin):
            patch.setattr(module, "EPOCHS", 2)
            patch.setattr(module, "LOG_EVERY", 8)
        patch.setattr(example, "EXAMPLES", 1000)
        yield


def train_with_delayed_updates(batches: int) -> nn.Module:
    """Divide the gradient of the sum over some batches by the number of their tokens.

    In the form of ``Trainer.train_step`` in ``fairseq/trainer.py`` of facebookresearch/fairseq at 00d5b7a.
    """
    train_data, _ = example.loaders()
    model = example.Translator()
    data = list(train_data)
    optimizer = Adam(model.parameters(), lr=1e-2)
    scheduler = LambdaLR(optimizer, example.rate_factor)
    for first in range(0, len(data), batches):
        optimizer.zero_grad()
        tokens = 0
        for (source, written), targets in data[first : first + batches]:
            scores = model(source, written).flatten(0, 1)
            F.cross_entropy(scores, targets.flatten(), ignore_index=example.PAD, reduction="sum").backward()
            tokens += int((targets != example.PAD).sum())
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(1 / tokens)
        optimizer.step()
        scheduler.step()
    return model


def test_each_token_counts_alike_in_several_batches_of_one_step() -> None:
    torch.manual_seed(0)
    by_fairseq = train_with_delayed_updates(3).state_dict()
    torch.manual_seed(0)
    tm = example.manager()
    tm.add_extension(Accumulate(3))
    tm.train_epoch()

    # Not bit for bit: Accumulate weights the means of the batches, where fairseq divides their sum once.
    assert all(torch.allclose(weights, by_fairseq[name], atol=1e-6) for name, weights in tm.model.state_dict().items())
    assert (tm.step_num, tm.update_num) == (16, 6)
