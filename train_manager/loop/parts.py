"""What a training consists of: the arguments of TrainManager, and what a phase replaces of them."""

from __future__ import annotations

import copy
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.extension import Extensions, free_name, named
from train_manager.data.batch import to_device
from train_manager.data.randomness import preserved_random_state
from train_manager.files.train_dirs import train_dir_and_number
from train_manager.loop.arguments import (
    TrainsItself,
    modules_of_loss,
    require_device,
    require_eval_data,
    require_loss,
    require_model,
    require_train_data,
)
from train_manager.loop.calls import CallLog
from train_manager.loop.description import Facts, as_html, as_text, facts
from train_manager.loop.eval_at import EvalAtArgument, EvalAtPoints, require_eval_at
from train_manager.loop.feed import Feed
from train_manager.loop.history import History, OpenEpoch
from train_manager.loop.losses import Collector
from train_manager.loop.modes import mode
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    OptimizerArgument,
    require_lr_schedule,
    require_optimizer,
)
from train_manager.loop.overridable import OverridableMethods
from train_manager.loop.phases import PHASE_PARTS, PhaseLog
from train_manager.loop.recorded_arguments import record_of_manager
from train_manager.loop.run_state import Counts, RunState
from train_manager.loop.scheduled_eval import EvalAt, scheduled_eval
from train_manager.loop.step import NO_STEP
from train_manager.loop.windows import Windows, preserved_gradients
from train_manager.model.replacement import replace_in_optimizers
from train_manager.telling.argument_names import named_arguments
from train_manager.telling.errors import InputError, near
from train_manager.validation import require_count
from train_manager.words.arguments import ARGUMENTS, METHODS

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default, so that a plain `TrainManager` is complete

    Model = TypeVar("Model", bound=nn.Module | TrainsItself, default=Any)
else:
    from typing import TypeVar

    Model = TypeVar("Model")


