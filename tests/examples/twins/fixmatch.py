"""The training of ``examples/fixmatch.py``, written by hand.

In the form of ``train.py`` at f549460 and ``models/ema.py`` at 13db454 of kekmodel/FixMatch-pytorch, on one device.
"""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from examples.fixmatch import (
    DECAY,
    EPOCHS,
    LOG_EVERY,
    STEPS,
    THRESHOLD,
    accuracy,
    cosine,
    loaders,
    moons,
    network,
    optimizer_of,
)
from tests.examples.comparison import Record


def train(record: Record) -> tuple[nn.Module, nn.Module]:
    model, (labeled_data, unlabeled_data) = network(), loaders()
    optimizer = optimizer_of(model)
    scheduler = cosine(optimizer)
    average = copy.deepcopy(model).eval()
    labeled_batches, unlabeled_batches = iter(labeled_data), iter(unlabeled_data)
    model.train()
    for epoch in range(1, EPOCHS + 1):
        for batch in range(1, STEPS + 1):
            try:
                inputs, targets = next(labeled_batches)
            except StopIteration:
                labeled_batches = iter(labeled_data)
                inputs, targets = next(labeled_batches)
            try:
                weakly, strongly = next(unlabeled_batches)
            except StopIteration:
                unlabeled_batches = iter(unlabeled_data)
                weakly, strongly = next(unlabeled_batches)
            scores = model(torch.cat([inputs, weakly, strongly]))
            known, (weak_scores, strong_scores) = scores[: len(inputs)], scores[len(inputs) :].chunk(2)
            labeled = F.cross_entropy(known, targets)
            sureness, answers = weak_scores.detach().softmax(dim=1).max(dim=1)
            is_sure = (sureness >= THRESHOLD).float()
            unlabeled = (F.cross_entropy(strong_scores, answers, reduction="none") * is_sure).mean()
            loss = labeled + unlabeled
            loss.backward()
            optimizer.step()
            scheduler.step()
            update(average, model)
            model.zero_grad()
            record(loss)
            if batch % LOG_EVERY == 0:
                print(
                    f"epoch {epoch}, batch {batch} of {STEPS}, loss {loss.item():.4g}, labeled {labeled.item():.4g}, "
                    f"unlabeled {unlabeled.item():.4g}, sure {is_sure.mean().item():.4g}"
                )
        inputs, targets = moons(1000, seed=2)
        with torch.no_grad():
            scores = average(inputs)
        loss, right = F.cross_entropy(scores, targets), accuracy(scores, targets).float().mean()
        print(f"epoch {epoch}, test: loss {loss.item():.4g}, accuracy {right.item():.4g}")
    return model, average


@torch.no_grad()
def update(average: nn.Module, model: nn.Module) -> None:
    for averaged, weights in zip(average.parameters(), model.parameters(), strict=True):
        averaged.copy_(averaged * DECAY + (1 - DECAY) * weights)
    for kept, buffer in zip(average.buffers(), model.buffers(), strict=True):
        kept.copy_(buffer)
