"""The pre hooks or the post hooks of one stage, called in their order by one generated function.

Most hooks name a few fixtures that the loop defines, and return nothing. The function of a stage calls such a hook
directly, with the fixtures as positional arguments (by name if the parameter has a default), at a tenth of the price of
a loop over hooks that looks at each. A hook that needs more (a return value, a schedule, a lazy fixture) is called
through the stage:

    def post_train_step_batch(stage, store):
        store.running = hook_0
        if call_0(cell_loss.value) is not None: stage._refuse_return(hook_0)  # LossCurves.post_train_step_batch
        store.running = hook_1
        stage._call(hook_1)  # GradNorm.post_train_step_batch
        store.running = None

With a watcher, ``store.watch(stage, hook_0)`` follows each hook; without one there is no such line.

``explain(stage, format="code")`` shows the function, and tracebacks have its lines. The plain loop over hooks that the
function replaces is the oracle in ``tests/core/test_dispatch.py``.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from types import CodeType
from typing import Any, final
from zlib import crc32

from train_manager.core.hooks import Hook
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Cell, Scope
from train_manager.core.store import Store

CellOf = Callable[[str], Cell]
"""Returns the cell of a fixture, by its name."""

StageFunction = Callable[[Scope, Store], None]
"""Calls the hooks of a stage. After an error, ``store.running`` is still the hook that failed, which a note names."""


@final
@dataclass(frozen=True, slots=True)
class HookSequence:
    """The hooks before, or after, the body of a stage."""

    name: str  # of the generated function: `post_train_step_batch`
    hooks: tuple[Hook, ...]  # in their order; before the body, the around-hooks come first
    lazy: frozenset[str] = frozenset()  # fixtures that may have to be computed before a hook can be called
    own: frozenset[str] = frozenset()  # names of the Extensible, whose cells look it up at each read
    schedules: tuple[Schedule, ...] = ()  # of all hooks of the stage: they take note that it opens
    counting: tuple[Schedule, ...] = ()  # of hooks of any stage: they take note that this stage ends
    is_timed: bool = False  # the time of the hooks is added to `store.hook_seconds`
    tells: str = ""  # what the watchers are told first, before they are told of each hook; empty without watchers

    def __bool__(self) -> bool:
        return bool(self.hooks or self.schedules or self.counting or self.tells)

    def function(self, cell_of: CellOf) -> StageFunction:
        """Compile ``text`` to a function that knows the hooks, the schedules and the cells."""
        # The text is general (`call_0(cell_loss.value)`); its globals bind it to these hooks and these cells.
        names: dict[str, Any] = {f"schedule_{number}": schedule for number, schedule in enumerate(self.schedules)}
        names |= {f"counting_{number}": schedule for number, schedule in enumerate(self.counting)}
        names |= {"clock": perf_counter, "cell_fixtures": cell_of("fixtures")}
        for number, hook in enumerate(self.hooks):
            names |= {f"hook_{number}": hook, f"call_{number}": hook.call.function}
            names |= {f"cell_{name}": cell_of(name) for name in hook.call.parameters}
            names |= {f"default_{number}_{name}": value for name, value in (hook.call.defaults or {}).items()}
        exec(_compile(self.text(), self.name), names)
        # In its own globals the function would be a cycle, which keeps the extensions alive.
        run: StageFunction = names.pop(self.name)
        return run

    def text(self) -> str:
        """Return the source of the function."""
        body = ["began = clock()"] if self.is_timed else []
        body += [f"store.watch(stage, {self.tells!r})"] if self.tells else []
        # Schedules take note before the first hook, so that they count each opening, also one that skips their hook.
        body += [f"schedule_{number}.opened(stage, cell_fixtures.value)" for number in range(len(self.schedules))]
        body += [f"counting_{number}.ended(stage, cell_fixtures.value)" for number in range(len(self.counting))]
        for number, hook in enumerate(self.hooks):
            label = " ".join(hook.label.split())  # in one line: `type(name, ...)` makes classes of any name
            body += [f"store.running = hook_{number}", f"{self._call(number, hook)}  # {label}"]
            body += [f"store.watch(stage, hook_{number})"] if self.tells else []
        body += ["store.hook_seconds += clock() - began"] if self.is_timed else []
        body += ["store.running = None"]
        return "\n    ".join([f"def {self.name}(stage, store):", *body]) + "\n"

    def _is_written_out(self, hook: Hook) -> bool:
        """Return whether the text calls the hook directly, and not through the stage."""
        return hook.kind != "around" and hook.is_plain and self.lazy.isdisjoint(hook.call.parameters)

    def _call(self, number: int, hook: Hook) -> str:
        """Return the source of the call of one hook."""
        if hook.kind == "around":
            return f"stage._enter(hook_{number})"
        if not self._is_written_out(hook):
            return f"stage._call(hook_{number})"
        values = [self._value(name) for name in hook.call.required]
        values += [f"{name}={self._value(name, f'default_{number}_{name}')}" for name in hook.call.optional]
        # If the fixture is not alive, `cell.value` raises an AttributeError, which `Stage._annotate` replaces by a
        # FixtureNotFound: a check before each call would cost more than the call.
        call = f"call_{number}({', '.join(values)})"
        return f"if {call} is not None: stage._refuse_return(hook_{number})" if hook.returns_nothing else call

    def _value(self, name: str, default: str = "") -> str:
        """Return the source of a fixture's value, or of its default where the fixture is not alive."""
        if name == "stage":  # the parameter of the generated function
            return name
        if name in self.own:  # the cell refers to the Extensible weakly, and so has no value
            return f"cell_{name}.compute()"
        return f"cell_{name}.value" + (f" if hasattr(cell_{name}, 'value') else {default}" if default else "")


@lru_cache(maxsize=512)
def _compile(text: str, name: str) -> CodeType:
    """Compile a text once for all Extensibles that have such hooks, and keep the text for tracebacks."""
    # A checksum, not a number, is in the name: the same text has one entry in linecache, however often it is compiled.
    file = f"<hooks of {name} #{crc32(text.encode()):08x}>"
    # Without a time of change (None), `linecache.checkcache` never drops the entry as a file that is gone.
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return compile(text, file, "exec")
