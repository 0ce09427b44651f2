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

from train_manager.learner.description import Description, KeyPath, Mistakes, told
from train_manager.learner.entries import (
    LOSS,
    NUMBER,
    TABLE,
    TEXT,
    Form,
    Key,
    read_entry,
    read_keys,
    read_tables,
    require_name,
)
from train_manager.loop.losses import report_loss
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError

_PAIR: Final = Form(
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

REDUCTIONS: Final = ("mean", "sum", "batchmean")


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
        mistakes = Mistakes()
        read = Description.read({"objective": description}, "the description of objectives")
        self.terms = read_objectives(read, None, mistakes)
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
            values = [value_of(prediction, module) for module in term.modules]
            truth = truth_of(term, targets)
            if all(value is not None for value in values) and (truth is not None or not term.takes_targets):
                found[name] = term.function(*values, *([truth] if term.takes_targets else []))
        return found


def truth_of(term: Term, targets: Any) -> Any:
    """Return the targets of an objective; None if the batch does not have them."""
    return targets.get(term.targets) if isinstance(targets, Mapping) else targets


def value_of(prediction: Any, module: str) -> Any:
    """Return what a module has given; None if the batch does not have what feeds it."""
    return prediction.get(module) if isinstance(prediction, Mapping) else prediction


def read_objectives(description: Description, modules: list[str] | None, mistakes: Mistakes) -> dict[str, Term]:
    """Read the objectives; what is wrong with them is left out.

    Args:
        modules: the modules of the model; None if they are not known.
    """
    given = description.tree.get("objective", {})
    if not TABLE.fits(given):
        return {}
    found = {}
    for name, table in read_tables(description, ("objective",), given, mistakes):
        term = _read_term(description, name, table, modules, mistakes)
        if term is not None:
            found[name] = term
    return found


def _read_term(
    description: Description, name: str, table: Mapping[str, Any], modules: list[str] | None, mistakes: Mistakes
) -> Term | None:
    path, before = ("objective", name), len(mistakes)
    found = read_keys(description, path, table, KEYS, mistakes, has_arguments=True)
    at = [found["at"]] if "at" in found else found.get("between", [])
    if "at" in table and "between" in table:
        cure = "at compares a module with the targets, between compares two modules with each other"
        mistakes.add(description, path, "has both at and between", cure=cure)
    elif "at" not in table and "between" not in table:
        mistakes.add(description, path, 'lacks at = "a module", or between = ["one", "another"]', nearest_of=modules)
    key = "at" if "at" in found else "between"
    for module in at:
        require_name(description, (*path, key), module, at if modules is None else modules, "not a module", mistakes)
    _check_reduction(description, (*path, "reduction"), table.get("reduction", "mean"), mistakes)
    kind = LOSS._replace(data=2) if "between" in table else LOSS  # it is given two results
    entry = read_entry(description, path, table, kind, mistakes, keys=KEYS)
    if entry is None or len(mistakes) > before:
        return None
    function = entry.tried(mistakes) if isinstance(entry.thing, type) else partial(entry.thing, **entry.arguments)
    if function is None:
        return None
    takes_targets = len(_required(function)) > len(at)
    if "targets" in found and not takes_targets:
        mistakes.add(description, (*path, "targets"), f"is given, but {entry.word} takes no targets")
    return Term(function, at, float(found.get("weight", 1.0)), found.get("targets"), takes_targets)


def _check_reduction(description: Description, path: KeyPath, given: Any, mistakes: Mistakes) -> None:
    """Refuse what torch refuses only at the first batch, and a loss of each example by itself."""
    if given not in REDUCTIONS:
        what = f"must be {' or '.join(map(repr, REDUCTIONS))}, but is {told(given)}"
        mistakes.add(description, path, what, cure="a loss must be one number")


def _required(function: Callable[..., Tensor]) -> list[str]:
    """Return the parameters that a loss must be called with."""
    called = function.forward if isinstance(function, nn.Module) else function
    parameters = inspect.signature(called).parameters.values()
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.default is Parameter.empty and p.kind in by_position]
