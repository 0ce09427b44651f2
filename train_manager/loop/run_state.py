"""Runs of a TrainManager: opened, held, stopped, and what is counted in them. ``manager.py`` has the loop."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.decorators import overridable
from train_manager.core.errors import StageError
from train_manager.core.extensible import Extensible
from train_manager.core.state import Options
from train_manager.data.batch import Structures
from train_manager.loop.arguments import require_folder, require_train_dir_where_needed
from train_manager.loop.modes import mode, preserved_modes
from train_manager.loop.randomness import seed_all
from train_manager.loop.results import EvalResult
from train_manager.loop.skip import skippable
from train_manager.metrics.deferred import FiniteLosses
from train_manager.schedules.rules import Progress, new_call
from train_manager.validation import require_one_of

INSIDE_A_STEP = frozenset(
    {
        "train_model_forward",
        "train_loss_forward",
        "train_backward",
        "train_optimizer_step",
        "eval_model_forward",
        "eval_loss_forward",
    }
)


class Running(Extensible):
    """What belongs to a run as a whole. TrainManager, which derives from it, says what its attributes are."""

    _options = Options(own_name="train_manager", times_hooks=True, notes_errors=True)

    @property
    def _cells(self):
        return self._store.cells

    device: torch.device | None
    model: Any
    loss: Any
    optimizer: Optimizer | None
    lr_schedule: Any
    train_data: Iterable[Any] | None
    eval_data: dict[str, Iterable[Any]]
    steps_per_epoch: int | None
    seed: int | None
    train_dir: Path | None

    def __init__(self) -> None:
        self.epoch_num = self.step_num = self.update_num = 0
        self.samples_seen: Any = 0  # a tensor where the true batch sizes are some
        self.start_step = 0
        self.end_step: int | None = None
        self.stop_reason: str | None = None
        self.datasource_name = "train"
        self._train_set_name = "train_data"  # as errors call the set that the batch is of
        self._trains_itself = False
        self._stopped_by: str | None = None
        self._stop_at: str | None = None  # "step" or "epoch", once somebody has asked for it
        self._entry: str | None = None  # the method that the run was entered by; None: the user holds it open
        self._has_run = False
        self._eval_is_due = False
        self._epoch_is_over = False
        self._has_gradients = False  # of the batch that is alive
        self._batch_is_alive = False  # and not counted yet
        self._calls = 0  # the number of the last call of train and its kin
        self._step_limit: int | None = None  # of train_steps
        self._results: dict[str, EvalResult] = {}  # of the last evaluation
        self._losses = FiniteLosses(epoch=1)
        self._structures = Structures()  # of the run's batches
        self._step_seconds: deque[float] = deque(maxlen=1001)
        for name in ("batch", "losses", "inputs", "targets", "prediction", "backward_loss", "true_batch_size"):
            self._store.pinned(name)
        super().__init__()

    # ---- to be called ------------------------------------------------------------------------------------------

    def run(self) -> AbstractContextManager[None]:
        """Hold one run open: ``train``, ``eval`` and their kin inside the ``with`` join it."""
        return self._run(entry=None)

    def stop(self, reason: str, at: str = "step") -> None:
        """End the run after this step, or with ``at="epoch"`` after this epoch; its hooks run as ever.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        if "run" not in self.fixtures.path:
            raise StageError("stop() was called, but no run is open", stages=self.fixtures.path)
        asker = self._store.running
        self._stopped_by = f"{asker.label} at {' > '.join(self.fixtures.path)}" if asker is not None else None
        self.stop_reason = reason
        self._stop_at = "step" if self._stop_at == "step" else at

    def end_epoch(self) -> None:
        """End the epoch after this step, as if its data had ended; the next one begins."""
        self._epoch_is_over = True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves."""
        self._eval_is_due = True

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Train or eval mode, with or without gradients, for a ``with`` block; restored per submodule."""
        return mode(*self._modules(), training=training)

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: with fractions and decimals it takes a while

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    @property
    def progress(self) -> Progress:
        """How far the present or last call of ``train`` and its kin has come."""
        done = self.step_num + self._batch_is_alive
        total = None if self.end_step is None else self.end_step - self.start_step
        return Progress(self._calls, done - self.start_step, total, self._stop_at == "step" or done == self.end_step)

    # ---- a run ---------------------------------------------------------------------------------------------------

    def _run(self, entry: str | None) -> AbstractContextManager[None]:
        """The run that is open; else a new one, entered by the method of that name."""
        return nullcontext() if "run" in self.fixtures.path else self._new_run(entry)

    @contextmanager
    def _new_run(self, entry: str | None) -> Iterator[None]:
        self._prepare_run(entry)
        given: dict[str, Any] = {  # with its names, for `check` and `explain` read them here
            "epoch_num": self.epoch_num,
            "step_num": self.step_num,
            "update_num": self.update_num,
            "samples_seen": self.samples_seen,
            "start_step": self.step_num,
            "end_step": None,
            "standalone_eval": entry in ("eval", "eval_on_batch"),
        }
        if self.train_dir is not None:
            given["train_dir"] = self.train_dir
        with preserved_modes(*self._modules()), self.staged("run", given):
            self._initialize_once()
            self._load_checkpoint()
            # A checkpoint has set the attributes. One by one: `check` could not follow `self` into a getattr.
            self.fixtures.modify("epoch_num", self.epoch_num)
            self.fixtures.modify("step_num", self.step_num)
            self.fixtures.modify("update_num", self.update_num)
            self.fixtures.modify("samples_seen", self.samples_seen)
            yield
            self._losses.check()
        self._report_unreached()

    @skippable("load_checkpoint")
    def _load_checkpoint(self) -> None:
        with self.staged("load_checkpoint", {"checkpoint_loaded": False}):
            pass  # the place for hooks that load one

    def _prepare_run(self, entry: str | None) -> None:
        self._entry = entry
        self._trains_itself = not isinstance(self.model, nn.Module)
        if entry not in self._checked:
            self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
        if self._trains_itself:
            self._warn_of_idle_hooks()
        require_train_dir_where_needed(self._registry.hooks, self.train_dir is not None)
        if self.train_dir is not None:
            require_folder(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        self.stop_reason = self._stopped_by = self._stop_at = self.end_step = None
        self.start_step = self.step_num
        if entry not in ("eval", "eval_on_batch"):
            self._calls = new_call()
        self._eval_is_due = self._epoch_is_over = self._batch_is_alive = False  # a run that failed may have left them
        self._losses = FiniteLosses(epoch=self.epoch_num + 1)
        self._structures.clear()
        if entry not in ("eval", "eval_on_batch"):
            self._zero_grad()

    def _initialize_once(self) -> None:
        if not self._has_run:
            self.call_by_name(self.initialize_params)
            self._has_run = True

    @overridable
    def initialize_params(self) -> None:
        """Initialise the model's parameters, once, as the first run opens. Here: as its modules have done it."""

    # ---- counting ------------------------------------------------------------------------------------------------

    def _set_end(self, end_step: int | None) -> None:
        self.end_step = end_step
        self.fixtures.modify("end_step", end_step)

    def _count_step(self, loss: Tensor, true_batch_size: Any) -> None:
        losses = self._losses
        losses.last_step = self.step_num + 1
        if losses.append(loss):
            losses.check()
        self._batch_is_alive = False
        self._has_gradients = False
        self.step_num += 1
        self.samples_seen = self.samples_seen + true_batch_size
        self._cells["step_num"].value = self.step_num  # what `modify` does
        self._cells["samples_seen"].value = self.samples_seen

    # ---- what it is made of ----------------------------------------------------------------------------------------

    def _modules(self) -> list[nn.Module]:
        """The model, and the loss where it is a module: it may have modes and parameters too."""
        return [part for part in (self.model, self.loss) if isinstance(part, nn.Module)]

    def _zero_grad(self) -> None:
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen them
            entry, held = self._entry, self._entry is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _report_unreached(self) -> None:
        """Where not all stages could be read from the source, mistakes can only be told at the end."""
        for hook in self._never_reached():
            warnings.warn(
                f"{hook.label} ({hook.whose}) never ran: no stage {hook.stage!r} has opened ({hook.call.defined_at})",
                stacklevel=2,
            )

    def _warn_of_idle_hooks(self) -> None:
        """Those of the stages inside a step, which do not open where the model does the whole step."""
        idle = [hook.label for hook in self._registry.hooks if hook.stage in INSIDE_A_STEP]
        if idle:
            what = f"{type(self.model).__name__} trains itself, so these hooks never run: {', '.join(idle)}"
            warnings.warn(f"{what} (the stages inside a batch do not open)", stacklevel=2)

    def _refuse_while(self, method: str, *stages: str) -> None:
        alive = next((stage for stage in stages if stage in self.fixtures.path), None)
        if alive is not None:
            raise StageError(
                f"{method}() cannot be called inside stage {alive!r}",
                name=alive,
                stages=self.fixtures.path,
                cure="in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)",
            )
