"""Hooks and providers, read from an object.

A hook is a method named ``pre_<stage>``, ``post_<stage>`` or ``around_<stage>``. A provider is a ``@fixture`` method,
whose value is computed when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Final, final

from train_manager.core.calls import NamedCall
from train_manager.core.declarations import Declarations, Write, declarations_of
from train_manager.core.methods import (
    attributes_of,
    is_computed,
    is_generator,
    is_method,
    method_names,
    refuse,
    refuse_uncallable,
    unbound,
    weakly,
)
from train_manager.core.schedule import Schedule, schedules_of
from train_manager.core.scope import Caller
from train_manager.core.store import ALWAYS_THERE, FAILURE

EVERY_STAGE: Final = "stage"
"""Hooks named ``pre_stage``, ``post_stage`` or ``around_stage`` run at each stage at which their fixtures are alive."""

KINDS: Final = ("pre", "post", "around")
"""The first words of hooks' names."""

HOW_HOOKS_ARE_CALLED: Final = "hooks are called pre_<stage>, post_<stage> or around_<stage>"

AROUND_CURE: Final = "an around-hook must have one bare `yield`, where the stage runs, and no @contextmanager"


@final
@dataclass(frozen=True, slots=True)
class Hook(Caller):
    """A hook whose signature and declarations have been read."""

    kind: str  # one of KINDS; the stage may be EVERY_STAGE
    call: NamedCall  # calls the method with fixtures
    always: bool  # the hook runs also if its stage has failed
    priority: int  # orders hooks that nothing else orders, lowest first
    writes: tuple[Write, ...]  # the fixtures that its return value is written to
    everywhere: bool  # it is a hook of every stage
    schedules: tuple[tuple[Schedule, NamedCall], ...] = ()  # with the call of `should_run`; all must return True
    returns_nothing: bool = False  # it declares no write: a returned value would be lost, and is refused
    ranks: int | None = None  # the process that runs it alone, of several that train together; None: each of them

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of all fixtures that the hook or its schedules read."""
        return (*self.call.parameters, *(name for _, call in self.schedules for name in call.parameters))

    @property
    def is_plain(self) -> bool:
        """Whether the call needs nothing but the values of fixtures: no schedule, no write, no check of the stage."""
        return self.call.defaults is not None and not (self.writes or self.everywhere or self.schedules)

    def runs_at(self, stage: str) -> bool:
        """Return whether the hook belongs to a stage."""
        return self.everywhere or self.stage == stage

    @property
    def written(self) -> tuple[str, ...]:
        """The names of the fixtures that the hook declares to write."""
        return tuple(write.name for write in self.writes)


@final
@dataclass(frozen=True, slots=True)
class Provider(Caller):
    """A ``@fixture`` method whose signature and declarations have been read; the stage owns the fixture."""

    name: str  # of the method, and of the fixture
    call: NamedCall  # calls the method with fixtures
    cleans_up: bool  # the method yields the value, and its rest runs when the stage ends
    overrides: bool  # it replaces another provider of this name and stage


def _call_of(holder: object, name: str, owner: str) -> NamedCall:
    """Return the call of a method with fixtures."""
    call = NamedCall(getattr(holder, name), f"{type(holder).__name__}.{name}")
    if not owner:  # the Extensible holds its own methods: bound strongly, they would keep it alive until a collection
        call.function = weakly(call.function, holder)
    return call


# ---- hooks -----------------------------------------------------------------------------------------------------------


def read_hooks(holder: object, owner: str, default_priority: int = 0, ranks: int | None = None) -> list[Hook]:
    """Return the hooks of an object, in the order in which they are written."""
    return [_read_hook(holder, name, owner, default_priority, ranks) for name in _hook_names(holder)]


def _hook_names(holder: object) -> Iterator[str]:
    """Yield the names of an object's hooks; refuse methods that are decorated as hooks but are named otherwise."""
    for name, found in attributes_of(holder).items():
        kind, _, stage = name.partition("_")
        declarations = declarations_of(found)
        if kind in KINDS and stage and not declarations.not_a_hook:
            # A property may have such a name; if its class means a hook by it, the check says so.
            if is_method(found) or (callable(found) and not isinstance(found, type) and not is_computed(found)):
                yield name
        elif not is_method(found):
            continue
        elif declarations.fixture_of is not None and declarations.schedules:
            cure = "remove the schedule: a fixture is computed when it is first asked for"
            refuse(holder, name, "has a schedule, but is a @fixture, not a hook", cure)
        elif declarations.writes or declarations.always or declarations.schedules or declarations.priority is not None:
            wrong = "is declared as a hook, but does not have the name of a hook"
            refuse(holder, name, wrong, HOW_HOOKS_ARE_CALLED)


