"""Level: the training itself, or a phase in it; a phase swaps the level of its manager."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, final

from train_manager.checkpoints.fit import Difference, Left
from train_manager.loop.call import Call
from train_manager.loop.feed import misfits_of_position
from train_manager.loop.progress import Progress
from train_manager.loop.ranks import ONE_PROCESS, Ranks
from train_manager.loop.run_state import RunState
from train_manager.loop.saved_state import misfits
from train_manager.loop.setup import Setup


@final
class Level(NamedTuple):
    """The training itself, or a phase in it: its components, and how far it has come.

    A component of a phase that is the same object as in the level around it is saved in the outer level only.
    """

    setup: Setup
    progress: Progress

    def inner(self, setup: Setup, key: str, epoch_num: int, step_num: int) -> Level:
        """Return the level of a phase that opens in this one.

        Args:
            setup: the components of the phase.
            key: the name of the phase's lifetime.
            epoch_num: how many epochs of it are done: all of them, if it was completed before the checkpoint.
            step_num: how many steps were trained before it.
        """
        here, run = self.progress, RunState(self.progress.run.entry)
        run.go_on_after(here.run)  # a run that was stopped trains in none of its phases
        if here.feed.is_within(setup.train_data):
            here.feed.let_another_read()
        return Level(setup, Progress(run, Call(here.call.number, step_num), epoch_num, key, here.findings))

    def go_on_after(self, phase: Level) -> None:
        """Go on after a phase in this level."""
        self.setup.device = phase.setup.device  # no component of the phase: `tm.device = ...` in it stays
        # A stop of the whole run ends the training calls around the phase too.
        self.progress.run.go_on_after(phase.progress.run)
        # The training call that a checkpoint was written in was over before the program opened this phase: the next
        # training call must not continue it.
        self.progress.interrupted = None

    def state_dict(
        self, around: Level | None, open_stages: Sequence[str], held: Collection[int] = (), ranks: Ranks = ONE_PROCESS
    ) -> dict[str, Any]:
        """Return the state of setup and progress in one dict.

        Args:
            around: the level around this one; None for the training itself.
            open_stages: the stages that are open at this moment.
            held: the ids of the parameters that extensions keep from getting gradients.
            ranks: the processes that train together.
        """
        outer = None if around is None else around.setup
        # Within a training call the model is in train mode, so a submodule in eval mode was set so by a hook.
        resting = self.setup.resting_modules() if "train" in open_stages else []
        progress = self.progress.state_dict(self.setup.train_data, open_stages, resting, ranks)
        return {**progress, **self.setup.state_dict(outer, held)}

    def misfits(self, around: Level | None, state: Mapping[str, Any], left: Left, *, is_there: bool) -> Iterator[str]:
        """Say why a saved state does not fit."""
        yield from misfits_of_position(self.setup.train_data, state["data"])
        own = self.setup.own_states(None if around is None else around.setup)
        yield from misfits(own, state, self.setup.parameter_names(), left, is_there=is_there)

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        left: Left,
        held: Collection[int] = (),
        *,
        is_there: bool = True,
        ranks: Ranks = ONE_PROCESS,
    ) -> list[Difference]:
        """Restore what ``state_dict`` returned, as far as it fits, and return where the program differs."""
        setup = self.setup
        found = setup.load_state_dict(state, left, held, is_there=is_there)
        self.progress.load_state_dict(state, setup.train_data, is_cut=setup.steps_per_epoch is not None, ranks=ranks)
        return found
