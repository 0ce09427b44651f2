"""How a hook skips a batch or a stage of the loop: what it raises, and where the loop catches it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from train_manager.core.extensible import Extensible
from train_manager.core.outcome import Skip, SkipStage

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
    """Raise a request further that is of another stage, or of the body of this one.

    Args:
        skip: the request.
        path: of the stage that may be skipped here; its name alone may be that of a stage inside it.
    """
    if skip.path != path:
        raise skip


def skippable(
    stage: str,
) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R | None]]:
    """Let the method that opens this stage return None if a pre hook of the stage raises ``SkipStage``.

    A ``SkipStage`` of another stage, or of the body of this one, is raised further.
    """

    def decorate(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R | None]:
        @functools.wraps(method)
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return method(self, *args, **kwargs)
            except SkipStage as skip:
                raise_if_of_another(skip, *self.fixtures.path, stage)
                return None

        return call

    return decorate