def _read_hook(holder: object, name: str, owner: str, default_priority: int, ranks: int | None) -> Hook:
    kind, _, stage = name.partition("_")
    declarations = declarations_of(unbound(holder, name))
    refuse_uncallable(holder, name)
    _refuse_mistakes(holder, name, kind, stage, declarations)
    call = _call_of(holder, name, owner)
    failure = [parameter for parameter in call.required if parameter in FAILURE]
    if failure and not declarations.always:
        refuse(holder, name, f"wants {failure[0]!r}, which only an @always hook gets", "decorate it with @always")
    writes = declarations.writes
    rules = schedules_of(holder, name)
    return Hook(
        label=call.label,
        defined_at=call.defined_at,
        owner=owner,
        stage=stage,
        kind=kind,
        call=call,
        always=declarations.always,
        priority=default_priority if declarations.priority is None else declarations.priority,
        writes=writes,
        everywhere=stage == EVERY_STAGE,
        schedules=tuple((rule, NamedCall(rule.should_run, f"the schedule of {call.label}")) for rule in rules),
        # A lost return value is refused only where the author could know: not of a lambda, nor of a borrowed method.
        returns_nothing=kind != "around" and not writes and _is_written_out(holder, name),
        # A hook that writes a fixture runs in all processes, as hooks there may ask for the fixture.
        ranks=None if writes else ranks,
    )


def _is_written_out(holder: object, name: str) -> bool:
    """Return whether a hook is a ``def`` of its own, and not a lambda or the method of another object.

    A lambda returns a value whether it is meant or not, and ``list.pop`` was not written to be a hook.
    """
    found = unbound(holder, name)
    if isinstance(found, MethodType) and found.__self__ is holder:
        found = found.__func__
    return isinstance(found, FunctionType) and found.__name__ != "<lambda>"


def _refuse_mistakes(holder: object, name: str, kind: str, stage: str, declarations: Declarations) -> None:
    """Refuse declarations that do not fit the kind of the hook."""
    generator, writes = is_generator(holder, name), declarations.writes
    if kind == "around" and not generator:
        refuse(holder, name, "is not a generator", AROUND_CURE)
    if kind != "around" and generator:
        cure = f"remove the `yield`, or call it 'around_{stage}'"
        refuse(holder, name, "is a generator, so its body would never run", cure)
    if kind != "post" and declarations.always:
        refuse(holder, name, "has @always, which is only for post hooks", "remove @always")
    if kind == "around" and writes:
        refuse(holder, name, "declares writes, but an around-hook returns nothing", "write in a pre or post hook")
    if stage == EVERY_STAGE and any(write.defines for write in writes):
        refuse(holder, name, "provides a fixture in every stage", "provide it in the one stage where it belongs")
    if declarations.fixture_of is not None:
        refuse(holder, name, "is a @fixture, but has the name of a hook", "give the fixture another name")


# ---- providers -------------------------------------------------------------------------------------------------------


def read_providers(holder: object, owner: str) -> list[Provider]:
    """Return the providers of an object, in the order in which they are written."""
    names = [name for name in method_names(holder) if declarations_of(unbound(holder, name)).fixture_of is not None]
    return [_read_provider(holder, name, owner) for name in names]


def _read_provider(holder: object, name: str, owner: str) -> Provider:
    declarations = declarations_of(unbound(holder, name))
    assert declarations.fixture_of is not None, "read_providers has looked"
    refuse_uncallable(holder, name)
    if name in (*ALWAYS_THERE, "extensible"):
        refuse(holder, name, f"provides {name!r}, which is always there", "take another name")
    call = _call_of(holder, name, owner)
    return Provider(
        label=call.label,
        defined_at=call.defined_at,
        owner=owner,
        stage=declarations.fixture_of,
        name=name,
        call=call,
        cleans_up=is_generator(holder, name),
        overrides=declarations.overrides,
    )
