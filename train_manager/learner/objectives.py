"""The objectives of a file: losses at modules, or between two of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter
from typing import Any, Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.learner.description import Description, FileMistakes, Spot
from train_manager.learner.entries import (
    LOSS,
    NUMBER,
    TABLE,
    TEXT,
    Key,
    ValueForm,
    has_form,
    is_among,
    read_entry,
    read_keys,
    read_tables,
)
from train_manager.loop.losses import report_loss
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

_PAIR: Final = ValueForm(
    "a list of two names",
    lambda value: isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value),
)

KEYS: Final = {
    "at": Key(TEXT, "the module whose result is compared with the targets"),
    "between": Key(_PAIR, "two modules whose results are compared with each other"),
    "weight": Key(NUMBER, "the factor of the loss in the sum; 1 if it is left out"),
    "targets": Key(TEXT, "the column with the truth, if there are several"),
}
"""The keys of an objective, beside ``use`` and its arguments."""

_REDUCTIONS: Final = ("mean", "sum", "batchmean")
# Torch refuses another only at the first batch; "none" gives a loss for each example.
_REDUCTION: Final = ValueForm(
    " or ".join(map(repr, _REDUCTIONS)), lambda value: value in _REDUCTIONS, cure="a loss must be one number"
)


@recorded
def contrast(one: Tensor, other: Tensor, temperature: float = 0.5) -> Tensor:
    """Return how badly each row of one tensor is found among the rows of another: the loss of SimCLR and CLIP.

    The rows of the same number belong together; all other rows are examples of what does not. Chen et al. 2020,
    arXiv:2002.05709, and Radford et al. 2021, arXiv:2103.00020, where the two are found in both directions.

    >>> contrast(torch.eye(3), torch.eye(3), temperature=0.01) < 1e-6
    tensor(True)

    Args:
        one: (examples, features).
        other: (examples, features).
        temperature: divides the cosine similarities, which lie from -1 to 1.
    """
    similar = F.normalize(one.flatten(1), dim=1) @ F.normalize(other.flatten(1), dim=1).T / temperature
    own = torch.arange(len(one), device=one.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


class Term(NamedTuple):
    """An objective: a loss function, and what it is called with.

    Attributes:
        modules: one module, or two.
        targets: the name of the column; None for the only one.
        takes_targets: whether the loss function has a parameter for them.
    """

    function: Callable[..., Tensor]
    modules: list[str]
    weight: float
    targets: str | None
    takes_targets: bool

    def arguments(self, prediction: Any, targets: Any) -> list[Tensor] | None:
        """Return what the function is called with; None if the batch does not have everything."""
        truth = [truth_of(self, targets)] if self.takes_targets else []
        given = [*(value_of(prediction, module) for module in self.modules), *truth]
        return None if any(value is None for value in given) else given


@final
@recorded
class Objectives(nn.Module):
    """The weighted sum of the objectives that a description says; a loss for a model from a file.

    >>> import torch
    >>> loss = Objectives({"class": {"use": "cross_entropy", "at": "digit"}})
    >>> loss(torch.zeros(4, 10), torch.tensor([7, 1, 0, 3]))
    tensor(2.3026)

    An objective whose targets, or modules, a batch does not have is left out of its loss: batches of several datasets
    train the objectives that they have the truth for. The fixture ``losses`` has each objective by its name.

    Args:
        description: the tables of the objectives by name.

    Raises:
        InputError: all mistakes in the description.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        mistakes = FileMistakes()
        read = Description.read({"objective": description}, "the description of objectives").root(mistakes)
        self.terms = read_objectives(read.below("objective"), None)
        mistakes.raise_all()
        losses = [term.function for term in self.terms.values()]
        # Registered, so that the buffers of losses go to the device.
        self.losses = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))

    @property
    def modules_asked(self) -> list[str]:
        """The modules whose results the objectives need."""
        return list(dict.fromkeys(name for term in self.terms.values() for name in term.modules))

    def __repr__(self) -> str:
        return f"Objectives({', '.join(self.terms)})"

    def forward(self, prediction: Any, targets: Any = None) -> Tensor:
        """Return the weighted sum of the objectives that the batch has everything for.

        Raises:
            InputError: there is none.
        """
        parts = self.parts(prediction, targets)
        if not parts:
            given = ", ".join(map(str, targets)) if isinstance(targets, Mapping) else "no targets"
            what = f"no objective can be computed: the batch has {given}"
            raise InputError(what, name="objective", cure='name a column of this dataset: targets = "..."')
        for name, part in parts.items():
            report_loss(part, name, weight=self.terms[name].weight)
        weighted = [self.terms[name].weight * part for name, part in parts.items()]
        return sum(weighted[1:], weighted[0])

    def parts(self, prediction: Any, targets: Any) -> dict[str, Tensor]:
        """Return the loss of each objective that the batch has everything for, without its weight."""
        found = {}
        for name, term in self.terms.items():
            given = term.arguments(prediction, targets)
            if given is not None:
                found[name] = term.function(*given)
        return found


def truth_of(term: Term, targets: Any) -> Any:
    """Return the targets of an objective; None if the batch does not have them."""
    return targets.get(term.targets) if isinstance(targets, Mapping) else targets


def value_of(prediction: Any, module: str) -> Any:
    """Return what a module has given; None if the batch does not have what feeds it."""
    return prediction.get(module) if isinstance(prediction, Mapping) else prediction


def read_objectives(spot: Spot, modules: list[str] | None) -> dict[str, Term]:
    """Read the objectives; what is wrong with them is left out.

    Args:
        spot: of their tables.
        modules: the modules of the model; None if they are not known.
    """
    tables = read_tables(spot) if TABLE.fits(spot.value) else ()
    return {name: term for name, table in tables if (term := _read_term(table, modules)) is not None}


def _read_term(spot: Spot, modules: list[str] | None) -> Term | None:
    table, before = spot.value, len(spot.mistakes)
    found = read_keys(spot, KEYS, has_arguments=True)
    if "at" in table and "between" in table:
        cure = "at compares a module with the targets, between compares two modules with each other"
        spot.wrong("has both at and between", cure=cure)
    elif "at" not in table and "between" not in table:
        spot.wrong('lacks at = "a module", or between = ["one", "another"]', nearest_of=modules)
    at = [found["at"]] if "at" in found else found.get("between", [])
    for module in at:
        key = spot.below("at" if "at" in found else "between")
        is_among(key, module, at if modules is None else modules, "is not a module")
    if "reduction" in table:
        has_form(spot.below("reduction"), _REDUCTION)
    kind = LOSS._replace(data=2) if "between" in table else LOSS  # it is given two results
    entry = read_entry(spot, kind, keys=KEYS)
    if entry is None or len(spot.mistakes) > before:
        return None
    function = entry.tried() if isinstance(entry.thing, type) else partial(entry.thing, **entry.arguments)
    if function is None:
        return None
    takes_targets = len(_required(function)) > len(at)
    if "targets" in found and not takes_targets:
        spot.below("targets").wrong(f"is given, but {entry.word} takes no targets")
    return Term(function, at, float(found.get("weight", 1.0)), found.get("targets"), takes_targets)


def _required(function: Callable[..., Tensor]) -> list[str]:
    """Return the parameters that a loss must be called with."""
    called = function.forward if isinstance(function, nn.Module) else function
    parameters = inspect.signature(called).parameters.values()
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.default is Parameter.empty and p.kind in by_position]
