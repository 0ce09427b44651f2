"""accelerate: the script by hand, whose objects have been prepared for a device."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from torch.optim import AdamW
from tqdm import tqdm

from benchmarks.programs.problems import LR, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    accelerator = Accelerator(cpu=True)
    model = problem.new_model()
    prepared, optimizer, train, valid = accelerator.prepare(
        model, AdamW(model.parameters(), LR), problem.loader("train"), problem.loader("valid")
    )
    for epoch in range(epochs):
        for inputs, targets in tqdm(train):
            optimizer.zero_grad()
            loss = F.cross_entropy(prepared(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        prepared.eval()
        losses, right, count = [], 0, 0
        with torch.no_grad():
            for inputs, targets in valid:
                prediction = prepared(inputs)
                losses.append(accelerator.gather_for_metrics(F.cross_entropy(prediction, targets)).mean())
                hits = accelerator.gather_for_metrics(prediction.argmax(dim=1) == targets)
                right, count = right + hits.sum(), count + hits.numel()
        print(epoch, torch.stack(losses).mean().item(), right / count)
        prepared.train()
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    accelerator = Accelerator(cpu=True)
    model = problem.new_model()
    prepared, optimizer = accelerator.prepare(model, AdamW(model.parameters(), LR))
    train, valid = problem.loader("train"), problem.loader("valid")
    for _ in range(epochs):
        for inputs, targets in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(prepared(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        prepared.eval()
        total = torch.tensor(0.0)
        with torch.no_grad():
            for inputs, targets in valid:
                total += F.cross_entropy(prepared(inputs), targets)
        prepared.train()
    return model
