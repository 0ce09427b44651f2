"""How a hook skips a batch or a stage of the loop: the exception, and where the loop catches it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from train_manager.core.extensible import Extensible
from train_manager.core.outcome import Skip, SkipStage
from train_manager.telling.errors import StageError

Self = TypeVar("Self", bound=Extensible)
P = ParamSpec("P")
R = TypeVar("R")


class SkipBatch(Skip):
    """Skip the rest of this batch; raised in a hook of ``train_step_batch`` or of a stage inside it.

    The batch is not counted in ``step_num``, and its gradients are zeroed. ``@always`` hooks run. A post hook of
    ``train_step_batch`` itself comes too late: the batch is trained and counted, and only the remaining hooks are left
    out.

    >>> from train_manager import Extension, SkipBatch
    >>> class SkipOutliers(Extension):
    ...     def post_train_loss_forward(self, loss):
    ...         if loss > 100:
    ...             raise SkipBatch
    """


def raise_if_of_another(skip: SkipStage, *path: str) -> None:
    """Raise a ``SkipStage`` again unless a pre hook of this stage has raised it.

    Args:
        skip: the exception.
        path: the path of the stage that may be skipped here; a stage inside it may have the same name.
    """
    if skip.path != path:
        raise skip


def skipped_too_late_error(path: tuple[str, ...]) -> StageError:
    """Return the error for a batch that one of several processes skips after all have agreed to train on it."""
    what = "a hook has skipped a batch, or a stage of it, after the processes had agreed to train on it"
    cure = "raise SkipBatch in pre_train_step_batch, before the processes agree; or skip the example by its weight"
    return StageError(what, name="SkipBatch", stages=path, cure=cure)


def skippable(
    stage: str,
) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R | None]]:
    """Let the method that opens this stage return None if a pre hook of the stage raises ``SkipStage``.

    A ``SkipStage`` of another stage, or of the body of this one, is raised again.
    """

    def decorate(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R | None]:
        @functools.wraps(method)
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return method(self, *args, **kwargs)
            except SkipStage as skip:
                # The stage is closed by now, so `fixtures.path` is the path of the stage around it.
                raise_if_of_another(skip, *self.fixtures.path, stage)
                return None

        return call

    return decorate
