"""Parameter groups by patterns of names: the optimizer that ``groups`` makes of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, final

from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.loop.arguments import kind_of
from train_manager.loop.windows import requires_closure
from train_manager.model.chosen_parameters import (
    NamedParameters,
    Pattern,
    list_parameters,
    named_parameters,
    pattern_name,
    take_parameters,
)
from train_manager.model.combined_optimizer import CombinedOptimizer
from train_manager.model.layer_numbers import layer_numbers
from train_manager.model.optimizers import fused_argument
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.argument_names import named_arguments
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.validation import is_number, require_number

MakeOptimizer = Callable[..., Optimizer]
"""A class of optimizers, or a function that makes one of parameter groups."""

DEFAULT: Final = "default"
EXAMPLE: Final = 'optimizer=groups({"*.bias": {"weight_decay": 0}, "blocks.*": Muon}, default=AdamW)'
OTHER_WORDS: Final = dict.fromkeys(
    ("lr", "learning_rate", "weight_decay"), "the class has it: default=partial(AdamW, lr=..., weight_decay=...)"
)
"""Names of arguments in other tools, with a sentence on what to write."""


@final
@dataclass
class Draft:
    """A parameter group before its optimizer is made."""

    part: int  # the number of its optimizer; that of `default` is the last
    name: str
    make: MakeOptimizer
    options: Mapping[str, Any]  # those that differ from the options of the optimizer
    parameters: list[nn.Parameter]
    scale: float = 1.0  # the factor of its learning rate


@recorded
@final
class groups:  # noqa: N801  # reads as a function: optimizer=groups({...})
    """Make an optimizer with a parameter group for each pattern of names.

    >>> from torch.optim import SGD, AdamW
    >>> from train_manager import summary
    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(optimizer=groups({"*.bias": {"weight_decay": 0}, "0": SGD}, default=AdamW))
    >>> for group in summary(tm).groups:  # name, class, tensors, parameters, lr, weight_decay
    ...     print(*group)
    0 SGD 1 16 0.001 0
    *.bias AdamW 2 10 0.001 0
    default AdamW 1 16 0.001 0.01

    A pattern means the parameters whose names it matches, and those of the modules that it matches: ``"head"`` and
    ``"head.*"`` are the same. In place of a pattern, a function of a parameter says whether it means it. The first
    pattern that means a parameter has it. A tied parameter is in one group, a frozen parameter is in its group too. The
    parameters of a loss are named ``loss.…``.

    Groups with options are groups of the optimizer of ``default``. If a pattern has a class of its own, it is a
    ``CombinedOptimizer``, which steps one of each: still one optimizer for schedules, extensions and checkpoints.

    Args:
        patterns: for each pattern the options in which its group differs from ``default``; or a class of optimizers, or
            a function that makes one of groups: ``partial(Muon, lr=0.02)``.
        default: the class or the function for all other parameters.
        layer_decay: a factor below 1 by which the learning rate falls from each layer to the one before it: from the
            head to each block of the one stack of blocks that the model has, and to what is before the stack.

    Raises:
        InputError: an argument is invalid; as the optimizer is made: a pattern means no parameter, a parameter is in no
            group, or an optimizer does not have an option.
    """

    @named_arguments(OTHER_WORDS)
    def __init__(
        self,
        patterns: Mapping[Any, Mapping[str, Any] | MakeOptimizer] | None = None,  # of texts and functions
        default: MakeOptimizer | None = None,
        *,
        layer_decay: float = 1.0,
    ) -> None:
        self.patterns = _require_patterns({} if patterns is None else patterns, default)
        self.default = default
        self.layer_decay = require_number(layer_decay, "layer_decay of groups", above=0, at_most=1)

    def __call__(self, model: nn.Module, loss: Iterable[nn.Module] = ()) -> Optimizer:
        """Return the optimizer of a model, and of the modules of a loss."""
        if not isinstance(model, nn.Module):
            what = f"groups needs a torch.nn.Module, but the model is {kind_of(model)}"
            raise InputError(what, name="optimizer", asked_by="groups", cure="give a ready optimizer")
        named = named_parameters([("", model), *(("loss.", one) for one in loss)])
        drafts = list(self._drafts(named))
        if self.layer_decay < 1:
            drafts = list(_of_layers(drafts, layer_numbers(model, named), self.layer_decay))
        drafts.sort(key=_part_of)
        made = [_made(list(of_part), named) for _, of_part in groupby(drafts, _part_of)]
        return made[0] if len(made) == 1 else CombinedOptimizer(map(_require_combinable, made))

    def _drafts(self, named: NamedParameters) -> Iterator[Draft]:
        left, last = dict(named), len(self.patterns)
        for number, (pattern, given) in enumerate(self.patterns.items()):
            own, name = take_parameters(left, pattern, named), pattern_name(pattern)
            if callable(given):
                yield Draft(number, name, given, {}, own)
            elif self.default is not None:  # required by the constructor
                yield Draft(last, name, self.default, given, own)
        if self.default is not None and left:
            yield Draft(last, DEFAULT, self.default, {}, list(left))
        elif any(parameter.requires_grad for parameter in left):
            what = f"groups has no pattern that means {list_parameters(left)}, and no default"
            cure = "give them one: groups({...}, default=AdamW); or freeze them: requires_grad_(False)"
            raise InputError(what, name="default", asked_by="groups", cure=cure)


_part_of: Final = attrgetter("part")


def _of_layers(drafts: Iterable[Draft], numbers: Mapping[nn.Parameter, int], decay: float) -> Iterator[Draft]:
    """Yield a group for each layer of each group, with the factor of its learning rate."""
    last = max(numbers.values())
    for draft in drafts:
        for number in sorted({numbers[one] for one in draft.parameters}):
            own = [one for one in draft.parameters if numbers[one] == number]
            name, scale = f"{draft.name}, layer {number}", decay ** (last - number)
            yield replace(draft, name=name, parameters=own, scale=scale)


def _made(drafts: list[Draft], named: NamedParameters) -> Optimizer:
    """Return the optimizer of the groups of one part."""
    make = drafts[0].make
    given = [{**draft.options, "params": draft.parameters, "name": draft.name} for draft in drafts]
    try:
        made = make(given, **fused_argument(make, [one for draft in drafts for one in draft.parameters]))
    except Exception as error:
        own = list_parameters({one: named[one] for draft in drafts for one in draft.parameters})
        called = ", ".join(repr(draft.name) for draft in drafts)
        error.add_note(f"groups makes it of a list of dicts, as torch takes them: {called}, with {own}")
        raise
    if not isinstance(made, Optimizer) or len(made.param_groups) != len(drafts):
        what = f"groups: {pattern_name(make)} must make a torch optimizer of the groups, each as it is given"
        cure = "pass them on: lambda parameters: SGD(parameters, lr=0.1)"
        raise InputError(what, name="optimizer", asked_by="groups", cure=cure)
    for draft, group in zip(drafts, made.param_groups, strict=True):
        _require_options(draft, made)
        if draft.scale != 1:
            group["lr"] = group["lr"] * draft.scale
    return made


# ---- what is refused -------------------------------------------------------------------------------------------------


def _require_patterns(patterns: Any, default: Any) -> dict[Pattern, Any]:
    if default is not None and not _is_maker(default):
        what = f"default of groups must be a class of optimizers, or make one, but is {kind_of(default)}"
        raise InputError(what, name="default", asked_by="groups", cure=EXAMPLE)
    if not isinstance(patterns, Mapping):
        what = f"groups takes a dict of patterns, but was given {kind_of(patterns)}"
        raise InputError(what, name="patterns", asked_by="groups", cure=EXAMPLE)
    if not patterns and default is None:
        raise InputError("groups was given no pattern and no default", name="patterns", asked_by="groups", cure=EXAMPLE)
    for pattern, given in patterns.items():
        if not isinstance(pattern, str) and (isinstance(pattern, type) or not callable(pattern)):
            what = f"a pattern of groups must be a text or a function of a parameter, but is {pattern!r:.60}"
            raise InputError(what, name="patterns", asked_by="groups", cure=EXAMPLE)
        called = pattern_name(pattern)
        if not isinstance(given, Mapping) and not _is_maker(given):
            what = f"groups needs options or a class of optimizers for {called!r}, but was given {kind_of(given)}"
            raise InputError(what, name=called, asked_by="groups", cure=EXAMPLE)
        if default is None and not callable(given):
            what = f"groups has options for {called!r}, but no default of which they are options"
            raise InputError(what, name="default", asked_by="groups", cure="give it: groups({...}, default=AdamW)")
    return dict(patterns)


def _is_maker(value: object) -> bool:
    return callable(value) and not isinstance(value, Optimizer)


def _require_options(draft: Draft, made: Optimizer) -> None:
    """Refuse options that the optimizer does not have, which torch would keep in the group unused."""
    kind = type(made).__name__
    for option, value in draft.options.items():
        if option not in made.defaults:
            nearest = near(option, made.defaults)
            cure = did_you_mean(nearest) or f"its options are {', '.join(made.defaults)}"
            what = f"groups: {kind} has no option {option!r}, which {draft.name!r} sets"
            raise InputError(what, name=option, asked_by="groups", nearest=nearest, cure=cure)
        if is_number(made.defaults[option]) and not isinstance(value, Tensor):
            require_number(value, f"{option} of {draft.name!r} in groups", at_least=0)


def _require_combinable(part: Optimizer) -> Optimizer:
    """Return an optimizer, unless it can only be the sole one."""
    kind = type(part)
    own = [name for name in ("add_param_group", "state_dict", "load_state_dict") if name in vars(kind)]
    if own or requires_closure(kind.step):
        why = f"{own[0]} is its own" if own else "step needs a closure"
        what = f"groups cannot combine {kind.__name__} with another class of optimizers: its {why}"
        cure = "give it all parameters, or a dict of optimizers"
        raise InputError(what, name="optimizer", asked_by="groups", cure=cure)
    return part
