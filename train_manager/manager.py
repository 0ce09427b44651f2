"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

What a subclass overrides is in ``loop/algorithm.py``, what an argument must be in ``loop/arguments.py``. Everything
else is an extension.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.errors import InputError, StageError
from train_manager.core.extension import Extensions, named
from train_manager.data.batch import FromSource, to_device
from train_manager.data.iteration import no_batch, reset
from train_manager.loop.algorithm import Forwarding
from train_manager.loop.arguments import (
    TrainsItself,
    require_end_of_epochs,
    require_eval_data,
    require_eval_step,
    require_loss,
    require_lr_schedule,
    require_model,
    require_optimizer,
    require_optimizer_of,
    require_ready_to_train,
    require_train_data,
    require_train_dir,
)
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.objectives import Objective
from train_manager.loop.outputs import not_a_tensor, require_prediction, require_scalar_loss, require_training_loss
from train_manager.loop.randomness import preserved_random_state
from train_manager.loop.results import EvalResult, TrainResult
from train_manager.loop.skip import SkipBatch, skippable
from train_manager.metrics.averages import WeightedMean
from train_manager.metrics.deferred import FiniteLosses
from train_manager.schedules.rules import new_call
from train_manager.validation import require_count

OVERRIDDEN_TOO_LATE = (
    "a method that each step calls was replaced while {}() ran: it counts from the next call "
    "(override it in a class, or before the training)"
)


