"""Writing in a thread while the run continues, one call at a time.

The caller of ``submit`` copies the state first, because the training changes it in place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, ParamSpec, final

P = ParamSpec("P")


@final
class Background(Generic[P]):
    """Call a function in a thread, one call at a time.

    >>> written = []
    >>> background = Background(written.append)
    >>> background.submit("step 1")
    >>> background.submit("step 2")  # waits until the first is written
    >>> background.join()
    >>> written
    ['step 1', 'step 2']

    A second ``submit`` waits for the first to end, so nothing is lost and at most one copy of the state is in memory.
    The next ``submit`` or ``join`` raises an error of the function, as it is; such a ``submit`` starts nothing. The
    caller of ``submit`` also calls ``join``, in a ``finally``. A program that ends without ``join`` still waits for the
    call.

    Args:
        function: the function that writes.
    """

    def __init__(self, function: Callable[P, object]) -> None:
        self._function = function
        self._thread: threading.Thread | None = None  # the call in flight, until it is joined
        self._error: BaseException | None = None  # raised by the function, until a caller gets it

    @property
    def is_busy(self) -> bool:
        """Whether a call is in flight."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Wait for the call in flight, then start the next one.

        Raises:
            BaseException: the error of the call in flight.
        """
        self.join()

        def run() -> None:
            try:
                self._function(*args, **kwargs)
            except BaseException as error:  # an error that stayed in the thread would only be printed
                self._error = error

        # Not a daemon: the end of the interpreter would stop a daemon in the middle of a file. Not an executor: after a
        # fork, the child would wait for its thread for ever.
        self._thread = threading.Thread(target=run, name="train-manager-write", daemon=False)
        self._thread.start()

    def join(self) -> None:
        """Wait for the call in flight; nothing if there is none.

        Raises:
            BaseException: the error of the call in flight.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        # The error is cleared before it is raised, so that the next call does not raise it once more.
        error, self._error = self._error, None
        if error is not None:
            raise error
