"""The attributes of a TrainManager: what its training is made of, and the objects that hold its state."""

from __future__ import annotations

import copy
import secrets
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Set
from contextlib import AbstractContextManager, ExitStack
from inspect import getattr_static
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

import torch
from torch import nn
from torch.optim import Optimizer

from train_manager.core.extensible import Extensible
from train_manager.core.store import Options
from train_manager.files.train_dirs import train_dir_of
from train_manager.loop.arguments import (
    INNER,
    TrainsItself,
)
from train_manager.loop.call import Call
from train_manager.loop.counts import Counts
from train_manager.loop.eval_at import EvalAtArgument, EvalAtPoints, require_eval_at
from train_manager.loop.held import Held
from train_manager.loop.losses import Collector
from train_manager.loop.modes import mode
from train_manager.loop.objectives import Objective
from train_manager.loop.program import Program
from train_manager.loop.progress import Progress
from train_manager.loop.ranks import ONE_PROCESS, Ranks
from train_manager.loop.run_state import RunState
from train_manager.loop.scheduled_eval import EvalAt, scheduled_eval
from train_manager.loop.setup import Setup
from train_manager.loop.taken_names import private_names_of_others, taken_error
from train_manager.loop.windows import Windows
from train_manager.metrics.deferred import numbers
from train_manager.model.replacement import replace_in_optimizers
from train_manager.reporting.description import Facts, as_html, as_text, facts
from train_manager.reporting.history import History
from train_manager.telling.errors import StageError
from train_manager.telling.findings import Finding
from train_manager.telling.source_locations import users_level
from train_manager.telling.words import Words
from train_manager.validation import require_count
from train_manager.words.arguments import METHODS
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
)


ASK: Final = "in a hook, ask for it: train_manager.eval_soon(), or train_manager.stop(reason)"

STATE: Final = {
    "_setup": Setup,
    "_counts": Counts,
    "_progress": Progress,
    "_program": Program,
    "_windows": Windows,
    "_collector": Collector,
}
"""The attributes with the state of a training, and their classes."""


LIVE_FIXTURES: Final = {
    "model": "_setup.called_model",
    "device": "_setup.device",
    "phase_name": "_program.phase_name",
    "epoch_num": "_progress.epoch_num",
    "step_num": "_counts.step_num",
    "update_num": "_counts.update_num",
    "samples_seen": "_counts.samples_seen",
    "start_step": "_progress.call.start_step",
    "end_step": "_progress.call.end",
}
"""Fixtures of a run that are read where they live."""


