"""Resume: what a program that was started again has still to make again, up to where its checkpoint was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from train_manager.loop.calls import CallLog
from train_manager.loop.phases import PhaseLog


@final
@dataclass
class Resume:
    """The calls and phases of a program, and the state that was loaded into it.

    The state is restored as it is loaded, and once more where the program has come to the place that it is of: what
    the program did on its way (another head, other weights or learning rates) is undone.

    Attributes:
        calls: the training calls that were made, here or before the checkpoint.
        phases: the same of phases.
        state: the loaded state, until the program has come to its place; None if it has.
        strict: refuse a state that does not fit.
    """

    calls: CallLog = field(default_factory=CallLog)
    phases: PhaseLog = field(default_factory=PhaseLog)
    state: dict[str, Any] | None = None
    strict: bool = True

    @property
    def is_on_its_way(self) -> bool:
        """Whether the program has not come to the place of the checkpoint yet, or trains nothing where it is."""
        return self.phases.is_in_completed or self.state is not None or self.calls.is_behind

    @property
    def trains(self) -> bool:
        """Whether a call trains here; not one that was over, or in a phase that was, before the checkpoint."""
        return not self.phases.is_in_completed and not self.calls.is_behind

    def begin(
        self, state: Mapping[str, Any], *, are_made_again: bool, strict: bool = True, epochs: int | None = None
    ) -> Resume:
        """Return what a program has to make again that goes on from a state.

        Args:
            state: what ``TrainManager.state_dict`` returned.
            are_made_again: the program was started again, and makes the same calls; else it makes further ones.
            strict: refuse a state that does not fit, also at its place.
            epochs: how many ``train()`` is to train, if it is that call which loads the state.
        """
        begun = replace(self, calls=replace(self.calls), phases=replace(self.phases), strict=strict)
        begun.phases.load_state_dict(state["phases"]["entered"])
        begun.calls.load_state_dict(state["calls"], are_made_again=are_made_again)
        is_there = begun.calls.left <= 1 or (epochs is not None and begun.calls.goes_beyond("train", epochs))
        begun.state = dict(state) if begun.phases.is_behind or not is_there else None
        return begun

    def repeats(self, entry: str, n: int) -> bool:
        """Return whether the coming call was made before the checkpoint; of another program the state is dropped."""
        is_longer = self.calls.goes_beyond(entry, n) and self.state is not None and not self.state["phases"]["open"]
        repeats = self.calls.repeats(entry, n)
        if not repeats and not is_longer and not self.phases.is_behind and not self.phases.around:
            self.state = None  # another program keeps what it did on its way
        return repeats

    def take_state(self) -> dict[str, Any] | None:
        """Return the whole state if the program has come to its place; it is restored for the last time then."""
        state, depth = self.state, len(self.phases.around)
        if state is None or self.phases.is_in_completed or self.phases.is_behind:
            return None
        if len(state["phases"]["open"]) != depth or self.calls.left > 1:
            return None
        self.state = None
        return state

    def state_on_the_way(self) -> dict[str, Any] | None:
        """Return the state of the innermost phase alone, if it is one that the checkpoint was written in."""
        state, depth = self.state, len(self.phases.around)
        if state is None or self.phases.is_in_completed or not 0 < depth <= len(state["phases"]["open"]):
            return None
        found: dict[str, Any] = state["phases"]["open"][depth - 1]
        return found
