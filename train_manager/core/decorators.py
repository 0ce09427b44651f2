"""What stands above a hook: decorators that say when it runs, what it writes, or that it makes a fixture.

They only leave a note on the function; ``hooks.py`` and ``providers.py`` read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

from train_manager.core.errors import HookError

Function = TypeVar("Function", bound=Callable[..., Any])
R = TypeVar("R")


@final
@dataclass(frozen=True, slots=True)
class Write:
    """One fixture that a hook's return value goes to.

    Attributes:
        name: the fixture.
        defines: it is defined (``@provides``); else a live one is replaced (``@modifies``).
        stage: the enclosing stage that will own it; None for the hooked one.
    """

    name: str
    defines: bool
    stage: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Declarations:
    """All that the decorators say of one function."""

    always: bool = False
    priority: int | None = None
    writes: tuple[Write, ...] = ()
    fixture_of: str | None = None
    overrides: bool = False
    schedules: tuple[Any, ...] = ()


def declarations_of(function: object) -> Declarations:
    """What its decorators say; nothing where it has none."""
    found = getattr(function, "__train_manager_declarations__", None)
    return found if isinstance(found, Declarations) else Declarations()


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
    return _declaring(hook, replace(declarations_of(hook), always=True))


def priority(value: int) -> Callable[[Function], Function]:
    """Place a hook among the others of its stage that what they read and write does not order already.

    Lowest first, 0 where nothing is said, then as registered.

    >>> from train_manager import Extension, priority
    >>> class Last(Extension):
    ...     @priority(10)
    ...     def post_train_step_batch(self):
    ...         print("after the hooks of other extensions")
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise HookError("@priority takes a whole number: @priority(-1)", name="priority")
    return lambda hook: _declaring(hook, replace(declarations_of(hook), priority=value))


def provides(*names: str, stage: str | None = None) -> Callable[[Function], Function]:
    """Define what a hook returns as a fixture; several names take a tuple.

    Hooks of the same stage that read it run after this one, whatever the order of registration:

    >>> from train_manager import Extension, provides
    >>> class Doubled(Extension):
    ...     @provides("double_loss")
    ...     def post_train_loss_forward(self, loss):
    ...         return 2 * loss
    >>> Doubled().post_train_loss_forward(loss=3)
    6

    Args:
        names: the fixtures.
        stage: an enclosing stage that is to own them; this hook may then renew them while that stage is open.
            Left out, the hooked stage owns them.
    """
    return _writing(names, defines=True, stage=stage)


def modifies(*names: str) -> Callable[[Function], Function]:
    """Replace live fixtures by what a hook returns; several names take a tuple. Returning None is an error.

    >>> from train_manager import Extension, modifies
    >>> class Halve(Extension):
    ...     @modifies("backward_loss")
    ...     def pre_train_backward(self, backward_loss):
    ...         return backward_loss / 2
    """
    return _writing(names, defines=False, stage=None)


def fixture(stage: str, *, override: bool = False) -> Callable[[Function], Function]:
    """Make a fixture of the method's name in a stage, computed when it is first asked for, once per stage.

    It may ask for other fixtures, and with ``yield`` the rest runs when the stage ends, also after an error:

    >>> from train_manager import Extensible, fixture
    >>> class Worker(Extensible):
    ...     @fixture("work")
    ...     def area(self, width, height):
    ...         yield width * height
    ...         print("cleaned up")
    ...     def work(self):
    ...         with self.staged("work", {"width": 2, "height": 3}):
    ...             print(self.fixtures["area"])
    >>> Worker().work()
    6
    cleaned up

    Args:
        stage: the stage that owns it.
        override: it takes the place of another one of this name and stage, which is refused otherwise.
    """
    if not isinstance(stage, str):
        raise HookError('@fixture takes the name of a stage: @fixture("train_step_batch")', name="fixture")
    return lambda method: _declaring(method, replace(declarations_of(method), fixture_of=stage, overrides=override))


def overridable(method: Callable[..., R]) -> Callable[..., R]:
    """Say to type checkers that an override may have other parameters: it names the fixtures that it wants."""
    return method


def with_schedule(hook: Function, schedule: Any) -> Function:
    """Note that a hook runs only when a schedule lets it."""
    return _declaring(hook, replace(declarations_of(hook), schedules=(schedule, *declarations_of(hook).schedules)))


def _writing(names: tuple[str, ...], *, defines: bool, stage: str | None) -> Callable[[Function], Function]:
    if not names or not all(isinstance(name, str) for name in names):
        what = "provides" if defines else "modifies"
        raise HookError(f'@{what} takes the names of fixtures: @{what}("loss")', name=what)
    writes = tuple(Write(name, defines, stage) for name in names)
    # decorators apply from below, and the returned tuple is read from above
    return lambda hook: _declaring(hook, replace(declarations_of(hook), writes=writes + declarations_of(hook).writes))


def _declaring(function: Function, declarations: Declarations) -> Function:
    plain: Any = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    try:
        plain.__train_manager_declarations__ = declarations
    except AttributeError:
        what = f"{getattr(function, '__qualname__', repr(function))} cannot be marked: it is no plain function"
        raise HookError(what, cure="write the decorator above the `def` of the hook") from None
    return function
