"""Extension: an object whose hooks run around the stages of an Extensible; and the names of several extensions."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from train_manager.core.hooks import HOW_HOOKS_ARE_CALLED, KINDS
from train_manager.core.schedule import load_states, states_of
from train_manager.core.store import Store
from train_manager.telling.argument_names import refuse_unfitting
from train_manager.telling.errors import HookError, StageError
from train_manager.telling.showing import constructor_text
from train_manager.telling.words import NO_WORDS, Words


class Extension:
    """Base class of all that is not the algorithm: plots, logs, checks, training recipes.

    Write methods named ``pre_<stage>``, ``post_<stage>`` or ``around_<stage>``; each gets the live fixtures that
    its parameters name. It is a plain object: its methods can be called by hand, and that is its unit test.

    >>> from train_manager import Extension
    >>> class Largest(Extension):
    ...     value = float("-inf")
    ...     def post_train_step_batch(self, loss):
    ...         self.value = max(self.value, float(loss))
    >>> largest = Largest()
    >>> largest.post_train_step_batch(loss=.3)
    >>> largest.value
    0.3

    Attributes:
        priority: on the class or the object: orders its hooks and the hooks of other extensions if nothing else
            orders them; lowest first, then as registered.
        shared: on the class: one object may serve two Extensibles that have stages open at the same time.
        keeps_hold: on the class: its around-hooks of open stages continue while it pauses; else they end, and begin
            anew afterwards.
        ranks: on the class: 0 plans its hooks in process 0 alone, of several that train together; its fixtures, and the
            hooks that write fixtures, stay in all of them.
        sends_away: on the class: what it writes leaves ``train_dir``, so that it pauses in a rehearsal.
        sole: on the class: an Extensible has at most one extension of the class and its subclasses. An object in a list
            takes the name and place of the one from a dict in the list or from the class of the Extensible.
    """

    priority: int = 0
    shared: bool = False
    keeps_hold: bool = False
    sends_away: bool = False
    sole: bool = False
    _checked_before_run = True  # False: the check leaves its hooks out, as their stages may never open
    ranks: int | None = None

    # Hidden from type checkers: by this signature they would let a class without an `__init__` take any arguments.
    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Extension:
            make = super().__new__
            # Not the `__init__`, but a `__new__` of another base class may be what takes the arguments.
            takes_by_init = make is object.__new__ or cls.__init__ is not object.__init__
            if (args or kwargs) and takes_by_init:  # `copy` and `pickle` call `__new__` without arguments
                refuse_unfitting(cls.__name__, cls.__init__, args, kwargs)
            return make(cls) if make is object.__new__ else make(cls, *args, **kwargs)

    def __repr__(self) -> str:
        return constructor_text(self)

    def state_dict(self) -> dict[str, Any]:
        """Return what must survive in a checkpoint: dicts, lists, tensors, numbers, strings.

        Here this is the state of its schedules; add to it: ``{**super().state_dict(), "value": self.value}``. Unless a
        class overrides it, a TrainManager also saves attributes with a ``state_dict``, and tensors.
        """
        states = states_of(self)
        return {"schedules": states} if states else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from what ``state_dict`` returned."""
        load_states(self, state.get("schedules", {}))

    @staticmethod
    def of(**hooks: Callable[..., Any]) -> Extension:
        """Return an extension made of functions.

        >>> from train_manager import Extension, Extensible
        >>> class Worker(Extensible):
        ...     def work(self):
        ...         with self.staged("work", {"size": 2}):
        ...             pass
        >>> Worker([Extension.of(pre_work=lambda size: print("size", size))]).work()
        size 2

        Args:
            hooks: functions by the names of hooks; their parameters are fixtures, without ``self``. What a lambda
                returns is dropped; any other function may return only what it declares, as methods do.

        Raises:
            HookError: a name is not the name of a hook.
        """
        for name, function in hooks.items():
            if name.partition("_")[0] not in KINDS or not callable(function):
                raise HookError(
                    f"Extension.of was given {name}={function!r:.60}, which is not a hook",
                    name=name,
                    cure=f"{HOW_HOOKS_ARE_CALLED}, and each is given a function",
                )
        methods = {name: staticmethod(function) for name, function in hooks.items()}
        made: Extension = type("Hooks", (Extension,), methods)()  # hooks are found on the class, as any others
        return made


