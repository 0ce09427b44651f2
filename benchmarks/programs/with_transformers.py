"""transformers: a Trainer on a model that computes its loss."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from benchmarks.programs.problems import LR, Problem


class WithLoss(nn.Module):
    """The model, which computes its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(inputs)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


def collate(examples: list[Any]) -> dict[str, Tensor]:
    inputs, labels = zip(*examples, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.stack(labels)}


def usual(problem: Problem, epochs: int) -> nn.Module:
    def accuracy(prediction: Any) -> dict[str, float]:
        return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}

    model = WithLoss(problem.new_model())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=problem.batch_size,
            per_device_eval_batch_size=problem.batch_size,
            learning_rate=LR,
            eval_strategy="epoch",
            report_to="none",
            use_cpu=True,
        )
        trainer = Trainer(
            model,
            arguments,
            data_collator=collate,
            train_dataset=problem.loader("train").dataset,
            eval_dataset=problem.loader("valid").dataset,
            compute_metrics=accuracy,
        )
        trainer.train()
    return model.model


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = WithLoss(problem.new_model())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=problem.batch_size,
            per_device_eval_batch_size=problem.batch_size,
            learning_rate=LR,
            weight_decay=0.01,
            lr_scheduler_type="constant",
            max_grad_norm=0,
            train_sampling_strategy="sequential",
            eval_strategy="epoch",
            prediction_loss_only=True,
            logging_strategy="no",
            logging_nan_inf_filter=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model,
            arguments,
            data_collator=collate,
            train_dataset=problem.loader("train").dataset,
            eval_dataset=problem.loader("valid").dataset,
        )
        trainer.train()
    return model.model
