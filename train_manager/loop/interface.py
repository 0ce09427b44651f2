"""The methods and attributes of a TrainManager that users override, set, read and call. Nothing here opens a stage."""

from __future__ import annotations

import copy
import secrets
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from inspect import getattr_static
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.core.decorators import fixture, overridable
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extensions, free_name, name_extensions
from train_manager.core.hooks import Hook
from train_manager.core.state import Options
from train_manager.data.batch import unpack
from train_manager.data.iteration import example_index_of, refuse_examples
from train_manager.data.randomness import seed_all
from train_manager.data.shares import ALONE
from train_manager.files.train_dirs import make_train_dir, train_dir_of
from train_manager.loop.arguments import (
    FIXTURES_OF_A_BATCH,
    TrainsItself,
    bind_loss,
    require_arguments_for_hooks,
    require_device,
    require_finite_epochs,
    require_ready_to_train,
    warn_of_idle_hooks,
)
from train_manager.loop.books import Lifetime
from train_manager.loop.call import Call
from train_manager.loop.counts import Counts
from train_manager.loop.cures import say_that_train_batch_lacks_a_prediction
from train_manager.loop.description import Facts, as_html, as_text, facts
from train_manager.loop.eval_at import EvalAtArgument, EvalAtPoints, require_eval_at
from train_manager.loop.extension_attributes import (
    note_tensors,
)
from train_manager.loop.history import History
from train_manager.loop.level import Level
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.modes import mode
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import OptimizerArgument
from train_manager.loop.outputs import count_rows, loss_in, no_targets, require_prediction, require_training_loss
from train_manager.loop.outside_stops import note_next_call
from train_manager.loop.parameter_check import Idle, check_first_window
from train_manager.loop.probe import probe_batch
from train_manager.loop.program import Program
from train_manager.loop.progress import Progress
from train_manager.loop.ranks import ONE_PROCESS, Ranks
from train_manager.loop.recorded_arguments import record_of_manager
from train_manager.loop.requests import NOTHING, OF_A_PLACE, Requests
from train_manager.loop.run_state import RunState
from train_manager.loop.saved_state import (
    module_misfits,
    require_fit,
    restore,
)
from train_manager.loop.scheduled_eval import EvalAt, scheduled_eval
from train_manager.loop.setup import Setup
from train_manager.loop.step import NO_BACKWARD
from train_manager.loop.step_limit import StepLimit
from train_manager.loop.windows import Windows, free_gradients, once_known
from train_manager.metrics.deferred import numbers
from train_manager.metrics.history_rows import PART
from train_manager.model.optimizers import learning_rates
from train_manager.model.replacement import replace_in_optimizers
from train_manager.schedules.rules import CallProgress
from train_manager.telling.argument_names import named_arguments
from train_manager.telling.errors import CheckError, FixtureNotFound, StageError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level
from train_manager.telling.tracebacks import hide_own_frames
from train_manager.telling.words import Words
from train_manager.validation import require_count, require_one_of
from train_manager.words.arguments import ARGUMENTS, METHODS
from train_manager.words.fixtures import EXTENSIONS, FIXTURES, STAGES, SUMMARIES
from train_manager.words.hooks import HOOKS

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default, so that a plain `TrainManager` is complete

    Model = TypeVar("Model", bound=nn.Module | TrainsItself, default=Any)
else:
    from typing import TypeVar

    Model = TypeVar("Model")

WORDS: Final = Words(
    fixtures=FIXTURES,
    stages=STAGES,
    summaries=SUMMARIES,
    extensions=EXTENSIONS,
    hooks=HOOKS,
    hook="post_train_step_batch",
    extension="EMA",
    called_by=("_chosen",),
)


class Chosen(NamedTuple):
    """The methods that every batch calls, each ready to be called with the live fixtures."""

    # Neither unpack_batch nor get_true_batch_size is overridden, so the loop need not call them by fixture names.
    unpacks_as_usual: bool
    # The methods of these names. If train_model_forward only hands on to model_forward, the latter stands here.
    unpack_batch: Callable[[], Any]
    get_true_batch_size: Callable[[], Any]
    train_batch: Callable[[], Any]
    eval_batch: Callable[[], Any]
    train_model_forward: Callable[[], Any]
    eval_model_forward: Callable[[], Any]
    train_loss_forward: Callable[[], Any]
    eval_loss_forward: Callable[[], Any]


ASK: Final = "in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)"