class Parts(OverridableMethods, Generic[Model]):
    """The model, the loss, the optimizers, the data; how they are set, replaced and put back."""

    model: Model
    _held: ExitStack | None = None

    if TYPE_CHECKING:  # an attribute; assigned more than it is read as: several optimizers are read as `optimizers`

        @property
        def optimizer(self) -> Optimizer: ...
        @optimizer.setter
        def optimizer(self, value: Optimizer | Mapping[str, Optimizer] | None) -> None: ...

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
        self.device: torch.device | None = require_device(device)
        self.model = require_model(model, self.device)
        self._called_model: Any = None
        self.objective: Objective | None = loss if isinstance(loss, Objective) else None
        self.loss: Any = require_loss(loss.loss if isinstance(loss, Objective) else loss, self.device)
        self._refuse_unusable_loss()
        self._optimizer_argument = optimizer  # for phases with a model of their own
        self.optimizer = require_optimizer(optimizer, self.model, self.loss)
        self._loss_of_optimizers = self.loss
        self.lr_schedule: Any = require_lr_schedule(lr_schedule, self.optimizer)
        self.train_data: Iterable[Any] | None = require_train_data(train_data)
        self.eval_data: dict[str, Iterable[Any]] = require_eval_data(eval_data)
        self._refuse_single_examples(self.train_data, self.eval_data)
        self.epochs: int = require_count(epochs, "epochs", at_least=0)
        self.steps_per_epoch: int | None = (
            None if steps_per_epoch is None else require_count(steps_per_epoch, "steps_per_epoch", at_least=1)
        )
        self.seed: int | None = None if seed is None else require_count(seed, "seed", at_least=0)
        self.run_id: str = secrets.token_hex(8)
        self.train_dir: Path | None
        self.train_dir_number: int | None
        self.train_dir, self.train_dir_number = train_dir_and_number(train_dir)
        self._has_run = False
        self._brought_by: dict[str, str] = {}
        self._run = RunState(None, step_num=0, epoch_num=0, call=0)
        self._asked_from_outside: str | None = None
        self._counts = Counts()
        self._feed = Feed()
        self._epoch = OpenEpoch()
        self._phases, self._calls = PhaseLog(), CallLog()
        self._loaded_state: dict[str, Any] | None = None  # until the program has come to the phase that it is of
        self.history: History = History()
        self._windows = Windows()
        self._collector = Collector()
        self._step = NO_STEP
        self._step_seconds: deque[float] = deque(maxlen=1001)
        added = named(extensions, self._options.words)
        self._registry.add(added)
        if self.objective is not None:
            self.add_extension(self.objective, "objective")
        self.eval_at = eval_at
        given: dict[str, Any] = {"model": model, "loss": loss, "optimizer": optimizer, "lr_schedule": lr_schedule}
        given |= {"train_data": train_data, "eval_data": eval_data, "eval_at": eval_at}
        given |= {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "device": device, "seed": seed}
        self._recorded_arguments = record_of_manager(type(self), {**given, "extensions": added})

    if not TYPE_CHECKING:  # which would let any attribute be read

        def __getattr__(self, name: str) -> Any:
            if name not in METHODS:
                return super().__getattribute__(name)  # fails again, as a property may have failed
            what = f"{type(self).__name__!r} object has no attribute {name!r}; did you mean {METHODS[name]}?"
            raise AttributeError(what, name=name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts, feeds and collects for itself."""
        state = super().__getstate__()
        parts = {name: copy.copy(state[name]) for name in ("_run", "_feed")}
        own = {name: copy.deepcopy(state[name]) for name in ("_counts", "history")}
        own |= {"run_id": secrets.token_hex(8)}
        own |= {
            "_windows": Windows(),
            "_collector": Collector(),
            "_step": NO_STEP,
            "_phases": PhaseLog(),
            "_calls": CallLog(),
        }
        if not isinstance(self._optimizer_argument, type):
            own["_optimizer_argument"] = None  # a lambda cannot be pickled
        return {**state, **parts, **own, "_chosen": None, "_held": None}

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_html(type(self).__name__, self._facts())

    def _facts(self) -> Facts:
        try:
            return facts(self.__dict__, self.__dict__.get("_counts"), self._registry.extensions)
        except Exception:  # of what was given: a repr that raises hides what it was printed for
            return {}

    # ---- the model and the modules around it ---------------------------------------------------------------------

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Set train or eval mode, with or without gradients, for a ``with`` block; restored per submodule."""
        return mode(*self._modules(), training=training)

    @property
    def called_model(self) -> Any:
        """What the loop calls, the fixture ``model``: the model itself, or its compiled or wrapped form once it is set.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.called_model = nn.Sequential(tm.model)   # as torch.compile(tm.model) would
        """
        return self.model if self._called_model is None else self._called_model

    @called_model.setter
    def called_model(self, value: Any) -> None:
        self._called_model = None if value is self.model else value
        if "model" in self.fixtures:
            self.fixtures.modify("model", self.called_model)

    def _modules(self) -> list[nn.Module]:
        """Return the model, what is called in its place, and the loss: the modules that have modes and parameters."""
        parts = dict.fromkeys((self.model, self.called_model, *modules_of_loss(self.loss)))
        return [part for part in parts if isinstance(part, nn.Module)]

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for module in self._modules() for parameter in module.parameters())

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave modes, random states and gradients as they were."""
        with self.mode(training=False), preserved_random_state(), preserved_gradients(self._parameters()):
            with self._collector:
                yield

    def _on_device(self, batch: Any) -> Any:
        return batch if self.device is None else to_device(batch, self.device)

    # ---- optimizers ----------------------------------------------------------------------------------------------

    @property
    def eval_at(self) -> EvalAtPoints:
        """When a training evaluates; may be set as the argument of this name."""
        return self._eval_at

    @eval_at.setter
    def eval_at(self, value: EvalAtArgument) -> None:
        self._eval_at = require_eval_at(value)
        for name in [name for name, extension in self.extensions.items() if isinstance(extension, EvalAt)]:
            self.remove_extension(name)
        for schedule in self._eval_at.schedules:
            self.add_extension(scheduled_eval(schedule))

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name; a sole one is called "optimizer"."""
        if isinstance(self.optimizer, dict):
            return self.optimizer
        return {} if self.optimizer is None else {"optimizer": self.optimizer}

    @property
    def open_windows(self) -> tuple[str, ...]:
        """The names of the optimizers with gradients that no step has used yet."""
        return tuple(self._windows.names())

    def _optimizer_name(self, name: str | None, method: str) -> str:
        """Return the name of an optimizer; a sole one need not be named.

        Raises:
            InputError: the name is missing or unknown.
        """
        names = self.optimizers
        if name in names:
            return name
        if name is None and len(names) == 1:
            return next(iter(names))
        known = " and ".join(map(repr, names)) or "none"
        what = f"{method}() needs the name of an optimizer" if name is None else f"there is no optimizer {name!r}"
        nearest = next(iter(near(name or "", names)), next(iter(names), "optimizer"))
        cure = f"name one: {method}(..., optimizer={nearest!r})"
        raise InputError(f"{what}; the optimizers are {known}", name="optimizer", cure=cure)

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Tell the optimizers and the extensions that parameters of the model have been replaced: a layer has grown.

        The new parameters go on with the moments of the old ones, as far as both shapes reach. Gradients that were
        gathered for the old ones are dropped. Then ``replace_parameters(replaced)`` of each extension that has such a
        method is called.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> old, tm.model[0], last, tm.model[2] = tm.model[0], nn.Linear(2, 9), tm.model[2], nn.Linear(9, 2)
        >>> tm.replace_parameters({old.weight: tm.model[0].weight, old.bias: tm.model[0].bias,
        ...                        last.weight: tm.model[2].weight, last.bias: tm.model[2].bias})
        >>> result = tm.train()

        Args:
            replaced: old parameter -> new parameter.

        Raises:
            InputError: no optimizer has an old one, an optimizer has a new one, or the number of dimensions differs.
        """
        replace_in_optimizers(self.optimizers.values(), replaced)
        for extension in self._registry.extensions.values():
            tell = getattr(extension, "replace_parameters", None)
            if tell is not None:
                tell(replaced)

    # ---- what a phase replaces -----------------------------------------------------------------------------------

    def brought_by(self, part: str) -> str:
        """Return which phase has replaced a part, such as "model": ``"phase 2"`` is the second of all, ``""`` is none.

        So what an extension keeps for a model or an optimizer has a name in a checkpoint.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     with tm.phase("head", optimizer=torch.optim.Adam):
        ...         tm.brought_by("optimizer"), tm.brought_by("model")
        ('phase 1', '')
        """
        return self._brought_by.get(part, "")

    @contextmanager
    def _phase_parts(self, name: str, parts: dict[str, Any]) -> Iterator[None]:
        """Set the attributes and fixtures of a phase, and put them back."""
        outer, run = {**self.__dict__, "_epoch_num": self._counts.epoch_num}, self._run
        before = self.fixtures["phase_name"]
        run.losses.check()
        phase = self._phases.enter(name, outer)
        self.__dict__.update(
            parts, _feed=Feed(), _epoch=OpenEpoch(), _run=RunState(run.entry, self._counts.step_num, 0, run.call)
        )
        self._brought_by = {**self._brought_by, **dict.fromkeys(parts, f"phase {self._phases.number}")}
        self._run.first_step = self._counts.step_num
        self._run.go_on_after(run)  # a run that was stopped trains in none of its phases
        self._run.is_done = phase["is_done"]
        self._set_phase(name, phase["epoch_num"] if phase["is_done"] else 0)
        failed = True
        try:
            yield
            failed = self._run.stop_at is not None and self._run.stops_run
        finally:
            inner = self._run
            self._feed.close()
            self._phases.leave(self._counts.epoch_num, failed=failed)
            changed = (*parts, *PHASE_PARTS)
            self.__dict__.update({attribute: outer[attribute] for attribute in changed if attribute in outer})
            run.go_on_after(inner)
            self._set_phase(before, outer["_epoch_num"])

    def _set_phase(self, name: str | None, epoch_num: int) -> None:
        self._counts.epoch_num = epoch_num
        self.fixtures.modify("phase_name", name)
        self.fixtures.modify("epoch_num", epoch_num)
        self.fixtures.modify("model", self.called_model)
        self.fixtures.modify("start_step", self._run.start_step)
        self.fixtures.modify("end_step", self._run.end_step)

    @contextmanager
    def _phase_extensions(self, added: Extensions | None, without: Iterable[str]) -> Iterator[None]:
        """Add extensions and pause others, for a ``with`` block."""
        names = [without] if isinstance(without, str) else list(without)
        paused = [name for name in names if name not in self._registry.paused]  # perhaps by a phase around this one
        with ExitStack() as stack:
            self._registry.pause(paused)
            stack.callback(self._registry.resume, paused)
            for name, extension in named(added, self._options.words).items():
                taken = free_name(extension, self.extensions) if name in self else name
                self.add_extension(extension, taken)
                stack.callback(self.remove_extension, taken)
            yield
