"""The training of ``examples/distillation.py``, written by hand.

In the form of ``beginner_source/knowledge_distillation_tutorial.py`` of pytorch/tutorials at c53e7d4: ``train``,
``train_knowledge_distillation`` and ``test``. The soft loss is that of the paper, in the program's function.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from examples.distillation import EPOCHS, LOG_EVERY, accuracy, adam, batches, distillation_loss, network, points
from tests.examples.comparison import Record


def train(record: Record) -> nn.Module:
    teacher = network(64, dropout=0.1)
    data = batches(points(1920, seed=0))
    optimizer = adam(teacher.parameters())
    teacher.train()
    for epoch in range(1, EPOCHS + 1):
        for batch, (inputs, labels) in enumerate(data, 1):
            optimizer.zero_grad()
            loss = F.cross_entropy(teacher(inputs), labels)
            loss.backward()
            optimizer.step()
            log(epoch, batch, len(data), loss)
    test(teacher)
    student = network(32)
    data = batches(points(512, seed=2, random_labels=0.3))
    optimizer = adam(student.parameters())
    teacher.eval()
    student.train()
    for epoch in range(1, EPOCHS + 1):
        for batch, (inputs, labels) in enumerate(data, 1):
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits = student(inputs)
            loss = distillation_loss(student_logits, teacher_logits, labels)
            loss.backward()
            optimizer.step()
            record(loss)
            log(epoch, batch, len(data), loss)
    test(student)
    return student


def test(model: nn.Module) -> None:
    inputs, labels = points(1000, seed=1)[:]
    model.eval()
    with torch.no_grad():
        outputs = model(inputs)
    loss, right = F.cross_entropy(outputs, labels), accuracy(outputs, labels).float().mean()
    print(f"epoch {EPOCHS}, test: loss {loss.item():.4g}, accuracy {right.item():.4g}")


def log(epoch: int, batch: int, batches: int, loss: Tensor) -> None:
    if ((epoch - 1) * batches + batch) % LOG_EVERY == 0:
        print(f"epoch {epoch}, batch {batch} of {batches}, loss {loss.item():.4g}")
