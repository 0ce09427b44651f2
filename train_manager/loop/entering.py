"""What a call and a run require before they begin, and what is prepared for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch import nn

from train_manager.core.hooks import Hook
from train_manager.data.randomness import seed_all
from train_manager.files.train_dirs import make_train_dir
from train_manager.loop.arguments import (
    require_finite_epochs,
    require_ready_to_train,
    require_train_dir_for_hooks,
    warn_of_idle_hooks,
)
from train_manager.loop.optimizers import (
    require_optimizer_of,
    require_schedules_of,
    warn_of_untrained_loss,
)
from train_manager.loop.parts import Model
from train_manager.loop.run_state import RunState
from train_manager.loop.saving import Saving
from train_manager.telling.errors import CheckError, StageError
from train_manager.telling.source_locations import users_level
from train_manager.telling.tracebacks import hide_own_frames

ASK: Final = "in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)"
NO_PREDICTION: Final = (
    'the own train_batch defines none; let it: self.fixtures["prediction"] = prediction '
    "(of Metrics, or take eval={...})"
)


class Entering(Saving[Model]):
    """The checks and preparations before the loop."""

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval", "predict", "train_step_batch")
        if self._run.stop_at is not None and "run" in self.fixtures.path:
            warnings.warn(
                f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=users_level()
            )
        self._require_optimizers()
        if epochs is not None:
            require_finite_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(
            self.model, bool(self.optimizers), self.train_data, passes, self.eval_data, (epochs or 0) + 1
        )

    def _require_optimizers(self) -> None:
        """Look again at what was looked at when it was given, as attributes may have been replaced since."""
        cure = "was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())"
        require_optimizer_of(self.optimizers, self.model, self.loss, self.called_model, cure=cure)
        require_schedules_of(self.lr_schedule, self.optimizers)
        if self.loss is not self._loss_of_optimizers:
            self._loss_of_optimizers = self.loss
            warn_of_untrained_loss(self.optimizers, self.loss)

    def _prepare_run(self, entry: str | None) -> None:
        if entry not in self._checked:
            try:
                self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
            except CheckError as error:
                say_that_train_batch_lacks_a_prediction(error)
                raise
        if not isinstance(self.model, nn.Module):
            warn_of_idle_hooks(self._registry.hooks, self.model)
        require_train_dir_for_hooks(self._registry.hooks, self.train_dir is not None)
        if self.train_dir is not None:
            make_train_dir(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        self._asked_from_outside = None
        before, self._run = self._run, RunState(entry, self.step_num, self.epoch_num, self._run.call)
        if entry not in ("eval", "eval_on_batch", "predict"):  # which leave what schedules count as it is
            self._run.begin_call(self.step_num, steps=None)
        self._run.go_on_from(before)

    @contextmanager
    def _methods_chosen(self) -> Iterator[None]:
        """Choose the methods that each batch calls, anew for each call from outside; errors show the user's frames."""
        before, self._chosen = self._chosen, self._choose()
        try:
            yield
        except BaseException as error:
            hide_own_frames(error)
            raise
        finally:
            self._chosen = before

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen them
            entry, held = self._run.entry, self._run.entry is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _never_reached(self) -> list[Hook]:
        """Return the hooks of stages that stand nowhere in the source and have not opened so far."""
        if not any(self._checked.values()):
            return []
        return [hook for hook in self._unopened if hook.stage not in self._store.plans]

    def _check_once(self) -> None:
        """Leave it to the check of each run."""

    def _refuse_inside(self, method: str, *stages: str, cure: str = ASK) -> None:
        alive = next((stage for stage in stages if stage in self.fixtures.path), None)
        if alive is not None:
            raise StageError(
                f"{method}() cannot be called inside stage {alive!r}",
                name=alive,
                stages=self.fixtures.path,
                cure=cure,
            )
        if self._store.running is not None:
            what = f"{method}() cannot be called in a hook ({self._store.running.label})"
            raise StageError(what, name=method, stages=self.fixtures.path, cure=cure)


def say_that_train_batch_lacks_a_prediction(error: CheckError) -> None:
    """Change the cure where a prediction is alive in evaluations only: the default train_batch makes one in both.

    So an own train_batch lacks it, and the hook that asks is right.
    """
    for mistake in error.mistakes:
        in_eval_only = mistake.what.endswith("it lives in stage 'eval_step_batch'")
        if mistake.name == "prediction" and in_eval_only and "train_step" in mistake.what:
            mistake.cure = NO_PREDICTION
