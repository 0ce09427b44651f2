"""The phases of a training: the setup and progress of each, and a log, as a resumed program opens them again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from train_manager.checkpoints.fit import Difference, Left
from train_manager.loop.feed import misfits_of_position
from train_manager.loop.progress import Progress
from train_manager.loop.ranks import ONE_PROCESS, Ranks
from train_manager.loop.saved_state import misfits
from train_manager.loop.setup import Setup
from train_manager.telling.errors import CheckpointError


@final
class Level(NamedTuple):
    """The training itself, or a phase in it: its components, and how far it has come.

    A component of a phase that is the same object as in the level around it is saved in the outer level only.
    """

    setup: Setup
    progress: Progress

    def state_dict(
        self, around: Level | None, open_stages: Iterable[str], held: Collection[int] = (), ranks: Ranks = ONE_PROCESS
    ) -> dict[str, Any]:
        """Return the state of setup and progress in one dict.

        Args:
            around: the level around this one; None for the training itself.
            open_stages: the stages that are open at this moment.
            held: the ids of the parameters that extensions keep from getting gradients.
            ranks: the processes that train together.
        """
        outer = None if around is None else around.setup
        progress = self.progress.state_dict(self.setup.train_data, open_stages, ranks)
        # Within a training call the model is in train mode, so a submodule in eval mode was set so by a hook.
        resting = self.setup.resting_modules() if "train" in open_stages else []
        if resting:
            progress["run"]["resting"] = resting
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


@final
@dataclass
class PhaseLog:
    """Which phases a program has opened, in the order in which it did.

    A program that resumes from a checkpoint opens them again. In completed phases nothing is trained; in the phase that
    the checkpoint was written in, the training continues.
    """

    # For each phase of the checkpoint and of this program: its path of names, its epoch_num, and whether it was
    # completed. A completed phase has the states of its own modules too, if checkpoints are saved: a program that
    # resumes does not train them again.
    entered: list[dict[str, Any]] = field(default_factory=list)
    around: list[Level] = field(default_factory=list)  # the level around each open phase, outermost first
    _open: list[dict[str, Any]] = field(default_factory=list)  # the entries of the open phases, outermost first
    # For each open phase: whether it was completed before the checkpoint, as known when the phase was opened. Not read
    # from its entry, because a state that is loaded inside the phase brings another entry.
    _done: list[bool] = field(default_factory=list)
    _passed: int = 0  # how many phases of `entered` this program has opened

    @property
    def is_behind(self) -> bool:
        """Whether phases of the checkpoint are left that this program has not opened yet."""
        return self._passed < len(self.entered)

    @property
    def is_in_completed(self) -> bool:
        """Whether the innermost phase was completed before the checkpoint, so that nothing is trained in it."""
        return bool(self._done) and self._done[-1]

    @property
    def number(self) -> int:
        """How many phases this program has opened so far."""
        return self._passed

    def enter(self, name: str, around: Level) -> dict[str, Any]:
        """Note that a phase opens, and return its entry.

        Raises:
            CheckpointError: the program of the checkpoint had opened another phase.
        """
        path = [*(phase["path"][-1] for phase in self._open), name]
        if not self.is_behind:  # a new phase; else the next one of the checkpoint, which must be the same
            self.entered.append({"path": path, "epoch_num": 0, "is_done": False})
        phase = self.entered[self._passed]
        if phase["path"] != path:
            raise _other_phase(path, phase["path"])
        self._passed += 1
        self._open.append(phase)
        self._done.append(phase["is_done"])
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
        if not phase["is_done"]:
            phase |= {"epoch_num": epoch_num, "is_done": not failed}
            phase |= {} if failed or not modules else {"modules": modules}

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the phases that were entered."""
        return [dict(phase) for phase in self.entered[: self._passed]]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        """Resume from what ``state_dict`` returned; phases that are open stay so."""
        open_now = [phase["path"] for phase in self._open]
        self.entered = [dict(phase) for phase in state]
        # The new entries of the open phases. From the end: phases before may have had the same path.
        self._open = [next(p for p in reversed(self.entered[: self._passed]) if p["path"] == path) for path in open_now]


def _other_phase(opened: list[str], expected: list[str]) -> CheckpointError:
    what = f"the program opens phase {' > '.join(opened)!r}, but the checkpoint was written after"
    cure = "open the same phases in the same order; for another program take the weights alone: tm.load_weights(path)"
    return CheckpointError(f"{what} phase {' > '.join(expected)!r} was opened here", name=opened[-1], cure=cure)
