"""The script by hand: usual, and with the tricks that the tuned programs have."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Problem


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    optimizer = AdamW(model.parameters(), LR)
    train, valid = problem.loader("train"), problem.loader("valid")
    for _ in range(epochs):
        for inputs, targets in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        model.eval()
        total, count = torch.tensor(0.0), 0
        with torch.no_grad():
            for inputs, targets in valid:
                total += F.cross_entropy(model(inputs), targets) * len(inputs)
                count += len(inputs)
        (total / count).item()
        model.train()
    return model


def usual(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    optimizer = AdamW(model.parameters(), LR)
    train, valid = problem.loader("train"), problem.loader("valid")
    for epoch in range(epochs):
        for step, (inputs, targets) in enumerate(train):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(epoch, step, loss.item())
        model.eval()
        total, right, count = torch.tensor(0.0), torch.tensor(0), 0
        with torch.no_grad():
            for inputs, targets in valid:
                prediction = model(inputs)
                total += F.cross_entropy(prediction, targets) * len(inputs)
                right += (prediction.argmax(dim=1) == targets).sum()
                count += len(inputs)
        print(epoch, total.item() / count, right.item() / targets[0].numel() / count)
        model.train()
    return model


def tuned(problem: Problem, epochs: int) -> nn.Module:
    model, examples = problem.in_channels_last()
    optimizer = AdamW(model.parameters(), LR)
    parameters = list(model.parameters())

    def step(inputs: Tensor, targets: Tensor) -> None:
        loss = F.cross_entropy(model(inputs), targets)
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs), targets)

    train, valid = ([*zip(*(one.split(problem.batch_size) for one in of), strict=True)] for of in examples)
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        fast_step, fast_loss = torch.compile(step, dynamic=False), torch.compile(loss_of, dynamic=False)
        for _ in range(epochs):
            for inputs, targets in train:
                fast_step(inputs, targets)
            problem.mark()
            model.eval()
            total, count = torch.tensor(0.0), 0
            with torch.no_grad():
                for inputs, targets in valid:
                    total += fast_loss(inputs, targets) * len(inputs)
                    count += len(inputs)
            (total / count).item()
            model.train()
    return model