class Attributes(Extensible, Generic[Model]):
    """What a TrainManager is made of."""

    check_parameters: bool = True
    """Warn, once, of parameters without a gradient or in no optimizer; may be set on a class or an object."""

    _options = Options(
        own_name="train_manager",
        times_hooks=True,
        notes_errors=True,
        closing=INNER,
        joined="run",
        words=WORDS,
        live=LIVE_FIXTURES,
    )

    _setup: Setup  # the components of the training, or of the phase that is open
    model: Held[Model] = Held("_setup")
    loss: Held[Any] = Held("_setup")
    objective: Held[Objective | None] = Held("_setup")
    """The ``Objective`` that was given as ``loss``; None if the loss is a function."""
    # Read as one Optimizer; several may be assigned, and are then read from `optimizers`.
    optimizer: Held[Optimizer, Optimizer | Mapping[str, Optimizer] | None] = Held("_setup")
    lr_schedule: Held[Any] = Held("_setup")
    train_data: Held[Iterable[Any] | None] = Held("_setup")
    eval_data: Held[dict[str, Iterable[Any]]] = Held("_setup")
    epochs: Held[int] = Held("_setup")
    device: Held[torch.device | None] = Held("_setup")
    """The device that the model and the batches are moved to; None leaves both as they are."""
    steps_per_epoch: Held[int | None] = Held("_setup")

    _progress: Progress  # how far the training has come, or the phase that is open
    epoch_num: Held[int] = Held("_progress")

    _counts: Counts  # how much was trained in all
    step_num: Held[int] = Held("_counts")
    update_num: Held[int] = Held("_counts")
    optimizer_updates: Held[dict[str, int]] = Held("_counts")

    _held: ExitStack | None = None  # the run that open() has begun, until close()
    _asked_from_outside: str | None = None  # the reason that stop_from_outside left, until the next run begins
    _decides: bool = False  # `decide` is overridden or was replaced, so the loop must call it in each step
    _program: Program  # the training calls and phases so far, and the state that it has loaded
    _windows: Windows
    _collector: Collector
    _warned_of: set[str]  # the subjects of warnings that are given once for each manager
    _eval_at: EvalAtPoints
    _has_run: bool  # turns True in the first run, which seeds and initialises
    _step_seconds: deque[float]  # of clocked steps; the oldest fall out
    _recorded_arguments: Any  # what from_checkpoint makes a manager with
    history: History
    seed: int | None
    run_id: str
    train_dir: Path | None
    train_dir_number: int | None
    """Which TrainManager of this process with a ``train_dir`` it is, from 1; None without one."""

    def __init_subclass__(cls, **options: Any) -> None:
        for name in private_names_of_others(cls, Attributes):
            raise taken_error(cls, "defines", name, f"call it otherwise: my{name}")
        super().__init_subclass__(**options)
        held = [name for name, one in vars(Attributes).items() if isinstance(one, Held)]
        for name in (*held, "samples_seen"):
            # A class attribute `epochs = 5` would hide the property, and the loop would count to another number.
            if getattr_static(cls, name) is not vars(Attributes)[name]:
                cure = "override loss_forward" if name == "loss" else f"give it to the constructor: {name}=..."
                raise taken_error(cls, "defines", name, cure)

    if not TYPE_CHECKING:  # a type checker that saw __setattr__ would accept any attribute

        def __setattr__(self, name: str, value: Any) -> None:
            # `self._progress = tqdm()` in a subclass would replace the state of the training.
            if name in STATE and not isinstance(value, STATE[name]):
                raise taken_error(type(self), "sets", name, f"call it otherwise: my{name}")
            super().__setattr__(name, value)

    def _begin_to_exist(self) -> None:
        # Called by __new__, so that a subclass may set `self.model` before super().__init__(model=self.model).
        self._setup, self._counts = Setup(None, None), Counts()
        self._progress = Progress(RunState(None), Call(0, start_step=0))

    def _begin(self, seed: int | None, train_dir: Path | str | None) -> int | None:
        """Make the state of a training that has not begun; return the number of steps after which it is to stop."""
        self._program, self._windows, self._collector = Program(), Windows(), Collector()
        self._warned_of = set()
        self._has_run = False
        self._step_seconds = deque(maxlen=1001)
        self.history = History()
        self.seed = None if seed is None else require_count(seed, "seed", at_least=0)
        self.run_id = secrets.token_hex(8)
        self.train_dir, self.train_dir_number, step_limit = train_dir_of(train_dir)
        return step_limit

    if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name not in METHODS:
                # Once more, for the error: a property may have raised an AttributeError of its own.
                return super().__getattribute__(name)
            what = f"{type(self).__name__!r} object has no attribute {name!r}; did you mean {METHODS[name]}?"
            raise AttributeError(what, name=name)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a copy counts, feeds and collects for itself."""
        state = super().__getstate__()
        own = {name: copy.copy(state[name]) for name in ("_setup", "_progress")}
        own["_progress"].first_step = 0  # a copy made in a phase is in no phase
        own |= {name: copy.deepcopy(state[name]) for name in ("_counts", "history")}
        own |= {"_windows": Windows(), "_collector": Collector(), "_program": Program()}
        return {**state, **own, "run_id": secrets.token_hex(8), "_chosen": None, "_compiling": None, "_held": None}

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._facts())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return as_html(type(self).__name__, self._facts())

    def _facts(self) -> Facts:
        return facts(self.__dict__, self._registry.extensions)

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
        for name, one in self._registry.extensions.items():
            joined: Ranks | None = getattr(one, "joined", None)
            if joined and name not in paused:
                return joined
        return ONE_PROCESS

    @property
    def paused_extensions(self) -> Set[str]:
        """The names of the extensions that pause, as ``phase(without=...)`` says."""
        return self._registry.paused

    @property
    def samples_seen(self) -> int:
        """The examples in all batches that were trained on; waits for the device if batch sizes are tensors there."""
        return numbers([self._counts.samples_seen])[0]  # type: ignore[no-any-return]

    @samples_seen.setter
    def samples_seen(self, value: int) -> None:
        self._counts.samples_seen = value

    def _frozen_parameter_ids(self) -> set[int]:
        return {id(p) for one in self.extensions.values() for p in getattr(one, "frozen_parameters", ())}

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

    # ---- refused -----------------------------------------------------------------------------------------------------

    def _refuse_inside(self, method: str, *stages: str, cure: str = ASK, in_hooks: bool = True) -> None:
        """Refuse a method while one of the stages is alive, and unless ``in_hooks`` is False in any hook."""
        alive = next((stage for stage in stages if stage in self.fixtures.path), None)
        if alive is not None:
            what = f"{method}() cannot be called inside stage {alive!r}"
            raise StageError(what, name=alive, stages=self.fixtures.path, cure=cure)
        if in_hooks and self._store.running is not None:
            what = f"{method}() cannot be called in a hook ({self._store.running.label})"
            raise StageError(what, name=method, stages=self.fixtures.path, cure=cure)
