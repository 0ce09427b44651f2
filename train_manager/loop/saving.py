"""What a checkpoint holds of a training: ``state_dict`` and ``load_state_dict``, and how a hook asks for one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from torch import nn

from train_manager.checkpoints.copies import copied
from train_manager.checkpoints.weights import checkpoints_at, mean_weights, without_prefix
from train_manager.data.randomness import random_state, set_random_state
from train_manager.loop.control import LoopControl
from train_manager.loop.parts import Model
from train_manager.loop.phases import PHASE_PARTS
from train_manager.loop.saved_state import (
    attributes_with_state,
    misfits,
    module_misfits,
    not_a_state,
    require_fit,
    restore_part,
    restore_parts,
    state_of_parts,
)
from train_manager.rebuilding.recorded import as_written
from train_manager.telling.errors import StageError, TrainManagerError
from train_manager.telling.source_locations import users_level
from train_manager.validation import require_count, require_one_of

KNOWN: Final = frozenset({*PHASE_PARTS, "history", "called_model"})
"""The attributes of a TrainManager that a checkpoint holds in their own places."""

CHANGED_BY_HOOKS: Final = ("model", "loss", "optimizers", "lr_schedule", "extensions", "attributes")
"""What a hook of load_checkpoint may change of a state, as a smaller learning rate."""

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What parts of a training raise for a state that is not of their form."""


