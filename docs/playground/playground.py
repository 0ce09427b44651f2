"""The Python side of the playground: runs, checks or explains the program that stands in the editor.

The program is a file, so that the checker can read its source. What is printed goes to the page; errors go to stderr.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import train_manager
from train_manager import Extensible, TrainManagerError

FILE: Final = "example.py"
LIBRARY: Final = (str(Path(train_manager.__file__).parent), __file__, "<hooks of ")  # files left out of tracebacks
NOT_HERE: Final = (
    "The playground has the standard library, and the core and the checker of Train Manager. TrainManager itself and "
    "its extensions need PyTorch, which does not run in a browser."
)
NOTHING: Final = "The program makes no Extensible outside of its functions. Add a line such as: training = Training()\n"


def answer(action: str, program: str) -> bool:
    """Do what a button of the page says, and return whether it went without an error.

    Args:
        action: "run", "check" or "explain".
        program: the text of the editor.
    """
    try:
        return ACTIONS[action](program)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: the page must be told of any end
        _tell(error)
        return False
    finally:
        sys.stdout.flush()


def run(program: str) -> bool:
    """Run the program as ``python example.py`` does."""
    _load(program, "__main__")
    return True


def check(program: str) -> bool:
    """Import the program and check each Extensible that it has made."""
    return False not in [_checked(name, extensible) for name, extensible in _extensibles(program)]


def explain(program: str) -> bool:
    """Import the program and explain each Extensible that it has made."""
    for name, extensible in _extensibles(program):
        print(f"{name}.explain(all=True)\n\n{extensible.explain(all=True)}\n")
    return True


ACTIONS: Final[Mapping[str, Callable[[str], bool]]] = {"run": run, "check": check, "explain": explain}


def _load(program: str, name: str) -> ModuleType:
    """Write the program to its file and execute it as a module of this name."""
    Path(FILE).write_text(program, encoding="utf-8")
    linecache.cache.pop(FILE, None)  # may hold the program before, if it has the same length
    module = ModuleType(name)
    module.__file__ = FILE
    before = sys.modules.get(name, module)
    sys.modules[name] = module
    try:
        exec(compile(program, FILE, "exec", dont_inherit=True), vars(module))
    finally:
        sys.modules[name] = before
    return module


def _extensibles(program: str) -> Iterator[tuple[str, Extensible]]:
    """Yield what the program has made, by the first name of each."""
    module = _load(program, Path(FILE).stem)
    made = {id(value): (name, value) for name, value in reversed(vars(module).items()) if isinstance(value, Extensible)}
    if not made:
        print(NOTHING, file=sys.stderr)
    yield from reversed(made.values())


def _checked(name: str, extensible: Extensible) -> bool:
    try:
        unknown = extensible.check()
    except TrainManagerError as error:
        print(*traceback.format_exception_only(error), sep="", end="", file=sys.stderr)
        return False
    print(f"{name}.check() has found no mistake in the hooks.")
    for line in unknown:
        print(f"  It could not know: {line}")
    return True


def _tell(error: BaseException) -> None:
    """Print a traceback as a terminal would, with the lines of the program only."""
    if isinstance(error, ModuleNotFoundError):
        error.add_note(NOT_HERE)
    told = traceback.TracebackException.from_exception(error)
    _leave_out_the_library(told)
    print(*told.format(), sep="", end="", file=sys.stderr)


def _leave_out_the_library(told: traceback.TracebackException | None) -> None:
    if told is not None:
        told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(LIBRARY)]
        for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
            _leave_out_the_library(other)
