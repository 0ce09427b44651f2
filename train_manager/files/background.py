"""Writing while the training goes on: in a thread, one thing at a time.

The caller of ``submit`` copies a state before, because the training changes it in place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, final

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
    An error of the function comes out of the next ``submit`` or ``join``, as it is; then that ``submit`` starts
    nothing. The caller of ``submit`` also joins, in a ``finally``. A program that ends without it still waits for the
    call.

    Args:
        function: what to call.
    """

    def __init__(self, function: Callable[P, object]) -> None:
        self._function = function
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Wait for the call in flight, then start the next one.

        Raises:
            BaseException: whatever the call in flight has raised.
        """
        self.join()
        # Not a daemon, which the end of the interpreter would cut off in the middle of a file.
        self._thread = threading.Thread(target=self._run, args=(args, kwargs), name="train-manager-write", daemon=False)
        self._thread.start()

    def join(self) -> None:
        """Wait for the call in flight; nothing if there is none.

        Raises:
            BaseException: whatever the call in flight has raised.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, args: Any, kwargs: Any) -> None:
        try:
            self._function(*args, **kwargs)
        except BaseException as error:
            self._error = error
