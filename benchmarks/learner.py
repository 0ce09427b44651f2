"""What a self-supervised phase is worth where few digits have labels: a linear probe on its trunk, and no phase.

python -m benchmarks learner
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from statistics import mean
from typing import Any, Final

import torch
from torch import Tensor
from torch.optim import Adam

from benchmarks.section import Claim, Section, table
from train_manager import recorded
from train_manager.learner import create_dataloader, create_learner, eval_model, load_model
from train_manager.learner.datasets import Datasets
from train_manager.learner.model import FileModel

QUICK: dict[str, Any] = {"seeds": 1, "phase_epochs": 1, "epochs": 2}
LABELS: Final = {20: 0.015, 70: 0.052}  # the share of the 1,347 training rows; each digit has as many
EXPECTED: Final = {20: 0.842, 70: 0.933}  # the mean of five seeds
BELOW: Final = 0.03  # how far the mean of fewer seeds may be below it

TEXT: Final = """\
scikit-learn has 1,797 digits of 8x8 pixels: 1,347 to train on, of which few have labels, and 450 to test. With a phase
the trunk learns by SimCLR from all training digits without a label, and stays frozen while a linear layer learns from
the labels. Without it trunk and layer learn from the labels alone, in as many epochs and with the same augmentation.
The accuracy on the test digits, by the seed of the weights, the split and the choice of labels:

{table}
"""


@recorded
def benchmark_digits() -> dict[str, Tensor]:
    """The digits of scikit-learn: image and label."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return {"image": torch.from_numpy(images).float().view(-1, 1, 8, 8), "label": torch.from_numpy(labels).long()}


def section(seeds: int = 1, phase_epochs: int = 100, epochs: int = 100) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    with redirect_stdout(StringIO()):  # the log of each training
        found = [_of_seed(seed, phase_epochs, epochs) for seed in range(seeds)]
    rows = [[str(seed), *(f"{one[key]:.3f}" for key in one)] for seed, one in enumerate(found)]
    means = {key: mean(one[key] for one in found) for key in found[0]}
    rows.append(["mean", *(f"{value:.3f}" for value in means.values())])
    heads = ["seed", *(f"{labels} labels, {how}" for labels, how in means)]
    claims = [
        Claim(
            f"a linear probe after SimCLR, {labels} labels, accuracy",
            means[labels, PHASE],
            expected - BELOW,
            expected,
            "",
            True,
        )
        for labels, expected in EXPECTED.items()
    ]
    better = sum(one[labels, PHASE] > one[labels, SCRATCH] for one in found for labels in LABELS) / len(found) / 2
    claims.append(Claim("share of the trainings in which SimCLR is better than no phase", better, 1, 1, "", True))
    return Section("A self-supervised phase", TEXT.format(table=table(heads, rows)), claims, on_page=False)


PHASE: Final = "after SimCLR"
SCRATCH: Final = "without it"


def _of_seed(seed: int, phase_epochs: int, epochs: int) -> dict[tuple[int, str], float]:
    """The accuracy by the number of labels, with a phase and without one."""
    phase = {"use": "SimCLR", "at": "trunk", "epochs": phase_epochs, "batch_size": 128}
    trunk = _model(seed)
    learner = create_learner(
        _data(seed, 1.0), trunk, Adam(trunk.parameters()), {"seed": seed, "self_supervised": [phase]}
    )
    learner.ss_learn()
    learner.close()
    found = {}
    for labels, share in LABELS.items():
        probe = _model(seed)
        probe.trunk.load_state_dict(trunk.trunk.state_dict())
        found[labels, PHASE] = _accuracy(probe, _data(seed, share), epochs, {"seed": seed, "freeze": "trunk"})
        found[labels, SCRATCH] = _accuracy(_model(seed), _data(seed, share), epochs, {"seed": seed})
    return found


def _accuracy(model: FileModel, data: Datasets, epochs: int, options: dict[str, Any]) -> float:
    learner = create_learner(data, model, Adam(model.parameters(), lr=3e-3), options)
    for _ in range(epochs):
        learner.train_epoch()
    learner.close()
    return eval_model(data, model, [_is_right])["test"].metrics["_is_right"]


def _is_right(prediction: Tensor, truth: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == truth


def _data(seed: int, labelled: float) -> Datasets:
    digits: dict[str, Any] = {"use": "benchmark_digits", "inputs": "image", "targets": "label", "seed": seed}
    digits |= {"split": {"train": 0.75, "test": 0.25}, "labelled": labelled, "batch_size": 16}
    digits |= {"features": [{"use": "divide", "by": 16.0}]}
    digits |= {"augment": [{"use": "shift", "pixels": 1}, {"use": "noise", "std": 0.1}]}
    return create_dataloader({"dataset": {"digits": digits}})


def _model(seed: int) -> Any:
    """Two convolutions and a linear layer."""
    torch.manual_seed(seed)
    convolution = {"use": "Conv2d", "kernel_size": 3, "padding": 1}
    layers = [{**convolution, "out_channels": 32}, {"use": "BatchNorm2d"}, {"use": "ReLU"}, POOL]
    layers += [{**convolution, "out_channels": 64}, {"use": "BatchNorm2d"}, {"use": "ReLU"}, POOL, {"use": "Flatten"}]
    head = {"from": "trunk", "use": "Linear", "out_features": 10}
    modules = {"trunk": {"from": "image", "layers": layers}, "head": head}
    objective = {"class": {"use": "cross_entropy", "at": "head"}}
    return load_model({"inputs": {"image": [1, 8, 8]}, "module": modules, "objective": objective})


POOL: Final = {"use": "MaxPool2d", "kernel_size": 2}
