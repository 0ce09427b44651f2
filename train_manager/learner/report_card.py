"""The report of a deployment: what each form of a model weighs, and what it lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import torch

from train_manager._version import __version__
from train_manager.diagnosis.batch_leaves import leaves_of
from train_manager.learner.evaluation_result import EvaluationResult

# How each file is read, for the report.
READ: Final = {
    "model.pt": 'model.load_state_dict(torch.load("model.pt", weights_only=True))',
    "int8.pt": '(small := quantize(model)).load_state_dict(torch.load("int8.pt", weights_only=True), assign=True)',
    "low_rank.pt": 'load_factorized(model, torch.load("low_rank.pt", weights_only=True))',
    "model.onnx": 'OnnxModel("model.onnx")(inputs)',
    "int8.onnx": 'OnnxModel("int8.onnx")(inputs)',
    "low_rank.onnx": 'OnnxModel("low_rank.onnx")(inputs)',
}


@final
@dataclass(frozen=True, slots=True)
class Exported:
    """One form of the model.

    Attributes:
        file: its name.
        bytes: its size.
        difference: the largest difference of its outputs from those of the model; of the model itself, from the
            predictions of the evaluation.
        metrics: every metric of the evaluation, on the same examples.
    """

    file: str
    bytes: int
    difference: float
    metrics: Mapping[str, float]


def report(title: str, result: EvaluationResult, exported: Sequence[Exported]) -> str:
    """Return the report as Markdown: a table with a row for each form, and how each file is read."""
    shapes = ", ".join("x".join(map(str, leaf.shape[1:])) or "1" for _, leaf in leaves_of(result.inputs))
    metrics = [*dict.fromkeys(name for one in exported for name in one.metrics)]
    head = ["file", "bytes", "of model.pt", "largest difference", *metrics]
    rows = [_row(one, exported[0].bytes, metrics) for one in exported]
    lines = [
        f"# {title}",
        f"Evaluated on {len(result.truth):,} examples of {shapes}, with the {_weights(result)}.",
        "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] + ["---:"] * (len(head) - 1), *rows)),
        "The difference is that of outputs from the model's on these examples; of model.pt, from the evaluation's.",
        "```python\n" + "\n".join(READ[one.file] for one in exported) + "\n```",
        f"Written by Train Manager {__version__} with torch {torch.__version__}.",
    ]
    return "\n\n".join(lines) + "\n"


def _weights(result: EvaluationResult) -> str:
    return "moving average of the weights (EMA)" if result.weights == "EMA" else "trained weights"


def _row(one: Exported, whole: int, metrics: Sequence[str]) -> list[str]:
    numbers = [f"{one.metrics[name]:.4f}" if name in one.metrics else "" for name in metrics]
    return [one.file, f"{one.bytes:,}", f"{one.bytes / whole:.2f}", f"{one.difference:.1e}", *numbers]
