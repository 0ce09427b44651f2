"""Watchers: extensions that are told, after the fact, what has run at each stage.

While an Extensible has a watcher that does not pause, the functions that call the hooks of its stages call
``Store.watch`` too, and each stage opens. Without a watcher these functions have no such line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from train_manager.core.extension import Extension
from train_manager.core.scope import Caller, Scope
from train_manager.core.store import unwatched

BEGINS: Final = "begins"  # the stage has opened, with its fixtures; none of its hooks has run
ENDS: Final = "ends"  # the body of the stage is over; none of its post hooks has run
ASKS: Final = "asks"  # the body of the stage asks for a lazy fixture, whose provider runs next


class Watcher(Extension):
    """Base class of extensions that are told what has run: each hook, each provider, each part of a body.

    Between two calls of ``saw`` only one of them runs, so that what has changed meanwhile is its work, and the time
    that went by is its time.

    >>> from train_manager import Extensible, Extension, Watcher
    >>> class Narrator(Watcher):
    ...     def saw(self, stage, ran):
    ...         print(stage.name, ran if isinstance(ran, str) else ran.label)
    >>> class Doubling(Extension):
    ...     def pre_work(self, size): ...
    >>> class Worker(Extensible):
    ...     def work(self):
    ...         with self.staged("work", {"size": 2}):
    ...             pass
    >>> Worker([Doubling(), Narrator()]).work()
    work begins
    work Doubling.pre_work
    work ends

    A watcher may have hooks too. It looks into every stage, so that a TrainManager opens those inside a batch, which
    stay closed otherwise.
    """

    def saw(self, stage: Scope, ran: Caller | str) -> None:
        """Take note of what has just run; to be overridden, and to open no stage.

        Args:
            stage: the open stage in which it has run.
            ran: the hook or provider, also if it has failed; or "begins": the stage has opened, and the body around it
                ran until then; "ends": its body is over; "asks": its body asks for a lazy fixture. A hook that asks for
                one is told of twice: as it asks, and at its end.
        """
        raise NotImplementedError


def watch_by(watchers: Mapping[str, Watcher]) -> Callable[[Scope, Caller | str], None]:
    """Return one function that tells all watchers, given by name; without one, the function that does nothing."""
    if not watchers:
        return unwatched

    def watch(stage: Scope, ran: Caller | str) -> None:
        for name, watcher in watchers.items():
            try:
                watcher.saw(stage, ran)
            except BaseException as error:
                error.add_note(f"{_IN_WATCHER}{type(watcher).__name__}.saw of extension {name!r}")
                raise

    return watch


_IN_WATCHER: Final = "in watcher "


def is_of_watcher(error: BaseException) -> bool:
    """Return whether a watcher has raised an error, and not the hook that it was told of."""
    return any(str(note).startswith(_IN_WATCHER) for note in getattr(error, "__notes__", ()))
