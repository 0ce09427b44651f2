"""A function that ``torch.compile`` makes one graph of, and what is asked of torch as it does."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Final, Never, final
from unittest.mock import patch

import torch


@final
class NotMade(Exception):
    """Raised if torch cannot make a graph; nothing has run then."""


@final
class Graph:
    """A function as one graph, for arguments of one structure.

    Raises:
        NotMade: in a call, torch cannot make the graph.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        assert isinstance(function, FunctionType), "a lambda or a `def`, whose module torch can import"
        # Code of its own: torch counts how often a code object was compiled, and leaves it alone after eight times.
        own = FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__)
        own.__module__, own.__kwdefaults__ = function.__module__, function.__kwdefaults__
        TOO_OFTEN.look_at(own.__code__)
        self._compiled = torch.compile(own, fullgraph=True, dynamic=False)
        self.is_made = False

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        if self.is_made:
            try:
                return self._compiled(*arguments)
            except _errors_of_torch().FailOnRecompileLimitHit as error:
                raise NotMade(f"what it computes changes too often for a graph: {TOO_OFTEN.change}") from error
            except _errors_of_torch().TorchDynamoException:
                pass  # a mode or `requires_grad` has changed, so torch traces anew, without the settings: see below
        try:
            with _settings():
                returned = self._compiled(*arguments)
        except Exception as error:
            raise NotMade(_why_it_failed(error)) from error
        self.is_made = True
        return returned


def _errors_of_torch() -> Any:
    from torch._dynamo import exc  # not above: importing it takes half a second

    return exc


@contextmanager
def _settings() -> Iterator[None]:
    """Let torch trace ``torch.autograd.grad``, and draw the random numbers that an eager step draws."""
    # Only while it traces: entered for each call, they would cost a tenth of a step.
    import torch._dynamo.config as of_tracing
    import torch._inductor.config as of_code
    from torch._dynamo.variables.misc import RandomVariable

    # torch keeps the state that a random.Random has now in the graph, which would draw the same number in each step.
    with (
        patch.object(RandomVariable, "__init__", _refuse_random),
        of_tracing.patch(trace_autograd_ops=True),
        of_code.patch(fallback_random=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter(
            "ignore"
        )  # torch warns of its own parts; what the model warns of, eager batches have said
        yield


def _refuse_random(*_arguments: Any, **_options: Any) -> Never:
    from torch._dynamo.exc import Unsupported

    raise Unsupported("it draws from a random.Random, which a graph would not move on", gb_type="random.Random")


@final
class TooOften(logging.Filter):
    """Keeps back torch's warning of fifteen lines that it has made a graph too often: an error in a line follows.

    Attributes:
        functions: the functions of graphs, as the warning names them; it is shown for others.
        change: what has changed last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.functions: set[str] = set()
        self.change = ""

    def look_at(self, code: CodeType) -> None:
        """Keep back the warning for a function."""
        self.functions.add(f"{code.co_name!r} ({code.co_filename}:{code.co_firstlineno})")
        logging.getLogger("torch._dynamo.convert_frame").addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line of torch is shown."""
        match record.args:
            case (_, _, str(function), str(change), *_) if function in self.functions:
                self.change = " ".join(change.partition("\n")[0].split()).partition(": ")[2]
                return False
        return True


TOO_OFTEN: Final = TooOften()


def _why_it_failed(error: Exception) -> str:
    """Return in one line why a graph was not made, with the cure where one is known."""
    text = str(error)
    if "file too short" in text:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        return f"torch's cache has a file that was not written to its end: delete {cache_dir()}"
    # Without is_causal, nn.TransformerEncoder compares its mask with a causal one, which a graph cannot decide on.
    if "data-dependent" in text and "in multi_head_attention_forward" in text:
        return (
            "the model decides by the numbers of a mask: give nn.TransformerEncoder is_causal=True or False beside it"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The first line names the backend that has raised, the second what it was.
    said = " ".join(lines[: 2 if lines and lines[0].endswith("raised:") else 1])
    return f"torch cannot make a graph of it ({type(error).__name__}: {said:.200})"
