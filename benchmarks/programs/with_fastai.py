"""fastai: a Learner; bare without its recorder and bar."""

from __future__ import annotations

from functools import partial

from fastai.basics import DataLoaders, Learner, OptimWrapper, Recorder
from fastai.callback.progress import ProgressCallback
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW

from benchmarks.programs.problems import LR, Problem


def usual(problem: Problem, epochs: int) -> nn.Module:
    def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction.argmax(dim=1) == targets).float().mean()

    model = problem.new_model()
    data = DataLoaders(problem.loader("train"), problem.loader("valid"))
    learner = Learner(data, model, F.cross_entropy, partial(OptimWrapper, opt=AdamW), LR, metrics=accuracy)
    learner.fit(epochs, wd=0.01)
    return model


def bare(problem: Problem, epochs: int) -> nn.Module:
    model = problem.new_model()
    data = DataLoaders(problem.loader("train"), problem.loader("valid"))
    learner = Learner(data, model, F.cross_entropy, partial(OptimWrapper, opt=AdamW), LR)
    with learner.no_bar(), learner.no_logging():
        learner.remove_cbs([Recorder, ProgressCallback])
        learner.fit(epochs, wd=0.01)
    return model
