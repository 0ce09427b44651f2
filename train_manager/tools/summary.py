"""A table of a model's layers: parameters, and shapes for a batch of the training data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, final

import torch
from torch import nn

from train_manager.data.batch import FromSource, to_device, unpack
from train_manager.data.random_state import preserve_random_state
from train_manager.data.readable import is_read_once, no_batch
from train_manager.data.reader import one_pass
from train_manager.loop.arguments import kind_of
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.modes import mode
from train_manager.loop.outputs import require_unpacked
from train_manager.loop.overridable import Overridable
from train_manager.manager import TrainManager
from train_manager.model.buffers import preserve_buffers
from train_manager.model.group_facts import GroupFacts, group_facts
from train_manager.model.summary import Layer, layer_of, shapes_of, total
from train_manager.reporting.values import align_columns, html_table, size_text
from train_manager.telling.errors import InputError

HEAD = ("layer", "input", "output", "parameters", "")


def summary(of: TrainManager | nn.Module, inputs: Any = None) -> Summary:
    """Return a table of the layers of a model: their shapes for one batch, and their parameters.

    >>> from train_manager.testing import tiny_manager
    >>> summary(tiny_manager())
    layer       input  output  parameters
    Sequential  16x2   16x2
      0 Linear  16x2   16x8            24
      1 ReLU    16x8   16x8
      2 Linear  16x8   16x2            18
    42 parameters (168 B), all trained

    The model is called once, in eval mode and without gradients; modes, buffers and random states are put back. Modules
    in a row that are alike are shown once. A parameter that several modules share is counted at the first of them.

    Args:
        of: a TrainManager, or a module.
        inputs: the inputs of the call; by default those of the first batch of ``train_data``, which is not used up.
            Data that can be read only once is not read; then the shapes are unknown.

    Raises:
        InputError: ``of`` is neither.
    """
    model = of.model if isinstance(of, TrainManager) else of
    if not isinstance(model, nn.Module):
        what = f"summary takes a TrainManager or a torch.nn.Module, but was given {kind_of(model)}"
        raise InputError(what, name="of", cure="summary(tm), or summary(model, inputs)")
    seen, reason = {}, _why_not(of, model, inputs)
    if not reason:
        try:
            with preserve_random_state(), preserve_buffers(model), mode(model, training=False):
                seen = shapes_of(model, _forward(of, model, inputs))
        except Exception as error:  # a forward may raise anything; the parameters are known without it
            reason = f"the forward pass failed: {type(error).__name__}: {error}".splitlines()[0]
    sizes = sum(p.numel() * p.element_size() for p in model.parameters() if not nn.parameter.is_lazy(p))
    return Summary(layer_of(model, seen), sizes, reason, tuple(_groups_of(of)))


@final
@dataclass(frozen=True, slots=True)
class Summary:
    """The layers of a model.

    Attributes:
        model: the outermost layer; its ``layers`` are inside it.
        bytes: the memory of the parameters.
        unknown: why the shapes are unknown; empty if they are known.
        groups: the parameter groups of each optimizer that has several.
    """

    model: Layer
    bytes: int
    unknown: str = ""
    groups: tuple[GroupFacts, ...] = ()

    @property
    def parameters(self) -> int:
        return total(self.model)[0]

    @property
    def trainable(self) -> int:
        return total(self.model)[1]

    def __repr__(self) -> str:
        lines = [list(HEAD), *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join(_padded(cells, widths)).rstrip() for cells in lines]
        groups = ["", align_columns(self._group_cells())] if self.groups else []
        return "\n".join([*texts, *self._closing(), *groups])

    def _repr_html_(self) -> str:
        # HTML drops spaces at the beginning of a cell, so the indent gets a space that is as wide as a digit.
        rows = [[name.replace(" ", "\u2007", len(name) - len(name.lstrip())), *rest] for name, *rest in self._cells()]
        closing = "".join(f"<p>{escape(line)}</p>" for line in self._closing())
        head, *groups = self._group_cells()
        return html_table(HEAD, rows) + closing + (html_table(head, groups) if groups else "")

    def _cells(self) -> list[list[str]]:
        return [
            [
                "  " * depth + f"{layer.name} {_times(layer)}".strip(),
                layer.input,
                layer.output,
                _count(layer),
                layer.note,
            ]
            for depth, layer in _with_depth(self.model, 0)
        ]

    def _closing(self) -> list[str]:
        """Return the lines below the table."""
        parameters, trainable = total(self.model)
        trained = "all trained" if trainable == parameters else f"{trainable:,} of them trained"
        lines = [f"{parameters:,} parameters ({size_text(self.bytes)}), {trained}"]
        return [*lines, f"shapes are unknown: {self.unknown}"] if self.unknown else lines

    def _group_cells(self) -> list[list[str]]:
        """Return the lines of the table of groups, below its head."""
        return [["group", *GroupFacts._fields[1:]], *([*map(_cell, group)] for group in self.groups)]


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _groups_of(of: TrainManager | nn.Module) -> Iterator[GroupFacts]:
    """Yield the groups of each optimizer with several; one without a name is called by its number."""
    optimizers = of.optimizers if isinstance(of, TrainManager) else {}
    for name, optimizer in optimizers.items():
        found = group_facts(optimizer)
        for number, facts in enumerate(found if len(found) > 1 else ()):
            called = facts.name or str(number)
            yield facts._replace(name=called if len(optimizers) == 1 else f"{name}: {called}")


def _padded(cells: list[str], widths: list[int]) -> Iterator[str]:
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        yield cell.rjust(width) if HEAD[number] == "parameters" else cell.ljust(width)


def _with_depth(layer: Layer, depth: int) -> Iterator[tuple[int, Layer]]:
    yield depth, layer
    for inner in layer.layers:
        yield from _with_depth(inner, depth + 1)


def _times(layer: Layer) -> str:
    return layer.kind if layer.count == 1 else f"{layer.kind}, {layer.count} times {total(layer)[0] // layer.count:,}"


def _count(layer: Layer) -> str:
    return f"{layer.parameters:,}" if layer.parameters else ""


def _why_not(of: TrainManager | nn.Module, model: nn.Module, inputs: Any) -> str:
    """Return why the model cannot be called; empty if it can."""
    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        return "the model has lazy parameters, which its first batch will make"
    if inputs is not None:
        return ""
    if not isinstance(of, TrainManager):
        return "no inputs were given; call summary(model, inputs)"
    data = _data_of(of)
    return "" if data is not None else "there is no data that can be read again; call summary(tm, inputs)"


def _data_of(train_manager: TrainManager) -> Iterable[Any] | None:
    sets = (train_manager.train_data, *train_manager.eval_data.values())
    return next((data for data in sets if data is not None and not is_read_once(data)), None)


def _forward(of: TrainManager | nn.Module, model: nn.Module, inputs: Any) -> Callable[[], Any]:
    """Return a function that calls the model as the loop does; an own ``model_forward`` gets values by their names."""
    if not isinstance(of, TrainManager):
        return lambda: ModelCall(model)(model, inputs)
    given: dict[str, Any] = {"inputs": inputs} if inputs is not None else _parts_of_a_batch(of)
    moved: Any = to_device(given, _device_of(model))
    values = {"model": model, "train_manager": of, **moved}
    # An evaluation prefers eval_model_forward, so the summary in eval mode does so too.
    own = [name for name in ("eval_model_forward", "model_forward") if of._overrides(name, Overridable)]
    method = getattr(of, own[0] if own else "model_forward")
    return lambda: method(**_named_by(method, values))


def _parts_of_a_batch(train_manager: TrainManager) -> dict[str, Any]:
    data = _data_of(train_manager)
    assert data is not None, "_why_not has looked for it"
    with one_pass(data) as batches:
        batch = next(iter(batches), None)
    if batch is None:
        raise no_batch(data, "train_data", "for summary")
    batch = batch.batch if type(batch) is FromSource else batch
    # The method of the loop gets its arguments from fixtures, which need an open run.
    if not train_manager._overrides("unpack_batch", Overridable):
        return {"batch": batch, **unpack(batch)}
    unpack_batch = train_manager.unpack_batch
    return {"batch": batch, **require_unpacked(unpack_batch(**_named_by(unpack_batch, {"batch": batch})))}


def _named_by(method: Callable[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    names = inspect.signature(method).parameters
    return {name: value for name, value in values.items() if name in names}


def _device_of(model: nn.Module) -> torch.device:
    # A model without tensors runs anywhere.
    return next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
