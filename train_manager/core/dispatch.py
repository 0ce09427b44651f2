"""One side of one stage, its pre hooks or its post hooks, as one function that calls them in their order.

Most hooks ask for a few fixtures that the loop defines, and return nothing. For them the call is written out in a
function that is made for this side, with the fixtures as positional arguments. All that is more goes through the stage:

    def post_train_step_batch(stage, store):
        store.running = hook_0
        call_0(cell_loss.value, cell_step_num.value)  # LossCurves.post_train_step_batch
        store.running = hook_1
        stage._call(hook_1)  # GradNorm.post_train_step_batch
        store.running = None

``explain(stage, format="code")`` shows it, and tracebacks have its lines.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from types import CodeType
from typing import Any, Protocol, cast, final
from zlib import crc32

from train_manager.core.hooks import Hook
from train_manager.core.schedule import Gate
from train_manager.core.scope import Cell, Scope
from train_manager.core.state import Alive
from train_manager.core.store import Store


class Runner(Protocol):
    """The open stage."""

    def _promise(self) -> None: ...
    def _enter(self, around: Hook) -> None: ...
    def _call(self, hook: Hook) -> Any: ...


CellOf = Callable[[str], Cell]
"""The place of a fixture, by its name."""

Run = Callable[[Runner, Store], None]
"""Runs a side; ``store.running`` is the hook that is being called, and stays so after an error."""


@final
@dataclass(frozen=True, slots=True)
class Side:
    """What runs at one side of a stage.

    Attributes:
        name: ``post_train_step_batch``.
        hooks: in their order; on the pre side the around-hooks come first.
        on_demand: fixtures that may have to be computed before a hook can be called.
        promises: it begins with the promise of the stage's own fixtures on demand.
        gates: those of all hooks of the stage; told first that it opens.
        is_timed: the time it takes is added up in ``store.hook_seconds``.
    """

    name: str
    hooks: tuple[Hook, ...]
    on_demand: Set[str] = frozenset()
    promises: bool = False
    gates: tuple[Gate, ...] = ()
    is_timed: bool = False

    def __bool__(self) -> bool:
        return bool(self.hooks or self.gates) or self.promises

    def looped(self, cell_of: CellOf) -> Run:
        """A loop over the hooks. It does what the written-out function does, at a multiple of the price."""

        def run(stage: Runner, store: Store) -> None:
            began = perf_counter()
            if self.promises:
                stage._promise()
            for gate in self.gates:
                gate.opened(cast(Scope, stage), Alive(store))
            for hook in self.hooks:
                store.running = hook
                if hook.side == "around":
                    stage._enter(hook)
                else:
                    stage._call(hook)
            store.running = None
            if self.is_timed:
                store.hook_seconds += perf_counter() - began

        return run

    def written_out(self, cell_of: CellOf) -> Run:
        """The function of ``text``."""
        names: dict[str, Any] = {f"gate_{place}": gate for place, gate in enumerate(self.gates)}
        names |= {"clock": perf_counter, "Alive": Alive}
        for place, hook in enumerate(self.hooks):
            names |= {f"hook_{place}": hook, f"call_{place}": hook.call.function}
            names |= {f"cell_{name}": cell_of(name) for name in hook.call.required}
        exec(_compiled(self.text(), self.name), names)
        run: Run = names.pop(self.name)  # else it would keep itself, and the extensions, alive
        return run

    def text(self) -> str:
        """The source of the function."""
        lines = [f"def {self.name}(stage, store):"]
        if self.is_timed:
            lines.append("    began = clock()")
        if self.promises:
            lines.append("    stage._promise()")
        lines += [f"    gate_{place}.opened(stage, Alive(store))" for place in range(len(self.gates))]
        for place, hook in enumerate(self.hooks):
            label = " ".join(hook.label.split())  # a class made at run time may have any name
            lines += [f"    store.running = hook_{place}", f"    {self._call(place, hook)}  # {label}"]
        if self.is_timed:
            lines.append("    store.hook_seconds += clock() - began")
        return "\n".join([*lines, "    store.running = None", ""])

    def _call(self, place: int, hook: Hook) -> str:
        wants = hook.call.required
        if hook.side == "around":
            return f"stage._enter(hook_{place})"
        if hook.writes or hook.everywhere or hook.gates or not hook.call.by_position or self.on_demand & set(wants):
            return f"stage._call(hook_{place})"
        return f"call_{place}({', '.join('stage' if name == 'stage' else f'cell_{name}.value' for name in wants)})"


def name_not_found(error: BaseException) -> str | None:
    """The fixture that a written-out call has looked up in vain; None for an error of the hook itself."""
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    here = entry is not None and entry.tb_frame.f_code.co_filename.startswith(_FILE)
    cell = getattr(error, "obj", None)
    return cell.name if here and isinstance(error, AttributeError) and isinstance(cell, Cell) else None


@lru_cache(maxsize=512)
def _compiled(text: str, name: str) -> CodeType:
    """Compiled once for all stages with such hooks, and kept where tracebacks find the lines."""
    file = f"{_FILE}{name} #{crc32(text.encode()):08x}>"  # one for each text, however often compiled
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return compile(text, file, "exec")


_FILE = "<hooks of "

compiled: Callable[[Side, CellOf], Run] = Side.written_out
"""How a side becomes a function; ``Side.looped`` is the other way."""
