"""Optional packages: named with their extra if they are missing, and without what they print."""

from __future__ import annotations

import importlib
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any


@contextmanager
def quiet() -> Iterator[None]:
    """Keep from the user what other packages print, log and warn of in the ``with`` block; errors are raised.

    >>> with quiet():
    ...     print("Failed to load a library that is not needed")
    """
    before = logging.root.manager.disable
    # Loggers are disabled too, since their handlers hold the stderr of the time when they were made.
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def import_extra(name: str, extra: str, asked_by: str) -> Any:
    """Return a module of an optional package.

    Args:
        name: the module.
        extra: the extra of this library that installs the package.
        asked_by: the function that needs it.

    Raises:
        ImportError: it is not installed, or cannot be imported.
    """
    try:
        with quiet():
            return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        what = f'{asked_by} needs {package} ({error}): pip install "train-manager[{extra}]"'
        raise ImportError(what) from error
