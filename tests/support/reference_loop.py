"""A slow and plain training loop that does what the documentation of TrainManager says, and nothing more.

``test_against_reference.py`` runs the same calls here and there. Whoever reads both finds here no stages, no fixtures
and no speed: a hook is a call of ``hook(name)``, which returns whether to skip the stage (``SkipStage``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from train_manager import InputError, SkipBatch
from train_manager.errors import StageError
from train_manager.reporting.results import TrainResult

NO_BATCH: Any = object()


@dataclass
class Run:
    """What is requested in a run, and when it has evaluated last."""

    stop_reason: str | None = None
    stop_at: str | None = None
    end_epoch: bool = False
    eval_soon: bool = False
    evaluated_at: int | None = None
    results: dict[str, Any] = field(default_factory=dict)
    results_at: int | None = None


@dataclass
class Window:
    """The batches whose gradients an optimizer has gathered: their weights, in units of the first one's size."""

    first_size: int
    weights: dict[int, float] = field(default_factory=dict)  # by the step


class Source:
    """The batches, epoch by epoch."""

    def __init__(self, data: Iterable[Any], steps_per_epoch: int | None) -> None:
        self.data, self.steps_per_epoch = data, steps_per_epoch
        self.length = steps_per_epoch or (len(data) if isinstance(data, Sized) else None)
        self.batches: Iterator[Any] = iter(())
        self.is_within_epoch = False
        self.batch_num = 0
        self.ahead: list[Any] = []
        if steps_per_epoch is not None:
            self.batches = self.pass_after_pass()

    def pass_after_pass(self) -> Iterator[Any]:
        while True:
            yield from self.data

    def begin_epoch(self) -> None:
        if not self.is_within_epoch:
            self.is_within_epoch, self.batch_num = True, 0
            if self.steps_per_epoch is None:
                self.batches, self.ahead = iter(self.data), []

    def drop_epoch(self) -> None:
        self.is_within_epoch = False

    def has_ended(self) -> bool:
        return self.batch_num == self.length if self.length is not None else self.ahead == [NO_BATCH]

    def is_last(self) -> bool:
        if self.length is not None:
            return self.batch_num == self.length
        if not self.ahead:
            self.ahead = [next(self.batches, NO_BATCH)]
        return self.ahead == [NO_BATCH]

    def pull(self) -> Any:
        batch = self.ahead.pop() if self.ahead else next(self.batches, NO_BATCH)
        if batch is NO_BATCH:
            self.ahead = [NO_BATCH]
        else:
            self.batch_num += 1
        return batch


