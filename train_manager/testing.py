"""Tools for tests: a small deterministic TrainManager, and an extension that records the stages that ran.

The tests of this library use them, and yours can use them for your own extensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from train_manager.core.extension import Extension
from train_manager.core.stage import Stage
from train_manager.manager import TrainManager


def tiny_manager(*extensions: Extension, **options: Any) -> TrainManager:
    """Return a TrainManager with 40 examples, which trains in milliseconds and gives the same result each time.

    An epoch has three batches of 16, 16 and 8 examples; the one evaluation set is called "valid".

    >>> from train_manager.testing import Recorder, tiny_manager
    >>> recorder = Recorder()
    >>> result = tiny_manager(recorder, epochs=2).train()
    >>> recorder.stages.count("train_step_batch")
    6

    Args:
        extensions: the extensions to test.
        options: arguments of TrainManager that replace the tiny ones.
    """
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(40, 2, generator=generator)
    targets = (inputs.sum(dim=1) > 1).long()
    batches = list(zip(inputs.split(16), targets.split(16), strict=True))
    with torch.random.fork_rng(devices=[]):  # the random states of the test stay as they are
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    tiny: dict[str, Any] = {
        "model": model,
        "loss": nn.functional.cross_entropy,
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        "train_data": batches,
        "eval_data": {"valid": batches[:2]},
        "extensions": list(extensions),
    }
    return TrainManager(**{**tiny, **options})


class Recorder(Extension):
    """Record every stage as it opens and as it ends, and the fixtures that it owned.

    It can be added to any Extensible. Since it looks into every stage, a TrainManager also opens the stages inside a
    batch, which stay closed otherwise.

    *Runs at:* the start and the end of every stage.

    *Asks for:* ``stage``.

    *Leaves behind:* its attributes.

    Attributes:
        stages: the names of stages, in the order in which they opened.
        hooks: ``pre_<stage>`` and ``post_<stage>``, in the order in which they ran.
        born: the names of the fixtures that each stage owned at its end, by the path of the stage.
    """

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.hooks: list[str] = []
        self.born: dict[tuple[str, ...], set[str]] = {}

    def pre_stage(self, stage: Stage) -> None:
        self.stages.append(stage.name)
        self.hooks.append(f"pre_{stage.name}")

    def post_stage(self, stage: Stage) -> None:
        self.hooks.append(f"post_{stage.name}")
        # A stage opens many times: a fixture that only some openings define counts too.
        self.born.setdefault(stage.path, set()).update(stage.owned)
