"""Methods that look like hooks, or like overrides, but that nothing calls; and extensions that do nothing.

``on_train_epoch_end`` and ``train_bach`` are methods as any other to Python, and would never run. A name that a base
class of another library has is left alone, since that library calls it. ``@not_a_hook`` excepts any other method.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple, final

from train_manager.checker.tree import StageTree
from train_manager.core.declarations import declarations_of
from train_manager.core.extension import Extension
from train_manager.core.hooks import HOW_HOOKS_ARE_CALLED, KINDS
from train_manager.core.methods import is_computed, is_method
from train_manager.telling.errors import HookError, near
from train_manager.telling.source_locations import line_of_function, users_level
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


def find_lookalikes(owner: type, extensions: Iterable[type], tree: StageTree, words: Words) -> Iterator[HookError]:
    """Yield an error for each method that looks like a hook or an override, but is neither.

    Args:
        owner: the class of the Extensible, which opens the stages.
        extensions: the classes of its extensions.
        tree: the stages that it opens.
        words: the names that its hooks have in other tools.
    """
    for cls in dict.fromkeys([owner, *extensions]):
        users = _users(cls)
        if not users:  # a class of this library
            continue
        looks, helpers = _Looks(owner, users, tree, words), _called_by_their_class(users)
        for name, value in _attributes(users).items():
            if is_computed(value):
                look = looks.computed(name, value)
            else:
                look = looks.of(name) if name not in helpers and _is_the_users(cls, users, name) else None
            if look is not None:
                label = f"{cls.__name__}.{name}"
                what, line = f"{label} {look.wrong}", line_of_function(value)
                yield HookError(what, name=name, asked_by=label, asked_at=line, cure=look.cure)


@final
class _Looks:
    """Looks at the names of one class, as a class that opens stages would read them.

    A plain loop may name its own methods freely; only a prefix before one of its own stages is refused there.
    """

    def __init__(self, opener: type, users: Sequence[type], tree: StageTree, words: Words) -> None:
        self.words = words
        self.is_loop = any(issubclass(base, opener) for base in users)
        self.stages = tuple(tree.stages)
        # A method may be named after a stage that its own class opens, as `fit` opens "fit"; not after any other stage.
        mine = [value for base in users for value in vars(base).values() if is_method(value)]
        own_stages = _stages_opened_by({inspect.unwrap(method) for method in mine}, tree)
        self.others_stages = [stage for stage in self.stages if stage not in own_stages]
        loop = opener.__mro__ if self.is_loop else ()
        declared = [(name, declarations_of(found)) for base in loop for name, found in vars(base).items()]
        self.overridable = [name for name, declarations in declared if declarations.overridable]

    def of(self, name: str) -> Look | None:
        """Return the mistake that the name of a method gives away; None if it looks like a method of the user's own."""
        look = self.by_name(name)
        return None if look is None else Look(look.wrong, look.cure + WAY_OUT)

    def computed(self, name: str, value: object) -> Look | None:
        """Find a property, or the like, that has the name of a hook."""
        kind, _, stage = name.partition("_")
        # A loop may have a property `pre_trained`; it is a mistake only if the loop opens a stage of that name.
        if kind not in KINDS or not stage or (self.is_loop and stage not in self.stages):
            return None
        wrong = f"has the name of a hook, but is a {type(value).__name__}, which cannot be called as one"
        return Look(wrong, f"write a method, `def {name}(self, ...)`; or take another name")

    def by_name(self, name: str) -> Look | None:
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
        hooks = tuple(f"{kind}_{stage}" for kind in KINDS for stage in self.stages)
        nearest = _nearest(name, hooks, NEARLY_A_HOOK)
        return Look("looks like a hook, but would never run", f"did you mean {nearest[0]!r}?") if nearest else None

    def nearly_an_override(self, name: str) -> Look | None:
        """Find ``train_bach``; not ``train_batches`` or ``_train_batch``, which contain the right name."""
        others = tuple(other for other in self.overridable if other not in name and name not in other)
        nearest = _nearest(name, others, NEARLY_AN_OVERRIDE) if self.is_loop else []
        return Look("overrides nothing", f"did you mean {nearest[0]!r}?") if nearest else None


@lru_cache(maxsize=1024)
def _nearest(name: str, names: tuple[str, ...], cutoff: float) -> list[str]:
    """Return the name that is most like another one; kept, as each further object of a class asks for the same."""
    return get_close_matches(name, names, 1, cutoff)


def _stages_opened_by(methods: set[Any], tree: StageTree) -> set[str]:
    return {node.stage for node in tree.nodes.values() if not methods.isdisjoint(node.callers[-1:])}


def _attributes(classes: Sequence[type]) -> dict[str, Any]:
    """Return the methods, properties and the like of classes, the first of each name."""
    found = {name: value for cls in reversed(classes) for name, value in vars(cls).items()}
    # A staticmethod or classmethod stands for the function in it.
    plain = {name: getattr(value, "__func__", value) for name, value in found.items() if not name.startswith("__")}
    return {name: value for name, value in plain.items() if is_method(value) or is_computed(value)}


def _is_the_users(cls: type, users: Sequence[type], name: str) -> bool:
    """Return whether only users' classes have a method, without ``@not_a_hook`` and ``@fixture`` methods."""
    # A name that a base class of a library has too is called there: an override, and not a mistake.
    if any(name in vars(base) for base in cls.__mro__ if base not in users):
        return False
    declared = [declarations_of(vars(base)[name]) for base in users if name in vars(base)]
    return not any(declares.not_a_hook or declares.fixture_of is not None for declares in declared)


def _called_by_their_class(users: Sequence[type]) -> set[str]:
    """Return the names that other methods of a user's class read: such a method is a helper, whatever it looks like."""
    found = [(name, value) for base in users for name, value in vars(base).items()]
    return {used for name, value in found for used in _names_used_by(value) if used != name}


def _names_used_by(value: object) -> frozenset[str]:
    """Return the names that the code of a method reads, those of functions inside it included."""
    function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else None
    ahead, found = [function.__code__] if isinstance(function, FunctionType) else [], frozenset[str]()
    while ahead:
        code = ahead.pop()
        found |= {*code.co_names}
        ahead += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found


def _users(cls: type) -> list[type]:
    """Return the classes of users, which they have derived from classes of this library."""
    ours = [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "train_manager"]
    return [base for base in cls.__mro__ if base not in ours and issubclass(base, (*ours,))]


def warn_of_idle(extensions: Iterable[Extension]) -> None:
    """Warn of extensions without a hook and a fixture, unless they have another method that a loop would call."""
    for cls in dict.fromkeys(map(type, extensions)):
        users = _users(cls)
        # A base class other than Extension and object may call the methods, or use the extension in another way.
        does = {name for base in users for name in vars(base)} & CALLED_BY_OTHERS
        is_more = any(base not in users and base.__name__ != "Extension" for base in cls.__mro__[:-1])
        if users and not (does or is_more):
            what = f"{cls.__name__} has no hook and no fixture, so it does nothing"
            warnings.warn(f"{what}: {HOW_HOOKS_ARE_CALLED}", stacklevel=users_level())
