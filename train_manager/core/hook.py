"""A hook: a method named ``pre_<stage>``, ``post_<stage>`` or ``around_<stage>``, found on an object by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, partialmethod
from typing import Any, Final, TypeVar, final

from train_manager.core.errors import HookError
from train_manager.core.fixtures import FAILURE
from train_manager.core.signature import NamedCall
from train_manager.core.source import line_of_function, stages_opened_by

EVERY_STAGE: Final = "stage"
"""`pre_stage` and its kin belong to no stage: they run at every one where what they ask for is alive."""

SIDES: Final = ("pre", "post", "around")
FOREIGN_PREFIXES: Final = (
    "on_",
    "before_",
    "after_",
    "begin_",
    "end_",
)  # what hooks are called in other tools

Function = TypeVar("Function", bound=Callable[..., Any])


def always(hook: Function) -> Function:
    """Mark a post hook that also runs when its stage fails.

    It may ask for ``exc_type``, ``exc_value`` and ``traceback`` (None where nothing failed). It cannot swallow
    the error. Give a default to what may not be there yet when the stage fails:

    >>> from train_manager import Extension, always
    >>> class Notes(Extension):
    ...     @always
    ...     def post_train_step_batch(self, exc_value, loss=None):
    ...         print("ended with", exc_value, "at loss", loss)
    """
    _plain(hook).__train_manager_always__ = True
    return hook


def priority(value: int) -> Callable[[Function], Function]:
    """Place a hook among the others of its stage: lowest first, 0 where nothing is said.

    >>> from train_manager import Extension, priority
    >>> class Last(Extension):
    ...     @priority(10)
    ...     def post_train_step_batch(self):
    ...         print("after the hooks of other extensions")
    """

    def mark(hook: Function) -> Function:
        _plain(hook).__train_manager_priority__ = value
        return hook

    return mark


@final
@dataclass(frozen=True, slots=True)
class Hook:
    """One hook, read and found callable.

    Attributes:
        side: ``pre``, ``post`` or ``around``.
        stage: the stage's name, or ``stage`` for every stage.
        owner: the extension's name; empty for a method of the Extensible itself.
        call: the method, its wishes read.
        always: it runs after a failure too.
        priority: its place among the others, lowest first.
    """

    side: str
    stage: str
    owner: str
    call: NamedCall
    always: bool
    priority: int

    @property
    def everywhere(self) -> bool:
        """Whether it belongs to every stage."""
        return self.stage == EVERY_STAGE

    @property
    def label(self) -> str:
        """``EMA.post_train_step_batch``, for messages."""
        return self.call.label


def read_hooks(holder: object, owner: str, default_priority: int = 0) -> list[Hook]:
    """The hooks of an object, in the order they are written in its class.

    Raises:
        HookError: one of them could never be called.
    """
    return [_read_hook(holder, name, owner, default_priority) for name in _hook_names(holder)]


def refuse_foreign_names(holder: object, opener: type) -> None:
    """Refuse a method that looks like another tool's hook for a stage of ``opener``: it would never run.

    Raises:
        HookError: naming the method and what it is called here.
    """
    for name in _method_names(holder):
        prefix = next((prefix for prefix in FOREIGN_PREFIXES if name.startswith(prefix)), None)
        stage = name.removeprefix(prefix or "")
        if prefix and stage in stages_opened_by(opener):
            cure = f"call it 'pre_{stage}' or 'post_{stage}'"
            raise _refusal(holder, name, "looks like a hook, but would never run", cure)


def _hook_names(holder: object) -> Iterator[str]:
    for name in _method_names(holder):
        side, _, stage = name.partition("_")
        if side in SIDES and stage:
            yield name


def _method_names(holder: object) -> Iterator[str]:
    """Names of the methods, base classes first, each class in the order it is written."""
    names = dict.fromkeys(name for cls in reversed(type(holder).__mro__) for name in vars(cls))
    names.update(dict.fromkeys(vars(holder)) if hasattr(holder, "__dict__") else {})
    return (name for name in names if _is_method(_unbound(holder, name)))


def _is_method(found: object) -> bool:
    """Whether it was made by ``def``, or by a decorator or ``partial`` of it; no property, nor another object."""
    return isinstance(found, partial | partialmethod) or (inspect.isroutine(found) and callable(found))


def _unbound(holder: object, name: str) -> Any:
    return _plain(inspect.getattr_static(holder, name))


def _plain(method: Any) -> Any:
    """The function that a static or class method holds."""
    return method.__func__ if isinstance(method, staticmethod | classmethod) else method


def _read_hook(holder: object, name: str, owner: str, default_priority: int) -> Hook:
    side, _, stage = name.partition("_")
    function = _unbound(holder, name)
    always_runs = getattr(function, "__train_manager_always__", False)
    _refuse_uncallable(holder, name, function)
    if always_runs and side != "post":
        raise _refusal(holder, name, "is marked @always, which only a post hook can be", "take @always off")
    call = NamedCall(getattr(holder, name), f"{type(holder).__name__}.{name}")
    unknowable = [wish for wish in call.required if wish in FAILURE]
    if unknowable and not always_runs:
        raise _refusal(holder, name, f"wants {unknowable[0]!r}, which only an @always hook gets", "mark it @always")
    rank = getattr(function, "__train_manager_priority__", default_priority)
    return Hook(side, stage, owner, call, always_runs, rank)


def _refuse_uncallable(holder: object, name: str, function: Any) -> None:
    plain = inspect.unwrap(function)
    is_generator = inspect.isgeneratorfunction(plain)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise _refusal(holder, name, "is async, and nobody would await it", "make it a plain `def`")
    if name.startswith("around_") and not is_generator:
        raise _refusal(
            holder,
            name,
            "is not a generator",
            "an around-hook has one bare `yield`, where the stage runs, and no @contextmanager",
        )
    if not name.startswith("around_") and is_generator:
        raise _refusal(
            holder,
            name,
            "is a generator, and its body would never run",
            f"take the `yield` out, or call it 'around_{name.partition('_')[2]}'",
        )
    if inspect.isfunction(inspect.getattr_static(type(holder), name, None)):
        first = next(iter(inspect.signature(function).parameters), None)
        if first != "self":
            raise _refusal(
                holder,
                name,
                f"takes {first!r} where `self` belongs" if first else "takes no `self`",
                f"write `def {name}(self, ...)`",
            )


def _refusal(holder: object, name: str, wrong: str, cure: str) -> HookError:
    label = f"{type(holder).__name__}.{name}"
    return HookError(
        f"{label} {wrong}",
        name=name,
        asked_by=label,
        asked_at=line_of_function(_unbound(holder, name)),
        cure=cure,
    )
