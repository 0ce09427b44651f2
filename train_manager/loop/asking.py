"""What hooks ask of a TrainManager: a stop, an evaluation, a checkpoint, a closure, another forward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.loop.attributes import Model
from train_manager.loop.outputs import (
    require_prediction,
    require_training_loss,
)
from train_manager.loop.overridable import Overridable
from train_manager.loop.probe import probe_batch
from train_manager.loop.requests import NOTHING, OF_A_PLACE, Requests
from train_manager.loop.step import NO_BACKWARD
from train_manager.loop.windows import (
    free_gradients,
    once_known,
)
from train_manager.telling.errors import StageError
from train_manager.validation import require_one_of


class Asking(Overridable[Model]):
    """What hooks and the methods of a batch ask for."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._decides = cls.decide is not Asking.decide

    # ---- requests, which the loop follows between two steps ----------------------------------------------------------

    def stop(self, reason: str, at: str = "step", *, whole_run: bool = False) -> None:
        """End the training after this step, or with ``at="epoch"`` after this epoch; hooks run as in any other end.

        In a phase it ends the training of this phase, or with ``whole_run`` the training of the run.

        A checkpoint that is saved before the epoch ends keeps a stop ``at="epoch"``. A program that resumes from where
        a stop has ended it trains on.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        path = self.fixtures.path
        if "run" not in path:
            raise StageError("stop() was called, but no run is open", stages=path)
        asker = self._store.running  # the hook that calls stop; None if the program calls it between training calls
        asked_by = f"{asker.label} at {' > '.join(path)}" if asker is not None else None
        self._progress.run.stop(reason, at, asked_by, whole_run or "phase" not in path)

    def stop_from_outside(self, reason: str) -> bool:
        """End the run after this step, at the request of a signal handler or another thread; hooks call ``stop``.

        It may be called at any moment: it only leaves a note, at which the loop looks after each step. In a phase too
        it ends the whole run.

        Returns:
            Whether the loop will see the note: a training call is under way, or the run is ending. Else none is left.
        """
        is_ending = "run" in self._store.open and self._progress.run.is_ending
        # No step is under way that could be finished: the caller (a signal handler) ends the program by itself.
        if "train" not in self._store.open and not is_ending:
            return False
        self._asked_from_outside = reason  # nothing else: a signal may come between any two bytecodes
        return True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves.

        Raises:
            StageError: no run is open.
        """
        if "run" not in self.fixtures.path:
            cure = "outside of a run, evaluate at once: tm.eval()"
            raise StageError("eval_soon() was called, but no run is open", stages=self.fixtures.path, cure=cure)
        run = self._progress.run
        run.requests = run.requests.joined(Requests(evaluate=True))

    def save_soon(self, at: str = "step") -> None:
        """Ask for a checkpoint between this step and the next; or with ``at="end"``, as the training call ends.

        The loop opens the stage ``save_checkpoint`` there, after an evaluation if one was asked for as well, so that
        counters, schedules and extensions agree. At the end of the data, the epoch is completed first. With
        ``at="end"`` it does so also if the call is stopped, but not if it fails. After the stage of an epoch that was
        stopped half-way it saves nothing, as the position in the data is lost.

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
        run = self._progress.run
        if at == "end":
            run.saves_at_end = True
        else:
            run.requests = run.requests.joined(Requests(save=True))

    def decide(self, requests: Requests) -> Requests:
        """Return the requests that the loop follows: all of them. The loop looks at requests nowhere else.

        An extension may replace it, so that processes agree: ``train_manager.decide = self.agree``. The replacement is
        called in each process twice for each batch, and around each epoch, also if nothing was requested. It may add a
        request, but cannot take one back.
        """
        return requests

    def _decide(self, data_ended: bool = False, *, call_ends: bool = False) -> Requests:
        """Return the requests that the loop follows, of this process and of those that it agrees with.

        Args:
            data_ended: the epoch's data has ended.
            call_ends: the training call ends here, so that a checkpoint may be asked for that is saved at its end.
        """
        progress, run = self._progress, self._progress.run
        if self._asked_from_outside is not None:
            run.stop(self._asked_from_outside, "step", None, whole_run=True)
        requests = run.requests.joined(progress.present_epoch.requests, Requests(data_ended=data_ended))
        if call_ends and run.saves_at_end and progress.saved_at != self._place_of_checkpoint():
            # In this decision alone: run.saves_at_end stays, as a further training call in this run ends later.
            requests = requests._replace(save_at_end=True)
        if self._decides:
            requests = self.decide(requests)
        if requests is not NOTHING:
            # A request of another process counts in this one too; the others are of the place, and not of the run.
            run.requests = requests.without(*OF_A_PLACE).joined(run.requests)
        return requests

    # ---- losses computed anew ----------------------------------------------------------------------------------------

    def closure(self, optimizer: str | None = None) -> Callable[[], Tensor]:
        """Return a function that computes the loss of the last backward anew, with its gradients, as torch's closures.

        It opens no stage, so hooks of ``train_optimizer_step`` may call it. Fixtures keep their values.

        Raises:
            InputError: the loss was given as a tensor, or the gradients are not those of one plain loss.
            StageError: there was no backward since the last step.
        """
        name, _ = self._optimizer_in_batch(optimizer, "closure")
        window = self._windows.get(name)
        if window is None:
            what = f"closure() was called, but optimizer {name!r} has run no backward since its last step"
            raise StageError(
                what, name=name, stages=self.fixtures.path, cure="call it in a hook of train_optimizer_step"
            )
        backward = self._progress.step.backwards.get(name, NO_BACKWARD)
        return partial(self._loss_again, name, window.require_loss_again(backward.loss_again, name))

    def _closure_of_step(self, name: str) -> Callable[[], Tensor]:
        """Return the closure that a step calls; its first call finds the gradients there, as hooks have seen them."""
        step = self._progress.step
        loss = step.backwards[name].loss
        # A hook has modified the loss after forward() computed it: a loss computed anew would lack the modification.
        if loss is step.loss_after_hooks and step.loss_after_hooks is not step.forward_loss:
            self._windows[name].is_modified = True
        closure, gradients = once_known(loss, self.closure(name)), self._windows.gradients
        return closure if gradients is None else lambda: gradients.mean_loss(closure())

    def _loss_again(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a loss anew, under the precision of the batch, and its gradients."""
        free_gradients(self._windows[name].optimizer)  # now, so that the forward pass can use their memory
        autocast: Callable[[], AbstractContextManager[Any]] = self.fixtures.get("autocast", nullcontext)
        with torch.enable_grad(), autocast():
            loss = require_training_loss(compute())
        self._windows.backward_again(name, loss)
        return loss

    def _optimizer_in_batch(self, name: str | None, method: str) -> tuple[str, Optimizer]:
        """Return an optimizer and its name, in a method that ``train_batch`` calls."""
        if "train_step_batch" in self._store.open:
            sole = self.optimizer
            if name is None and isinstance(sole, Optimizer):  # the usual case first: this runs in each step
                return "optimizer", sole
        else:
            cure = "call it in train_batch(self, ...), or train on a batch: tm.train_on_batch(batch)"
            what = f"{method}() was called, but no batch is being trained on"
            raise StageError(what, stages=self.fixtures.path, cure=cure)
        name = self._setup.optimizer_name(name, method)
        return name, self.optimizers[name]

    # ---- a forward pass beside the training --------------------------------------------------------------------------

    def probe(self, batch: Any) -> Any:
        """Return the prediction for another batch of the same kind, while one is trained on or evaluated; for checks.

        It is what ``model_forward`` gives, as ``unpack_batch`` and your other own methods have it, in the present mode
        and precision. No stage is counted and no hook runs; what ``add_loss`` and ``report_loss`` are given is dropped.
        Lazy fixtures of the batch are computed anew, those that a hook has defined stay; after it the fixtures of the
        batch are as they were. What the forward pass itself does stays done: random states move, and buffers and
        attributes of modules may change. The caller puts these back.

        >>> from train_manager import Extension
        >>> from train_manager.testing import tiny_manager
        >>> class Shifted(Extension):
        ...     def post_train_step_batch(self, train_manager, batch, prediction):
        ...         inputs, targets = batch
        ...         shifted = train_manager.probe((inputs.roll(1, dims=0), targets))
        ...         print(shifted.shape == prediction.shape)
        >>> result = tiny_manager(Shifted()).train_steps(2)
        True
        True

        Args:
            batch: as the data would give it; the device is that of the training.

        Raises:
            StageError: no batch is trained on or evaluated, or it was not unpacked yet; or the model trains itself.
        """
        kind = next((kind for kind in ("train", "eval") if f"{kind}_step_batch" in self._store.open), None)
        if kind is None:
            what = "probe() was called, but no batch is being trained on or evaluated"
        elif "inputs" not in self.fixtures:
            what = "probe() was called before the batch was unpacked, so there are no inputs"
        elif not isinstance(self.model, nn.Module):
            what = f"probe() was called, but {type(self.model).__name__} trains itself: it has no forward pass"
            raise StageError(what, stages=self.fixtures.path, cure="call the model itself")
        else:
            return require_prediction(probe_batch(self._store, kind, self._setup.on_device(batch)), self.model)
        cure = "call it in a hook such as post_train_step_batch, or in train_batch(self, ...)"
        raise StageError(what, stages=self.fixtures.path, cure=cure)
