"""The phases of a training: what each has of its own, and which were opened: a resumed program opens them again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

from train_manager.checkpoints.fit import Difference
from train_manager.loop.feed import misfits_of_position
from train_manager.loop.progress import Progress
from train_manager.loop.setup import Setup
from train_manager.telling.errors import CheckpointError


@final
class Level(NamedTuple):
    """The training itself, or a phase in it: what is trained, and how far that has come.

    A part of a phase that is the same object as around it is saved around it only.
    """

    setup: Setup
    progress: Progress

    def state_dict(
        self, around: Level | None, open_stages: Iterable[str], held: Collection[int] = ()
    ) -> dict[str, Any]:
        """Return the state of both.

        Args:
            around: the level around this one.
            open_stages: those that are open at this moment.
            held: the ids of the parameters that extensions keep from getting gradients.
        """
        outer = None if around is None else around.setup
        progress = self.progress.state_dict(self.setup.train_data, open_stages)
        resting = self.setup.resting_modules() if "train" in open_stages else []
        if resting:
            progress["run"]["resting"] = resting
        return {**progress, **self.setup.state_dict(outer, held)}

    def misfits(self, around: Level | None, state: Mapping[str, Any], *, is_there: bool = True) -> Iterator[str]:
        """Say what of a saved state does not fit."""
        yield from misfits_of_position(self.setup.train_data, state["data"])
        yield from self.setup.misfits(None if around is None else around.setup, state, is_there=is_there)

    def load_state_dict(
        self, state: Mapping[str, Any], held: Collection[int] = (), *, is_there: bool = True
    ) -> list[Difference]:
        """Restore what ``state_dict`` returned, as far as it fits, and return where the program differs."""
        setup = self.setup
        found = setup.load_state_dict(state, held, is_there=is_there)
        self.progress.load_state_dict(state, setup.train_data, is_cut=setup.steps_per_epoch is not None)
        return found


@final
@dataclass
class PhaseLog:
    """Which phases a program has opened, in the order in which it did.

    A program that goes on from a checkpoint opens them again. In those that were completed nothing is trained; in the
    one that the checkpoint was written in, the training goes on.

    Attributes:
        entered: for each phase its path of names, its ``epoch_num``, whether it was completed, and if so the states of
            modules of its own, if checkpoints are saved: a resumed program does not train them again.
        around: what is around each open phase, outermost first.
    """

    entered: list[dict[str, Any]] = field(default_factory=list)
    around: list[Level] = field(default_factory=list)
    _open: list[dict[str, Any]] = field(default_factory=list)
    _done: list[bool] = field(default_factory=list)  # of those, as they were opened: a state may be loaded inside
    _passed: int = 0  # of those entered, by this program

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
        """Take note that a phase opens, and return what is known of it.

        Raises:
            CheckpointError: the program of the checkpoint had opened another phase.
        """
        path = [*(phase["path"][-1] for phase in self._open), name]
        if not self.is_behind:
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
        """Take note that the innermost phase ends, with a copy of what the modules were that it alone has."""
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
        """Go on from what ``state_dict`` returned; phases that are open stay so."""
        open_now = [phase["path"] for phase in self._open]
        self.entered = [dict(phase) for phase in state]
        self._open = [next(p for p in reversed(self.entered[: self._passed]) if p["path"] == path) for path in open_now]


def _other_phase(opened: list[str], expected: list[str]) -> CheckpointError:
    what = f"the program opens phase {' > '.join(opened)!r}, but the checkpoint was written after"
    cure = "open the same phases in the same order; for another program take the weights alone: tm.load_weights(path)"
    return CheckpointError(f"{what} phase {' > '.join(expected)!r} was opened here", name=opened[-1], cure=cure)