class ReferenceLoop:
    """The loop.

    Args:
        hook: called at each point of the loop with the loop and the name of the hook; returns True to skip the stage.
        train_batch: what is done with a batch: ``train_batch(loop, model, inputs, targets, batch_num)``.
        eval_at: words and numbers; a number n is ``every(n)``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: dict[str, Optimizer],
        schedulers: list[Any],
        train_data: Iterable[Any],
        eval_batch: tuple[Tensor, Tensor],
        hook: Callable[[ReferenceLoop, str], bool],
        train_batch: Callable[..., None],
        eval_at: tuple[str | int, ...],
        epochs: int,
        steps_per_epoch: int | None,
        accumulate: int | None,
    ) -> None:
        self.model, self.optimizers, self.schedulers = model, optimizers, schedulers
        self.source = Source(train_data, steps_per_epoch)
        self.eval_batch, self.call_hook, self.train_batch = eval_batch, hook, train_batch
        self.eval_at, self.epochs, self.accumulate = eval_at, epochs, accumulate
        self.epoch_num = self.step_num = self.update_num = self.samples_seen = 0
        self.optimizer_updates: dict[str, int] = {}
        self.start_step, self.end_step = 0, None  # type: int, int | None
        self.expected_end: int | None = None  # told in its place: the coming epochs may be as long as the last one
        self.current: Run | None = None
        self.windows: dict[str, Window] = {}
        self.last_batch_ended_windows = True
        self.first_step = 0  # of the windows, as Accumulate counts
        self.batches_opened = 0
        self.own_batches = 0  # those given to train_on_batch, since an epoch began or one was called the last
        self.evaluates = False

    # ---- requests ----

    @property
    def now(self) -> Run:
        assert self.current is not None, "a run is open"
        return self.current

    def stop(self, reason: str, at: str) -> None:
        self.now.stop_reason = reason
        self.now.stop_at = "step" if self.now.stop_at == "step" else at

    def end_epoch(self) -> None:
        self.now.end_epoch = True  # an epoch, and a batch of train_on_batch, forgets it as it begins

    def eval_soon(self) -> None:
        self.now.eval_soon = True

    def skips(self, hook: str) -> bool:
        return self.call_hook(self, hook)

    # ---- calls ----

    @contextmanager
    def run(self) -> Iterator[None]:
        if self.current is not None:
            yield
            return
        self.current = Run()
        self.start_step, self.end_step, self.expected_end = self.step_num, None, None
        try:
            yield
            if self.windows:
                warnings.warn(f"within a window: {' '.join(self.windows)}", stacklevel=1)
        except BaseException:
            self.own_batches = 0
            raise
        finally:
            self.drop(*self.windows)
            self.last_batch_ended_windows = True
            self.current = None

    def train(self) -> TrainResult:
        return self.train_call("total")

    def train_epochs(self, n: int) -> TrainResult:
        return self.train_call("epochs", n)

    def train_epoch(self) -> TrainResult:
        return self.train_call("epochs", 1, evaluates=False)

    def train_steps(self, n: int) -> TrainResult:
        return self.train_call("steps", n)

    def train_call(self, unit: str, n: int = 0, evaluates: bool = True) -> TrainResult:
        before = self.epoch_num, self.step_num, self.update_num
        if self.current is not None and self.current.stop_at is not None:
            warnings.warn("this run was stopped", stacklevel=1)
        with self.run():
            now = self.now
            now.results, now.results_at = {}, None
            if unit == "total":
                n = max(0, self.epochs - self.epoch_num)
            self.evaluates = evaluates
            try:
                self.train_stage("steps" if unit == "steps" else "epochs", n)
            finally:
                self.evaluates = False
        if unit == "total" and n == 0:
            warnings.warn("nothing to do", stacklevel=1)
        done = self.epoch_num - before[0], self.step_num - before[1], self.update_num - before[2]
        return TrainResult(now.stop_reason, None, now.results, now.results_at, *done)

    def train_on_batch(self, batch: Any, last_batch: bool) -> Tensor | None:
        with self.run():
            self.own_batches += 1
            number = self.own_batches
            if last_batch:
                self.own_batches = 0
            self.now.end_epoch = False
            loss = self.train_step_batch(batch, number, lambda: last_batch)
            if self.now.end_epoch and not self.source.is_within_epoch:
                self.end_own_epoch()
            return loss

    def end_own_epoch(self) -> None:
        if self.skips("pre_train_step_epoch"):
            return
        self.own_batches = 0
        for scheduler in self.schedulers:
            scheduler.step()
        self.epoch_num += 1
        self.skips("post_train_step_epoch")

    def eval(self) -> Any:
        with self.run():
            return self.eval_stage()

    # ---- epochs ----

    def train_stage(self, unit: str, n: int) -> None:
        source, now, length = self.source, self.now, self.source.length
        self.start_step, limit = self.step_num, self.step_num + n if unit == "steps" else None
        self.end_step, self.expected_end = limit, None
        if unit == "epochs" and length is not None:
            self.end_step = self.step_num + n * length - (source.batch_num if source.is_within_epoch else 0)
        try:
            if self.skips("pre_train"):
                return
            if "start" in self.eval_at and self.epoch_num == 0 and self.step_num == 0:
                self.evaluate_by_itself()
            epochs_left, without_step = n, 0
            while now.stop_at is None and (self.step_num < limit if limit is not None else epochs_left > 0):
                epochs_left -= 1
                before, step_before = self.epoch_num, self.step_num
                self.train_step_epoch(limit, epochs_left)
                if self.epoch_num > before and "epoch" in self.eval_at:
                    self.evaluate_by_itself()
                self.evaluate_if_requested()
                without_step = without_step + 1 if self.step_num == step_before else 0
                if limit is not None and without_step == 3 and now.stop_at is None:
                    raise StageError("3 epochs went by without a step")
            if "end" in self.eval_at:
                self.evaluate_by_itself()
            self.evaluate_if_requested()
            self.end_step = self.step_num
            self.skips("post_train")
        finally:
            self.end_step = self.step_num

    def train_step_epoch(self, limit: int | None, epochs_left: int) -> None:
        self.now.end_epoch, self.own_batches = False, 0
        if self.skips("pre_train_step_epoch"):
            return
        first_step, is_whole = self.step_num, not self.source.is_within_epoch
        if self.train_batches(limit):
            for scheduler in self.schedulers:
                scheduler.step()
            self.epoch_num += 1
            if limit is None and self.source.length is not None:
                self.end_step = self.step_num + epochs_left * self.source.length
            elif limit is None and is_whole and not self.now.end_epoch:
                self.expected_end = self.step_num + epochs_left * (self.step_num - first_step)
        self.skips("post_train_step_epoch")

    def train_batches(self, limit: int | None) -> bool:
        """Train an epoch's batches; return whether it is complete."""
        source, now = self.source, self.now
        source.begin_epoch()
        keeps_its_place = False
        try:
            while True:
                if source.has_ended() and source.batch_num == 0:
                    raise InputError("no batch")
                if source.has_ended() or now.end_epoch:
                    return True
                if now.stop_at == "step":
                    return False
                if self.step_num == limit:
                    keeps_its_place = True
                    return False
                if now.eval_soon:
                    self.evaluate_if_requested()
                    continue
                batch = source.pull()
                if batch is not NO_BATCH:
                    self.train_step_batch(batch, source.batch_num, source.is_last)
        finally:
            if not keeps_its_place:
                source.drop_epoch()

    # ---- a batch ----

    def train_step_batch(self, batch: Any, batch_num: int, is_last: Callable[[], bool]) -> Tensor | None:
        self.batch, self.batch_num, self.is_last, self.size = batch, batch_num, is_last, len(batch[0])
        self.touched: set[str] = set()
        self.asked_to_step: set[str] = set()
        self.losses: dict[str, list[Tensor]] = {}  # by optimizer, the sum of each step
        self.has_stepped: set[str] = set()  # with the last of these
        self.loss: Tensor | None = None
        self.batches_opened += 1
        is_counted = False
        try:
            self.update_begins, self.update_ends = not self.windows or self.last_batch_ended_windows, True
            if self.accumulate is not None:
                self.first_step = self.step_num if self.update_begins else self.first_step
                is_full = self.step_num + 1 - self.first_step >= self.accumulate
                self.update_ends = is_full or self.step_num + 1 == self.end_step or is_last()
            if self.skips("pre_train_step_batch"):
                return None
            self.train_batch(self, self.model, *batch, batch_num)
            if self.loss is None:
                self.loss = sum(sum(sums) / len(sums) for sums in self.losses.values())  # type: ignore[assignment]
            is_counted = True
            self.step_num += 1
            self.samples_seen += self.size
            self.last_batch_ended_windows = self.update_ends
            self.skips("post_train_step_batch")
            if self.evaluates and any(n for n in self.eval_at if isinstance(n, int) and self.batches_opened % n == 0):
                self.eval_soon()
            return self.loss
        except SkipBatch:
            if not is_counted:
                self.drop(*self.touched)
        except BaseException:
            self.drop(*self.touched)
            raise
        return None

    def forward(self) -> Tensor:
        self.skips("pre_train_model_forward")
        prediction = self.model(self.batch[0])
        self.skips("post_train_model_forward")
        self.loss = F.mse_loss(prediction, self.batch[1])
        self.skips("post_train_loss_forward")
        return self.loss

    def update(self, loss: Tensor, name: str = "optimizer") -> None:
        self.backward(loss, name)
        self.step(name)

    def backward(self, loss: Tensor, name: str = "optimizer") -> None:
        if name in self.asked_to_step and name in self.windows:
            raise StageError("updated twice in one batch")
        if loss is not self.loss:
            sums = self.losses.setdefault(name, [])
            before = sums.pop() if sums and name not in self.has_stepped else 0
            sums.append(before + loss.detach())
            self.has_stepped.discard(name)
        self.optimizer_name = name
        if self.skips("pre_train_backward"):
            return
        self.touched.add(name)
        if name not in self.windows:
            self.windows[name] = Window(self.size)
            self.optimizers[name].zero_grad()
        window = self.windows[name]
        weight = window.weights[self.step_num] = self.size / window.first_size
        others = [p for other in self.windows if other != name for p in self.parameters_of(other)]
        set_aside = [parameter.grad for parameter in others]
        for parameter in others:
            parameter.grad = None
        (loss if self.accumulate is None else loss * weight).backward()
        for parameter, gradient in zip(others, set_aside, strict=True):
            parameter.grad = gradient
        self.skips("post_train_backward")

    def step(self, name: str = "optimizer") -> None:
        self.asked_to_step.add(name)
        if self.update_ends:
            self.has_stepped.add(name)
        if not self.update_ends or name not in self.windows:
            return
        self.touched.add(name)
        self.optimizer_name = name
        if self.accumulate is not None:
            for parameter in self.parameters_of(name):
                if parameter.grad is not None:
                    parameter.grad /= sum(self.windows[name].weights.values())
        if not self.skips("pre_train_optimizer_step"):
            self.optimizers[name].step()
            self.drop(name)
            self.update_num += 1
            self.optimizer_updates[name] = self.optimizer_updates.get(name, 0) + 1
            self.skips("post_train_optimizer_step")
        self.drop(name)

    def drop(self, *names: str) -> None:
        for name in names:
            if self.windows.pop(name, None) is not None:
                self.optimizers[name].zero_grad()

    def parameters_of(self, name: str) -> list[Tensor]:
        return [parameter for group in self.optimizers[name].param_groups for parameter in group["params"]]

    # ---- evaluation ----

    def evaluate_by_itself(self) -> None:
        if self.evaluates:
            self.eval_soon()
            self.evaluate_if_requested()

    def evaluate_if_requested(self) -> None:
        if self.now.eval_soon:
            self.now.eval_soon = False
            if self.now.evaluated_at != self.step_num:
                self.eval_stage()
                self.now.evaluated_at = self.step_num

    def eval_stage(self) -> Any:
        if self.skips("pre_eval"):
            return {}
        with torch.no_grad():
            results = {"valid": {"loss": float(F.mse_loss(self.model(self.eval_batch[0]), self.eval_batch[1]))}}
        self.skips("post_eval")
        self.now.results, self.now.results_at = results, self.step_num
        return results
