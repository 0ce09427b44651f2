"""What users of a TrainManager override, set, read and call around a run. Nothing here opens a stage."""

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
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from train_manager.checkpoints.extension_fit import extensions_that_differ, made_extensions, replaced_extensions
from train_manager.checkpoints.fit import Difference
from train_manager.core.decorators import fixture, overridable
from train_manager.core.extensible import Extensible
from train_manager.core.extension import Extensions, free_name, named
from train_manager.core.hooks import Hook
from train_manager.core.state import Options
from train_manager.data.batch import parts_of
from train_manager.data.iteration import example_index_of, refuse_examples
from train_manager.data.randomness import random_state, seed_all, set_random_state
from train_manager.files.train_dirs import make_train_dir, train_dir_and_number
from train_manager.loop.arguments import (
    FIXTURES_OF_A_BATCH,
    TrainsItself,
    bind_loss,
    require_device,
    require_finite_epochs,
    require_ready_to_train,
    require_train_dir_for_hooks,
    warn_of_idle_hooks,
)
from train_manager.loop.books import Lifetime, saved_or_loaded
from train_manager.loop.call import Call
from train_manager.loop.counts import Counts
from train_manager.loop.cures import say_that_train_batch_lacks_a_prediction
from train_manager.loop.description import Facts, as_html, as_text, facts
from train_manager.loop.eval_at import EvalAtArgument, EvalAtPoints, require_eval_at
from train_manager.loop.history import History
from train_manager.loop.losses import Collector, Losses
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.modes import mode
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import OptimizerArgument
from train_manager.loop.outputs import count_rows, loss_in, no_targets, require_prediction, require_training_loss
from train_manager.loop.parameter_check import Idle, found_in_first_window
from train_manager.loop.phases import Level
from train_manager.loop.probe import probed
from train_manager.loop.progress import Progress
from train_manager.loop.recorded_arguments import record_of_manager
from train_manager.loop.requests import NOTHING, Requests
from train_manager.loop.resume import Resume
from train_manager.loop.run_state import RunState
from train_manager.loop.saved_kinds import require_kinds
from train_manager.loop.saved_state import (
    attributes_with_state,
    module_misfits,
    not_a_state,
    require_fit,
    restore_part,
    tell_of_differences,
    tell_of_earlier_version,
)
from train_manager.loop.scheduled_eval import EvalAt, scheduled_eval
from train_manager.loop.setup import Setup
from train_manager.loop.step import NO_BACKWARD
from train_manager.loop.windows import Windows, free_gradients, once_known
from train_manager.metrics.history_rows import PART
from train_manager.model.optimizers import learning_rates
from train_manager.model.replacement import replace_in_optimizers
from train_manager.rebuilding.recorded import as_written
from train_manager.schedules.rules import CallProgress
from train_manager.telling.argument_names import named_arguments
from train_manager.telling.errors import CheckError, FixtureNotFound, StageError, TrainManagerError
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
    """The methods that every batch calls, each ready to be called with the live fixtures.

    Attributes:
        unpacks_as_usual: neither ``unpack_batch`` nor ``get_true_batch_size`` is overridden, so that they need not be
            called by name.
    """

    unpacks_as_usual: bool
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
"""What a hook of load_checkpoint may change of a state, as a smaller learning rate."""

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What parts of a training raise for a state that is not of their form."""


HELD: Final = (
    *("model", "loss", "objective", "optimizer", "lr_schedule", "train_data", "eval_data", "epochs", "steps_per_epoch"),
    *("device", "epoch_num", "step_num", "update_num", "samples_seen", "optimizer_updates"),
)
"""Attributes that an object of the manager holds; a subclass cannot define them."""


def _held_by(owner: str, name: str) -> Any:
    """Make an attribute that an object of the manager holds: ``tm.model`` is ``tm._setup.model``."""
    return property(attrgetter(f"{owner}.{name}"), lambda manager, value: setattr(getattr(manager, owner), name, value))


class Interface(Extensible, Generic[Model]):
    """The side of a TrainManager that programs and hooks see.

    >>> from train_manager import TrainManager
    >>> class Autoencoder(TrainManager):
    ...     def loss_forward(self, prediction, inputs):
    ...         return (prediction - inputs).square().mean()
    """

    check_parameters: bool = True
    """Tell, once, which parameters get no gradient or are in no optimizer; set it on a class or an object."""

    _options = Options(own_name="train_manager", times_hooks=True, notes_errors=True, joined="run", words=WORDS)
    _chosen: Chosen = None  # type: ignore[assignment]  # while no call runs
    _setup: Setup
    _counts: Counts
    _progress: Progress
    _held: ExitStack | None = None
    _asked_from_outside: str | None = None
    _decides: bool = False  # the point of decision was replaced
    _named_loss: tuple[Any, Any] = (None, None)  # the loss, and its call by fixture names if it is called so
    _model_call: tuple[Any, Any] = (None, None)  # the model, and how it is called

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._decides = cls.decide is not Interface.decide
        for name in HELD:
            if (
                getattr_static(cls, name) is not vars(Interface)[name]
            ):  # tm.epochs would be one thing, the loop's another
                cure = "override loss_forward" if name == "loss" else f"give it to the constructor: {name}=..."
                raise TypeError(f"{cls.__name__} defines {name!r}, which each TrainManager has of its own ({cure})")

    def _begin_to_exist(self) -> None:
        # Here, so that a subclass may set `self.model` before it calls super().__init__(model=self.model).
        self._setup, self._counts = Setup(None, None), Counts()
        self._progress = Progress(RunState(None), Call(0, start_step=0))

    if TYPE_CHECKING:
        model: Model
        loss: Any
        objective: Objective | None
        lr_schedule: Any
        train_data: Iterable[Any] | None
        eval_data: dict[str, Iterable[Any]]
        epochs: int
        steps_per_epoch: int | None
        device: torch.device | None
        epoch_num: int
        step_num: int
        update_num: int
        samples_seen: Any
        optimizer_updates: dict[str, int]

        @property  # assigned more than it is read as: several optimizers are read as `optimizers`
        def optimizer(self) -> Optimizer: ...
        @optimizer.setter
        def optimizer(self, value: Optimizer | Mapping[str, Optimizer] | None) -> None: ...

    else:
        model, loss, objective = (_held_by("_setup", name) for name in ("model", "loss", "objective"))
        optimizer, lr_schedule = _held_by("_setup", "optimizer"), _held_by("_setup", "lr_schedule")
        train_data, eval_data = _held_by("_setup", "train_data"), _held_by("_setup", "eval_data")
        epochs, steps_per_epoch = _held_by("_setup", "epochs"), _held_by("_setup", "steps_per_epoch")
        device = _held_by("_setup", "device")
        epoch_num = _held_by("_progress", "epoch_num")
        step_num, update_num = _held_by("_counts", "step_num"), _held_by("_counts", "update_num")
        samples_seen, optimizer_updates = _held_by("_counts", "samples_seen"), _held_by("_counts", "optimizer_updates")

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
        self._refuse_unusable_loss()  # before an optimizer is made
        self._setup.replace({name: part for name, part in given.items() if name not in ("model", "loss")})
        self._refuse_single_examples(self.train_data, self.eval_data)
        self._resume = Resume()
        self._windows, self._collector = Windows(), Collector()
        self._told: set[str] = set()  # what warnings have told, once for each manager
        self.history: History = History()
        self.seed: int | None = None if seed is None else require_count(seed, "seed", at_least=0)
        self.run_id: str = secrets.token_hex(8)
        self.train_dir: Path | None
        self.train_dir_number: int | None
        self.train_dir, self.train_dir_number = train_dir_and_number(train_dir)
        self._has_run = False
        self._step_seconds: deque[float] = deque(maxlen=1001)
        added = named(extensions, self._options.words)
        self._registry.add(added)
        if self.objective is not None:
            self.add_extension(self.objective, "objective")
        self.eval_at = eval_at
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
        own = {name: copy.copy(state[name]) for name in ("_setup", "_progress")}
        own["_progress"].first_step = 0  # a copy is in no phase
        own |= {name: copy.deepcopy(state[name]) for name in ("_counts", "history")}
        own |= {"_windows": Windows(), "_collector": Collector(), "_resume": Resume()}
        return {**state, **own, "run_id": secrets.token_hex(8), "_chosen": None, "_held": None}

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_html(type(self).__name__, self._facts())

    def _facts(self) -> Facts:
        return facts(self.__dict__, self._registry.extensions)

    @classmethod
    def from_checkpoint(
        cls,
        path: Path | str,
        overrides: Mapping[str, Any] | None = None,
        *,
        strict: bool = True,
        **arguments: Any,
    ) -> Self:
        """Make the TrainManager of a checkpoint again, with its model, and load its state.

        Classes of yours are made again if they are ``recorded`` and this program has imported them. Nothing else that a
        file names is imported or called, no more memory is taken than its files suggest, and extensions that ship are
        given no path of it.

        >>> from train_manager import TrainManager
        >>> from train_manager.checkpoints.checkpoint import write_checkpoint
        >>> from train_manager.testing import tiny_manager
        >>> import tempfile
        >>> model = nn.Linear(2, 2)
        >>> tm = tiny_manager(model=model, optimizer=torch.optim.SGD, epochs=2)
        >>> result = tm.train()
        >>> path = write_checkpoint(Path(tempfile.mkdtemp()), "step-000000000006", tm.state_dict(), {})
        >>> again = TrainManager.from_checkpoint(path, {"epochs": 3}, model=nn.Linear(2, 2))
        >>> again.step_num, again.epochs, again.model.weight.equal(model.weight)
        (6, 3, True)

        Args:
            path: a checkpoint; or a ``train_dir``, whose newest sound checkpoint is taken.
            overrides: values in place of recorded ones, by dotted paths: ``{"model.threshold": 0.7, "optimizer.lr":
                1e-4, "extensions.ema.decay": 0.99}``. What is in the state as well, such as a buffer of the model, is
                that of the state; options of optimizers and schedulers are the overridden ones.
            strict: refuse a state that does not fit what was made; else load what fits, and warn.
            arguments: of TrainManager, in place of the recorded ones. Data that are not recorded are None unless they
                are given, and so is ``train_dir``: without one, extensions that need it rest.

        Raises:
            CheckpointError: the checkpoint is damaged, there is no such value to override, or something is needed that
                was not recorded: with all of it.
        """
        from train_manager.loop import rebuilt_arguments as rebuilt  # here, as what reads files: most never do

        checkpoint, parameters, state = rebuilt.read_parameters(Path(path))
        with rebuilt.memory_limit_of(checkpoint):
            made = cls(**rebuilt.rebuilt_arguments(cls, parameters, overrides or {}, arguments))
            if made.train_dir is None:
                resting = rebuilt.writers_to_rest(made._registry.hooks, has_data=made.train_data is not None)
                made._registry.pause(resting)
            made._load_state(state, strict, tells=False)  # of what was overridden, which counts
        made._setup.loaded = {}
        rebuilt.apply_options(made.optimizers, made.lr_schedule, overrides or {})
        return made

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
        return parts_of(batch)

    @overridable
    def get_true_batch_size(self, batch: Any) -> int | Tensor:
        """Return how many examples a batch has, the weight of its loss. Here: rows of the first tensor in it.

        A tensor, as of the tokens that are not padding, is not read on the host.
        """
        return count_rows(batch)

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
        without one, the ``loss`` that the model's output has, as those of Hugging Face do.

        Return None if there is none, because the model adds all of it (``add_loss``).
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
            if "targets" in self.fixtures:  # a provider of them has asked for another fixture
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

    def _forward_again(self) -> Tensor:
        """Compute the loss of the forward pass anew, without its stages; the fixtures keep their values."""
        before = self.fixtures["prediction"]
        cell = self._store.cells["prediction"]  # not by `modify`, which a hook would have to declare
        try:
            with Losses() as losses:
                cell.value = self._chosen.train_model_forward()
                return losses.total(self._chosen.train_loss_forward())
        finally:
            cell.value = before

    # ---- chosen once per call of train, eval and the like ------------------------------------------------------------

    def _refuse_unusable_loss(self) -> None:
        """Refuse a loss that could not be called, as it is given; what an own method does with it is not known."""
        if not any(self._overrides(name, Interface) for name in _CALL_THE_LOSS):
            bind_loss(self.loss)

    def _refuse_single_examples(self, train_data: Any, eval_data: Mapping[str, Any]) -> None:
        """Refuse examples in place of batches, if all methods that read a batch are those of this library."""
        modules = (str(getattr(getattr(type(self), name), "__module__", "")) for name in _READ_A_BATCH)
        if all(module.startswith("train_manager.") for module in modules):
            refuse_examples(train_data, "train_data")
            for name, data in eval_data.items():
                refuse_examples(data, f"eval_data[{name!r}]")

    def _choose(self) -> Chosen:
        """Find the methods that the batches to come will call, past those that only hand on to the common one."""
        names = {name: name for name in Chosen._fields[1:]}
        own = {name for name in names if name in vars(Interface) and self._overrides(name, Interface)}
        names |= {name: common for name, common in _COMMON.items() if name not in own}
        as_usual = own.isdisjoint({"unpack_batch", "get_true_batch_size"})
        return Chosen(as_usual, **{field: self._ready(name) for field, name in names.items()})

    if not TYPE_CHECKING:  # which would let any attribute be set

        def __setattr__(self, name: str, value: Any) -> None:
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
                self._store.version += 1  # a batch must not be trained on without it
            super().__setattr__(name, value)

    # ---- what a training consists of ---------------------------------------------------------------------------------

    def mode(self, *, training: bool) -> AbstractContextManager[None]:
        """Set train or eval mode, with or without gradients, for a ``with`` block; restored per submodule.

        Train mode is that of the model alone; eval mode also that of the modules of its loss.
        """
        modules = self._setup.modules_of_model() if training else self._setup.modules()
        return mode(*modules, training=training)

    @property
    def called_model(self) -> Any:
        """What the loop calls, the fixture ``model``: the model itself, or its compiled or wrapped form once it is set.

        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.called_model = nn.Sequential(tm.model)   # as torch.compile(tm.model) would
        """
        return self._setup.called_model

    @called_model.setter
    def called_model(self, value: Any) -> None:
        self._setup.wrapped = None if value is self.model else value
        if "model" in self.fixtures:
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
        return self._setup.brought_by.get(part, "")

    @property
    def paused_extensions(self) -> Set[str]:
        """The names of the extensions that pause, as ``phase(without=...)`` says."""
        return self._registry.paused

    @contextmanager
    def _pausing(self, without: Iterable[str]) -> Iterator[None]:
        """Let extensions pause, for a ``with`` block."""
        names = [without] if isinstance(without, str) else list(without)
        paused = [name for name in names if name not in self._registry.paused]  # perhaps by a phase around this one
        with ExitStack() as stack:
            stack.callback(self._rest_readers)
            stack.callback(self._registry.resume, paused)  # also if one of them fails to let go
            self._registry.pause(paused)
            self._rest_readers()
            yield

    @contextmanager
    def _adding(self, added: Extensions | None) -> Iterator[None]:
        """Add extensions, for a ``with`` block."""
        with ExitStack() as stack:
            for name, extension in named(added, self._options.words).items():
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
        from train_manager.checkpoints.verification import looked_for_again
        from train_manager.checkpoints.weights import checkpoints_at, mean_weights, without_prefix

        count = require_count(mean_of, "mean_of", at_least=1)
        weights = looked_for_again(lambda: mean_weights(checkpoints_at(Path(path), at, mode, count)))
        module = cast(nn.Module, self.model)
        weights = without_prefix(weights, module.state_dict().keys())
        require_fit(list(module_misfits("model", module, weights)), strict=strict)
        restore_part(module, weights)

    # ---- what hooks request ------------------------------------------------------------------------------------------

    def stop(self, reason: str, at: str = "step", *, whole_run: bool = False) -> None:
        """End the training after this step, or with ``at="epoch"`` after this epoch; hooks run as in any other end.

        In a phase it ends the training of this phase, or with ``whole_run`` that of the run.

        A checkpoint that is saved before the epoch ends keeps a stop ``at="epoch"``. A program that goes on from where
        a stop has ended it trains on.

        Raises:
            StageError: no run is open.
        """
        require_one_of(at, "at", ("step", "epoch"))
        path = self.fixtures.path
        if "run" not in path:
            raise StageError("stop() was called, but no run is open", stages=path)
        asker = self._store.running
        asked_by = f"{asker.label} at {' > '.join(path)}" if asker is not None else None
        self._progress.run.stop(reason, at, asked_by, whole_run or "phase" not in path)

    def stop_from_outside(self, reason: str) -> bool:
        """End the run after this step, at the request of a signal handler or another thread; hooks call ``stop``.

        It may be called at any moment: it only leaves a note, at which the loop looks after each step. In a phase too
        it ends the whole run.

        Returns:
            Whether the loop will see the note: a training is under way, or the run is ending. Else none is left.
        """
        run = self._store.open.get("run")
        if "train" not in self._store.open and not (run is not None and run.is_ending):
            return False
        self._asked_from_outside = reason
        return True

    def eval_soon(self) -> None:
        """Ask for an evaluation between this step and the next; for hooks, which cannot evaluate themselves.

        Raises:
            StageError: no run is open.
        """
        if "run" not in self.fixtures.path:
            cure = "outside of a run, evaluate at once: tm.eval()"
            raise StageError("eval_soon() was called, but no run is open", stages=self.fixtures.path, cure=cure)
        self._progress.run.eval_requested = True

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
            self._progress.run.saves_at_end = True
        else:
            self._progress.run.save_requested = True

    def decide(self, requests: Requests) -> Requests:
        """Return what the loop does of what was requested: all of it. It looks at requests nowhere else.

        An extension may replace it, so that processes agree: ``train_manager.decide = self.agree``. That is called in
        each process twice for each batch, and around each epoch, whether or not something was requested. A request may
        be added, but one that was made cannot be taken back.
        """
        return requests

    def _decide(self, data_ended: bool = False, *, call_ends: bool = False) -> Requests:
        """Return what the loop does of what was requested, here or in a process that this one agrees with.

        Args:
            data_ended: the epoch's data has ended.
            call_ends: the training call ends here, so that a checkpoint may be asked for that is saved at its end.
        """
        progress = self._progress
        if self._asked_from_outside is not None:
            progress.run.stop(self._asked_from_outside, "step", None, whole_run=True)
        requests = progress.requests(data_ended)
        if call_ends and progress.run.saves_at_end and progress.saved_at != self._place_of_checkpoint():
            requests = requests._replace(save_at_end=True)  # of this decision alone: the call may not end here yet
        if self._decides:
            requests = self.decide(requests)
        if requests is not NOTHING:
            progress.run.take_over(requests)
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
        if loss is step.hooked_loss and step.hooked_loss is not step.forward_loss:
            self._windows[name].is_modified = True
        return once_known(loss, self.closure(name))

    def _loss_again(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Compute a loss anew, under the precision of the batch, and its gradients."""
        free_gradients(self._windows[name].optimizer)  # before the forward pass, which has their memory
        autocast: Callable[[], AbstractContextManager[Any]] = self.fixtures.get("autocast", nullcontext)
        with torch.enable_grad(), autocast():
            loss = require_training_loss(compute())
        self._windows.backward_again(name, loss)
        return loss

    def _optimizer_in_batch(self, name: str | None, method: str) -> tuple[str, Optimizer]:
        """Return an optimizer and its name, in a method that ``train_batch`` calls."""
        if "train_step_batch" in self._store.open:
            sole = self.optimizer
            if name is None and isinstance(sole, Optimizer):  # as nearly always
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
            return require_prediction(probed(self._store, kind, self._setup.on_device(batch)), self.model)
        cure = "call it in a hook such as post_train_step_batch, or in train_batch(self, ...)"
        raise StageError(what, stages=self.fixtures.path, cure=cure)

    # ---- what checks have found --------------------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """What checks have found in this training so far, also those of a loaded checkpoint; see ``add_finding``."""
        return self._progress.findings

    def add_finding(self, finding: Finding, *more: Finding) -> None:
        """Keep what a check has found, and warn of it unless it is a note; one that is known is left out.

        Checkpoints have it, so that a training that goes on does not tell it again, and ``RunRecord`` writes it to
        ``run.json``.

        >>> from train_manager.telling.findings import Finding
        >>> from train_manager.testing import tiny_manager
        >>> tm = tiny_manager()
        >>> tm.add_finding(Finding("batch leak", "note", "a norm mixes the examples", "body.norm"))
        >>> print(tm.findings[0])
        note: a norm mixes the examples
          where  body.norm

        Args:
            finding: it is the same as a known one if its check, what it has found and where are the same.
            more: further ones, of which the same warning tells.
        """
        new = [one for one in (finding, *more) if self._progress.keep_finding(one)]
        told = [one.in_a_line for one in new if one.level != "note"]
        if told:
            warnings.warn("; ".join(told), stacklevel=users_level())

    def _look_at_parameters(self, name: str) -> None:
        """Tell which parameters are left out, as the gradients of one of an optimizer's first windows are complete."""
        setup = self._setup
        if not self.check_parameters:
            setup.looked_at.add(name)
            return
        idle, findings = setup.idle.get(name), list[Finding]()
        if idle is None:
            idle = setup.idle[name] = Idle(setup.optimizers[name])
            findings += found_in_first_window(
                setup.model,
                setup.loss,
                setup.optimizers,
                name,
                wrapped=setup.wrapped is not None,
                around=[one for level in self._resume.phases.around for one in level.setup.optimizers.values()],
                frozen=self._frozen_by_extensions(),
            )
        else:
            idle.look()
        if idle.is_known or self._progress.feed.datasource_name != "train":  # another set may use the rest
            setup.looked_at.add(name)
            del setup.idle[name]
            if idle.is_known:
                findings += idle.found(setup.model, setup.loss, setup.optimizers[name], name)
        if findings:
            self.add_finding(*findings)

    # ---- how far the training is -------------------------------------------------------------------------------------

    @property
    def first_step(self) -> int:
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
        """The ``step_num`` at which the present call of ``train_steps`` ends; None in other calls."""
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
        return self._progress.run.entry

    @property
    def batch_num(self) -> int:
        return self._progress.feed.batch_num

    @property
    def datasource_name(self) -> str:
        return self._progress.feed.datasource_name

    @property
    def progress(self) -> CallProgress:
        """How far the present or last training call has come."""
        call, end = self._progress.call, self.end_step
        total = None if end is None else end - call.start_step
        return CallProgress(call.number, self._steps_begun() - call.start_step, total, self._is_last_step)

    @property
    def resumed_stages(self) -> Set[str]:
        """The stages that were open in the checkpoint that this run goes on from, until they have opened again."""
        return self._progress.reopens

    @property
    def median_step_seconds(self) -> float:
        """How long a training step takes, without the time of hooks; nan before the first.

        The median of the last thousand. On a GPU it is the time to hand the work over.
        """
        import statistics  # here: with fractions and decimals it takes a while

        return statistics.median(self._step_seconds) if self._step_seconds else float("nan")

    def _is_last_step(self) -> bool:
        progress, part = self._progress, self._progress.part
        if progress.run.stop_at == "step" or self._steps_begun() == progress.call.end_step:
            return True
        ends_with_epoch = part.is_last or progress.run.stop_at == "epoch"
        return ends_with_epoch and (part.end_requested or self._is_last_batch())

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

    # ---- checked before a run ----------------------------------------------------------------------------------------

    def _require_ready(self, entry: str, epochs: int | None) -> None:
        self._refuse_inside(entry, "train", "eval", "predict", "train_step_batch")
        if self._progress.run.stop_at is not None and "run" in self.fixtures.path:
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
        if not self._has_run:
            self._setup.note()
        self._asked_from_outside = None
        self._progress.begin_run(entry, self.step_num)

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
            entry, held = self.entered_by, self.entered_by is None
            self._checked[entry] = self._check(None, "as an extension was added or removed", outside=held)

    def _warn_of_epochs_without_end(self) -> None:
        """Warn, once, of schedules by epoch that stand still in a loop of the program's own."""
        run, batches = self._progress.run, 0 if self._progress.own is None else self._progress.own.batches
        present = {name: one for name, one in self._registry.extensions.items() if name not in self._registry.paused}
        waits = {name: getattr(one, "waits_for_epoch", None) for name, one in present.items()}
        extensions = [name for name, waits_for in waits.items() if waits_for is not None and waits_for(self.epoch_num)]
        names = [*([] if self.lr_schedule is None else ["lr_schedule"]), *extensions]
        is_loop = batches > 1  # one may be a trial
        if is_loop and names and not run.has_ended_epoch and "epochs" not in self._told:
            self._told.add("epochs")
            what = f"the run ends after {batches:,} batches of train_on_batch and no epoch"
            told = f"{what}, so what counts epochs has stood still: {' and '.join(map(repr, names))}"
            warnings.warn(f"{told} (call tm.end_epoch() where an epoch of yours ends)", stacklevel=users_level())

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

    # ---- the state of a training -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on, in plain dicts with tensors, which are not copied.

        The model, the loss if it has weights, optimizers, schedulers, the state of each extension and of schedules on
        the manager's own hooks, further attributes with a ``state_dict``, random states, counters, the position in the
        data, gradients of open windows, phases, the history, and how all of these were made.

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
        levels, path = self._levels(), self.fixtures.path
        held = self._frozen_by_extensions()
        states = [
            level.state_dict(around, path if level is levels[-1] else (), held)
            for around, level in zip([None, *levels], levels, strict=False)
        ]
        return {
            **states[0],
            "fit": {**states[0]["fit"], "extensions": made_extensions(self._registry.extensions), "seed": self.seed},
            "calls": self._resume.calls.state_dict(),
            "phases": {"entered": self._resume.phases.state_dict(), "open": states[1:]},
            "extensions": self._extension_states(),
            "schedules": self._schedule_states(),
            "attributes": {name: one.state_dict() for name, one in self._attributes().items()},
            "windows": self._windows.state_dict(),
            "counts": self._counts.state_dict(),
            "history": self.history.state_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
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
        self._load_state(state, strict)

    def _load_state(self, state: Mapping[str, Any], strict: bool, *, tells: bool = True) -> None:
        is_in_run = "load_checkpoint" in self.fixtures.path  # of a program that was started again
        try:
            epochs = self.epochs if is_in_run and self._progress.run.entry == "train" else None
            resume = self._resume.begin(state, are_made_again=is_in_run, strict=strict, epochs=epochs)
            is_there = resume.state is None
            differences = self._restore(state, strict, is_whole=not resume.phases.is_behind, is_there=is_there)
        except MALFORMED as error:
            if isinstance(error, TrainManagerError):
                raise
            raise not_a_state(error) from error
        self._resume = resume
        if tells:
            self._tell(state, differences)
        self._progress.saved_at = self._place_of_checkpoint()  # a call that trains no more has nothing new to save

    def _levels(self) -> list[Level]:
        """Return the training, and the phases that are open in it, from the outside in."""
        return [*self._resume.phases.around, Level(self._setup, self._progress)]

    def _tell(self, state: Mapping[str, Any], differences: list[Difference]) -> None:
        """Warn of what differs, or that an earlier version does not say."""
        if "fit" in state:
            tell_of_differences(differences)
        else:
            tell_of_earlier_version(self._told)

    def _restore(self, state: Mapping[str, Any], strict: bool, *, is_whole: bool, is_there: bool) -> list[Difference]:
        """Restore the levels that are open here, and all that has no level.

        Args:
            state: what ``state_dict`` returned.
            strict: refuse a state that does not fit.
            is_whole: no phase of it is still to be opened.
            is_there: the program has come to the place of the state.

        Returns:
            Where the program differs from the one that wrote the state.
        """
        require_kinds(self.state_dict(), state)
        levels = self._levels()
        saved = [state, *state["phases"]["open"]]
        found, differences = self._compared(state, is_there=is_there)
        require_fit([*found, *self._missing(state, is_whole=is_whole)], strict=strict)
        held = self._frozen_by_extensions()
        for level, of_level in zip(levels, saved, strict=False):
            differences += level.load_state_dict(of_level, held, is_there=is_there)
        self._load_extension_states(self._states_of_extensions(state))
        self._load_schedule_states(state["schedules"])
        for name, attribute in self._attributes().items():
            if name in state["attributes"]:
                restore_part(attribute, state["attributes"][name])
        self._counts.load_state_dict(state["counts"])
        self.history.load_state_dict(state["history"])
        for finding in state.get("findings", ()):  # which an earlier version lacks
            self._progress.keep_finding(Finding.from_dict(finding))
        if "partial" not in state["run"]:  # of an earlier version
            levels[0].progress.partial = self.history.place_of_part()
        if is_whole or not state["phases"]["open"]:
            fit = {name: made for level in saved for name, made in level.get("fit", {}).get("optimizers", {}).items()}
            windows = self._setup.gradients_of_windows(state["windows"], fit)
            self._windows.load_state_dict(windows, self.optimizers)
        set_random_state(state["random"])
        return differences

    def _compared(self, state: Mapping[str, Any], *, is_there: bool) -> tuple[list[str], list[Difference]]:
        """Return what of a saved state does not fit, and how its extensions were others."""
        levels, saved = self._levels(), [state, *state["phases"]["open"]]
        found = [
            misfit
            for around, level, of_level in zip([None, *levels], levels, saved, strict=False)
            for misfit in level.misfits(around, of_level, is_there=is_there)
        ]
        extensions = [*self._compared_extensions(state)] if is_there else []
        found += [one for one in extensions if isinstance(one, str)]
        return found, [one for one in extensions if isinstance(one, Difference)]

    def _tell_of_another_program(self, state: Mapping[str, Any]) -> None:
        """Compare a state whose place the program does not come to, as it makes other calls."""
        found, differences = self._compared(state, is_there=True)
        require_fit(found, strict=self._resume.strict)
        self._tell(state, [*differences, *self._setup.other_options()])

    def _extension_states(self) -> dict[str, Any]:
        with saved_or_loaded(self._open_lifetimes()):
            return {name: one.state_dict() for name, one in self._registry.extensions.items()}

    def _load_extension_states(self, states: Mapping[str, Any]) -> None:
        """Load those of the extensions that are here; after the epochs and phases, to which values of them belong."""
        for name, extension in self._registry.extensions.items():
            if name in states:
                try:
                    with saved_or_loaded(self._open_lifetimes()):
                        extension.load_state_dict(states[name])
                except Exception as error:
                    if isinstance(error, TrainManagerError):
                        raise
                    raise not_a_state(error, f"the state of extension {name!r}") from error

    def _compared_extensions(self, state: Mapping[str, Any]) -> Iterator[str | Difference]:
        """Say what of the saved extensions does not fit, and what differs."""
        fit, goes_on = state.get("fit", {}), self.epochs > state["epoch_num"]
        if fit.get("seed", self.seed) != self.seed:
            yield Difference("seed", str(self.seed), str(fit["seed"]), "the random states of the checkpoint")
        if "extensions" in fit:
            here = made_extensions(self._registry.extensions)
            yield from extensions_that_differ(here, fit["extensions"], state["extensions"])
        for name, saved in self._states_of_extensions(state).items():
            yield from self._compared_state(name, saved, goes_on=goes_on)

    def _compared_state(self, name: str, saved: Any, *, goes_on: bool) -> Iterable[str | Difference]:
        compare = getattr(self._registry.extensions[name], "compared_with", None)
        return () if compare is None else compare(saved, goes_on=goes_on)

    def _refused_states(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the saved states that extensions here cannot take; others may come on the way."""
        taken, here = self._states_of_extensions(state), self._registry.extensions
        return {
            name: saved
            for name, saved in state["extensions"].items()
            if name in here
            if name not in taken
            or any(isinstance(one, str) for one in self._compared_state(name, saved, goes_on=False))
        }

    def _states_of_extensions(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the saved states of the extensions that are here, and of the same class."""
        here = self._registry.extensions
        replaced = replaced_extensions(made_extensions(here), state.get("fit", {}).get("extensions", {}))
        return {
            name: state["extensions"][name] for name in here if name in state["extensions"] and name not in replaced
        }

    def _frozen_by_extensions(self) -> set[int]:
        return {id(p) for one in self.extensions.values() for p in getattr(one, "frozen_parameters", ())}

    def _keep_changes_to_loaded(self) -> None:
        """Take what hooks have changed of the parts that were loaded into the state that is restored once more."""
        resume = self._resume
        if resume.state is not None and not resume.phases.is_behind:
            state = self.state_dict()
            changed: dict[str, Any] = {name: state[name] for name in CHANGED_BY_HOOKS if name in state}
            changed["extensions"] = state["extensions"] | self._refused_states(resume.state)
            if "fit" in resume.state:
                changed["fit"] = dict(resume.state["fit"])
                for kind, loaded in self._levels()[0].setup.loaded_states(state).items():
                    changed[kind] = resume.state.get(kind, {}) | loaded
                    now = {name: state["fit"][kind][name] for name in loaded}  # with the parameters in the order here
                    changed["fit"][kind] = resume.state["fit"].get(kind, {}) | now
            from train_manager.checkpoints.copies import copied

            resume.state |= copied(changed)

    def _lifetime(self, per: str) -> Lifetime:
        """Return the lifetime of the present epoch, of the present phase, or of all."""
        if per == "epoch":
            return self._progress.lifetime_of_epoch()
        return self._progress.lifetime if per == "phase" else self._levels()[0].progress.lifetime

    def _open_lifetimes(self) -> dict[str, list[Lifetime]]:
        """Return the lifetimes that go on: of open epochs, of the training and the open phases, and of all."""
        levels = [level.progress for level in self._levels()]
        phases = [progress.lifetime for progress in levels]
        epochs = [lifetime for progress in levels for lifetime in progress.open_epochs()]
        return {"epoch": epochs, "phase": phases, "manager": phases[:1]}

    def _place_of_checkpoint(self) -> tuple[int, ...]:
        """Return what a checkpoint of this moment is of."""
        return self.step_num, self.epoch_num, len(self._resume.phases.around)

    def _attributes(self) -> dict[str, Any]:
        return attributes_with_state(self.__dict__)

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


_COMMON = {
    "train_model_forward": "model_forward",
    "eval_model_forward": "model_forward",
    "train_loss_forward": "loss_forward",
    "eval_loss_forward": "loss_forward",
}
_CALL_THE_LOSS = ("loss_forward", "train_loss_forward", "eval_loss_forward")
_TRAIN_A_BATCH = frozenset({"forward", "update", "backward", "step"})
_READ_A_BATCH = (*(name for name in Chosen._fields if name != "unpacks_as_usual"), "model_forward", "loss_forward")
_FOUND_ONCE = frozenset({*Chosen._fields[1:], *_COMMON.values()})
"""Methods that are found once per call: a method that was replaced meanwhile would count from the next call only."""
