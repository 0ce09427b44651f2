"""The decorators of hooks and fixtures: when a hook runs, what it writes, which stage owns a fixture.

They only note declarations on the function; ``hooks.py`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, final

from train_manager.telling.errors import HookError

Function = TypeVar("Function", bound=Callable[..., Any])
R = TypeVar("R")


@final
@dataclass(frozen=True, slots=True)
class Write:
    """A fixture that a hook writes with its return value."""

    name: str
    defines: bool  # True for `@provides`, which defines the fixture; False for `@modifies`, which changes a live one
    stage: str | None = None  # the enclosing stage that will own the fixture; None stands for the stage of the hook


@final
@dataclass(frozen=True, slots=True)
class Declarations:
    """All that the decorators of one function declare."""

    always: bool = False
    priority: int | None = None  # None: the hook has the priority of its extension
    writes: tuple[Write, ...] = ()  # as the decorators stand in the source, from above
    fixture_of: str | None = None  # the stage of `@fixture`; None: the function is not a provider
    overrides: bool = False  # `@fixture(..., override=True)`
    schedules: tuple[Any, ...] = ()  # of type Schedule, whose file imports this one; from above
    not_a_hook: bool = False
    overridable: bool = False  # a method of a loop that subclasses override: `lookalikes` compares names with it


NOTHING_DECLARED: Final = Declarations()
"""One object for all functions without decorators: a check looks at hundreds of them."""


def declarations_of(function: object) -> Declarations:
    """Return the declarations of a function; the default ones if it has no decorator of this library."""
    plain = getattr(function, "__func__", function)  # a staticmethod keeps them on the function that it wraps
    found = getattr(plain, "__train_manager_declarations__", None)
    # The type is checked, since an object with a `__getattr__`, such as a mock, answers any name with something.
    return found if isinstance(found, Declarations) else NOTHING_DECLARED


def always(hook: Function) -> Function:
    """Run a post hook also if its stage fails.

    It may name ``exc_type``, ``exc_value`` and ``traceback``, which are None if nothing has failed. It cannot
    swallow the error. Give a default to a fixture that may not be alive yet when the stage fails:

    >>> from train_manager import Extension, always
    >>> class Notes(Extension):
    ...     @always
    ...     def post_train_step_batch(self, exc_value, loss=None):
    ...         print("ended with", exc_value, "at loss", loss)
    """
    return _declare(hook, always=True)


def priority(value: int) -> Callable[[Function], Function]:
    """Order a hook among the hooks of its stage that reads and writes do not order.

    The lowest comes first; 0 is the default. Equals run as registered. The attribute ``priority`` of an extension is
    for all its hooks, and a hook's own priority wins. In the body of a class the attribute hides the decorator from
    the hooks below it: write ``@train_manager.priority(10)`` there.

    >>> from train_manager import Extension, priority
    >>> class Last(Extension):
    ...     @priority(10)
    ...     def post_train_step_batch(self):
    ...         print("after the hooks of other extensions")

    Args:
        value: a whole number, also a negative one.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise HookError("@priority takes a whole number: @priority(-1)", name="priority")
    return lambda hook: _declare(hook, priority=value)


def provides(*names: str, stage: str | None = None) -> Callable[[Function], Function]:
    """Define the return value of a hook as a fixture; several names take a tuple.

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
        stage: an enclosing stage that will own them; the hooks of this extension may then renew them while that stage
            is open. None stands for the stage of the hook.
    """
    return _writing(names, defines=True, stage=stage)


def modifies(*names: str) -> Callable[[Function], Function]:
    """Replace live fixtures by the return value of a hook; several names take a tuple. None is an error.

    >>> from train_manager import Extension, modifies
    >>> class Halve(Extension):
    ...     @modifies("backward_loss")
    ...     def pre_train_backward(self, backward_loss):
    ...         return backward_loss / 2

    Args:
        names: the fixtures.
    """
    return _writing(names, defines=False, stage=None)


def fixture(stage: str, *, override: bool = False) -> Callable[[Function], Function]:
    """Make a method a lazy fixture of a stage: computed when it is first asked for, once each time the stage opens.

    The method may name other fixtures. After a ``yield``, the rest runs when the stage ends, also after an error:

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
        override: it replaces another fixture of this name and stage; else two of them are refused.
    """
    if not isinstance(stage, str):
        raise HookError('@fixture takes the name of a stage: @fixture("train_step_batch")', name="fixture")
    return lambda method: _declare(method, fixture_of=stage, overrides=override)


def not_a_hook(method: Function) -> Function:
    """Say that a method is meant as it is, though its name looks like a hook, or like an override that is misspelt.

    >>> from train_manager import Extension, not_a_hook
    >>> class Alarm(Extension):
    ...     def post_train_step_batch(self, loss):
    ...         self.last = loss
    ...     @not_a_hook
    ...     def on_call(self):
    ...         return "called by other code"
    """
    return _declare(method, not_a_hook=True)


def overridable(method: Callable[..., R]) -> Callable[..., R]:
    """Note that subclasses override a method, and let type checkers accept an override with other parameters."""
    return _declare(method, overridable=True)


def with_schedule(hook: Function, schedule: Any) -> Function:
    """Run a hook only if a schedule lets it."""
    return _declare(hook, schedules=(schedule, *declarations_of(hook).schedules))


def _writing(names: tuple[str, ...], *, defines: bool, stage: str | None) -> Callable[[Function], Function]:
    if not names or not all(isinstance(name, str) for name in names):
        decorator = "provides" if defines else "modifies"
        raise HookError(f'@{decorator} takes the names of fixtures: @{decorator}("loss")', name=decorator)
    writes = tuple(Write(name, defines, stage) for name in names)
    # Python applies the lowest decorator first, but the returned tuple belongs to the decorators from above.
    return lambda hook: _declare(hook, writes=writes + declarations_of(hook).writes)


def _declare(function: Function, **declared: Any) -> Function:
    plain: Any = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    try:
        # The declarations of the decorators below stay, and these are added; frozen, so in a new object.
        plain.__train_manager_declarations__ = replace(declarations_of(plain), **declared)
    except AttributeError:  # a bound method, or a function in C, takes no attributes
        what = f"{getattr(function, '__qualname__', repr(function))} cannot be decorated: it is not a plain function"
        raise HookError(what, cure="write the decorator above the `def` of the hook") from None
    return function
