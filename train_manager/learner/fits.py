"""Whether data fit a model: found with a few examples, before the training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from train_manager.checks.batch_leak import check_batch_leak
from train_manager.learner.datasets import Datasets
from train_manager.learner.description import FileMistakes, KeyPath, Spot
from train_manager.learner.entries import is_among, named_error
from train_manager.learner.model import FileModel
from train_manager.learner.objectives import Term
from train_manager.loop.modes import mode, preserve_modes


def compare_columns(data: Datasets, model: FileModel, mistakes: FileMistakes) -> None:
    """Compare the columns of the data with the inputs and objectives of a model."""
    tables = data.description.root(mistakes).below("dataset")
    for name in data.input_names:
        if name not in model.input_names:
            tables.wrong(f"gives the input {name!r}, which the model does not have")
    for name in model.input_names:
        if name not in data.input_names:
            tables.wrong(f"lacks the input {name!r} of the model")
    if not model.objectives:
        model.source.root(mistakes).wrong("lacks an objective, so there is nothing to train for")
    for name, term in model.objectives.items():
        if term.takes_targets:
            _check_targets(model.source.root(mistakes).below("objective", name), term, data.target_names)


def _check_targets(spot: Spot, term: Term, names: list[str]) -> None:
    """Require the column of an objective: without its truth it would be left out of every loss."""
    if not names:
        spot.wrong("needs targets, but no dataset has any")
    elif term.targets is not None:
        is_among(spot.below("targets"), term.targets, names, "no dataset has among its targets")
    elif len(names) > 1:
        spot.wrong(f'lacks targets = "...", one of {", ".join(names)}')


def try_examples(data: Datasets, model: FileModel, mistakes: FileMistakes) -> None:
    """Give the model, and each of its objectives, a few examples of each dataset."""
    for name, batch in data.examples().items():
        given = batch["inputs"]
        inputs = given if isinstance(given, Mapping) else {model.input_names[0]: given}
        before = len(mistakes)
        spot, expected = data.description.root(mistakes).below("dataset", name, "inputs"), model.examples(1)
        for column, values in inputs.items():
            _compare(spot, column, values, expected[column])
        if len(mistakes) == before:
            _try_objectives(model, spot, batch)
        if len(mistakes) == before:
            _find_leaks(model, given, mistakes)


def _compare(spot: Spot, column: str, values: Tensor, expected: Tensor) -> None:
    """Compare the values of an input column with what the model expects of it."""
    if values.shape[1:] != expected.shape[1:]:
        what = f"give {column} of {list(values.shape[1:])}, but the model takes {list(expected.shape[1:])}"
        spot.wrong(what, cure=f"write {column} = {list(values.shape[1:])} in [inputs] of the model")
    elif values.is_floating_point() != expected.is_floating_point():
        kinds = {True: "numbers with a point", False: "whole numbers"}
        given, taken = kinds[values.is_floating_point()], kinds[expected.is_floating_point()]
        cure = 'for whole numbers the model has { shape = [...], dtype = "int64" }; divide makes numbers with a point'
        spot.wrong(f"give {column} of {given}, but the model takes {taken}", cure=cure)


def _find_leaks(model: FileModel, inputs: Any, mistakes: FileMistakes) -> None:
    """Refuse a module whose result for an example depends on the others of its batch, as a softmax over dim 0."""
    with mode(model, training=False):
        found = check_batch_leak(model, inputs, call=lambda called, given: called(given))
    for finding in (finding for finding in found if finding.level == "error"):
        name, *layer = finding.where.split(" ")[0].split(".")
        path: KeyPath = ("module", name, "layers", int(layer[0])) if layer else ("module", name)
        what = f"mixes the examples of a batch: {finding.what}"
        mistakes.add(model.source, path, what, cure="a module must treat each example by itself")


def _try_objectives(model: FileModel, spot: Spot, batch: Mapping[str, Any]) -> None:
    """Compute the prediction of a batch, whose inputs the spot says, and each objective that it has everything for."""
    with torch.no_grad(), preserve_modes(model), warnings.catch_warnings():
        warnings.filterwarnings("error", "Using a target size")  # each prediction would be compared with all targets
        model.eval()
        try:
            prediction = model(batch["inputs"])
        except Exception as error:
            spot.wrong(f"do not fit the model, which raised {named_error(error)}")
            return
        objectives = model.source.root(spot.mistakes).below("objective")
        for name, term in model.objectives.items():
            given = term.arguments(prediction, batch.get("targets"))
            if given is not None:
                _try_loss(objectives.below(name), term, given)


def _try_loss(spot: Spot, term: Term, given: list[Tensor]) -> None:
    try:
        loss = term.function(*given)
        what = "" if loss.numel() == 1 else f"returned {loss.numel()} numbers, but must return one"
    except Exception as error:
        what = f"raised {named_error(error)}"
    if what:
        results = [f"{module} of {list(value.shape)}" for module, value in zip(term.modules, given, strict=False)]
        truth = [_described(value) for value in given[len(results) :]]
        spot.wrong(what, cure=f"it was given {' and '.join([*results, *truth])}")


def _described(truth: Tensor) -> str:
    kind = str(truth.dtype).removeprefix("torch.")
    return f"targets of {list(truth.shape)}, {kind} from {truth.min().item():g} to {truth.max().item():g}"