CHANGED_BY_HOOKS: Final = ("model", "loss", "optimizers", "lr_schedule", "extensions", "attributes")
"""The parts of a loaded state that a hook of load_checkpoint may change, for example by setting a learning rate."""

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that the components of a training raise if a state is not of their form."""


HELD: Final = (
    *("model", "loss", "objective", "optimizer", "lr_schedule", "train_data", "eval_data", "epochs", "steps_per_epoch"),
    *("device", "epoch_num", "step_num", "update_num", "samples_seen", "optimizer_updates"),
)
"""Attributes that an object of the manager holds; a subclass cannot define them."""

FOR_AUTHORS: Final = frozenset(
    (
        *("add_finding", "call_by_name", "closure", "decide", "probe", "replace_parameters", "stop_from_outside"),
        *("batch_num", "data_seconds", "datasource_name", "example_index", "last_batch", "loss_parts"),
        *("brought_by", "entered_by", "first_step", "losses_by_optimizer", "objective", "paused_extensions"),
        *("progress", "ranks", "resumed_stages", "step_limit", "train_dir_number"),
    )
)
"""Names that only authors of extensions need: ``dir`` leaves them out; docs/reference/api/for_authors.md has them."""


def _forward(owner: str, name: str) -> Any:
    """Make an attribute that an object of the manager holds: ``tm.model`` is ``tm._setup.model``."""
    return property(attrgetter(f"{owner}.{name}"), lambda manager, value: setattr(getattr(manager, owner), name, value))


def _samples_seen(manager: Interface[Any]) -> int:
    return numbers([manager._counts.samples_seen])[0]  # type: ignore[no-any-return]


def _set_device(manager: Interface[Any], value: torch.device | None) -> None:
    manager._setup.device = value
    if "device" in manager.fixtures:  # a run is open: its hooks must see the new device
        manager.fixtures.modify("device", value)


class Interface(Extensible, Generic[Model]):
    """The side of a TrainManager that programs and hooks see.

    >>> from train_manager import TrainManager
    >>> class Autoencoder(TrainManager):
    ...     def loss_forward(self, prediction, inputs):
    ...         return (prediction - inputs).square().mean()
    """

    check_parameters: bool = True
    """Warn, once, of parameters without a gradient or in no optimizer; may be set on a class or an object."""

    _options = Options(own_name="train_manager", times_hooks=True, notes_errors=True, joined="run", words=WORDS)
    # From the start of a training call, an evaluation or a prediction to its end; None in between.
    _chosen: Chosen = None  # type: ignore[assignment]
    _setup: Setup  # the components of the training, or of the phase that is open
    _counts: Counts  # how much was trained in all
    _progress: Progress  # how far the training has come, or the phase that is open
    _held: ExitStack | None = None  # the run that open() has begun, until close()
    _asked_from_outside: str | None = None  # the reason that stop_from_outside left, until the next run begins
    _decides: bool = False  # `decide` is overridden or was replaced, so the loop must call it in each step
    # The loss, and its call by fixture names (None: it is called by position). A pair, so that the call is made anew
    # once the loss is another object; the same for the model, and how it is called.
    _named_loss: tuple[Any, Any] = (None, None)
    _model_call: tuple[Any, Any] = (None, None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._decides = cls.decide is not Interface.decide
        for name in HELD:
            # A class attribute `epochs = 5` would hide the property, and the loop would count to another number.
            if getattr_static(cls, name) is not vars(Interface)[name]:
                cure = "override loss_forward" if name == "loss" else f"give it to the constructor: {name}=..."
                raise TypeError(f"{cls.__name__} defines {name!r}, which each TrainManager has of its own ({cure})")

    def _begin_to_exist(self) -> None:
        # Called by __new__, so that a subclass may set `self.model` before super().__init__(model=self.model).
        self._setup, self._counts = Setup(None, None), Counts()
        self._progress = Progress(RunState(None), Call(0, start_step=0))

    if TYPE_CHECKING:
        model: Model
        loss: Any
        objective: Objective | None
        """The ``Objective`` that was given as ``loss``; None if the loss is a function."""
        lr_schedule: Any
        train_data: Iterable[Any] | None
        eval_data: dict[str, Iterable[Any]]
        epochs: int
        steps_per_epoch: int | None
        device: torch.device | None
        epoch_num: int
        step_num: int
        update_num: int
        samples_seen: int
        optimizer_updates: dict[str, int]

        # Read as one Optimizer; several may be assigned, and are then read from `optimizers`.
        @property
        def optimizer(self) -> Optimizer: ...
        @optimizer.setter
        def optimizer(self, value: Optimizer | Mapping[str, Optimizer] | None) -> None: ...

    else:
        model, loss, objective = (_forward("_setup", name) for name in ("model", "loss", "objective"))
        optimizer, lr_schedule = _forward("_setup", "optimizer"), _forward("_setup", "lr_schedule")
        train_data, eval_data = _forward("_setup", "train_data"), _forward("_setup", "eval_data")
        epochs, steps_per_epoch = _forward("_setup", "epochs"), _forward("_setup", "steps_per_epoch")
        device = property(attrgetter("_setup.device"), _set_device)
        epoch_num = _forward("_progress", "epoch_num")
        step_num, update_num = _forward("_counts", "step_num"), _forward("_counts", "update_num")
        samples_seen = property(_samples_seen, _forward("_counts", "samples_seen").fset)
        optimizer_updates = _forward("_counts", "optimizer_updates")

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
        self._program = Program()
        self._windows, self._collector = Windows(), Collector()
        self._warned_of: set[str] = set()  # the subjects of warnings that are given once for each manager
        self.history: History = History()
        self.seed: int | None = None if seed is None else require_count(seed, "seed", at_least=0)
        self.run_id: str = secrets.token_hex(8)
        self.train_dir: Path | None
        self.train_dir_number: int | None
        """Which TrainManager of this process with a ``train_dir`` it is, from 1; None without one."""
        self.train_dir, self.train_dir_number, step_limit = train_dir_of(train_dir)
        self._has_run = False  # turns True in the first run, which seeds and initialises
        self._step_seconds: deque[float] = deque(maxlen=1001)  # of clocked steps; the oldest fall out
        added = name_extensions(extensions, self._options.words)
        self._registry.add(added)
        if self.objective is not None:
            self.add_extension(self.objective, "objective")
        self.eval_at = eval_at
        if step_limit is not None:  # another TrainManager has no hook of it
            self.add_extension(StepLimit(step_limit))
        self._recorded_arguments = record_of_manager(type(self), {**given, "extensions": added})

    if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name not in METHODS:
                # Once more, for the error: a property may have raised an AttributeError of its own.
                return super().__getattribute__(name)
            what = f"{type(self).__name__!r} object has no attribute {name!r}; did you mean {METHODS[name]}?"
            raise AttributeError(what, name=name)

    def __dir__(self) -> list[str]:
        """Return the names that completion offers: all but ``FOR_AUTHORS``."""
        return [name for name in super().__dir__() if name not in FOR_AUTHORS]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts, feeds and collects for itself."""
        state = super().__getstate__()
        own = {name: copy.copy(state[name]) for name in ("_setup", "_progress")}
        own["_progress"].first_step = 0  # a copy made in a phase is in no phase
        own |= {name: copy.deepcopy(state[name]) for name in ("_counts", "history")}
        own |= {"_windows": Windows(), "_collector": Collector(), "_program": Program()}
        return {**state, **own, "run_id": secrets.token_hex(8), "_chosen": None, "_held": None}

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_html(type(self).__name__, self._facts())

    def _facts(self) -> Facts:
        return facts(self.__dict__, self._registry.extensions)

    # ---- to be overridden --------------------------------------------------------------------------------------------

    @overridable
    def initialize_params(self) -> None:
        """Initialise the model's parameters, once, as the first run opens. Here: they stay as the modules made them."""

    @overridable
    def unpack_batch(self, batch: Any) -> tuple[Any, ...] | Mapping[str, Any]:
        """Return the inputs and targets of a batch. Here: of a pair, also one with names, or of a dict that has
        ``inputs``; any other batch is ``inputs`` as a whole.

        Return ``(inputs, targets)``, or a dict of the two if one is missing. For other parts of a batch write a
        ``@fixture("train_step_batch")`` method of that name.
        """
        return unpack(batch)

    @overridable
    def get_true_batch_size(self, batch: Any) -> int | Tensor:
        """Return how many examples a batch has, the weight of its loss. Here: rows of the first tensor in it, or the
        length of inputs and targets that are lists of examples.

        A tensor, as of the tokens that are not padding, is not read on the host.
        """
        fixtures = self.fixtures
        is_unpacked = "inputs" in fixtures and batch is fixtures["batch"]
        unpacked = {"inputs": fixtures["inputs"], "targets": fixtures.get("targets")} if is_unpacked else unpack(batch)
        return count_rows(batch, self._spreads, unpacked)

    @overridable
    def model_forward(self, inputs: Any) -> Any:
        """Return the prediction, in training and evaluation. Here: the objective's, or the model's of the inputs.

        A tuple of inputs is spread if the model's forward needs several, and a dict goes by keyword if it names the
        keys.
        """
        setup = self._setup
        if setup.objective is not None and not setup.objective.predicts_as_usual:
            return setup.objective.predict(setup.called_model, inputs)
        if setup.model is not self._model_call[0]:
            self._model_call = setup.model, ModelCall(setup.model)
        return self._model_call[1](setup.called_model, inputs)

    @overridable
    def train_model_forward(self) -> Any:
        """Return the prediction in training. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def eval_model_forward(self) -> Any:
        """Return the prediction in evaluation. Here: ``model_forward``."""
        return self.call_by_name(self.model_forward)

    @overridable
    def loss_forward(self) -> Tensor | None:
        """Return the loss, in training and evaluation. Here: ``loss``, called by fixture names or as PyTorch's losses;
        without one, the ``loss`` that the model's output has, as those of Hugging Face do, or the sum of a dict of
        scalar losses, as torchvision's detectors return it.

        Return None if there is none, because the model adds all of it (``add_loss``), or because an evaluation has
        metrics alone.
        """
        if self.loss is None:
            return loss_in(self.fixtures["prediction"])
        if self.loss is not self._named_loss[0]:
            self._named_loss = self.loss, bind_loss(self.loss, FIXTURES_OF_A_BATCH.union(self._store.names()))
        by_name = self._named_loss[1]
        if by_name is not None:
            return by_name(self._store)  # type: ignore[no-any-return]
        try:
            targets = self.fixtures["targets"]
        except FixtureNotFound:
            # A provider of the targets has failed, as it asked for another fixture that is missing.
            if "targets" in self.fixtures:
                raise
            raise no_targets(self.fixtures["batch"]) from None
        return self.loss(self.fixtures["prediction"], targets)  # type: ignore[no-any-return]

    @overridable
    def train_loss_forward(self) -> Tensor | None:
        """Return the loss in training. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    @overridable
    def eval_loss_forward(self) -> Tensor | None:
        """Return the loss in evaluation. Here: ``loss_forward``."""
        return self.call_by_name(self.loss_forward)

    def _spreads(self, inputs: Any) -> bool:
        """Return whether the model takes these inputs as several arguments; an own forward may call it in any way."""
        objective = self.objective
        calls_model = objective is None or objective.predicts_as_usual
        is_own = any(self._overrides(name, Interface) for name in _CALL_THE_MODEL)
        return calls_model and not is_own and ModelCall(self.model).spreads(inputs)

    def _forward_again(self) -> Tensor:
        """Compute the loss of the forward pass anew, without its stages; the fixtures keep their values."""
        before = self.fixtures["prediction"]
        # Written into the cell: `modify` would raise in a hook that has not declared that it modifies the prediction.
        cell = self._store.cells["prediction"]
        try:
            with Losses() as losses:
                cell.value = self._chosen.train_model_forward()
                return losses.total(self._chosen.train_loss_forward())
        finally:
            cell.value = before

    # ---- chosen once per call of train, eval and the like ------------------------------------------------------------

    def _refuse_unusable_loss(self) -> None:
        """Refuse a loss that could not be called."""
        # Not if a method that calls the loss is overridden: it may call the loss in another way.
        if not any(self._overrides(name, Interface) for name in _CALL_THE_LOSS):
            bind_loss(self.loss)

    def _refuse_single_examples(self, train_data: Any, eval_data: Mapping[str, Any]) -> None:
        """Refuse examples in place of batches, unless an own method reads the batches."""
        modules = (str(getattr(getattr(type(self), name), "__module__", "")) for name in _READ_A_BATCH)
        if all(module.startswith("train_manager.") for module in modules):
            refuse_examples(train_data, "train_data")
            for name, data in eval_data.items():
                refuse_examples(data, f"eval_data[{name!r}]")

    def _choose(self) -> Chosen:
        """Find the methods that the batches to come will call."""
        names = {name: name for name in Chosen._fields[1:]}
        own = {name for name in names if name in vars(Interface) and self._overrides(name, Interface)}
        # A train_model_forward that is not overridden only calls model_forward: the latter takes its place.
        names |= {name: common for name, common in _COMMON.items() if name not in own}
        as_usual = own.isdisjoint({"unpack_batch", "get_true_batch_size"})
        return Chosen(as_usual, **{field: self._ready(name) for field, name in names.items()})

    if not TYPE_CHECKING:  # a type checker that saw __setattr__ would accept any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            # The present training call has found its methods already, and would not see the new one.
            if self._chosen is not None and name in _FOUND_ONCE:
                raise StageError(
                    f"{type(self).__name__}.{name} was replaced while a call that uses it runs",
                    name=name,
                    stages=self.fixtures.path,
                    cure="override it in a class, or replace it before the call",
                )
            if name == "decide":
                self._decides = True
            elif name in _TRAIN_A_BATCH:
                self._store.version += 1  # makes the region void, which would train on a batch without this method
            super().__setattr__(name, value)

    # ---- what a training consists of ---------------------------------------------------------------------------------

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Set train or eval mode, with or without gradients, for a ``with`` block; restored per submodule.

        Train mode is set for the model alone; eval mode also for the modules of its loss.
        """
        modules = self._setup.modules_of_model() if training else self._setup.modules()
        return mode(*modules, training=training)

    @property
    def called_model(self) -> Any:
        """The fixture ``model``, which the loop calls: the model, or its compiled or wrapped form once it is set.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.called_model = nn.Sequential(tm.model)   # as torch.compile(tm.model) would
        """
        return self._setup.called_model

    @called_model.setter
    def called_model(self, value: Any) -> None:
        self._setup.wrapped = None if value is self.model else value
        if "model" in self.fixtures:  # a run is open: its hooks must see the new form
            self.fixtures.modify("model", self.called_model)

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
        return self._setup.optimizers

    @property
    def open_windows(self) -> tuple[str, ...]:
        """The names of the optimizers with gradients that no step has used yet."""
        return tuple(self._windows.names())

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Tell the optimizers and the extensions that parameters of the model have been replaced: a layer has grown.

        The new parameters continue with the moments of the old ones, as far as both shapes reach. Gradients that were
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

    def brought_by(self, part: str) -> str:
        """Return which phase has replaced a component, such as "model": ``"phase 2"`` is the second, ``""`` is none.

        An extension that keeps something for each model or optimizer uses it as a name in its checkpoints.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> with tm.run():
        ...     with tm.phase("head", optimizer=torch.optim.Adam):
        ...         tm.brought_by("optimizer"), tm.brought_by("model")
        ('phase 1', '')
        """
        return self._setup.brought_by.get(part, "")

    @property
    def ranks(self) -> Ranks:
        """The processes that train together, as ``Distributed`` has joined them; without it, this process alone.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.ranks.place
        Place(rank=0, number=1)
        """
        paused = self._registry.paused
        present = (one for name, one in self._registry.extensions.items() if name not in paused)
        joined = (getattr(one, "joined", None) for one in present)
        return next(filter(None, joined), ONE_PROCESS)

    @property
    def paused_extensions(self) -> Set[str]:
        """The names of the extensions that pause, as ``phase(without=...)`` says."""
        return self._registry.paused

    @contextmanager
    def _pausing(self, without: Iterable[str]) -> Iterator[None]:
        """Let extensions pause, for a ``with`` block."""
        names = [without] if isinstance(without, str) else list(without)
        # An extension that a phase around this one has paused must still pause after this block.
        paused = [name for name in names if name not in self._registry.paused]
        if self.ranks.place is not ALONE and any(hasattr(self.extensions.get(name), "joined") for name in paused):
            what = "phase() cannot pause Distributed: the processes train together until the run ends"
            raise StageError(what, name="without", stages=self.fixtures.path, cure="leave it out of without=")
        with ExitStack() as stack:
            stack.callback(self._rest_readers)
            # Before the pause: if the `pause` of one extension raises, those that pause already must resume.
            stack.callback(self._registry.resume, paused)
            self._registry.pause(paused)
            self._rest_readers()
            yield

    @contextmanager
    def _adding(self, added: Extensions | None) -> Iterator[None]:
        """Add extensions, for a ``with`` block."""
        with ExitStack() as stack:
            for name, extension in name_extensions(added, self._options.words).items():
                # The training may have an extension of this name already, as of the same class.
                taken = free_name(extension, self.extensions) if name in self else name
                self.add_extension(extension, taken)
                stack.callback(self.remove_extension, taken)
            yield

    def _rest_readers(self) -> None:
        """Give no rows to the readers of extensions that pause, as their hooks do not run."""
        self.fixtures["batch_losses"].rest([self.extensions[name] for name in self._registry.paused])

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
        from train_manager.checkpoints.weights import checkpoints_at, mean_weights, without_prefix

        count = require_count(mean_of, "mean_of", at_least=1)
        weights = mean_weights(checkpoints_at(Path(path), at, mode, count))
        module = cast(nn.Module, self.model)
        weights = without_prefix(weights, module.state_dict().keys())
        require_fit(list(module_misfits("model", module, weights)), strict=strict)
        restore(module, weights)

    # ---- what hooks request ------------------------------------------------------------------------------------------

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
        run = self._store.open.get("run")
        # No step is under way that could be finished: the caller (a signal handler) ends the program by itself.
        if "train" not in self._store.open and not (run is not None and run.is_ending):
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
        if loss is step.hooked_loss and step.hooked_loss is not step.forward_loss:
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

    # ---- what checks have found --------------------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """The findings of checks in this training so far, also those of a loaded checkpoint; see ``add_finding``."""
        return self._progress.findings

    def add_finding(self, finding: Finding, *more: Finding) -> None:
        """Keep a finding of a check, and warn of it unless it is a note; a finding that is known is left out.

        Checkpoints keep the findings, so that a training that resumes does not warn of them again, and ``RunRecord``
        writes them to its file.

        >>> from train_manager.telling.findings import Finding
        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.add_finding(Finding("batch leak", "note", "a norm mixes the examples", "body.norm"))
        >>> print(tm.findings[0])
        note: a norm mixes the examples
          where  body.norm

        Args:
            finding: a finding is known if one with the same check, the same text and the same place is.
            more: further findings, which the same warning names.
        """
        new = [one for one in (finding, *more) if self._progress.keep_finding(one)]
        lines = [one.in_a_line for one in new if one.level != "note"]
        if lines:
            warnings.warn("; ".join(lines), stacklevel=users_level())

    def _look_at_parameters(self, name: str) -> None:
        """Warn of parameters that are left out; called as one of an optimizer's first windows has its gradients."""
        setup = self._setup
        if not self.check_parameters:
            setup.looked_at.add(name)
            return
        idle, findings = setup.idle.get(name), list[Finding]()
        if idle is None:  # the first window: most mistakes show in it
            idle = setup.idle[name] = Idle(setup.optimizers[name])
            findings += check_first_window(
                setup.model,
                setup.loss,
                setup.optimizers,
                name,
                wrapped=setup.wrapped is not None,
                around=[one for level in self._program.around for one in level.setup.optimizers.values()],
                frozen=self._frozen_parameter_ids(),
                resting=self._progress.call.resting,
            )
        else:
            idle.look()
        # With several sets of data (Interleaved), the batches of another set may use the parameters that are idle here.
        if idle.is_known or self._progress.feed.datasource_name != "train":
            setup.looked_at.add(name)
            del setup.idle[name]
            if idle.is_known:
                findings += idle.find(setup.model, setup.loss, setup.optimizers[name], name)
        if findings:
            self.add_finding(*findings)

    # ---- how far the training is -------------------------------------------------------------------------------------

    @property
    def first_step(self) -> int:
        """``step_num`` as the training began, or the present phase."""
        return self._progress.first_step

    @property
    def start_step(self) -> int:
        return self._progress.call.start_step

    @property
    def end_step(self) -> int | None:
        call = self._progress.call
        return call.expected_end if call.end_step is None else call.end_step

    @property
    def step_limit(self) -> int | None:
        """The ``step_num`` at which the present call of ``train_steps`` ends; None in other training calls."""
        return self._progress.call.step_limit

    @property
    def learning_rates(self) -> dict[str, tuple[float | Tensor, ...]]:
        """The present learning rates by the names of the optimizers, one for each group of parameters.

        >>> from train_manager.testing import tiny_manager
        >>> tiny_manager().learning_rates
        {'optimizer': (0.5,)}

        They stand in the optimizers now. The factor of ``WarmUp`` is among them only while an optimizer steps; the
        fixture ``learning_rates`` of ``LRSchedule`` has the rates that it steps with.
        """
        return {name: learning_rates(optimizer) for name, optimizer in self.optimizers.items()}

    @property
    def losses_by_optimizer(self) -> dict[str, Tensor]:
        """The losses of several optimizers in this batch, if its ``loss`` is only their sum; else empty.

        So it is where ``train_batch`` makes no loss by ``forward()``. Tables and curves show these in place of the
        sum, by the same names: "losses/generator".
        """
        own = self._progress.step.own
        is_apart = own is not None and own.is_shown_apart
        return {f"{PART}{name}": loss for name, loss in own.by_optimizer.items()} if own and is_apart else {}

    @property
    def stop_reason(self) -> str | None:
        return self._progress.run.stop_reason

    @property
    def entered_by(self) -> str | None:
        """The method that opened the present or last run, as "train"; None if the program holds it open."""
        return self._progress.run.entry

    @property
    def batch_num(self) -> int:
        """The number of the batch in its epoch, from 1, also of one that was skipped."""
        return self._progress.feed.batch_num

    @property
    def datasource_name(self) -> str:
        """The set of ``Interleaved`` data that the batch is of; "train" if there is one set only."""
        return self._progress.feed.datasource_name

    @property
    def progress(self) -> CallProgress:
        """How far the present or last training call has come."""
        call, end = self._progress.call, self.end_step
        total = None if end is None else end - call.start_step
        return CallProgress(call.number, self._steps_begun() - call.start_step, total, self._is_last_step)

    @property
    def resumed_stages(self) -> Set[str]:
        """The stages that were open in the checkpoint that this run resumes from, until they have opened again."""
        return self._progress.reopens

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: it imports fractions and decimal, which few programs need

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    def _is_last_step(self) -> bool:
        """Return whether the training call ends with the present step, as far as that is known."""
        requests, call, epoch = self._progress.run.requests, self._progress.call, self._progress.present_epoch
        if requests.stop or self._steps_begun() == call.end_step:
            return True
        ends_with_epoch = epoch.is_last or requests.stop_after_epoch
        return ends_with_epoch and (epoch.requests.end_epoch or self._is_last_batch())

    def _steps_begun(self) -> int:
        """Return ``step_num``, with a batch that is not counted yet."""
        return self.step_num + (not self._progress.step.is_counted)

    def _is_last_batch(self) -> bool:
        return self._progress.step.is_own_last if self._progress.step.is_own else self._progress.feed.is_last()

    @fixture("train_step_batch")
    def last_batch(self) -> bool:
        """Whether the epoch's data ends with this batch; if its length is unknown, this looks one batch ahead."""
        return self._is_last_batch()

    @fixture("train_step_batch")
    def example_index(self) -> Any:
        """The rows of this batch in the data set, if the data knows them (``InMemory``, ``Rows``)."""
        return example_index_of(None if self._progress.step.is_own else self.train_data, self._progress.feed.data_name)

    @fixture("train_step_batch")
    def data_seconds(self) -> float:
        """How long the training has waited for this batch; nan for one of your own, and where no hook has asked."""
        progress = self._progress
        return float("nan") if progress.step.is_own else progress.feed.data_seconds

    @property
    def _level(self) -> Level:
        """The training, or the phase that is open in it."""
        return Level(self._setup, self._progress)

    @_level.setter
    def _level(self, level: Level) -> None:
        self._setup, self._progress = level

    def _levels(self) -> list[Level]:
        """Return the training, and the phases that are open in it, from the outside in."""
        return [*self._program.around, self._level]

    def _lifetime(self, per: str) -> Lifetime:
        """Return the lifetime of the present epoch, of the present phase, or of all."""
        if per == "epoch":
            return self._progress.present_epoch.lifetime
        return self._progress.lifetime if per == "phase" else self._levels()[0].progress.lifetime

    def _place_of_checkpoint(self) -> tuple[int, ...]:
        """Return step, epoch and depth of phases: where these are the same, a second checkpoint has nothing new."""
        return self.step_num, self.epoch_num, len(self._program.around)

    def _frozen_parameter_ids(self) -> set[int]:
        return {id(p) for one in self.extensions.values() for p in getattr(one, "frozen_parameters", ())}

    # ---- checked before a run ----------------------------------------------------------------------------------------

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval", "predict", "train_step_batch")
        if self._progress.run.requests.stops and "run" in self.fixtures.path:
            warnings.warn(
                f"this run was stopped ({self.stop_reason}), so nothing more is trained in it", stacklevel=users_level()
            )
        self._setup.require_optimizers()
        if epochs is not None:
            require_finite_epochs(self.train_data, self.steps_per_epoch)
        passes = epochs if epochs is not None and self.steps_per_epoch is None else 1
        require_ready_to_train(
            self.model, bool(self.optimizers), self.train_data, passes, self.eval_data, (epochs or 0) + 1
        )
        self.ranks.require_data(self.train_data, self.eval_data)

    def _prepare_run(self, entry: str | None) -> None:
        self._registry.use_rank(self.ranks.place.rank)  # before the check, which looks at the hooks of this process
        if entry not in self._checked:  # each entry opens other stages, so each is checked once
            try:
                self._checked[entry] = self._check(entry, "before the first stage", outside=entry is None)
            except CheckError as error:
                say_that_train_batch_lacks_a_prediction(error)
                raise
        if not isinstance(self.model, nn.Module):
            warn_of_idle_hooks(self._registry.hooks, self.model)
        given = {"train_dir": self.train_dir, "device": self.device}
        require_arguments_for_hooks(self._registry.hooks, given, [one.name for one in self._registry.providers])
        if self.train_dir is not None and not self.ranks.place.rank:  # only rank 0 writes there
            make_train_dir(self.train_dir)
        if self.seed is not None and not self._has_run:
            seed_all(self.seed)
        if not self._has_run:
            self._setup.note()  # before a hook can change options or freeze parameters
        for one in self._registry.extensions.values():
            note_tensors(one)
        self._asked_from_outside = None  # a signal of the last run must not end this one
        self._progress.begin_run(entry, self.step_num)

    @contextmanager
    def _methods_chosen(self, entry: str | None = None) -> Iterator[None]:
        """Choose the methods that each batch calls, anew for each call from outside; errors show the user's frames.

        Args:
            entry: the method of a training call; then an interrupt says where the next training call begins.
        """
        before, self._chosen = self._chosen, self._choose()
        try:
            yield
        except BaseException as error:
            hide_own_frames(error)
            self.ranks.fail(error)
            if entry is not None and isinstance(error, KeyboardInterrupt) and "run" not in self.fixtures.path:
                counts = {"step": self.step_num, "epoch": self.epoch_num, "epochs": self.epochs}
                note_next_call(error, entry, **counts, saved_at=self._progress.run.saved_at)
            raise
        finally:
            self._chosen = before

    def _approve_extensions(self) -> None:
        super()._approve_extensions()
        if "run" in self.fixtures.path:  # the check at the start of the run has not seen these extensions
            for added in self._registry._added.values():
                note_tensors(added.extension)
            joined = [getattr(one.extension, "joined", None) for one in self._registry._added.values()]
            if any(one is not None and one.gradients is None for one in joined):
                what = "Distributed was added while a run is open, so its processes have not begun the run together"
                raise StageError(
                    what, stages=self.fixtures.path, cure="add it before the run: extensions=[Distributed()]"
                )
            entry, held = self.entered_by, self.entered_by is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _warn_of_epochs_without_end(self) -> None:
        """Warn, once, of schedules by epoch that stand still in a loop of the program's own."""
        run, batches = self._progress.run, 0 if self._progress.own is None else self._progress.own.batches
        present = {name: one for name, one in self._registry.extensions.items() if name not in self._registry.paused}
        # An extension with a schedule by epoch has this method: whether it still waits for an epoch after this one.
        waits = {name: getattr(one, "waits_for_epoch", None) for name, one in present.items()}
        extensions = [name for name, waits_for in waits.items() if waits_for is not None and waits_for(self.epoch_num)]
        names = [*([] if self.lr_schedule is None else ["lr_schedule"]), *extensions]
        is_loop = batches > 1  # a single call of train_on_batch may be a trial
        if is_loop and names and not run.has_ended_epoch and "epochs" not in self._warned_of:
            self._warned_of.add("epochs")
            what = f"the run ends after {batches:,} batches of train_on_batch and no epoch"
            text = f"{what}, so what counts epochs has stood still: {' and '.join(map(repr, names))}"
            warnings.warn(f"{text} (call tm.end_epoch() where an epoch of yours ends)", stacklevel=users_level())

    def _never_reached(self) -> list[Hook]:
        """Return the hooks of stages that the check has not found in the source, and that have not opened so far."""
        if not any(self._checked.values()):
            return []
        return [hook for hook in self._unopened if hook.stage not in self._store.plans]

    def _check_once(self) -> None:
        """Check nothing as the first stage opens: ``_prepare_run`` checks each run."""

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


# The method that train_... and eval_... call unless they are overridden.
_COMMON = {
    "train_model_forward": "model_forward",
    "eval_model_forward": "model_forward",
    "train_loss_forward": "loss_forward",
    "eval_loss_forward": "loss_forward",
}
_CALL_THE_MODEL = ("model_forward", "train_model_forward", "eval_model_forward")
_CALL_THE_LOSS = ("loss_forward", "train_loss_forward", "eval_loss_forward")
_TRAIN_A_BATCH = frozenset({"forward", "update", "backward", "step"})
_READ_A_BATCH = (*(name for name in Chosen._fields if name != "unpacks_as_usual"), "model_forward", "loss_forward")
_FOUND_ONCE = frozenset({*Chosen._fields[1:], *_COMMON.values()})
"""Methods that are found once per call: a method that was replaced meanwhile would count from the next call only."""
