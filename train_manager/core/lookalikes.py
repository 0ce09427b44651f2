"""Methods that look like hooks, or like overrides, but that nothing calls: refused before the first stage.

``on_train_epoch_end``, ``posttrain`` and ``train_bach`` are methods as any other to Python, and would never run. A
method that other code of its class names is left alone, as is a name that comes from a base class of another library:
something calls it. ``@not_a_hook`` says so of the others.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from types import CodeType
from typing import Any, Final, NamedTuple, final

from train_manager.core.decorators import declarations_of
from train_manager.core.foreign_names import FOREIGN_PREFIXES, FOREIGN_SUFFIXES, ForeignName, known_names
from train_manager.core.hooks import KINDS
from train_manager.core.methods import code_in, is_method, refuse, stages_opened_by
from train_manager.telling.errors import near
from train_manager.telling.source_locations import users_level

CALLED_BY_OTHERS: Final = frozenset(
    {"setup", "teardown", "close", "state_dict", "load_state_dict", "replace_parameters"}
)
NEARLY_A_HOOK: Final = 0.9  # of 1: one letter of ten
NEARLY_AN_OVERRIDE: Final = 0.85
WAY_OUT: Final = " (or @not_a_hook, if it is a method of your own)"
NEVER_RUNS: Final = "looks like a hook, but would never run"


class Look(NamedTuple):
    """What is wrong with a method, and the cure."""

    wrong: str
    cure: str


def refuse_lookalikes(holder: object, opener: type) -> None:
    """Refuse a method that looks like a hook or an override, and is none.

    Args:
        holder: an extension, or the Extensible itself.
        opener: the class of the Extensible, which opens the stages.
    """
    cls = type(holder)
    if opener in _looked_at.get(cls, ()):
        return
    looks = _Looks(cls, opener)
    suspects = {name: look for name in _names(cls) if (look := looks.of(name))}
    while called := [name for name in suspects if _is_called(name, _words_in(cls, suspects))]:
        for name in called:  # it may call others
            del suspects[name]
    for name, (wrong, cure) in suspects.items():
        refuse(holder, name, wrong, cure + WAY_OUT)
    _looked_at.setdefault(cls, weakref.WeakSet()).add(opener)


_looked_at: weakref.WeakKeyDictionary[type, weakref.WeakSet[type]] = weakref.WeakKeyDictionary()
"""The classes without such methods, and for which loops: a look takes longer than all else that an object costs."""


def counterparts(name: str) -> str:
    """Return what a name of other tools is called here, as a sentence; empty if it is unknown."""
    return next(map(_told, known_names(name)), "")


@final
class _Looks:
    """What the names of one class look like, to a class that opens stages.

    A class that is itself the loop may call its methods as it likes; only clear cases are refused there, unless it is a
    subclass of a loop whose methods are there to be overridden.
    """

    def __init__(self, cls: type, opener: type) -> None:
        self.cls, self.opener = cls, opener
        self.is_loop = issubclass(cls, opener)
        self.overridable = _overridable(opener)
        self.is_plain_loop = self.is_loop and not self.overridable

    @cached_property
    def stages(self) -> frozenset[str]:
        return stages_opened_by(self.opener)

    @cached_property
    def hooks(self) -> dict[str, str]:
        """All hooks that there could be, by the letters of their names."""
        return {_letters(kind + stage): f"{kind}_{stage}" for kind in KINDS for stage in self.stages}

    def of(self, name: str) -> Look | None:
        if name.startswith("_") or name in CALLED_BY_OTHERS:
            return self.like_an_override(name)
        if name.partition("_")[0] in KINDS:
            return self.like_a_spelling(name)
        return (
            self.like_a_known_name(name)
            or self.like_a_foreign_name(name)
            or self.like_a_spelling(name)
            or self.like_a_stage(name)
            or self.like_an_override(name)
            or self.nearly_a_hook(name)
        )

    def like_a_known_name(self, name: str) -> Look | None:
        known = known_names(name)
        if not known or (self.is_plain_loop and not name.startswith((*FOREIGN_PREFIXES,))):
            return None
        cures = [_told(one) for one in known if self.is_here(one)]
        return Look(f"looks like a hook of {known[0].tool}, but would never run", (cures or [self.cure_for(name)])[0])

    def is_here(self, known: ForeignName) -> bool:
        """Return whether the counterpart of a name is one for this loop too."""
        kind, _, stage = known.here.partition("_")
        if kind in KINDS:
            return stage in self.stages
        if known.here in CALLED_BY_OTHERS:
            return not self.is_loop
        return bool(self.overridable)

    def like_a_foreign_name(self, name: str) -> Look | None:
        stem, _ = _taken_apart(name)
        is_foreign = name.startswith((*FOREIGN_PREFIXES,)) and not self.is_plain_loop
        if is_foreign or (stem != name and stem in self.stages):
            return Look(NEVER_RUNS, self.cure_for(name))
        return None

    def like_a_spelling(self, name: str) -> Look | None:
        """Find ``postTrain`` and ``posttrain``; not ``pretrain``, which is a word."""
        hook = self.hooks.get(_letters(name), name)
        is_word = name.islower() and (("_" not in name and name.startswith("pre")) or self.is_plain_loop)
        if hook == name or is_word or name.partition("_")[2] in self.stages:
            return None
        return Look(NEVER_RUNS, f"did you mean {hook!r}?")

    def like_a_stage(self, name: str) -> Look | None:
        if self.is_plain_loop:
            return None
        own = _opened_by_users(self.cls) if self.is_loop else frozenset()
        stages = {_letters(stage): stage for stage in self.stages - own}
        stage = stages.get(_letters(name))
        return Look("is called like a stage, but would never run", _pre_or_post(stage)) if stage else None

    def nearly_a_hook(self, name: str) -> Look | None:
        if self.is_plain_loop or _letters(name) in self.hooks:
            return None
        hooks = get_close_matches(name, self.hooks.values(), n=1, cutoff=NEARLY_A_HOOK)
        return Look(NEVER_RUNS, f"did you mean {hooks[0]!r}?") if hooks else None

    def like_an_override(self, name: str) -> Look | None:
        """Find ``train_bach``; not ``train_batches`` or ``_train_batch``, which say something else."""
        if not self.is_loop:
            return None
        others = [other for other in self.overridable if other not in name and name not in other]
        nearest = get_close_matches(name, others, n=1, cutoff=NEARLY_AN_OVERRIDE)
        nearest = nearest or [other for other in others if _letters(other) == _letters(name)]
        wrong = f"overrides nothing, and nothing of {self.cls.__name__} calls it"
        return Look(wrong, f"did you mean {nearest[0]!r}?") if nearest else None

    def cure_for(self, name: str) -> str:
        """Return a cure made of the stages that there are."""
        stem, kinds = _taken_apart(name)
        stages = [stem] if stem in self.stages else near(stem, self.stages)[:1]
        if not stages:
            return "hooks are called pre_<stage>, post_<stage> or around_<stage>"
        return f"call it '{kinds[0]}_{stages[0]}'" if len(kinds) == 1 else _pre_or_post(stages[0])


def _taken_apart(name: str) -> tuple[str, tuple[str, ...]]:
    """Return ``train_batch`` and ``post`` of ``on_train_batch_end``: the stage, and the kinds that it may mean."""
    prefix = next((prefix for prefix in FOREIGN_PREFIXES if name.startswith(prefix)), "")
    suffix = next((suffix for suffix in FOREIGN_SUFFIXES if name.endswith(suffix)), "")
    stem = name.removeprefix(prefix).removesuffix(suffix)
    kind = FOREIGN_SUFFIXES.get(suffix) or FOREIGN_PREFIXES.get(prefix)
    return stem, (kind,) if kind else ("pre", "post")


def _told(known: ForeignName) -> str:
    """Return ``on_train_epoch_end is called post_train_step_epoch here``."""
    name, here = known.name, known.here
    if not here:
        return f"{name} has no counterpart here"
    if here.endswith("="):
        return f"{name} is the argument {here} here"
    is_override = here.partition("_")[0] not in KINDS and here not in CALLED_BY_OTHERS
    return f"{name} is called {known.decorator}{here} here" + (", in a subclass of TrainManager" if is_override else "")


def _pre_or_post(stage: str) -> str:
    return f"call it 'pre_{stage}' or 'post_{stage}'"


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


# ---- classes ---------------------------------------------------------------------------------------------------------


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "train_manager"


def _users(cls: type) -> list[type]:
    """Return the classes that users have derived from those of this library."""
    return [base for base in cls.__mro__ if not _is_ours(base) and any(map(_is_ours, base.__mro__))]


def _names(cls: type) -> Iterator[str]:
    """Yield the names of methods that only users' classes have, without those that say what they are."""
    users = _users(cls)
    taken = {name for base in cls.__mro__ if base not in users for name in vars(base)}
    meant = {name for base in users for name, found in vars(base).items() if _says_what_it_is(found)}
    for base in users:
        for name, found in vars(base).items():
            is_plain = not name.startswith("__") and is_method(getattr(found, "__func__", found))
            if is_plain and name not in taken and name not in meant:
                yield name


