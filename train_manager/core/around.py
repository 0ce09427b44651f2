"""An around-hook is a generator with one ``yield``: resumed once before its stage and once after it."""

from __future__ import annotations

from collections.abc import Generator

from train_manager.core.errors import HookError
from train_manager.core.hook import Hook

Suspended = Generator[None, None, None]
"""An around-hook that waits at its yield while the stage runs."""


def enter(hook: Hook, generator: Suspended) -> None:
    """Run the part before the yield.

    Raises:
        HookError: it never yields, or is no generator at all, because ``@contextmanager`` has wrapped it.
    """
    if not isinstance(generator, Generator):
        raise _misused(hook, f"made a {type(generator).__name__}, which is no generator")
    try:
        next(generator)
    except StopIteration:
        raise _misused(hook, "did not yield, so the stage would never run") from None


def leave(hook: Hook, generator: Suspended, error: BaseException | None) -> None:
    """Run the part after the yield; where the stage failed, its error is raised at the yield.

    The hook may clean up after the error, not swallow it: the stage raises it whatever the hook does.

    Raises:
        HookError: it yields again.
    """
    try:
        if error is None:
            next(generator)
        else:
            _throw(generator, error)
    except StopIteration:
        return
    generator.close()
    raise _misused(hook, "yields more than once")


def _throw(generator: Suspended, error: BaseException) -> None:
    traceback = error.__traceback__
    try:
        generator.throw(error)
    except BaseException as raised:
        wrapped = isinstance(error, StopIteration) and raised.__cause__ is error  # generators do that to it
        if raised is error or wrapped:
            raise StopIteration from None
        raise
    finally:
        error.__traceback__ = traceback  # without the hook's frames, which would pile up


def _misused(hook: Hook, wrong: str) -> HookError:
    return HookError(
        f"{hook.label} {wrong}",
        name=hook.label,
        asked_by=hook.label,
        asked_at=hook.call.defined_at,
        cure="an around-hook has one bare `yield`, where the stage runs, and no @contextmanager",
    )
