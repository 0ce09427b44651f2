"""Methods that look like hooks, or like overrides, but that nothing calls: refused before the first stage.

``on_train_epoch_end`` and ``train_bach`` are methods as any other to Python, and would never run. A name that a base
class of another library has is left alone, since that library calls it. ``@not_a_hook`` excepts any other method.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import Final, NamedTuple, final

from train_manager.core.decorators import declarations_of
from train_manager.core.hooks import HOW_HOOKS_ARE_CALLED, KINDS
from train_manager.core.methods import is_method, refuse, stages_opened_by
from train_manager.telling.errors import near
from train_manager.telling.source_locations import users_level
from train_manager.telling.words import Words

PREFIXES: Final = {"on_": "", "before_": "pre", "after_": "post", "begin_": "pre", "end_": "post"}
SUFFIXES: Final = {"_start": "pre", "_begin": "pre", "_end": "post"}
"""How the names of hooks begin and end in other tools, with the kind of hook that is meant; empty: either kind."""

# Methods that a loop or another library calls by name: neither hooks nor mistakes.
CALLED_BY_OTHERS: Final = {"setup", "teardown", "close", "state_dict", "load_state_dict", "replace_parameters"}
NEARLY_A_HOOK: Final = 0.9  # the share of letters that two names have in common: one letter of ten may differ
NEARLY_AN_OVERRIDE: Final = 0.85  # the same for the methods of a loop
WAY_OUT: Final = " (or @not_a_hook, if it is a method of your own)"  # ends each cure


class Look(NamedTuple):
    """The mistake in a method, as the end of a sentence, and its cure."""

    wrong: str
    cure: str


def refuse_lookalikes(holder: object, opener: type, words: Words) -> None:
    """Refuse a method that looks like a hook or an override, but is neither.

    Args:
        holder: an extension, or the Extensible itself.
        opener: the class of the Extensible, which opens the stages.
        words: the names that its hooks have in other tools.
    """
    cls = type(holder)
    if opener in _looked_at.get(cls, ()):
        return
    looks = _Looks(cls, opener, words)
    for name in _names(cls):
        look = looks.of(name)
        if look is not None:
            refuse(holder, name, look.wrong, look.cure + WAY_OUT)
    _looked_at.setdefault(cls, weakref.WeakSet()).add(opener)


_looked_at: weakref.WeakKeyDictionary[type, weakref.WeakSet[type]] = weakref.WeakKeyDictionary()
"""For each class that was found clean, the classes of loops that open its stages.

