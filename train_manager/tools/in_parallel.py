"""Stages in parallel: each in a thread of its own, on a branch of one Extensible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import copy_context
from copy import copy
from typing import Final, TypeVar

import torch

from train_manager.core.extensible import Extensible
from train_manager.core.outcome import Failures
from train_manager.telling.errors import InputError, StageError

E = TypeVar("E", bound=Extensible)
R = TypeVar("R")
Modes = Callable[[], AbstractContextManager[None]]

DEVICES: Final = ("cpu", "cuda", "mps", "xpu")
"""The types of devices whose autocast a work has from the thread that called."""


def in_parallel(extensible: E, *works: Callable[[E], R]) -> list[R]:
    """Call each work with a branch of an Extensible, all at once, each in a thread of its own; return their results.

    >>> from train_manager import Extensible
    >>> class Learner(Extensible):
    ...     def encode(self, text):
    ...         with self.staged("encode", {"text": text}):
    ...             return len(self.fixtures["text"])
    ...     def learn(self):
    ...         with self.staged("learn"):
    ...             return in_parallel(self, lambda branch: branch.encode("one"), lambda branch: branch.encode("three"))
    >>> Learner().learn()
    [3, 5]

    A branch is ``copy(extensible)``: it has the attributes and the extensions of the original, but fixtures and open
    stages of its own. What an attribute refers to is shared: two works must not write to one tensor, and a model has
    one mode. Threads work at once where torch computes; plain Python takes turns.

    The works have the grad mode, the autocast and the context variables of the caller. If some fail, all others end
    first. Then the error comes out that was raised first, with the others as notes.

    Args:
        extensible: the object whose stages run in parallel; it may have stages open.
        works: functions of a branch; each opens stages of this branch only.

    Raises:
        InputError: there is no work, or a work cannot be called.
        StageError: an extension is not ``shared``; or a work has left a stage open.
    """
    if not works:
        cure = "in_parallel(self, first, second): each is called with a branch"
        raise InputError("in_parallel was given no work", name="works", cure=cure)
    for work in works:
        if not callable(work):
            what = f"a work must be a function of a branch, but is a {type(work).__name__}"
            raise InputError(what, name="works", cure="give `lambda branch: branch.method()` in place of its result")
    _refuse_state(extensible)
    branches = [copy(extensible) for _ in works]  # before a thread starts: a work may change the original
    errors: list[BaseException] = []
    modes = _modes_here()
    with ThreadPoolExecutor(len(works)) as pool:  # its end waits for all
        runs = [
            pool.submit(copy_context().run, _run, work, branch, modes, errors)
            for work, branch in zip(works, branches, strict=True)
        ]
    if errors:
        failures = Failures("in_parallel", body=errors[0])
        for error in errors[1:]:
            failures.add(error)
        failures.raise_outcome()
    return [result for run in runs for result in run.result()]


def _refuse_state(extensible: Extensible) -> None:
    """Refuse extensions that may keep state, to which the branches would write at once."""
    for name, extension in extensible.extensions.items():
        if not extension.shared:
            kind = type(extension).__name__
            raise StageError(
                f"extension {name!r} may keep state, so it cannot serve the branches of in_parallel at once",
                name=name,
                cure=f"set `shared = True` in class {kind} if it keeps none, or remove it before",
            )


def _run(work: Callable[[E], R], branch: E, modes: Modes, errors: list[BaseException]) -> list[R]:
    """Return the result of a work in a list, which stays empty if it fails; its error is noted."""
    try:
        with modes():
            result = work(branch)
        path = branch.fixtures.path
        if path:
            what, cure = f"a work of in_parallel has left stage {' > '.join(path)} open", "open it in a `with` block"
            raise StageError(what, name=path[-1], stages=path, cure=cure)
        return [result]
    except BaseException as error:
        errors.append(error)
        return []


def _modes_here() -> Modes:
    """Return what gives another thread the grad mode and the autocast of this one: torch keeps both by thread."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    cached = torch.is_autocast_cache_enabled()
    casts = {kind: torch.get_autocast_dtype(kind) for kind in DEVICES if torch.is_autocast_enabled(kind)}

    @contextmanager
    def modes() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(inference))
            stack.enter_context(torch.set_grad_enabled(grad))
            for kind, dtype in casts.items():
                stack.enter_context(torch.autocast(kind, dtype, cache_enabled=cached))
            yield

    return modes
