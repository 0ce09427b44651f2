"""The requests of all processes, made one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from train_manager.loop.requests import NOTHING, Requests


def agree(requests: Sequence[Requests]) -> Requests:
    """Return the requests that all processes follow: those of each, and the examples of all.

    >>> from train_manager.loop.requests import SKIP_BATCH
    >>> agree([Requests(examples=6), Requests(examples=5)]).examples
    11
    >>> agree([Requests(examples=6), SKIP_BATCH]).skip_batch
    True

    If several stop, the reason of the first one counts.
    """
    first = requests[0]
    if requests.count(first) == len(requests):  # as in nearly every step
        return NOTHING if first == NOTHING else _of_all(first, len(requests))
    sizes = [one.examples for one in requests]
    return Requests(
        **{name: any(getattr(one, name) for one in requests) for name in Requests._fields[:-2]},
        stopped=next((one.stopped for one in requests if one.stopped is not None), None),
        examples=None if None in sizes else sum(sizes),
    )


def _of_all(request: Requests, number: int) -> Requests:
    """Return what so many processes request that all request the same."""
    return request if request.examples is None else request._replace(examples=number * request.examples)


def on_host(requests: Requests) -> Requests:
    """Return requests that can be sent: the size of a batch may be a tensor on a device."""
    examples: Any = requests.examples
    return requests._replace(examples=examples.item()) if isinstance(examples, Tensor) else requests