A look at a class takes longer than all other work on an extension that is added. Both sides are weak, so that classes
made in a test or a notebook can be freed.
"""


@final
class _Looks:
    """Looks at the names of one class, as a class that opens stages would read them.

    A plain loop may name its own methods freely; only a prefix before one of its own stages is refused there.
    """

    def __init__(self, cls: type, opener: type, words: Words) -> None:
        self.words = words
        self.is_loop = issubclass(cls, opener)
        self.stages = stages_opened_by(opener)
        # A method may be named after a stage that its own class opens, as `fit` opens "fit"; not after any other stage.
        self.others_stages = self.stages.difference(*(stages_opened_by(base, inherited=False) for base in _users(cls)))
        declared = [(name, declarations_of(found)) for base in opener.__mro__ for name, found in vars(base).items()]
        self.overridable = [name for name, declarations in declared if declarations.overridable]

    def of(self, name: str) -> Look | None:
        """Return the mistake that a name gives away; None if it looks like a method of the user's own."""
        # Real hooks and private names: only an override may be misspelt here.
        if name.startswith("_") or name in CALLED_BY_OTHERS or name.partition("_")[0] in KINDS:
            return self.nearly_an_override(name)
        if self.is_loop and not self.overridable:  # a plain loop, derived from Extensible itself
            look = self.with_a_prefix(name)
            return None if look is None or look.cure == HOW_HOOKS_ARE_CALLED else look
        looks = (self.foreign_hook, self.with_a_prefix, self.like_a_stage, self.nearly_a_hook, self.nearly_an_override)
        return next((found for look in looks if (found := look(name))), None)

    def foreign_hook(self, name: str) -> Look | None:
        known = self.words.foreign_hooks(name)
        return Look(f"looks like a hook of {known[0].tool}, but would never run", known[0].cure) if known else None

    def with_a_prefix(self, name: str) -> Look | None:
        """Find ``on_train_batch_end``, with the hooks of existing stages that may be meant by it."""
        prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), None)
        if prefix is None:
            return None
        suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
        stem, kind = name.removeprefix(prefix).removesuffix(suffix), SUFFIXES.get(suffix) or PREFIXES[prefix]
        stages = [stem] if stem in self.stages else near(stem, self.stages)
        hooks = [f"'{kind}_{stages[0]}'" for kind in ([kind] if kind else ["pre", "post"])] if stages else []
        cure = f"call it {' or '.join(hooks)}" if hooks else HOW_HOOKS_ARE_CALLED
        return Look("looks like a hook, but would never run", cure)

    def like_a_stage(self, name: str) -> Look | None:
        wrong, cure = "is called like a stage, but would never run", f"call it 'pre_{name}' or 'post_{name}'"
        return Look(wrong, cure) if name in self.others_stages else None

    def nearly_a_hook(self, name: str) -> Look | None:
        if name.startswith("pre") and "_" not in name:  # `pretrain` is a word
            return None
        hooks = [f"{kind}_{stage}" for kind in KINDS for stage in self.stages]
        nearest = get_close_matches(name, hooks, 1, NEARLY_A_HOOK)
        return Look("looks like a hook, but would never run", f"did you mean {nearest[0]!r}?") if nearest else None

    def nearly_an_override(self, name: str) -> Look | None:
        """Find ``train_bach``; not ``train_batches`` or ``_train_batch``, which contain the right name."""
        others = [other for other in self.overridable if other not in name and name not in other]
        nearest = get_close_matches(name, others, 1, NEARLY_AN_OVERRIDE) if self.is_loop else []
        return Look("overrides nothing", f"did you mean {nearest[0]!r}?") if nearest else None


def _users(cls: type) -> list[type]:
    """Return the classes of users, which they have derived from classes of this library."""
    ours = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "train_manager"]
    return [base for base in cls.__mro__ if base not in ours and issubclass(base, (*ours,))]


def _names(cls: type) -> Iterator[str]:
    """Yield the names of methods that only users' classes have, without ``@not_a_hook`` and ``@fixture`` methods."""
    users = _users(cls)
    # A name that a base class of a library has too is called there: an override, and not a mistake.
    meant = {name for base in cls.__mro__ if base not in users for name in vars(base)}
    found = [(name, value) for base in users for name, value in vars(base).items()]
    declared = [(name, declarations_of(value)) for name, value in found]
    meant |= {name for name, declares in declared if declares.not_a_hook or declares.fixture_of is not None}
    # `self.plot_epoch()`: a method that another one of its class calls is a helper, whatever it looks like.
    meant |= {used for name, value in found for used in _names_used_by(value) if used != name}
    for name, value in found:
        if not name.startswith("__") and name not in meant and is_method(getattr(value, "__func__", value)):
            yield name


def _names_used_by(value: object) -> frozenset[str]:
    """Return the names that the code of a method reads, those of functions inside it included."""
    function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
    ahead, found = [function.__code__] if isinstance(function, FunctionType) else [], frozenset[str]()
    while ahead:
        code = ahead.pop()
        found |= {*code.co_names}
        ahead += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def warn_if_idle(extension: object, hooks: Sequence[object], providers: Sequence[object]) -> None:
    """Warn of an extension that has no hook, no fixture, and no other method that a loop would call."""
    cls = type(extension)
    users = _users(cls)
    # A base class other than Extension and object may call the methods, or use the extension in another way.
    does = {name for base in users for name in vars(base)} & CALLED_BY_OTHERS
    is_more = any(base not in users and base.__name__ != "Extension" for base in cls.__mro__[:-1])
    if users and not (hooks or providers or does or is_more):
        what = f"{cls.__name__} has no hook and no fixture, so it does nothing"
        warnings.warn(f"{what}: {HOW_HOOKS_ARE_CALLED}", stacklevel=users_level())