class Saving(LoopControl[Model]):
    """The side of the loop that checkpoints see."""

    def save_soon(self, at: str = "step") -> None:
        """Ask for a checkpoint between this step and the next; or with ``at="end"``, as the training call ends.

        The loop opens the stage ``save_checkpoint`` there, after an evaluation if one was asked for as well, so that
        counters, schedules and extensions agree. At the end of the data, the epoch is completed first. With
        ``at="end"`` it does so also if the call is stopped, but not if it fails.

        >>> import tempfile
        >>> from train_manager import Extension
        >>> from train_manager.extensions import Checkpoints
        >>> from train_manager.testing import tiny_manager
        >>> class AfterTwoSteps(Extension):
        ...     def post_train_step_batch(self, train_manager, step_num):
        ...         if step_num == 2:
        ...             train_manager.save_soon()
        >>> tm = tiny_manager(Checkpoints(save_at=()), AfterTwoSteps(), train_dir=tempfile.mkdtemp())
        >>> result = tm.train()
        >>> [path.name for path in (tm.train_dir / "checkpoints").iterdir()]
        ['step-000000000002']

        Args:
            at: "step" for the end of this step, "end" for the end of the training call.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "end"))
        if "run" not in self.fixtures.path:
            what = "save_soon() was called, but no run is open"
            raise StageError(what, stages=self.fixtures.path, cure="call it in a hook, or in `with tm.run():`")
        if at == "end":
            self._run.saves_at_end = True
        else:
            self._run.save_requested = True

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on, in plain dicts with tensors, which are not copied.

        The model, the loss if it has weights, optimizers, schedulers, the state of each extension and of schedules on
        the manager's own hooks, further attributes with a ``state_dict``, random states, counters, the position in the
        data, gradients of open windows, phases, and the history.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager(epochs=2)
        >>> result = tm.train_steps(4)
        >>> other = tiny_manager(epochs=2)
        >>> other.load_state_dict(tm.state_dict())
        >>> other.step_num
        4

        Raises:
            StageError: a batch is alive; in a hook, call ``save_soon``.
            NonFiniteLoss: a loss of the open epoch was nan or infinite.
        """
        self._refuse_while_alive("state_dict", "in a hook, ask for it: train_manager.save_soon()")
        levels = [*self._phases.around, dict(self.__dict__)]
        around, path = [None, *levels], self.fixtures.path
        states = [
            {**state_of_parts(level, around[number], path if level is levels[-1] else ()), "epoch_num": epoch_num}
            for number, (level, epoch_num) in enumerate(zip(levels, self._epoch_nums(), strict=True))
        ]
        counts = {"step_num": self.step_num, "update_num": self.update_num, "samples_seen": self.samples_seen}
        return {
            **states[0],
            "calls": self._calls.state_dict(),
            "phases": {"entered": self._phases.state_dict(), "open": states[1:]},
            "extensions": {name: one.state_dict() for name, one in self._registry.extensions.items()},
            "schedules": self._schedule_states(),
            "attributes": {name: one.state_dict() for name, one in self._attributes().items()},
            "windows": self._windows.state_dict(),
            "counts": {**counts, "optimizer_updates": dict(self.optimizer_updates)},
            "history": self.history.state_dict(),
            "random": random_state(),
            "parameters": as_written(self._recorded_arguments),
        }

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Go on from what ``state_dict`` returned, in a training made of the same parts.

        If it was in the middle of phases, what belongs to them is restored as the same phases are opened again.

        Args:
            state: what ``state_dict`` returned.
            strict: refuse a state that does not fit, before anything is changed; else load what fits, and warn.

        Raises:
            CheckpointError: the state does not fit; with all that is missing, unexpected or of another shape. Or it has
                not the form of a state, or an extension cannot load its part: some parts may have been restored then.
            StageError: a batch is alive, or a training is under way.
        """
        self._refuse_while_alive("load_state_dict", "load it in a hook of load_checkpoint, or outside of a run")
        phases, calls = replace(self._phases), replace(self._calls)
        try:
            self._phases.load_state_dict(state["phases"]["entered"])
            self._calls.load_state_dict(state["calls"], are_made_again="load_checkpoint" in self.fixtures.path)
            self._restore(state, strict)
        except Exception as error:
            self._phases, self._calls = phases, calls
            if isinstance(error, MALFORMED) and not isinstance(error, TrainManagerError):
                raise not_a_state(error) from error
            raise
        self._loaded_state = dict(state) if self._phases.is_behind or self._calls.left > 1 else None
        self._run.saved_at = self._place_of_checkpoint()  # a call that trains no more has nothing new to save

    def _restore(self, state: Mapping[str, Any], strict: bool) -> None:
        """Restore the levels that are open here, and all that has no level."""
        levels = [*self._phases.around, dict(self.__dict__)]
        saved = [dict(state), *state["phases"]["open"]][: len(levels)]
        around = [None, *levels]
        found = [misfit for n, of_level in enumerate(saved) for misfit in misfits(levels[n], around[n], of_level)]
        is_whole = not self._phases.is_behind
        require_fit([*found, *self._missing(state, is_whole=is_whole)], strict=strict)
        for level, of_level in zip(levels, saved, strict=False):
            restore_parts(level, of_level)
            level["_epoch_num"] = of_level["epoch_num"]
        self._counts.epoch_num = saved[-1]["epoch_num"]
        for name, extension in self._registry.extensions.items():
            if name in state["extensions"]:
                try:
                    extension.load_state_dict(state["extensions"][name])
                except Exception as error:
                    if isinstance(error, TrainManagerError):
                        raise
                    raise not_a_state(error, f"the state of extension {name!r}") from error
        self._load_schedule_states(state["schedules"])
        for name, attribute in self._attributes().items():
            if name in state["attributes"]:
                restore_part(attribute, state["attributes"][name])
        counts = state["counts"]
        self._counts.step_num, self._counts.update_num = counts["step_num"], counts["update_num"]
        self._counts.samples_seen = counts["samples_seen"]
        self._counts.optimizer_updates = dict(counts["optimizer_updates"])
        self.history.load_state_dict(state["history"])
        if is_whole or not state["phases"]["open"]:
            self._windows.load_state_dict(state["windows"], self.optimizers)
        set_random_state(state["random"])

    def _keep_changes_to_loaded(self) -> None:
        """Take what hooks have changed of the parts that were loaded into the state that is restored once more."""
        if self._loaded_state is not None and not self._phases.is_behind:
            state = self.state_dict()
            changed = {name: state[name] for name in CHANGED_BY_HOOKS if name in state}
            self._loaded_state |= copied(changed)

    def _go_on(self) -> None:
        """Restore the loaded state once more, at the place of the program in which it was saved.

        What the program did on its way through phases and calls that were completed (another head, other weights or
        learning rates) is undone.
        """
        state, depth = self._loaded_state, len(self._phases.around)
        if state is None or self._run.is_done:
            return
        saved = state["phases"]["open"]
        if not self._phases.is_behind and len(saved) == depth and self._calls.left <= 1:
            self._loaded_state = None
            self._restore(state, strict=True)
        elif 0 < depth <= len(saved) and self._run.goes_on is None:  # on the way, with an epoch of its own
            restore_parts(dict(self.__dict__), saved[depth - 1])
            self._counts.epoch_num = saved[depth - 1]["epoch_num"]
        self._run.saved_at = self._place_of_checkpoint()  # on the way, the state of the open phases is not here yet
        self._modify_counts()

    def _rest_of_call(self, entry: str, n: int) -> int:
        """Return how many steps or epochs a call is still to train, if the program makes it again."""
        is_another = not self._calls.repeats(entry, n)
        if is_another and not self._phases.is_behind and not self._phases.around:
            self._loaded_state = None  # of another program, which keeps what it did on its way
        self._go_on()
        count = self.step_num if entry == "train_steps" else self.epoch_num
        rest = max(0, self._calls.begin(entry, n, 0 if entry == "train" else count) - count)
        if is_another:
            self._run.stop_to_load = None  # a stop of before the checkpoint is one of the call that it would have ended
        if self._calls.is_behind:
            return 0  # it was over, also if it was stopped early
        if n and not rest and not self._run.is_done and entry != "train":
            what = (
                f"{entry}({n}) has nothing to do: it was completed before the checkpoint that the training goes on from"
            )
            warnings.warn(f"{what} (call it once more, to train more)", stacklevel=users_level())
        return rest

    def load_weights(
        self,
        path: Path | str,
        *,
        at: str | int = "last",
        mode: str | None = None,
        mean_of: int = 1,
        strict: bool = True,
    ) -> None:
        """Load the weights of the model alone: of a checkpoint, a ``.safetensors`` file, or a file of ``torch.save``.

        Nothing in a file is executed: a pickle that holds more than tensors and plain values is refused. A prefix that
        all names have, as those of a compiled model, is left out if the names are those of the model then.

        >>> import tempfile, torch
        >>> from train_manager.testing import tiny_manager
        >>> path = Path(tempfile.mkdtemp(), "weights.pt")
        >>> torch.save(tiny_manager().model.state_dict(), path)
        >>> tiny_manager().load_weights(path)

        Args:
            path: a file; the folder of a checkpoint; or the ``train_dir`` of a training.
            at: which checkpoint of a ``train_dir``: "last", "best", or a step.
            mode: what is best, "min" or "max"; None takes what the checkpoints say.
            mean_of: how many checkpoints to take the mean of: that one, and those before it.
            strict: refuse weights that do not fit, before anything is changed; else load what fits, and warn.

        Raises:
            CheckpointError: a file is damaged or not one of weights, or the weights do not fit.
        """
        weights = mean_weights(checkpoints_at(Path(path), at, mode, require_count(mean_of, "mean_of", at_least=1)))
        module = cast(nn.Module, self.model)
        weights = without_prefix(weights, module.state_dict().keys())
        require_fit(list(module_misfits("model", module, weights)), strict=strict)
        restore_part(module, weights)

    # ---- at the point of decision --------------------------------------------------------------------------------

    def _place_of_checkpoint(self) -> tuple[int, ...]:
        """Return what a checkpoint of this moment is of."""
        return self.step_num, self.epoch_num, len(self._phases.around)

    def _saves_at_end(self) -> bool:
        return self._run.saves_at_end and self._run.saved_at != self._place_of_checkpoint()

    def _saves_between_epochs(self) -> bool:
        """Return whether a requested checkpoint must be saved outside of an epoch.

        Not after an epoch that was stopped half-way and saved there: its position in the data is lost by now.
        """
        is_partial = bool(self.history.epochs) and "partial" in self.history.epochs[-1]
        return not is_partial or self._run.saved_at != self._place_of_checkpoint()

    def _modify_counts(self) -> None:
        """Give the fixtures of the run the counts that were loaded."""
        self.fixtures.modify("epoch_num", self.epoch_num)
        self.fixtures.modify("step_num", self.step_num)
        self.fixtures.modify("update_num", self.update_num)
        self.fixtures.modify("samples_seen", self.samples_seen)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _epoch_nums(self) -> list[int]:
        return [*(level["_epoch_num"] for level in self._phases.around), self.epoch_num]

    def _attributes(self) -> dict[str, Any]:
        return attributes_with_state(self.__dict__, KNOWN)

    def _missing(self, state: Mapping[str, Any], *, is_whole: bool) -> Iterator[str]:
        """Say which extensions and attributes the checkpoint has a state of, and this training lacks."""
        if is_whole:  # else a phase is still to add its own
            for name, saved in state["extensions"].items():
                if saved and name not in self._registry.extensions:
                    yield f"the checkpoint has a state of extension {name!r}, which the training lacks"
        for name in state["attributes"]:
            if name not in self._attributes():
                yield f"the checkpoint has a state of the attribute {name!r}, which the training lacks"

    def _refuse_while_alive(self, method: str, cure: str) -> None:
        alive = next((name for name in ("train_step_batch", "eval", "predict") if name in self.fixtures.path), None)
        if alive is not None:
            what = f"{method}() cannot be called inside stage {alive!r}"
            raise StageError(what, name=alive, stages=self.fixtures.path, cure=cure)