def _says_what_it_is(found: object) -> bool:
    declared = declarations_of(found)
    return declared.not_a_hook or declared.fixture_of is not None


def _overridable(cls: type) -> list[str]:
    """Return the names of the methods that are there to be overridden."""
    return [name for base in cls.__mro__ for name, found in vars(base).items() if declarations_of(found).overridable]


def _opened_by_users(cls: type) -> frozenset[str]:
    return frozenset().union(*(stages_opened_by(base, inherited=False) for base in _users(cls)))


def _is_called(name: str, words: Collection[str]) -> bool:
    """Return whether a name stands among the words, or a beginning of it from which code makes names: ``"on_"``."""
    begins = [prefix for prefix in FOREIGN_PREFIXES if name.startswith(prefix)]
    return name in words or any(word in (begin, begin + "{}", begin + "%s") for word in words for begin in begins)


def _words_in(cls: type, suspects: Collection[str]) -> set[str]:
    """Return all names and strings in users' classes, without the code of suspects; a table may hold them too."""
    words: set[str] = set()
    for base in _users(cls):
        for name, found in vars(base).items():
            if name not in suspects:
                codes = list(code_in(found))
                words.update(word for code in codes for word in (code.co_name, *_words(code)) if word != name)
                words.update(_held(found) if isinstance(found, Mapping | list | tuple | set) else ())
    return words


def _held(table: Iterable[Any]) -> Iterator[str]:
    """Yield the strings in a table, and the names of the functions in it."""
    for value in [*table, *(table.values() if isinstance(table, Mapping) else ())]:
        name = value if isinstance(value, str) else getattr(value, "__name__", None)
        if isinstance(name, str):
            yield name


def _words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from (constant for constant in code.co_consts if isinstance(constant, str))


# ---- extensions that do nothing --------------------------------------------------------------------------------------


def warn_if_idle(extension: object, hooks: Sequence[object], providers: Sequence[object]) -> None:
    """Warn of an extension that has neither hooks nor fixtures, and nothing else that a loop would call."""
    cls = type(extension)
    users = _users(cls)
    does = {name for base in users for name in vars(base)} & CALLED_BY_OTHERS
    is_more = any(base not in users and base.__name__ != "Extension" for base in cls.__mro__[:-1])
    if users and not (hooks or providers or does or is_more):
        what = f"{cls.__name__} has no hook and no fixture, so it does nothing"
        warnings.warn(f"{what}: hooks are called pre_<stage>, post_<stage> or around_<stage>", stacklevel=users_level())
