"""Program: the training calls and phases that a program makes, and makes again as it resumes from a checkpoint."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple, final

from train_manager.loop.counts import Counts
from train_manager.loop.level import Level
from train_manager.telling.errors import CheckpointError
from train_manager.telling.source_locations import users_place

PHASE: Final = "phase"


@final
@dataclass
class Event:
    """A training call that was made, or a phase that was opened."""

    kind: str  # the method that was called; or "phase"
    of: Any  # the argument of the method, of train the epochs in all; or the names of the phases around, and its own
    end: int  # the count of steps or epochs at which the call is to end; or the epochs of the phase, once it has ended
    is_done: bool = False  # the phase has ended, and not by an error
    # The states of the modules that only this phase has, if checkpoints are saved: they are not trained again.
    modules: Mapping[str, Any] = field(default_factory=dict)

    def is_train_up_to_fewer(self, epochs: int) -> bool:
        """Return whether it is a call of ``train()`` up to fewer epochs than these."""
        return self.kind == "train" and self.of < epochs


@final
class Opened(NamedTuple):
    """A phase that is open."""

    event: Event
    around: Level
    # Whether it was completed before the checkpoint, as known when it was opened. Not read from its event, because a
    # state that is loaded inside the phase brings another one.
    was_done: bool


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

    # The events of the checkpoint and of this program, which has come to the cursor.
    events: list[Event] = field(default_factory=list)
    _cursor: int = 0
    _open: list[Opened] = field(default_factory=list)  # the open phases, outermost first
    state: dict[str, Any] | None = None  # the loaded state, until the program has come to its place
    # What is restored once more of it as soon as the stages are open again that were open in the checkpoint.
    again: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True  # refuse a state that does not fit, also at its place

    # ---- how far the program has come --------------------------------------------------------------------------------

    @property
    def around(self) -> list[Level]:
        """The level around each open phase, outermost first."""
        return [opened.around for opened in self._open]

    @property
    def phase_name(self) -> str | None:
        """The name of the innermost phase that is open."""
        return self._open[-1].event.of[-1] if self._open else None

    @property
    def phase_number(self) -> int:
        """How many phases this program has opened so far."""
        return len(self.phases)

    @property
    def phases(self) -> list[str]:
        """The names of the phases that this program has opened so far."""
        return [event.of[-1] for event in self.events[: self._cursor] if event.kind == PHASE]

    @property
    def has_phases_left(self) -> bool:
        """Whether phases of the checkpoint are left that this program has not opened yet."""
        return self._coming(is_phase=True) is not None

    @property
    def has_calls_left(self) -> bool:
        """Whether calls of the checkpoint are left that this program has not made yet."""
        return self._coming(is_phase=False) is not None

    @property
    def is_in_completed(self) -> bool:
        """Whether the innermost phase was completed before the checkpoint, so that nothing is trained in it."""
        return bool(self._open) and self._open[-1].was_done

    @property
    def trains(self) -> bool:
        """Whether a training call trains here: neither the call nor its phase was over before the checkpoint."""
        return not self.is_in_completed and not self.has_calls_left

    @property
    def is_on_its_way(self) -> bool:
        """Whether the program has not come to the place of the checkpoint yet, or trains nothing where it is."""
        return self.state is not None or not self.trains

    def _coming(self, *, is_phase: bool) -> Event | None:
        """Return the next phase, or the next call, of the checkpoint."""
        left = islice(self.events, self._cursor, None)
        return next((event for event in left if (event.kind == PHASE) is is_phase), None)

    def _pass(self, event: Event) -> None:
        """Let the program come to an event: a new one, or one of the checkpoint."""
        place = next((place for place in range(self._cursor, len(self.events)) if self.events[place] is event), None)
        if place is not None:
            del self.events[place]  # the program may have left out a call before a phase, which is then still to come
        self.events.insert(self._cursor, event)
        self._cursor += 1

    def _is_at_the_end(self) -> bool:
        """Return whether at most one call is left: the next call is the one that was interrupted."""
        left = self.events[self._cursor : self._cursor + 2]
        return not left or (len(left) == 1 and left[0].kind != PHASE)

    # ---- training calls ----------------------------------------------------------------------------------------------

    def repeats(self, method: str, n: int) -> bool:
        """Return whether the coming call was made before the checkpoint.

        If not, forget the calls that are left, and the state: another program keeps what it did on its way.
        """
        is_longer = self.state is not None and not self.state["phases"] and self._goes_beyond(method, n)
        repeats = self._same_call(method, n) is not None
        if not repeats and not is_longer and not self._open and not self.has_phases_left:
            self.state = None
        return repeats

    def begin_call(self, method: str, n: int, count: int) -> int:
        """Return the count at which a call ends: as the same call before the checkpoint, else at ``count + n``."""
        call = self._same_call(method, n) or Event(method, n, count + n)
        self._pass(call)
        return call.end

    def _same_call(self, method: str, n: int) -> Event | None:
        """Return the next call of the checkpoint if it is this one; if not, forget the calls that are left."""
        coming = self._coming(is_phase=False)
        # A program that looks at epoch_num first (`while tm.epoch_num < 10: ...`) leaves these calls out.
        while method == "train" and coming is not None and coming.is_train_up_to_fewer(n):
            self._pass(coming)
            coming = self._coming(is_phase=False)
        if coming is not None and (coming.kind, coming.of) == (method, n):
            return coming
        left = self.events[self._cursor :]
        self.events[self._cursor :] = [event for event in left if event.kind == PHASE]
        return None

    def _goes_beyond(self, method: str, n: int) -> bool:
        """Return whether all that is left are calls of ``train()`` up to fewer epochs: ``epochs`` was raised since."""
        left = islice(self.events, self._cursor, None)
        is_behind = self._cursor < len(self.events)
        return method == "train" and is_behind and all(event.is_train_up_to_fewer(n) for event in left)

    # ---- phases ------------------------------------------------------------------------------------------------------

    def enter(self, name: str, around: Level) -> Event:
        """Note that a phase opens, and return it.

        Raises:
            CheckpointError: the program of the checkpoint had opened another phase.
        """
        path = [*(opened.event.of[-1] for opened in self._open), name]
        phase = self._coming(is_phase=True) or Event(PHASE, path, 0)
        if phase.of != path:
            raise _other_phase(path, phase.of)
        self._pass(phase)
        self._open.append(Opened(phase, around, phase.is_done))
        return phase

    def leave(self, epoch_num: int, *, failed: bool, modules: Mapping[str, Any] | None = None) -> None:
        """Note that the innermost phase ends.

        Args:
            epoch_num: the epochs that it has completed.
            failed: an error or a stop of the whole run ends it, so that a resumed program continues in it.
            modules: a copy of the states of the modules that only this phase has.
        """
        phase = self._open.pop().event
        if not phase.is_done:
            phase.end, phase.is_done = epoch_num, not failed
            phase.modules = {} if failed or modules is None else modules

    # ---- saved state, and the way to its place -----------------------------------------------------------------------

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the events that this program has come to."""
        return [dict(vars(event)) for event in self.events[: self._cursor]]

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
        begun._take_over([Event(**saved) for saved in state["program"]], are_made_again=are_made_again)
        # Or the program is train() with a raised number of epochs, which stands for all calls of train() before it.
        is_there = begun._is_at_the_end() or (epochs is not None and begun._goes_beyond("train", epochs))
        begun.state = None if is_there else dict(state)
        return begun

    def _take_over(self, events: Iterable[Event], *, are_made_again: bool) -> None:
        """Replace the events by those of a checkpoint; as many are passed as this program has made here."""
        phases = self.phase_number
        to_pass = {True: phases, False: self._cursor - phases}
        passed, left = list[Event](), list[Event]()
        for event in events:
            is_phase = event.kind == PHASE
            is_passed = to_pass[is_phase] > 0 or not (is_phase or are_made_again)
            (passed if is_passed else left).append(event)
            to_pass[is_phase] -= 1
        self.events, self._cursor = [*passed, *left], len(passed)
        # Phases that are open stay so. From the end: phases before may have had the same path.
        paths = [(event.of, event) for event in reversed(passed) if event.kind == PHASE]
        self._open = [
            one._replace(event=next(event for path, event in paths if path == one.event.of)) for one in self._open
        ]

    def take_state(self) -> dict[str, Any] | None:
        """Return the state if the program has come to its place, and forget it: it is restored for the last time."""
        state = self.state
        is_there = state is not None and len(state["phases"]) == len(self._open) and self._is_at_the_end()
        if not is_there or self.is_in_completed:
            return None
        self.state = None
        return state

    def state_on_the_way(self) -> dict[str, Any] | None:
        """Return the saved state of the innermost phase, if the checkpoint was written inside this phase."""
        state, depth = self.state, len(self._open)
        if state is None or self.is_in_completed or not 0 < depth <= len(state["phases"]):
            return None
        found: dict[str, Any] = state["phases"][depth - 1]
        return found


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
