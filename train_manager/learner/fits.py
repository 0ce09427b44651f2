"""Whether data fit a model: found with a few examples, before the training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from train_manager.diagnosis.batch_leak import check_batch_leak
from train_manager.learner.datasets import Datasets
from train_manager.learner.description import KeyPath, Mistakes
from train_manager.learner.entries import named_error
from train_manager.learner.model import FileModel
from train_manager.learner.objectives import Term, truth_of, value_of
from train_manager.loop.modes import mode, preserve_modes


def try_examples(data: Datasets, model: FileModel, mistakes: Mistakes) -> None:
    """Give the model, and each of its objectives, a few examples of each dataset."""
    for name, batch in data.examples().items():
        given = batch["inputs"]
        inputs = given if isinstance(given, Mapping) else {model.input_names[0]: given}
        before = len(mistakes)
        for column, values in inputs.items():
            _compare(data, model, name, column, values, mistakes)
        if len(mistakes) == before:
            _try_objectives(model, data, name, batch, mistakes)
        if len(mistakes) == before:
            _find_leaks(model, given, mistakes)


def _compare(data: Datasets, model: FileModel, name: str, column: str, values: Tensor, mistakes: Mistakes) -> None:
    expected = model.examples(1)[column]
    path = ("dataset", name, "inputs")
    if values.shape[1:] != expected.shape[1:]:
        what = f"give {column} of {list(values.shape[1:])}, but the model takes {list(expected.shape[1:])}"
        cure = f"write {column} = {list(values.shape[1:])} in [inputs] of the model"
        mistakes.add(data.description, path, what, cure=cure)
    elif values.is_floating_point() != expected.is_floating_point():
        kinds = {True: "numbers with a point", False: "whole numbers"}
        what = f"give {column} of {kinds[values.is_floating_point()]}, but the model takes "
        cure = 'for whole numbers the model has { shape = [...], dtype = "int64" }; divide makes numbers with a point'
        mistakes.add(data.description, path, what + kinds[expected.is_floating_point()], cure=cure)


def _find_leaks(model: FileModel, inputs: Any, mistakes: Mistakes) -> None:
    """Refuse a module whose result for an example depends on the others of its batch, as a softmax over dim 0."""
    with mode(model, training=False):
        found = check_batch_leak(model, inputs, call=lambda called, given: called(given))
    for finding in (finding for finding in found if finding.level == "error"):
        name, *layer = finding.where.split(" ")[0].split(".")
        path: KeyPath = ("module", name, "layers", int(layer[0])) if layer else ("module", name)
        what = f"mixes the examples of a batch: {finding.what}"
        mistakes.add(model.source, path, what, cure="a module must treat each example by itself")


def _try_objectives(model: FileModel, data: Datasets, name: str, batch: Mapping[str, Any], mistakes: Mistakes) -> None:
    with torch.no_grad(), preserve_modes(model), warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size")  # each prediction would be compared with all targets
        model.eval()
        try:
            prediction = model(batch["inputs"])
        except Exception as error:
            what = f"do not fit the model, which raised {named_error(error)}"
            mistakes.add(data.description, ("dataset", name, "inputs"), what)
            return
        for objective, term in model.objectives.items():
            values = [value_of(prediction, module) for module in term.modules]
            truth = truth_of(term, batch.get("targets"))
            if all(value is not None for value in values) and (truth is not None or not term.takes_targets):
                truths = [truth] if term.takes_targets else []
                said = _try_loss(term, values, truths)
                if said:
                    given = [f"{m} of {list(v.shape)}" for m, v in zip(term.modules, values, strict=True)]
                    cure = f"it was given {' and '.join([*given, *map(_described, truths)])}"
                    mistakes.add(model.source, ("objective", objective), said, cure=cure)


def _try_loss(term: Term, values: list[Tensor], truths: list[Tensor]) -> str:
    try:
        loss = term.function(*values, *truths)
        return "" if loss.numel() == 1 else f"returned {loss.numel()} numbers, but must return one"
    except Exception as error:
        return f"raised {named_error(error)}"


def _described(truth: Tensor) -> str:
    kind = str(truth.dtype).removeprefix("torch.")
    return f"targets of {list(truth.shape)}, {kind} from {truth.min().item():g} to {truth.max().item():g}"
