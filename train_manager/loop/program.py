"""Program: the training calls and phases that a program makes, and makes again as it resumes from a checkpoint."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, final

from train_manager.loop.counts import Counts
from train_manager.loop.level import Level
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_place


@final
@dataclass
class MadeCall:
    """A call of ``train``, ``train_epochs`` or ``train_steps``."""

    method: str
    n: int  # its argument; of train the epochs in all
    end: int  # the count of steps or epochs at which the call is to end

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {"call": self.method, "n": self.n, "end": self.end}


@final
@dataclass
class OpenedPhase:
    """A phase that was opened."""

    path: list[str]  # the names of the phases around it, and its own
    epoch_num: int = 0  # the epochs that it has completed, as it ended
    is_done: bool = False  # it has ended, and not by an error
    # The states of the modules that only this phase has, if it is done and checkpoints are saved: a program that
    # resumes does not train them again.
    modules: Mapping[str, Any] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        """Return all of it, with the modules if there are any."""
        place = {"phase": [*self.path], "epoch_num": self.epoch_num, "is_done": self.is_done}
        return {**place, **({"modules": self.modules} if self.modules else {})}


Event = MadeCall | OpenedPhase


@final
@dataclass
class Program:
    """The training calls and phases of a program, in the order in which it makes them; and the state it has loaded.

    A program that resumes from a checkpoint makes the same calls and opens the same phases again. A call that was
    followed by another one is over, also if it was stopped early, and trains nothing; the last call trains the rest.
    In completed phases nothing is trained; in the phase that the checkpoint was written in, the training continues.
    If a call differs, this is another program, and all of its calls train as many steps or epochs as they name.

    The *place* of a state is the training call, and the phases around it, in which the state was saved. The state is
    restored as it is loaded, and once more where the program has come to this place: what the program did on its way
    (another head, other weights or learning rates) is undone.
    """

    # The events of the checkpoint and of this program; this program has come to the cursor.
    events: list[Event] = field(default_factory=list)
    _cursor: int = 0
    around: list[Level] = field(default_factory=list)  # the level around each open phase, outermost first
    _open: list[OpenedPhase] = field(default_factory=list)  # the open phases, outermost first
    # For each open phase: whether it was completed before the checkpoint, as known when the phase was opened. Not read
    # from the phase itself, because a state that is loaded inside it brings another event.
    _done: list[bool] = field(default_factory=list)
    state: dict[str, Any] | None = None  # the loaded state, until the program has come to its place
    # What is restored once more of it as soon as the stages are open again that were open in the checkpoint.
    again: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True  # refuse a state that does not fit, also at its place

    # ---- how far the program has come --------------------------------------------------------------------------------

    @property
    def phase_number(self) -> int:
        """How many phases this program has opened so far."""
        return sum(isinstance(event, OpenedPhase) for event in self.events[: self._cursor])

    @property
    def has_phases_left(self) -> bool:
        """Whether phases of the checkpoint are left that this program has not opened yet."""
        return self._next(OpenedPhase) is not None

    @property
    def has_calls_left(self) -> bool:
        """Whether calls of the checkpoint are left that this program has not made yet."""
        return self._next(MadeCall) is not None

    @property
    def is_in_completed(self) -> bool:
        """Whether the innermost phase was completed before the checkpoint, so that nothing is trained in it."""
        return bool(self._done) and self._done[-1]

    @property
    def is_on_its_way(self) -> bool:
        """Whether the program has not come to the place of the checkpoint yet, or trains nothing where it is."""
        return self.is_in_completed or self.state is not None or self.has_calls_left

    @property
    def trains(self) -> bool:
        """Whether a training call trains here: neither the call nor its phase was over before the checkpoint."""
        return not self.is_in_completed and not self.has_calls_left

    def _next(self, kind: type[Event]) -> int | None:
        """Return where the next event of this kind is."""
        coming = enumerate(islice(self.events, self._cursor, None), self._cursor)
        return next((place for place, event in coming if isinstance(event, kind)), None)

    def _pass(self, place: int) -> None:
        """Let the event at this place be the next one, and pass it: a program may open a phase without calls before."""
        self.events.insert(self._cursor, self.events.pop(place))
        self._cursor += 1

    def _is_at_the_end(self) -> bool:
        """Return whether at most one call is left: the next call is the one that was interrupted."""
        left = len(self.events) - self._cursor
        return left == 0 or (left == 1 and isinstance(self.events[-1], MadeCall))

    # ---- training calls ----------------------------------------------------------------------------------------------

    def repeats(self, method: str, n: int) -> bool:
        """Return whether the coming call was made before the checkpoint.

        If not, forget the calls that are left, and the state: another program keeps what it did on its way.
        """
        is_longer = self.state is not None and not self.state["phases"] and self._goes_beyond(method, n)
        repeats = self._is_next(method, n)
        if not repeats and not is_longer and not self.around and not self.has_phases_left:
            self.state = None
        return repeats

    def begin_call(self, method: str, n: int, count: int) -> int:
        """Return the count at which a call ends: as the same call before the checkpoint, else at ``count + n``."""
        if not self._is_next(method, n):
            self.events.insert(self._cursor, MadeCall(method, n, count + n))
        place = self._next(MadeCall)
        assert place is not None, "it is the call of the checkpoint, or the one that was inserted"
        self._pass(place)
        call = self.events[self._cursor - 1]
        assert isinstance(call, MadeCall), "the place of the next call was asked for"
        return call.end

    def _is_next(self, method: str, n: int) -> bool:
        """Return whether the next call of the checkpoint is this one; if not, forget the calls that are left."""
        if method == "train":
            self._pass_over_fewer_epochs(n)
        coming = self._coming_call()
        if coming is not None and (coming.method, coming.n) == (method, n):
            return True
        left = self.events[self._cursor :]
        self.events[self._cursor :] = [event for event in left if isinstance(event, OpenedPhase)]
        return False

    def _coming_call(self) -> MadeCall | None:
        place = self._next(MadeCall)
        event = None if place is None else self.events[place]
        return event if isinstance(event, MadeCall) else None

    def _pass_over_fewer_epochs(self, n: int) -> None:
        """Pass over calls of ``train()`` up to fewer epochs."""
        # A program that looks at epoch_num first (`while tm.epoch_num < 10: ...`) leaves these calls out.
        while (place := self._next(MadeCall)) is not None and _is_train_up_to_fewer(self.events[place], n):
            self._pass(place)

    def _goes_beyond(self, method: str, n: int) -> bool:
        """Return whether all that is left are calls of ``train()`` up to fewer epochs: ``epochs`` was raised since."""
        left = islice(self.events, self._cursor, None)
        is_behind = self._cursor < len(self.events)
        return method == "train" and is_behind and all(_is_train_up_to_fewer(event, n) for event in left)

    # ---- phases ------------------------------------------------------------------------------------------------------

    def enter(self, name: str, around: Level) -> OpenedPhase:
        """Note that a phase opens, and return it.

        Raises:
            CheckpointError: the program of the checkpoint had opened another phase.
        """
        path, place = [*(phase.path[-1] for phase in self._open), name], self._next(OpenedPhase)
        if place is None:  # a new phase; else the next one of the checkpoint, which must be the same
            place = self._cursor
            self.events.insert(place, OpenedPhase(path))
        phase = self.events[place]
        assert isinstance(phase, OpenedPhase), "the place of the next phase was asked for"
        if phase.path != path:
            raise _other_phase(path, phase.path)
        self._pass(place)
        self._open.append(phase)
        self._done.append(phase.is_done)
        self.around.append(around)
        return phase

    def leave(self, epoch_num: int, *, failed: bool, modules: Mapping[str, Any] | None = None) -> None:
        """Note that the innermost phase ends.

        Args:
            epoch_num: the epochs that it has completed.
            failed: an error or a stop of the whole run ends it, so that a resumed program continues in it.
            modules: a copy of the states of the modules that only this phase has.
        """
        phase = self._open.pop()
        self._done.pop()
        self.around.pop()
        if not phase.is_done:
            phase.epoch_num, phase.is_done = epoch_num, not failed
            phase.modules = {} if failed or modules is None else modules

    # ---- saved state, and the way to its place -----------------------------------------------------------------------

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the events that this program has come to."""
        return [event.state_dict() for event in self.events[: self._cursor]]

    def resumed_from(
        self, state: Mapping[str, Any], *, are_made_again: bool, strict: bool = True, epochs: int | None = None
    ) -> Program:
        """Return the Program that has loaded a state; if the state turns out not to fit, the caller keeps this one.

        Args:
            state: what ``TrainManager.state_dict`` returned.
            are_made_again: the program was started again, and makes the same calls; else it makes further ones.
            strict: refuse a state that does not fit, also at its place.
            epochs: how many epochs ``train()`` is to train, if ``train()`` has opened the run that loads the state.
        """
        begun = replace(self, strict=strict)
        begun._take_over([_event(saved) for saved in state["program"]], are_made_again=are_made_again)
        # Or the program is train() with a raised number of epochs, which stands for all calls of train() before it.
        is_there = begun._is_at_the_end() or (epochs is not None and begun._goes_beyond("train", epochs))
        begun.state = None if is_there else dict(state)
        return begun

    def _take_over(self, events: Iterable[Event], *, are_made_again: bool) -> None:
        """Replace the events by those of a checkpoint; as many are passed as this program has made here."""
        phases = self.phase_number
        to_pass = {OpenedPhase: phases, MadeCall: self._cursor - phases}
        passed, left = list[Event](), list[Event]()
        for event in events:
            kind = type(event)
            is_passed = to_pass[kind] > 0 or (kind is MadeCall and not are_made_again)
            (passed if is_passed else left).append(event)
            to_pass[kind] -= 1
        self.events, self._cursor = [*passed, *left], len(passed)
        # Phases that are open stay so. From the end: phases before may have had the same path.
        opened = [event for event in reversed(passed) if isinstance(event, OpenedPhase)]
        self._open = [next(event for event in opened if event.path == phase.path) for phase in self._open]

    def take_state(self) -> dict[str, Any] | None:
        """Return the state if the program has come to its place, and forget it: it is restored for the last time."""
        state = self.state
        if state is None or self.is_in_completed or not self._is_at_the_end():
            return None
        if len(state["phases"]) != len(self.around):
            return None
        self.state = None
        return state

    def state_on_the_way(self) -> dict[str, Any] | None:
        """Return the saved state of the innermost phase, if the checkpoint was written inside this phase."""
        state, depth = self.state, len(self.around)
        if state is None or self.is_in_completed or not 0 < depth <= len(state["phases"]):
            return None
        found: dict[str, Any] = state["phases"][depth - 1]
        return found


def _is_train_up_to_fewer(event: Event, n: int) -> bool:
    return isinstance(event, MadeCall) and event.method == "train" and event.n < n


def _event(saved: Mapping[str, Any]) -> Event:
    if "call" in saved:
        return MadeCall(saved["call"], saved["n"], saved["end"])
    return OpenedPhase([*saved["phase"]], saved["epoch_num"], saved["is_done"], saved.get("modules", {}))


def _other_phase(opened: list[str], expected: list[str]) -> CheckpointError:
    what = f"the program opens phase {' > '.join(opened)!r}, but the checkpoint was written after"
    cure = "open the same phases in the same order; for another program take the weights alone: tm.load_weights(path)"
    return CheckpointError(f"{what} phase {' > '.join(expected)!r} was opened here", name=opened[-1], cure=cure)


def tell_at_exit(text: str, counts: Counts) -> None:
    """Warn as the program ends, unless it has trained since; a later text replaces this one."""
    atexit.unregister(_tell)
    atexit.register(_tell, text, users_place(), counts, counts.step_num)


def _tell(text: str, place: tuple[str, int], counts: Counts, step_num: int) -> None:
    if counts.step_num == step_num:
        warnings.warn_explicit(text, UserWarning, *place)
