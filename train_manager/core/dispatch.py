"""The pre hooks or the post hooks of one stage, called in their order by one generated function.

Most hooks name a few fixtures that the loop defines, and return nothing. Their calls are written out in a function made
for this stage, with the fixtures as positional arguments, at a tenth of the price of a loop over hooks that looks at
each; those with a default are given by name. A hook that needs more (a return value, a schedule, a lazy fixture) is
called through the stage:

    def post_train_step_batch(stage, store):
        store.running = hook_0
        if call_0(cell_loss.value) is not None: stage._refuse_return(hook_0)  # LossCurves.post_train_step_batch
        store.running = hook_1
        stage._call(hook_1)  # GradNorm.post_train_step_batch
        store.running = None

``explain(stage, format="code")`` shows it, and tracebacks have its lines. The loop that it stands for is the oracle in
``tests/core/test_dispatch.py``.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from types import CodeType
from typing import Any, Protocol, final
from zlib import crc32

from train_manager.core.hooks import Hook
from train_manager.core.schedule import Schedule
from train_manager.core.scope import Cell
from train_manager.core.state import Alive
from train_manager.core.store import Store


class Runner(Protocol):
    """The open stage."""

    def _enter(self, around: Hook) -> None: ...
    def _call(self, hook: Hook) -> Any: ...
    def _refuse_return(self, hook: Hook) -> None: ...
    def _opened(self) -> None: ...
    def _ends(self) -> None: ...


CellOf = Callable[[str], Cell]
"""Returns the cell of a fixture, by its name."""

Run = Callable[[Runner, Store], None]
"""Calls the hooks; ``store.running`` is the hook that is being called, and stays so after an error."""


@final
@dataclass(frozen=True, slots=True)
class HookSequence:
    """The hooks before, or after, the body of a stage.

    Attributes:
        name: the name of the function: ``post_train_step_batch``.
        hooks: in their order; before the body the around-hooks come first.
        lazy: names of fixtures that may have to be computed before a hook can be called.
        own: the names of the Extensible, whose cells compute it at each lookup.
        late: names of fixtures whose cells are written when something asks for them.
        schedules: those of all hooks of the stage, which are told first that it opens.
        counting: those of hooks of any stage that are told first that this one ends.
        is_timed: the time it takes is added up in ``store.hook_seconds``.
        begins: a call before all hooks.
        ends: a call after them.
    """

    name: str
    hooks: tuple[Hook, ...]
    lazy: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    schedules: tuple[Schedule, ...] = ()
    counting: tuple[Schedule, ...] = ()
    is_timed: bool = False
    begins: str = ""
    ends: str = ""

    def __bool__(self) -> bool:
        return bool(self.hooks or self.schedules or self.counting or self.ends)

    def function(self, cell_of: CellOf) -> Run:
        """Make the function of ``text``."""
        names: dict[str, Any] = {f"schedule_{number}": schedule for number, schedule in enumerate(self.schedules)}
        names |= {f"counting_{number}": schedule for number, schedule in enumerate(self.counting)}
        names |= {"clock": perf_counter, "Alive": Alive}
        for number, hook in enumerate(self.hooks):
            names |= {f"hook_{number}": hook, f"call_{number}": hook.call.function}
            names |= {f"cell_{name}": cell_of(name) for name in hook.call.parameters}
            names |= {f"default_{number}_{name}": value for name, value in (hook.call.defaults or {}).items()}
        exec(_compiled(self.text(), self.name), names)
        run: Run = names.pop(self.name)  # else it would keep itself, and the extensions, alive
        return run

    def text(self) -> str:
        """Return the source of the function."""
        body = ["began = clock()"] if self.is_timed else []
        body += [self.begins] if self.begins else []
        body += [f"schedule_{number}.opened(stage, Alive(store))" for number in range(len(self.schedules))]
        body += [f"counting_{number}.ended(stage, Alive(store))" for number in range(len(self.counting))]
        body += [f"if cell_{name}.owner is None: store.bring({name!r})" for name in self._asked_late()]
        for number, hook in enumerate(self.hooks):
            label = " ".join(hook.label.split())  # a class made at run time may have any name
            body += [f"store.running = hook_{number}", f"{self._call(number, hook)}  # {label}"]
        body += ["store.hook_seconds += clock() - began"] if self.is_timed else []
        body += ["store.running = None", *([self.ends] if self.ends else [])]
        return "\n    ".join([f"def {self.name}(stage, store):", *body]) + "\n"

    def _asked_late(self) -> list[str]:
        """Return the late fixtures that hooks are given as arguments in the text."""
        asked = [name for hook in self.hooks if self._is_written_out(hook) for name in hook.call.parameters]
        return [name for name in dict.fromkeys(asked) if name in self.late]

    def _is_written_out(self, hook: Hook) -> bool:
        return hook.kind != "around" and hook.is_plain and self.lazy.isdisjoint(hook.call.parameters)

    def _call(self, number: int, hook: Hook) -> str:
        """Return the call of one hook."""
        if hook.kind == "around":
            return f"stage._enter(hook_{number})"
        if not self._is_written_out(hook):
            return f"stage._call(hook_{number})"
        values = [self._value(name) for name in hook.call.required]
        values += [f"{name}={self._value(name, f'default_{number}_{name}')}" for name in hook.call.optional]
        # A cell without a value raises an AttributeError, which `Stage._told` turns into a FixtureNotFound.
        call = f"call_{number}({', '.join(values)})"
        return f"if {call} is not None: stage._refuse_return(hook_{number})" if hook.returns_nothing else call

    def _value(self, name: str, default: str = "") -> str:
        """Return the source of a fixture's value; with a default, which stands for one that is not alive."""
        if name == "stage":
            return name
        if name in self.own:
            return f"cell_{name}.compute()"
        return f"cell_{name}.value" + (f" if hasattr(cell_{name}, 'value') else {default}" if default else "")


@lru_cache(maxsize=512)
def _compiled(text: str, name: str) -> CodeType:
    """Compile it once for all stages with such hooks, and keep the text, which tracebacks show."""
    file = f"<hooks of {name} #{crc32(text.encode()):08x}>"  # the same for the same text, however often compiled
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return compile(text, file, "exec")