Extensions = Mapping[str, Extension] | Iterable[Extension | Mapping[str, Extension]]
"""Extensions as an argument: a list (names are made from the classes), or a dict of names; or such dicts in a list."""


def _entries(extensions: Extensions | None, words: Words) -> list[Extension | dict[str, Extension]]:
    """Return the entries of a list of extensions, which a dict alone is one of; refuse all other objects."""
    if isinstance(extensions, Mapping):
        extensions = [extensions]
    # A text can be iterated over, and so can a class whose metaclass allows it; neither is a list of extensions.
    if isinstance(extensions, str | type) or not (extensions is None or hasattr(extensions, "__iter__")):
        raise _no_extensions(extensions, words)
    return [
        {name: require_extension(extension, words) for name, extension in entry.items()}
        if isinstance(entry, Mapping)
        else require_extension(entry, words)
        for entry in extensions or ()
    ]


def _in_places(named: Mapping[str, Extension], earlier: Mapping[str, Extension]) -> dict[str, Extension]:
    """Return the extensions of a dict, the sole ones under the names of those of their class in ``earlier``."""
    # A name that the dict has itself replaces the earlier extension, whose place is not free then.
    free = {name: extension for name, extension in earlier.items() if name not in named}
    found: dict[str, Extension] = {}
    for name, extension in named.items():
        place = sole_name(extension, free)
        found[name if place is None or place in found else place] = extension
    return found


def name_extensions(
    extensions: Extensions | None, words: Words = NO_WORDS, earlier: Mapping[str, Extension] | None = None
) -> dict[str, Extension]:
    """Return the extensions by name; extensions in a list are named after their class: ``ema``, ``ema_2``.

    A sole extension gets the name of the one of its class that an earlier level has. The levels are ``earlier``, the
    dicts in the list, and its single objects.

    Args:
        extensions: a list, a dict, a list with dicts in it, or None for no extension.
        words: has the names for the examples in errors.
        earlier: the extensions that are there already.
    """
    earlier = earlier or {}
    entries = [
        _in_places(entry, earlier) if isinstance(entry, Mapping) else entry for entry in _entries(extensions, words)
    ]
    there = {**earlier, **{name: one for entry in entries if isinstance(entry, dict) for name, one in entry.items()}}
    by_name: dict[str, Extension] = {}
    places: dict[str, Extension] = {}  # by the names of an earlier level
    for entry in entries:
        # An entry is an extension, or a dict that gives names to several.
        if isinstance(entry, dict):
            more = entry
        elif (place := sole_name(entry, there)) is not None and place not in places:
            places[place] = entry
            continue
        else:
            more = {free_name(entry, {**by_name, **places}): entry}
        twice = next((name for name in more if name in by_name), None)
        if twice is not None:
            cure = f"give one of them another name; or let it replace the other: {{**usual, {twice!r}: x}}"
            raise HookError(f"two extensions are called {twice!r}", name=twice, cure=cure)
        by_name.update(more)
    return {**by_name, **places}  # a name that is in both keeps its place in the order


def require_extension(extension: Extension, words: Words = NO_WORDS) -> Extension:
    """Return an extension; refuse any other object."""
    if not isinstance(extension, Extension):
        raise _no_extensions(extension, words, "an extension must be an instance")
    if not isinstance(extension.priority, int):
        kind = type(extension).__name__
        what = f"{kind}.priority must be a whole number, but is {extension.priority!r:.60}"
        raise HookError(what, name=kind, cure="give a whole number: priority = -1")
    return extension


