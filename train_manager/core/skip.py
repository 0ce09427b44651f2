"""A wish to leave something out, raised as an exception. It is not an error, and errors go before it."""

from __future__ import annotations


class Skip(Exception):
    """Base of the wishes. When an error and a wish meet at the end of a stage, the error comes out."""


class SkipStage(Skip):
    """Raised in a pre hook: leave out the remaining hooks and the body of this stage.

    Hooks marked ``@always`` still run. The loop of a TrainManager catches it for the stages that it
    opens; around stages of your own, catch it yourself:

    >>> from train_manager import Extensible, SkipStage
    >>> class Worker(Extensible):
    ...     def pre_work(self):
    ...         raise SkipStage
    ...     def work(self):
    ...         try:
    ...             with self.staged("work"):
    ...                 print("never printed")
    ...         except SkipStage as skip:
    ...             print("skipped", skip.path)
    >>> Worker().work()
    skipped ('work',)

    Attributes:
        path: the stage whose pre hook raised it, outermost name first; empty when it was raised anywhere else,
            where nobody will catch it.
    """

    path: tuple[str, ...] = ()
