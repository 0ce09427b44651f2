"""Batches and epochs of a loop of the program's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from train_manager.data.shares import Share
from train_manager.loop.attributes import Model
from train_manager.loop.outputs import share_of_batch
from train_manager.loop.skip import skippable
from train_manager.loop.step import Step
from train_manager.loop.training import Training


class OwnLoop(Training[Model]):
    """What ``train_on_batch`` and ``end_epoch`` do in the run."""

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        # With gradients and in train mode, as the loop around this call may just have evaluated by hand.
        with self._in_run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._setup.modules_of_model():
                # train() walks over all submodules with a call for each, so it is left out if they are all training.
                if not all(submodule.training for submodule in module.modules()):
                    self._progress.call.resting += self._setup.resting_modules()
                    module.train()  # until the run ends, which restores the modes
            examples = None
            if self._decides or batch.__class__ is Share:
                batch, examples = share_of_batch(batch, self.ranks.place, self.train_data, self._spreads)
            number = self._progress.begin_own_batch(is_last=last_batch)
            step = Step(number, examples, is_own=True, is_own_last=last_batch)
            loss = self._train_or_drop(self._setup.on_device(batch), step)
            requests = self._decide()
            if requests.end_epoch and not self._progress.feed.is_unfinished:
                self._end_own_epoch()
                requests = self._decide()  # hooks of the epoch may have requested a checkpoint
            if requests.save:
                self._save_checkpoint()
            return loss

    def _end_own_epoch_in_run(self) -> None:
        # The run is open already. The `with` is here for the check, which reads from the source which stages nest.
        with self._in_run("end_epoch"):
            self._end_own_epoch()
            if self._decide().save:
                self._save_checkpoint()

    @skippable("train_step_epoch")
    def _end_own_epoch(self) -> None:
        """End the epoch of a loop of the program's own, in which nothing is left to train."""
        with self.staged("train_step_epoch", {"batches_done": self._progress.present_epoch.batches}) as stage:
            row = self._close_epoch(stage, is_complete=True)
        self._add_result(row, stage.kept["train_result"])
