"""How the loop leaves stages and batches out: who catches the parameter to skip."""

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
    """Raised in a hook of ``train_step_batch`` or of a stage inside it: leave out the rest of this batch.

    It is not counted in ``step_num``, and gradients that it has left behind are zeroed. ``@always`` hooks run. In a
    post hook of ``train_step_batch`` itself it comes too late: the batch is trained and counted, and only the
    remaining hooks are left out.

    >>> from train_manager import Extension, SkipBatch
    >>> class SkipOutliers(Extension):
    ...     def post_train_loss_forward(self, loss):
    ...         if loss > 100:
    ...             raise SkipBatch
    """


def skippable(
    stage: str,
) -> Callable[[Callable[Concatenate[Self, P], R]], Callable[Concatenate[Self, P], R | None]]:
    """Let ``SkipStage``, raised in a pre hook of this stage, end the method that opens it.

    The method then returns None. A ``SkipStage`` of any other stage, or of a body, goes on.
    """

    def decorate(method: Callable[Concatenate[Self, P], R]) -> Callable[Concatenate[Self, P], R | None]:
        @functools.wraps(method)
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                return method(self, *args, **kwargs)
            except SkipStage as skip:
                if skip.path == (*self.fixtures.path, stage):
                    return None
                raise

        return call

    return decorate