class TrainManager(Forwarding):
    """Train and evaluate a model; use it as it is, or subclass it and override what differs.

    >>> import torch
    >>> from torch import nn
    >>> from train_manager import TrainManager
    >>> x = torch.linspace(-1, 1, 32).unsqueeze(1)
    >>> batches = [(x, 2 * x + 1)] * 20
    >>> tm = TrainManager(
    ...     model=nn.Linear(1, 1), loss=nn.functional.mse_loss, epochs=5, train_data=batches,
    ...     eval_data={"train": batches[:1]}, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=.3))
    >>> result = tm.train()
    >>> tm.eval()["train"]["loss"] < 1e-3
    True

    Args:
        model: what is trained; or any object with ``train_step(batch)``, which does a whole step and returns the
            loss (and, to be evaluated, ``eval_step(batch)``): then there need be no loss and no optimizer.
        loss: ``loss(prediction, targets)``; or, when one of its required parameters is called ``prediction``, any
            function of fixtures; or an ``Objective``. May be left out where ``loss_forward`` is overridden or
            the model calls ``add_loss``.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them. A class of
            torch's is made ``fused`` where all parameters are on a GPU; anything else is called as it is.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated before the first epoch and after every one. One
            that has no name is called "eval".
        epochs: how many in all; a second ``train()`` goes on to that number.
        steps_per_epoch: cuts endless data into epochs of so many batches.
        lr_schedule: a callable that makes a torch scheduler of the optimizer; stepped after each epoch.
        device: where the model and the batches go; None leaves both where they are.
        seed: for the random states of python, numpy and torch, once, as the first run opens; None touches none.
        train_dir: folder for what extensions write; None writes nothing.
        extensions: a list, or a dict of names.

    Attributes:
        epoch_num: epochs completed.
        step_num: batches trained on, those not counted that were skipped.
        update_num: optimizer steps done.
        samples_seen: examples in those batches.
        start_step: ``step_num`` as the present or last call of ``train`` and its kin began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        datasource_name: which set of ``Interleaved`` data the batch is of; "train" where there is but one.
        stop_reason: why the last run was ended by ``stop``; None where it was not.

    Raises:
        InputError: an argument is of no use.
        NonFiniteLoss: a loss was nan or infinite, said at the latest at the end of the epoch.
    """

    def __init__(
        self,
        *,
        model: nn.Module | TrainsItself,
        loss: Callable[..., Tensor] | Objective | None = None,
        optimizer: Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer] | None = None,
        train_data: Iterable[Any] | None = None,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        lr_schedule: Callable[[Optimizer], Any] | None = None,
        device: torch.device | str | None = None,
        seed: int | None = None,
        train_dir: Path | str | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        super().__init__()
        self.device = None if device is None else torch.device(device)
        self.model = require_model(model, self.device)
        self.objective = loss if isinstance(loss, Objective) else None
        self.loss = require_loss(loss.loss if isinstance(loss, Objective) else loss, self.device)
        self._note_loss()
        self.optimizer = require_optimizer(optimizer, self.model, self.loss)
        self.lr_schedule = require_lr_schedule(lr_schedule, self.optimizer)
        self.train_data = require_train_data(train_data)
        self.eval_data = require_eval_data(eval_data)
        self.epochs = require_count(epochs, "epochs", at_least=0)
        self.steps_per_epoch = (
            None if steps_per_epoch is None else require_count(steps_per_epoch, "steps_per_epoch", at_least=1)
        )
        self.seed = None if seed is None else require_count(seed, "seed", at_least=0)
        self.train_dir = require_train_dir(train_dir)
        self._collector = Collector()
        self._registry.add(named(extensions))
        if self.objective is not None:
            self.add_extension(self.objective, "objective")

    def __getstate__(self) -> dict[str, Any]:
        """What is copied or pickled; a copy collects losses of its own."""
        return {**super().__getstate__(), "_collector": Collector()}

    # ---- to be called ------------------------------------------------------------------------------------------

    def train(self) -> TrainResult:
        """Train until ``epochs`` epochs are done, evaluating before the first and after each.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        if self.epoch_num >= self.epochs:
            warnings.warn(
                f"train() has nothing to do: {self.epoch_num} of {self.epochs} epochs are done "
                "(raise `epochs`, or call train_epochs(n))",
                stacklevel=2,
            )
        return self._train_in_run("train", epochs=max(0, self.epochs - self.epoch_num))

    def train_epochs(self, n: int) -> TrainResult:
        """Train ``n`` epochs more, whatever ``epochs`` says; one that was left unfinished is the first of them."""
        return self._train_in_run("train_epochs", epochs=require_count(n, "n", at_least=0))

    def train_steps(self, n: int) -> TrainResult:
        """Train on ``n`` batches more, from where the last call left the data; epochs end and begin on the way."""
        return self._train_in_run("train_steps", steps=require_count(n, "n", at_least=0))

    def train_epoch(self) -> TrainResult:
        """Train one epoch and evaluate nothing, in a loop of your own.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for _ in range(3):
        ...         result = tm.train_epoch()
        >>> tm.epoch_num, tm.step_num
        (3, 9)
        """
        return self._train_in_run("train_epoch", epochs=1, evaluates=False)

    def train_on_batch(self, batch: Any, last_batch: bool = False) -> Tensor | None:
        """Do one training step on a batch, in a loop of your own. Its hooks run; epochs do not move.

        Hold a run open around the loop: gradients that ``Accumulate`` gathers do not outlive a run.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in tm.train_data:
        ...         loss = tm.train_on_batch(batch)
        >>> tm.step_num
        3

        Args:
            batch: as it would come from ``train_data``.
            last_batch: the fixture of this name: whether an epoch of yours ends with it.

        Returns:
            The loss, without its graph and still on its device; None where a hook has skipped the batch.
        """
        self._begin_entry("train_on_batch", "train", "eval", "train_step_batch")
        require_ready_to_train(self.model, self.optimizer, [batch], 1, {}, 0)
        loss = self._train_on_batch_in_run(batch, last_batch)
        return None if loss is None else loss.detach()

    def eval(self) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now.

        Returns:
            For each set its results, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan
            for a set whose batches were all skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._begin_entry("eval", "train_step_batch", "eval")
        if not self.eval_data:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        return self._eval_in_run() or {}

    def eval_on_batch(self, batch: Any) -> EvalResult:
        """Evaluate one batch: as an evaluation set, called "batch", that has only this one.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> list(tm.eval_on_batch(tm.train_data[0]))
        ['loss']
        """
        self._begin_entry("eval_on_batch", "train_step_batch", "eval")
        return (self._eval_on_batch_in_run(batch) or {}).get("batch", {})

    # ---- the loop, from the outside in -----------------------------------------------------------------------------

    @skippable("run")
    def _train_in_own_run(self, entry: str, epochs: int | None, steps: int | None, evaluates: bool) -> None:
        with self._run(entry):
            self._train(epochs, steps, evaluates)

    @skippable("train")
    def _train(self, epochs: int | None, steps: int | None, evaluates: bool) -> None:
        self._zero_grad()  # an error in an earlier step may have left gradients
        with self.mode(training=True), self._collector, self.staged("train"):
            self._begin_call(epochs, steps)
            if evaluates and self.epoch_num == 0 and self._unfinished is None:
                self._eval(self.eval_data)
            for epochs_after in self._epochs_to_train(epochs):
                done = self.epoch_num
                self._train_step_epoch(epochs_after)
                if evaluates and self.epoch_num > done:
                    self._eval(self.eval_data)
            self._set_end(self.step_num)

    @skippable("train_step_epoch")
    def _train_step_epoch(self, epochs_after: int | None) -> None:
        with self.staged("train_step_epoch"):
            self._losses.check()  # of batches that the user has trained on before, in a run that is held
            self._losses = FiniteLosses(epoch=self.epoch_num + 1)
            self._epoch_is_over = False
            first_step = self.step_num if self._unfinished is None else None
            is_complete = self._train_all_batches(is_last_epoch=epochs_after == 0)
            self._losses.check()
            if is_complete:
                self._step_lr_schedule()
                self.epoch_num += 1
                self.fixtures.modify("epoch_num", self.epoch_num)
                if epochs_after is not None:
                    length = self._epoch_length()
                    if length is None and first_step is not None and not self._epoch_is_over:
                        length = self.step_num - first_step  # the coming epochs will be as long
                    self._set_end(None if length is None else self.step_num + epochs_after * length)

    def _train_all_batches(self, is_last_epoch: bool) -> bool:
        """Train on one epoch's batches; False where the call ends before the last."""
        pauses, is_empty = False, not self._is_within_epoch
        try:
            for batch, last_batch in self._train_batches():
                is_empty = False
                if self._eval_is_due:
                    self._eval(self.eval_data)
                if self._stop_at == "step":  # by a hook of that evaluation
                    return False
                if last_batch and (is_last_epoch or self._stop_at == "epoch"):
                    self._set_end(self.step_num + 1)
                if type(batch) is FromSource:
                    batch = self._of_source(batch)
                self._train_batch(batch if self.device is None else to_device(batch, self.device), last_batch)
                if self._epoch_is_over:
                    reset(self.train_data)
                    return True
                if not last_batch and (self._stop_at == "step" or self.step_num == self._step_limit):
                    pauses = self._stop_at is None
                    return False
        finally:
            if not pauses:
                self._unfinished = None  # which closes the data, also while somebody keeps an error
        if is_empty:
            raise no_batch(self.train_data, "train_data", f"in epoch {self.epoch_num + 1}")
        return True

    @skippable("run")
    def _train_on_batch_in_run(self, batch: Any, last_batch: bool) -> Tensor | None:
        with self._run("train_on_batch"), torch.enable_grad(), self._collector:
            for module in self._modules():
                if not module.training:
                    module.train()  # until the run ends
            return self._train_batch(self._on_device(batch), last_batch)

    def _train_batch(self, batch: Any, last_batch: bool) -> Tensor | None:
        if self._has_gradients:  # of a batch that has failed, in a run that is held
            self._zero_grad()
        self._batch_is_alive, self._has_gradients = True, False
        try:
            return self._train_step_batch(batch, last_batch)
        except SkipBatch:
            if self._has_gradients:
                self._zero_grad()
                self._has_gradients = False
            return None
        finally:
            self._batch_is_alive = False
            self._collector.losses = None  # where the forward pass was left half-way

    @skippable("train_step_batch")
    def _train_step_batch(self, batch: Any, last_batch: bool) -> Tensor:
        with self.staged("train_step_batch", {"batch": batch, "last_batch": last_batch, "losses": Losses()}):
            began, in_hooks = perf_counter(), self._store.hook_seconds
            self._define_batch_parts(self._train_set_name)
            if self._trains_itself:
                self.fixtures["loss"] = require_scalar_loss(self.model.train_step(self.fixtures["batch"]))
            else:
                self._train_model_forward()
                self._train_loss_forward()
                loss = self.fixtures["loss"]
                self.fixtures.define("backward_loss", loss)
                if not isinstance(loss, Tensor):
                    raise not_a_tensor(loss, "loss")
                self._train_backward()
                self._train_optimizer_step()
            trained: Tensor = self._cells["loss"].value  # as the last hook has left it
            self._count_step(trained, self._cells["true_batch_size"].value)
            self._step_seconds.append(perf_counter() - began - self._store.hook_seconds + in_hooks)
        return trained

    @skippable("train_model_forward")
    def _train_model_forward(self) -> None:
        with self.staged("train_model_forward"):
            self._collector.losses = self._cells["losses"].value
            inputs = self._cells["inputs"]
            if self._shortcuts.model and hasattr(inputs, "value"):  # else it is to be computed, or missing
                prediction = self.model(inputs.value)
            else:
                prediction = self.call_by_name(self.train_model_forward)
            self._collector.losses = None
            if not isinstance(prediction, Tensor):
                require_prediction(prediction, self.model)
            self.fixtures.define("prediction", prediction, stage="train_step_batch")

    @skippable("train_loss_forward")
    def _train_loss_forward(self) -> None:
        with self.staged("train_loss_forward"):
            losses = self._collector.losses = self._cells["losses"].value
            prediction, targets = self._cells["prediction"], self._cells["targets"]
            is_plain = self._shortcuts.loss and self.loss is self._plain_loss is not None
            if is_plain and hasattr(prediction, "value") and hasattr(targets, "value"):
                loss = self.loss(prediction.value, targets.value)
            else:
                loss = self.call_by_name(self.train_loss_forward)
            self._collector.losses = None
            if losses.added is not None or loss is None:
                loss = losses.total(loss)
            self.fixtures.define("loss", require_training_loss(loss), stage="train_step_batch")

    @skippable("train_backward")
    def _train_backward(self) -> None:
        with self.staged("train_backward"):
            backward_loss = self._cells["backward_loss"].value
            if not isinstance(backward_loss, Tensor):
                raise not_a_tensor(backward_loss, "backward_loss")
            self._has_gradients = True
            backward_loss.backward()

    @skippable("train_optimizer_step")
    def _train_optimizer_step(self) -> None:
        with self.staged("train_optimizer_step"):
            assert self.optimizer is not None, "train() has checked it"
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.update_num += 1
            self._cells["update_num"].value = self.update_num  # what `modify` does

    @skippable("run")
    def _eval_in_run(self) -> dict[str, EvalResult] | None:
        with self._run("eval"):
            return self._eval(self.eval_data)

    @skippable("run")
    def _eval_on_batch_in_run(self, batch: Any) -> dict[str, EvalResult] | None:
        with self._run("eval_on_batch"):
            return self._eval({"batch": [batch]})

    @skippable("eval")
    def _eval(self, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult]:
        self._eval_is_due = False
        if not eval_data:
            return {}
        results: dict[str, EvalResult] = {}
        with self.mode(training=False), preserved_random_state(), self._collector, self.staged("eval") as stage:
            for name, data in eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        self._results = cast("dict[str, EvalResult]", stage.kept["eval_results"])
        return self._results

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss = WeightedMean()
            for batch in self._eval_batches(name, data):
                self._eval_step_batch(batch, mean_loss, f"eval_data[{name!r}]")
            self.fixtures["eval_result"] = {"loss": mean_loss.value()}
            stage.keep("eval_result")  # as hooks will have left it
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(self, batch: Any, mean_loss: WeightedMean, data_name: str) -> None:
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._define_batch_parts(data_name)
            if self._trains_itself:
                self.fixtures["loss"] = require_scalar_loss(require_eval_step(self.model)(self.fixtures["batch"]))
            else:
                self._eval_model_forward()
                self._eval_loss_forward()
            mean_loss.append(self.fixtures["loss"], weight=self.fixtures["true_batch_size"])

    @skippable("eval_model_forward")
    def _eval_model_forward(self) -> None:
        with self.staged("eval_model_forward"):
            self._collector.losses = self._cells["losses"].value
            try:
                prediction = self.call_by_name(self.eval_model_forward)
            finally:
                self._collector.losses = None
            self.fixtures.define("prediction", require_prediction(prediction, self.model), stage="eval_step_batch")

    @skippable("eval_loss_forward")
    def _eval_loss_forward(self) -> None:
        with self.staged("eval_loss_forward"):
            losses = self._collector.losses = self._cells["losses"].value
            try:
                loss = self.call_by_name(self.eval_loss_forward)
            finally:
                self._collector.losses = None
            self.fixtures.define("loss", require_scalar_loss(losses.total(loss)), stage="eval_step_batch")

    # ---- parts of the loop that are no stages ------------------------------------------------------------------------

    def _train_in_run(
        self, entry: str, epochs: int | None = None, steps: int | None = None, evaluates: bool = True
    ) -> TrainResult:
        """Train so many epochs or steps, in the run that is open or in one of its own, and say what was done."""
        self._require_ready(entry, epochs)
        began, before = perf_counter(), (self.epoch_num, self.step_num, self.update_num)
        self._results = {}
        self._train_in_own_run(entry, epochs, steps, evaluates)
        if self._shortcuts != self._find_shortcuts():
            warnings.warn(OVERRIDDEN_TOO_LATE.format(entry), stacklevel=3)
        return TrainResult(
            stopped=self.stop_reason,
            stopped_by=self._stopped_by,
            metrics=self._results,
            epochs=self.epoch_num - before[0],
            steps=self.step_num - before[1],
            updates=self.update_num - before[2],
            seconds=perf_counter() - began,
        )

    def _begin_entry(self, method: str, *not_inside: str) -> None:
        """A call from outside begins, with the methods that are overridden by now."""
        self._refuse_while(method, *not_inside)
        self._shortcuts = self._find_shortcuts()

    def _begin_call(self, epochs: int | None, steps: int | None) -> None:
        """A call of ``train`` or its kin begins; say where it will end, if that is known."""
        self._calls = new_call()
        self.start_step = self.step_num
        self.fixtures.modify("start_step", self.step_num)
        self._step_limit = None if steps is None else self.step_num + steps
        length = self._epoch_length()
        known = epochs is not None and length is not None and self._unfinished is None
        self._set_end(self.step_num + epochs * length if known else self._step_limit)  # type: ignore[operator]

    def _epochs_to_train(self, epochs: int | None) -> Iterator[int | None]:
        """One item for each epoch, or piece of one: how many come after it; None where steps are counted."""
        if epochs is not None:  # counted here: an epoch that is skipped does not move epoch_num
            for epochs_after in reversed(range(epochs)):
                if self._stop_at is None:
                    yield epochs_after
            return
        assert self._step_limit is not None, "either epochs or steps are given"
        while self._stop_at is None and self.step_num < self._step_limit:
            before = self.step_num
            yield None
            if self.step_num == before and self._stop_at is None:
                raise StageError(
                    "an epoch went by without a step, so the steps asked for would never be done",
                    name="train_steps",
                    cure="does a hook skip every batch, or every epoch?",
                )

    def _step_lr_schedule(self) -> None:
        if self.lr_schedule is not None:
            self.lr_schedule.step()

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._begin_entry(entry, "train", "eval")
        if self._stop_at is not None and "run" in self.fixtures.path:
            warnings.warn(f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=4)
        require_optimizer_of(self._modules(), self.optimizer)
        if epochs is not None:
            require_end_of_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(self.model, self.optimizer, self.train_data, passes, self.eval_data, (epochs or 0) + 1)
