"""Resume: the training calls and phases that a resumed program makes again, up to the place of its checkpoint."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from train_manager.loop.counts import Counts
from train_manager.loop.phases import PhaseLog
from train_manager.loop.training_calls import CallLog
from train_manager.telling.source_locations import users_place


@final
@dataclass
class Resume:
    """The training calls and phases of a program, and the state that was loaded into it.

    The *place* of a state is the training call, and the phases around it, in which the state was saved. The state is
    restored as it is loaded, and once more where the program has come to this place: what the program did on its way
    (another head, other weights or learning rates) is undone.
    """

    call_log: CallLog = field(default_factory=CallLog)  # the training calls, made here or before the checkpoint
    phases: PhaseLog = field(default_factory=PhaseLog)  # the phases, opened here or before the checkpoint
    state: dict[str, Any] | None = None  # the loaded state, until the program has come to its place
    # What is restored once more of it as soon as the stages are open again that were open in the checkpoint.
    again: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True  # refuse a state that does not fit, also at its place

    @property
    def is_on_its_way(self) -> bool:
        """Whether the program has not come to the place of the checkpoint yet, or trains nothing where it is."""
        return self.phases.is_in_completed or self.state is not None or self.call_log.is_behind

    @property
    def trains(self) -> bool:
        """Whether a training call trains here: neither the call nor its phase was over before the checkpoint."""
        return not self.phases.is_in_completed and not self.call_log.is_behind

    def begin(
        self, state: Mapping[str, Any], *, are_made_again: bool, strict: bool = True, epochs: int | None = None
    ) -> Resume:
        """Return the Resume of a program that has loaded a state.

        Args:
            state: what ``TrainManager.state_dict`` returned.
            are_made_again: the program was started again, and makes the same calls; else it makes further ones.
            strict: refuse a state that does not fit, also at its place.
            epochs: how many epochs ``train()`` is to train, if ``train()`` has opened the run that loads the state.
        """
        # Copies: if the state turns out not to fit, the caller keeps this object as it is.
        begun = replace(self, call_log=replace(self.call_log), phases=replace(self.phases), strict=strict)
        begun.phases.load_state_dict(state["phases"]["entered"])
        begun.call_log.load_state_dict(state["calls"], are_made_again=are_made_again)
        # At most the last call is left: the next call is the one that was interrupted. Or the program is train() with a
        # raised number of epochs, which stands for all calls of train() before it.
        is_there = begun.call_log.left <= 1 or (epochs is not None and begun.call_log.goes_beyond("train", epochs))
        begun.state = dict(state) if begun.phases.is_behind or not is_there else None
        return begun

    def repeats(self, entry: str, n: int) -> bool:
        """Return whether the coming call was made before the checkpoint; if not, drop the state of another program."""
        is_longer = self.call_log.goes_beyond(entry, n) and self.state is not None and not self.state["phases"]["open"]
        repeats = self.call_log.repeats(entry, n)
        if not repeats and not is_longer and not self.phases.is_behind and not self.phases.around:
            self.state = None  # it is not restored once more: another program keeps what it did on its way
        return repeats

    def take_state(self) -> dict[str, Any] | None:
        """Return the state if the program has come to its place, and forget it: it is restored for the last time."""
        state, depth = self.state, len(self.phases.around)
        if state is None or self.phases.is_in_completed or self.phases.is_behind:
            return None
        if len(state["phases"]["open"]) != depth or self.call_log.left > 1:
            return None
        self.state = None
        return state

    def state_on_the_way(self) -> dict[str, Any] | None:
        """Return the saved state of the innermost phase, if the checkpoint was written inside this phase."""
        state, depth = self.state, len(self.phases.around)
        if state is None or self.phases.is_in_completed or not 0 < depth <= len(state["phases"]["open"]):
            return None
        found: dict[str, Any] = state["phases"]["open"][depth - 1]
        return found


def tell_at_exit(text: str, counts: Counts) -> None:
    """Warn as the program ends, unless it has trained since; a later text replaces this one."""
    atexit.unregister(_tell)
    atexit.register(_tell, text, users_place(), counts, counts.step_num)


def _tell(text: str, place: tuple[str, int], counts: Counts, step_num: int) -> None:
    if counts.step_num == step_num:
        warnings.warn_explicit(text, UserWarning, *place)
