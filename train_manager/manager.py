"""TrainManager: a training and evaluation loop in named stages. Its shape is the map in ``stages.py``.

This file has the constructor and the public methods; each hands on to the classes that TrainManager is made of. They
are the files at the end of ``loop/``, each of which knows those before it:

    attributes   what a training is made of
    how_far      how far it has come
    overridable  the methods that a subclass may override
    asking       what hooks ask for
    saving       what a checkpoint holds
    run          a run, the phases in it, and when a checkpoint is loaded and saved
    batch        a batch that is trained on or evaluated, and the stages inside it
    evaluation   evaluation and prediction
    training     the page: a training call, its epochs, their batches, and the requests between two batches
    own_loop     batches and epochs of a loop of the program's own

The state is in objects that open no stage:

    Setup      the components of a training or a phase: model, loss, optimizers, data, ...
    Progress   how far the training or the phase has come: its epochs, the present run, the present training call
    Step       the batch that is trained on
    Program    the training calls and phases that a program makes again after it was started again

Everything else is an extension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extensions, name_extensions
from train_manager.loop.arguments import (
    TrainsItself,
    refuse_a_pair,
    refuse_name_of_set,
    require_data,
    require_device,
    require_eval_data,
    require_last_batch,
    require_ready_to_train,
    two_arguments_error,
)
from train_manager.loop.attributes import Model
from train_manager.loop.eval_at import EvalAtArgument
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import OptimizerArgument
from train_manager.loop.outputs import (
    require_modified_loss,
)
from train_manager.loop.own_loop import OwnLoop
from train_manager.loop.recorded_arguments import record_of_manager
from train_manager.loop.requests import Requests
from train_manager.loop.schedulers import warn_of_steps_per_batch
from train_manager.loop.setup import KEPT, Setup
from train_manager.loop.step_limit import StepLimit
from train_manager.reporting.results import EvalResult, TrainResult
from train_manager.stages import TABLE, TOO_LATE
from train_manager.telling.argument_names import named_arguments
from train_manager.telling.errors import InputError, StageError
from train_manager.validation import require_count
from train_manager.words.arguments import ARGUMENTS

LOSSES: Final = (("train_step_batch", "loss"), ("eval_step_batch", "loss"), ("train_backward", "backward_loss"))
"""The losses that hooks may modify, each with its stage: here a modified loss is checked to be a scalar."""


class TrainManager(OwnLoop[Model]):
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
        model: a module; or any object with ``train_step(batch)``, which does a whole step and returns the loss (and,
            to be evaluated, with ``eval_step(batch)``): it needs no loss and no optimizer.
        loss: ``loss(prediction, targets)``; or any function of fixtures, if one of its required parameters is called
            ``prediction``; or an ``Objective``. May be left out if ``loss_forward`` is overridden, the model calls
            ``add_loss``, or its output has a ``loss`` or is a dict of scalar losses, whose sum is trained. Parameters
            of a loss are trained too; training sets no mode of its modules, so a frozen teacher in eval mode stays in
            it.
        optimizer: a torch optimizer of the model's parameters, or a callable that makes one of them (of the model, if
            its first parameter is called ``model`` or ``model_or_params``), such as ``groups({...}, default=AdamW)``
            with options by patterns of names; or a dict of names of these, where a callable gets the parameters of
            ``model.<name>``, or that module. A class of torch's is made ``fused`` if all parameters are on a GPU; any
            other callable is called as it is.
        train_data: an iterable of batches. A pair is ``(inputs, targets)``; else override ``unpack_batch``.
        eval_data: named iterables of batches, each evaluated. An iterable without a name is called "eval".
        eval_at: when a training evaluates them: any of "start" (before the first batch of all), "epoch" (after each),
            "end" (of each training call), and schedules (``every(250)`` counts batches); ``()`` for never.
        epochs: the number of epochs in all; a second ``train()`` continues to that number.
        steps_per_epoch: cuts endless data into epochs of this many batches.
        lr_schedule: a callable that makes a torch scheduler of the optimizer, or a dict of these by the names of the
            optimizers; stepped after each epoch.
        device: the device that the model and the batches are moved to; None leaves both as they are.
        seed: for the random states of python, numpy and torch, once, as the first run opens; None touches none.
        train_dir: folder for the files of extensions; None writes nothing. The environment variable
            ``TRAIN_MANAGER_TRAIN_DIR`` takes its place, so that a program can be run again into another folder.
        extensions: a list, or a dict of names; a list may have such dicts: ``[default_extensions(), MyExtension()]``.

    Attributes:
        epoch_num: epochs completed.
        step_num: batches trained on, without those that were skipped.
        update_num: optimizer steps done, of all optimizers.
        optimizer_updates: the same by the names of the optimizers.
        optimizers: the optimizers by name; a sole one is called "optimizer".
        open_windows: the names of those with gradients that no step has used yet.
        called_model: what is called in place of the model: its compiled or wrapped form.
        samples_seen: examples in those batches; reading it waits for the device if the batch sizes are tensors there.
        history: the metrics of each epoch and each evaluation.
        run_id: the name of this training in what extensions record: 16 hexadecimal digits, other ones for each object.
        start_step: ``step_num`` as the present or last training call began.
        end_step: what ``step_num`` will be as it ends; None while that is unknown.
        stop_reason: the reason that ``stop`` was given in the last run; None if it was not called.

    Raises:
        InputError: an argument is invalid.
        NonFiniteLoss: a loss was nan or infinite; raised at the latest at the end of the epoch.
    """

    _options = replace(
        OwnLoop._options,
        too_late=TOO_LATE,
        checks=dict.fromkeys(LOSSES, require_modified_loss),
    )

    _stages = TABLE  # what the checker knows of the loop, instead of reading its source

    @named_arguments(ARGUMENTS)
    def __init__(
        self,
        *,
        model: Model,
        loss: Callable[..., Tensor] | Objective | None = None,
        optimizer: OptimizerArgument | Mapping[str, OptimizerArgument] | None = None,
        train_data: Iterable[Any] | None = None,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None,
        eval_at: EvalAtArgument = ("start", "epoch"),
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        lr_schedule: Callable[[Optimizer], Any] | Mapping[str, Callable[[Optimizer], Any]] | None = None,
        device: torch.device | str | None = None,
        seed: int | None = None,
        train_dir: Path | str | None = None,
        extensions: Extensions | None = None,
    ) -> None:
        super().__init__()
        given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": optimizer, "lr_schedule": lr_schedule}
        given |= {"train_data": train_data, "eval_data": eval_data, "eval_at": eval_at}
        given |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "device": device, "seed": seed}
        self._setup = Setup(require_device(device), optimizer_argument=optimizer)
        self._setup.replace({"model": model, "loss": loss})
        self._refuse_unusable_loss()  # before the optimizer is made, whose errors would hide this one
        self._setup.replace({name: value for name, value in given.items() if name not in ("model", "loss")})
        self._refuse_single_examples(self.train_data, self.eval_data)
        step_limit = self._begin(seed, train_dir)
        added = name_extensions(extensions, self._options.words, self.extensions)
        self._registry.add(added)
        if self.objective is not None:
            self.add_extension(self.objective, "objective")
        self.eval_at = eval_at
        if step_limit is not None:  # another TrainManager has no hook of it
            self.add_extension(StepLimit(step_limit))
        self._recorded_arguments = record_of_manager(type(self), {**given, "extensions": added})

    # ---- to be called ------------------------------------------------------------------------------------------------

    def train(self) -> TrainResult:
        """Train until ``epochs`` epochs are done, those of a loaded checkpoint included; evaluate as ``eval_at`` says.

        A second call trains nothing more, and warns; raise ``tm.epochs``, or call ``train_epochs``.
        """
        warn_of_steps_per_batch(self.lr_schedule, self.epochs)
        return self._make_call("train", epochs=max(1, self.epochs - self.epoch_num))

    def train_epochs(self, n: int) -> TrainResult:
        """Train ``n`` epochs more, whatever ``epochs`` says; an unfinished epoch is the first of them."""
        return self._make_call("train_epochs", epochs=require_count(n, "n", at_least=0))

    def train_steps(self, n: int) -> TrainResult:
        """Train on ``n`` batches more, from where the last call left the data; epochs end and begin on the way."""
        return self._make_call("train_steps", steps=require_count(n, "n", at_least=0))

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
        return self._make_call("train_epoch", epochs=1, evaluates=False)

    def train_on_batch(self, batch: Any, last_batch: bool = False) -> Tensor | None:
        """Do one training step on a batch, in a loop of your own. Its hooks run; ``end_epoch`` ends an epoch of yours.

        Hold a run open around the loop: gradients that ``Accumulate`` gathers do not outlive a run.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in tm.train_data:
        ...         loss = tm.train_on_batch(batch)
        >>> tm.step_num
        3

        Args:
            batch: a batch as ``train_data`` would give it; with ``Distributed`` the same whole batch in each process,
                or a ``Share`` of it (``train_manager.data.shares``).
            last_batch: the fixture of this name: whether an epoch of yours ends with it.

        Returns:
            The loss, without its graph and still on its device; None if a hook has skipped the batch.
        """
        self._refuse_inside("train_on_batch", "train", "eval", "train_step_batch")
        require_last_batch(last_batch)
        require_ready_to_train(self.model, bool(self.optimizers), [batch], 1, {}, 0)
        with self._methods_chosen():
            loss = self._train_on_batch_in_run(batch, last_batch)
        return None if loss is None else loss.detach()

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins.

        In a loop of your own it ends the epoch that the batches of ``train_on_batch`` are, since the last end of one:
        between two batches at once, in a hook of a batch after its step. Hooks of ``train_step_epoch`` run, schedules
        step, ``epoch_num`` moves, and ``history`` has a row; nothing is evaluated.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     for batch in [*tm.train_data, *tm.train_data]:
        ...         loss = tm.train_on_batch(batch)
        ...         if tm.step_num % 3 == 0:
        ...             tm.end_epoch()
        >>> tm.epoch_num, [round(row["loss"], 3) for row in tm.history.epochs]
        (2, [0.7, 0.676])

        Without such a batch, and where ``train_steps`` has left an epoch open, it is void.

        Raises:
            StageError: no run is open, and batches of ``train_on_batch`` are in no epoch yet.
        """
        stages, progress = self.fixtures.path, self._progress
        if "train_step_epoch" in stages or "train_step_batch" in stages:
            epoch = progress.present_epoch
            epoch.requests = epoch.requests.joined(Requests(end_epoch=True))
        elif progress.own is None or progress.feed.is_unfinished or self._store.running is not None:
            # No own batch was trained on, train_steps has left an epoch open, or a hook outside of epochs has called.
            return
        elif "run" not in stages:
            cure = "hold a run open around your loop: with tm.run():"
            raise StageError("end_epoch() was called between two batches, but no run is open", stages=stages, cure=cure)
        elif not {"train", "eval", "predict"}.intersection(stages):
            with self._methods_chosen():
                self._end_own_epoch_in_run()

    def eval(self, data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = None) -> dict[str, EvalResult]:
        """Evaluate every set of ``eval_data``, now; or other data, in place of it for this once.

        Returns:
            The results of each set, ``{"valid": {"loss": 0.31}}``; means are over examples, and nan if all batches
            of the set were skipped.

        Raises:
            StageError: a batch is alive; in a hook, call ``eval_soon``.
            InputError: there is no ``eval_data``, or a set is empty.
        """
        self._refuse_inside("eval", "train_step_batch", "eval", "predict")
        refuse_name_of_set(data, self.eval_data)
        sets = self.eval_data if data is None else require_eval_data(data)
        if not sets:
            raise InputError("there is no eval_data to evaluate", cure='pass eval_data={"valid": batches}')
        with self._methods_chosen():
            self.ranks.require_data(None, sets)
            return self._eval_in_run("eval", None if data is None else sets) or {}

    def eval_on_batch(self, batch: Any, *targets: Never) -> EvalResult:
        """Evaluate one batch, as an evaluation set called "batch".

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> list(tm.eval_on_batch(tm.train_data[0]))
        ['loss']
        """
        self._refuse_inside("eval_on_batch", "train_step_batch", "eval")
        if targets:
            raise two_arguments_error("eval_on_batch", targets[0])
        with self._methods_chosen():
            return (self._eval_in_run("eval_on_batch", {"batch": [batch]}) or {}).get("batch", {})

    def predict(self, data: Iterable[Any]) -> Any:
        """Return the predictions of the model, in eval mode and without gradients; random states stay as they are.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.predict(torch.rand(5, 2)).shape
        torch.Size([5, 2])

        Args:
            data: batches as ``eval_data`` has them, whose targets are ignored; or one tensor, which is one batch.

        Returns:
            One tensor with a row for each example; or a list of the batches' predictions, if they cannot be joined.
        """
        self._refuse_inside("predict", "train_step_batch", "eval", "predict")
        refuse_a_pair(data)
        with self._methods_chosen():
            return self._predict_in_run([data] if isinstance(data, Tensor) else require_data(data, "data"))

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and the others join it inside the ``with``."""
        return self._in_run(entry=None)

    def open(self) -> None:
        """Hold a run open until ``close``, where a ``with tm.run():`` would be in the way, as in a notebook.

        Raises:
            StageError: a run is open.
        """
        self._refuse_inside("open", "run", cure="it is open already; close() ends a run that open() has begun")
        self._held = ExitStack()
        self._held.enter_context(self._in_run(None))

    def close(self) -> None:
        """End the run that ``open`` has begun; if there is none, do nothing."""
        self._refuse_inside("close", "phase", "train", "eval", "predict", cure="leave that stage first")
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def phase(
        self,
        name: str,
        *,
        model: nn.Module | TrainsItself = KEPT,
        loss: Callable[..., Tensor] | Objective | None = KEPT,
        optimizer: OptimizerArgument | Mapping[str, OptimizerArgument] | None = KEPT,
        lr_schedule: Callable[[Optimizer], Any] | Mapping[str, Callable[[Optimizer], Any]] | None = KEPT,
        train_data: Iterable[Any] | None = KEPT,
        eval_data: Mapping[str, Iterable[Any]] | Iterable[Any] | None = KEPT,
        epochs: int = KEPT,
        steps_per_epoch: int | None = KEPT,
        extensions: Extensions | None = None,
        without: Iterable[str] = (),
    ) -> AbstractContextManager[None]:
        """Replace components of the training for a ``with`` block; they are put back as it ends, also after an error.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager(epochs=3)
        >>> with tm.run():
        ...     with tm.phase("head", optimizer=lambda _: torch.optim.Adam(tm.model[2].parameters()), epochs=1):
        ...         result = tm.train()
        ...     result = tm.train()
        >>> tm.step_num, tm.epoch_num
        (12, 3)

        Each argument replaces the constructor's argument of this name. With a new optimizer and no ``lr_schedule`` the
        outer schedule rests. ``epoch_num`` begins at 0 and is put back; ``step_num`` continues. ``stop`` ends the
        training of the phase only, unless it says ``whole_run=True``. For a model without an optimizer, the
        constructor's callable makes one.

        Args:
            name: the fixture ``phase_name``, which is None outside of phases.
            extensions: more extensions, for the time of the phase.
            without: names of extensions that pause: they let go of the objects that they hold, and take them again
                afterwards.

        Raises:
            StageError: a training call or an evaluation is under way.
            InputError: an argument is invalid.
        """
        given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": optimizer, "lr_schedule": lr_schedule}
        given |= {"train_data": train_data, "eval_data": eval_data}
        given |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch}
        return self._phase(name, given, extensions, without)