def _no_extensions(value: object, words: Words, must: str = "extensions must be a list or a dict") -> HookError:
    """Make the error for what is not an extension, or not a list or dict of them: a class, a function, or another."""
    if isinstance(value, type):
        found, cure = f"the class {value.__name__}", f"add an instance: {value.__name__}()"
    elif isinstance(value, FunctionType):
        name = value.__name__ if value.__name__.isidentifier() else "lambda ...: ..."
        found = f"the function {name}"
        cure = f"name its hook: Extension.of({words.hook}={name}); if it returns extensions, call it"
    else:
        kind = type(value).__name__
        found, example = f"{kind} {value!r:.60}", kind if isinstance(value, Extension) else words.extension
        instead = f"give objects of Extension classes in place of {value!r:.60}"
        cure = f"{instead}: extensions=[{example}()], or a dict by name; or leave it out"
    return HookError(f"{must}, but is {found}", name=getattr(value, "__name__", type(value).__name__), cure=cure)


def free_name(extension: Extension, taken: Mapping[str, Extension]) -> str:
    """Return ``loss_curves`` for ``LossCurves``; if that is taken ``loss_curves_2``, and so on.

    A name is free for an extension whose class was defined anew, as by a cell of a notebook that runs again.
    """
    # `LossCurves` is cut before its second capital letter, and `LRSchedule` before the S, which begins a word.
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(extension).__name__).lower()
    names = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(free for free in names if free not in taken or _is_defined_anew(type(taken[free]), type(extension)))


def sole_name(extension: Extension, there: Mapping[str, Extension]) -> str | None:
    """Return the name of another extension that the class of a sole one does not allow beside it; None without one."""
    kind = sole_class(extension)
    if kind is None:
        return None
    return next((name for name, one in there.items() if one is not extension and sole_class(one) is kind), None)


def sole_class(extension: Extension) -> type | None:
    """Return the class that says ``sole = True``, which is the extension's own or one that this is derived from."""
    kind = type(extension)
    return next((base for base in reversed(kind.__mro__) if kind.sole and vars(base).get("sole")), None)


def _is_defined_anew(old: type, new: type) -> bool:
    """Return whether the name of the old class in its module stands for the new one."""
    # A class that a function makes is not an attribute of its module, and never counts as defined anew.
    is_renamed = (old.__module__, old.__qualname__) != (new.__module__, new.__qualname__)
    return old is not new and not is_renamed and getattr(sys.modules[new.__module__], new.__qualname__, None) is new


# ---- one object in several Extensibles -------------------------------------------------------------------------------


_stores: Final = WeakValueDictionary[int, Store]()
"""The state of each Extensible that has had extensions, by id."""


def is_serving(extension: Extension) -> bool:
    """Return whether an Extensible has this extension."""
    return bool(_served_by(extension))


def refuse_if_busy(extensions: Iterable[Extension], store: Store) -> None:
    """Refuse that one object serves two Extensibles at the same time."""
    for extension in extensions:
        others = [other for other in _served_by(extension) if other is not store]
        busy = next((other for other in others if other.innermost is not None), None)
        if busy is not None and not extension.shared:
            kind = type(extension).__name__
            raise StageError(
                f"this {kind} serves another extensible, which has stage {' > '.join(busy.path)} open",
                name=kind,
                cure=f"give each one a {kind} of its own, or set `shared = True` in its class if it keeps no state",
            )


def note_shared(extensions: Iterable[Extension], store: Store) -> None:
    """Note at the states of all Extensibles that have an extension whether they share it."""
    _stores[id(store)] = store
    for extension in extensions:
        serves = _served_by(extension)
        for one in serves if len(serves) > 1 else ():  # `refuse_if_busy`, at each outermost stage of these, costs time
            one.shares = True


def _served_by(extension: Extension) -> list[Store]:
    """Return the states of the Extensibles that have an extension."""
    stores = [reference() for reference in _stores.valuerefs()]  # a list: another thread may make an Extensible
    return [one for one in stores if one is not None and any(extension is held for held in [*one.extensions.values()])]
