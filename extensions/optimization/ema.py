"""An exponential moving average of the weights, which evaluations use in place of the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Final, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.loop.program import tell_at_exit
from train_manager.metrics.averages import in_32_bits
from train_manager.model.modules import plain_name
from train_manager.model.optimizers import optimizer_of, optimizers_of
from train_manager.model.per_object import PerObject, name_of_part
from train_manager.model.sharding import as_sharded
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Finding
from train_manager.validation import require_number, require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

MOSTLY_FIRST: Final = "more than half of the average of EMA is still its first weights"
CURE: Final = "give a smaller decay, or warm_up=True; or train longer"
WITH_AVERAGE: Final = "_ema"  # at the end of the name of a set that is evaluated with the average beside the weights


@recorded
class EMA(Extension):
    """Average the weights over the steps, the latest the most, and evaluate the average in place of the weights.

    After each step of the optimizer ``average = decay * average + (1 - decay) * weights``. The first average is the
    weights after the first step, or with ``begin="model"`` those before it. The training itself is not changed.

    >>> from train_manager.testing import tiny_manager
    >>> ema = EMA(decay=0.9)
    >>> tm = tiny_manager(ema, epochs=5)
    >>> result = tm.train()
    >>> list(ema.average)
    ['0.weight', '0.bias', '2.weight', '2.bias']
    >>> with ema.applied(tm.model):  # to look at the averaged weights, or to export the model with them
    ...     tm.model[0].weight.equal(ema.average["0.weight"])
    True

    Buffers, such as the statistics of BatchNorm, keep the values of the training, unless ``use_buffers`` averages them.
    Each model has an average of its own: if a phase of the training swaps the model, and swaps it back, the average
    continues. If a layer grows, the average keeps what it has, and begins with the weights that are new.

    *Runs at:* the start of ``run``, and its end and that of ``phase``; the end of ``train_optimizer_step``, after hooks
    that change the weights, such as ``Constrain`` (priority 10); with ``begin="model"`` the start of
    ``train_step_batch``; and around ``run``, ``phase``, ``eval_step_epoch`` and ``predict``. Inside the last two stages
    the model has the averaged weights; at their end, also after an error, it has the trained weights again.

    *Asks for:* the model, ``step_num``, ``start_step`` and ``datasource_name``; ``optimizer`` and ``optimizer_name`` if
    they are alive.

    *Leaves behind:* its attribute ``average``; with ``sets`` more sets in ``eval_data`` while a run is open; a finding
    if more than half of the average is its first weights as ``train`` ends, or the program.

    Args:
        decay: the share of the old average that stays, from 0 to below 1; or a function of the number of steps that are
            in the average already, that returns it: ``lambda n: min(0.999, 1 - (n + 1) ** -0.75)``.
        warm_up: use the smaller decay ``(1 + n) / (10 + n)`` after ``n`` steps, until it reaches ``decay``.
        use_buffers: average the buffers too.
        optimizer: the name of one of several optimizers: average after its steps only, and only its parameters.
        sets: the evaluation sets that are evaluated twice: "valid" with the trained weights, "valid_ema" with their
            average. All other evaluations, and ``predict``, then have the trained weights.
        begin: the first average: ``"step"``: the weights after the first step; ``"model"``: a copy of the weights
            before it, as in timm's ``ModelEma`` and in code for diffusion models.

    Attributes:
        average: the averaged weights by the names of the model's ``state_dict()``, with its other tensors as they are,
            so that ``model.load_state_dict(ema.average)`` takes it. The next step changes these tensors. It is that of
            the model that was averaged last, and empty before it has begun.

    Raises:
        InputError: ``decay`` is not a number from 0 to below 1, or returns none, ``begin`` is another word, there is no
            such optimizer or set, or the training has another EMA of the same weights.
    """

    def __init__(
        self,
        decay: float | Callable[[int], float] = 0.999,
        *,
        warm_up: bool = False,
        use_buffers: bool = False,
        optimizer: str | None = None,
        sets: str | Sequence[str] = (),
        begin: Literal["step", "model"] = "step",
    ) -> None:
        self.decay: float | Callable[[int], float] = (
            decay if callable(decay) else require_number(decay, "decay", at_least=0, below=1)
        )
        if warm_up and callable(decay):
            cure = "leave out warm_up, and return smaller decays at first"
            raise InputError("EMA takes warm_up or a function as decay, but was given both", name="warm_up", cure=cure)
        self.warm_up = warm_up
        self.use_buffers = use_buffers
        self.optimizer = optimizer
        self.sets = [sets] if isinstance(sets, str) else [*sets]
        self.begin: str = require_one_of(begin, "EMA's begin", ("step", "model"))
        if begin == "model":  # a hook of each batch costs time, so there is none without need
            self.pre_train_step_batch = self._begin_with_model
        self._averages: PerObject[nn.Module, Average] = PerObject()
        self._model: nn.Module | None = None  # the model that was averaged last
        self._last = ""  # the name of that model in checkpoints
        self._loaded: dict[str, Average] = {}  # loaded averages that wait for their models, by name
        self._met: set[str] = set()  # the names of the models that were here, by which their phases have brought them

    def pre_run(self, train_manager: TrainManager) -> None:
        if self.optimizer is not None:
            optimizer_of(train_manager, self.optimizer, "EMA")  # a wrong name is an error
        self._refuse_second(train_manager)

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        """Add the sets that are evaluated with the average; without this extension they would have the weights."""
        sets = train_manager.eval_data
        missing = next((name for name in self.sets if name not in sets), None)
        if sets and missing is not None:
            what = f"EMA was given the set {missing!r}, but eval_data has {' and '.join(map(repr, sets))}"
            raise InputError(what, name="sets", asked_by="EMA", cure="name the sets as in eval_data: EMA(sets=[...])")
        # A phase that does not evaluate has no sets. The new ones are last, so that the others draw what they drew.
        added = {f"{name}{WITH_AVERAGE}": sets[name] for name in self.sets if sets}
        other = next((name for name, data in added.items() if sets.get(name, data) is not data), None)
        if other is not None:
            what = f"EMA evaluates a set a second time as {other!r}, but eval_data has another set of this name"
            raise InputError(what, name="sets", asked_by="EMA", cure="give that set another name")
        train_manager.eval_data = {**sets, **added}
        try:
            yield
        finally:
            train_manager.eval_data = {name: one for name, one in train_manager.eval_data.items() if name not in added}

    around_phase = around_run

    def _refuse_second(self, train_manager: TrainManager) -> None:
        """Refuse an average of the same weights: evaluations would have that of the inner around-hook, silently."""
        paused = train_manager.paused_extensions
        names = [
            name
            for name, one in train_manager.extensions.items()
            if isinstance(one, EMA) and name not in paused and (one is self or one._shares_weights_with(self))
        ]
        if len(names) > 1:
            what = f"{names[0]!r} and {names[1]!r} are both an EMA of one model, which is evaluated with one average"
            cure = (
                f'remove_extension("{names[0]}"), or in a phase without="{names[0]}"; of several optimizers each may '
            )
            raise InputError(what, name=names[1], cure=f'{cure}have its own: EMA(optimizer="...")')

    def _shares_weights_with(self, other: EMA) -> bool:
        return None in (self.optimizer, other.optimizer) or self.optimizer == other.optimizer

    def _begin_with_model(self, train_manager: TrainManager) -> None:  # the hook pre_train_step_batch: see __init__
        model = train_manager.model
        if model is self._model or not isinstance(model, nn.Module):  # nearly always: this model has its average
            return
        # A loaded average must win over a new one.
        self._meet(model, name_of_part(train_manager, "model"))
        optimizer = None if self.optimizer is None else optimizers_of(train_manager).get(self.optimizer)
        if model not in self._averages and (self.optimizer is None or optimizer is not None):
            self._average_of(train_manager).begin(self._tensors(model, optimizer))

    @priority(10)  # after Constrain (0), to average the constrained weights
    def post_train_optimizer_step(
        self, train_manager: TrainManager, optimizer: Optimizer | None = None, optimizer_name: str | None = None
    ) -> None:
        if self.optimizer is not None and self.optimizer != optimizer_name:
            return
        average = self._average_of(train_manager)
        average.update(self._tensors(train_manager.model, optimizer), self._decay_after(average.updates))

    def _decay_after(self, updates: int) -> float:
        """Return the decay of the step that comes after a number of averaged steps."""
        if callable(self.decay):
            return require_number(self.decay(updates), f"EMA's decay({updates})", at_least=0, below=1)
        return decay_after(updates, self.decay) if self.warm_up else self.decay

    def around_eval_step_epoch(self, train_manager: TrainManager, datasource_name: str) -> Iterator[None]:
        self._meet(train_manager.model, name_of_part(train_manager, "model"))
        has_average = not self.sets or datasource_name in [f"{name}{WITH_AVERAGE}" for name in self.sets]
        with self._inside(train_manager.model) if has_average else nullcontext():
            yield

    def around_predict(self, train_manager: TrainManager) -> Iterator[None]:
        self._meet(train_manager.model, name_of_part(train_manager, "model"))
        with nullcontext() if self.sets else self._inside(train_manager.model):
            yield

    def post_phase(self, train_manager: TrainManager) -> None:
        # A training that resumes with nothing left to do opens none of the stages above, and the model of the phase is
        # gone as the run ends.
        self._meet(train_manager.model, name_of_part(train_manager, "model"))

    def post_run(self, train_manager: TrainManager, step_num: int, start_step: int) -> None:
        self._meet(train_manager.model, name_of_part(train_manager, "model"))
        call, run = train_manager._progress.call, train_manager._progress.run
        # Not after a run without a training call; a call that was completed before a resume is one. Nor after a stop by
        # a signal or a limit of time, as a resume trains on.
        if (call.entry is None and step_num == start_step) or run.stops_run or not self._is_mostly_first_weights():
            return
        if run.entry in ("train", None):  # None: the program has put all of its calls into a run
            train_manager.add_finding(
                Finding("EMA", "warning", MOSTLY_FIRST, cure=CURE, code="average-of-first-weights")
            )
        else:  # of many calls of train_on_batch or train_steps, only the program knows which is the last
            tell_at_exit(f"{MOSTLY_FIRST} ({CURE})", train_manager._counts)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Put the averaged weights into the model for a ``with`` block; before it has begun, do nothing."""
        # After a checkpoint was loaded and before a run opens, no hook has seen the model that the average belongs to.
        if model not in self._averages:
            self._meet(model, self._last)
        with self._inside(model):
            yield

    def has_average_of(self, model: nn.Module) -> bool:
        """Return whether a model was averaged, so that its evaluations have the average."""
        return model in self._averages and not self.sets

    @contextmanager
    def _inside(self, model: nn.Module) -> Iterator[None]:
        pairs = self._pairs(model)
        trained = [tensor.detach().clone() for tensor, _ in pairs]
        torch.clear_autocast_cache()  # autocast may hold 16-bit copies of the trained weights
        try:
            for tensor, average in pairs:
                # `.data` leaves autograd's version counter alone: the graph of a loss from before the block can still
                # run backward after the block, when the tensors have their values again.
                tensor.data.copy_(average)
            yield
        finally:
            try:
                _put_back(pairs, trained)
            except KeyboardInterrupt:  # Ctrl-C within the restoring: once more, or the average would be trained on
                _put_back(pairs, trained)
                raise

    def _is_mostly_first_weights(self) -> bool:
        average = None if self._model is None else self._averages.get(self._model)
        if average is None:
            return False
        # The first of all steps gives the weights themselves, unless the average has begun with the model.
        first = 0 if self.begin == "model" else 1
        decays = map(self._decay_after, range(first, average.updates))
        return average.updates > first and is_more_than_half(decays)

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Continue with new parameters in place of old ones, before or after they are in the model.

        The average keeps what the two have in common, a block from the first index on, and takes the rest of the new
        parameter.
        """
        # The model may have the old parameters still, or the new ones already: both ids lead to the new parameter.
        new = {id(parameter): parameter for parameter in replaced.values()}
        new |= {id(old): parameter for old, parameter in replaced.items()}
        for model, average in self._averages.items():
            for name, parameter in self._tensors(model).items():
                if id(parameter) in new and name in average.tensors:
                    fitting = in_32_bits(new[id(parameter)])
                    average.tensors[name] = fit_to(as_sharded(average.tensors[name], fitting), fitting)

    @property
    def average(self) -> dict[str, Tensor]:
        if self._model is None:
            return {}
        averages = {id(tensor): average for tensor, average in self._pairs(self._model)}
        # Keep_vars: the parameters themselves, under all names, whose ids are known.
        values = self._model.state_dict(keep_vars=True).items()
        return {name: averages.get(id(one), one.detach()) for name, one in values if isinstance(one, Tensor)}

    def _pairs(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Return each averaged tensor of the model with its average."""
        average = self._averages.get(model)
        if average is None:
            return []
        tensors, averages = self._tensors(model), average.tensors
        return [(tensor, fit_to(averages[name], tensor)) for name, tensor in tensors.items() if name in averages]

    def _tensors(self, model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Tensor]:
        """Return the tensors that are averaged, by name; a tensor that modules share has one name."""
        found: dict[str, Tensor] = {plain_name(name): one for name, one in model.named_parameters()}
        if self.optimizer is not None and optimizer is not None:
            own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            found = {name: parameter for name, parameter in found.items() if id(parameter) in own}
        buffers = {plain_name(name): one for name, one in model.named_buffers()} if self.use_buffers else {}
        return found | buffers

    def _average_of(self, train_manager: TrainManager) -> Average:
        """Return the average of the present model, which the caller changes; begin one if there is none."""
        self._model, self._last = train_manager.model, name_of_part(train_manager, "model")
        self._meet(self._model, self._last)
        average = self._averages.setdefault(self._model, Average())
        average.name = self._last
        return average

    def _meet(self, model: nn.Module, name: str) -> None:
        """Give a model the average that was loaded for it, if there is one."""
        self._met.add(name)
        if name in self._loaded:
            self._averages[model] = self._loaded.pop(name)
            self._averages[model].fit_to_all(self._tensors(model))
            if name == self._last:
                self._model = model

    # ---- saved state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its number of steps for the model that was averaged last, and for all other models."""
        found = {**self._loaded, **{average.name: average for average in self._averages.values()}}
        if self._model is not None:
            found[self._last] = self._averages[self._model]
        last = found.pop(self._last, None) or Average()
        others = {name: average.state_dict() for name, average in found.items()}
        return {**super().state_dict(), **last.state_dict(), "name": self._last, "others": others}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; an average waits until its model is there."""
        super().load_state_dict(state)
        self._last = state["name"]
        self._loaded = {name: Average.from_state(name, one) for name, one in state["others"].items()}
        if state["updates"] or state["average"]:
            self._loaded[self._last] = Average.from_state(self._last, state)
        # Models that this process has met already take their loaded averages at once.
        known = {average.name: model for model, average in self._averages.items()}
        if self._model is not None:
            known[self._averages[self._model].name] = self._model
        self._averages, self._model = PerObject(), None
        for name, model in known.items():
            self._meet(model, name)
        # The model of a phase that has ended is gone: without this, all checkpoints to come would have its average.
        for name in self._met - {""}:
            self._loaded.pop(name, None)


def _put_back(pairs: list[tuple[Tensor, Tensor]], trained: list[Tensor]) -> None:
    for (tensor, _), weights in zip(pairs, trained, strict=True):
        tensor.data.copy_(weights)
    torch.clear_autocast_cache()  # it may hold 16-bit copies of the averaged weights


@final
class Average:
    """The average of one model."""

    def __init__(self) -> None:
        # By the names in the model. In 32 bits at least: with a decay of 0.999 an average in 16 bits would not move,
        # because a thousandth of a difference is below its last digit.
        self.tensors: dict[str, Tensor] = {}
        self.updates = 0  # the steps that are in the average
        self.name = ""  # the name of the model in checkpoints

    @classmethod
    def from_state(cls, name: str, state: Mapping[str, Any]) -> Average:
        average = cls()
        average.name, average.updates = name, state["updates"]
        average.tensors = {plain_name(name): tensor.clone() for name, tensor in state["average"].items()}
        return average

    def state_dict(self) -> dict[str, Any]:
        """Return the steps and copies of the tensors, which the next step changes."""
        return {"updates": self.updates, "average": {name: tensor.clone() for name, tensor in self.tensors.items()}}

    def fit_to_all(self, tensors: Mapping[str, Tensor]) -> None:
        """Leave out averages whose shape differs from that in the model, as of an exchanged head; shard the others."""
        known = {name: tensor for name, tensor in tensors.items() if not is_lazy(tensor)}
        kept = [(name, one, known.get(name, one)) for name, one in self.tensors.items()]
        self.tensors = {name: as_sharded(one, tensor) for name, one, tensor in kept if tensor.shape == one.shape}

    def begin(self, tensors: Mapping[str, Tensor]) -> None:
        """Begin with copies of tensors; a lazy parameter has no value yet, and begins with the first step."""
        known = {name: tensor.detach() for name, tensor in tensors.items() if not is_lazy(tensor)}
        self.tensors = {name: in_32_bits(tensor).clone() for name, tensor in known.items()}

    @torch.no_grad()
    def update(self, current: Mapping[str, Tensor], decay: float) -> None:
        """Move the average towards the current tensors; a tensor that is new is its own average."""
        before, current = self.tensors, {name: in_32_bits(tensor.detach()) for name, tensor in current.items()}
        self.tensors = {
            name: fit_to(before[name], tensor) if name in before else tensor.clone() for name, tensor in current.items()
        }
        # torch averages many tensors with one kernel, if they share a device and a type.
        groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        for name in filter(before.__contains__, current):
            tensor = current[name]
            averages, tensors = groups.setdefault((tensor.device, tensor.dtype), ([], []))
            averages.append(self.tensors[name])
            tensors.append(tensor)
        for averages, tensors in groups.values():
            get_ema_multi_avg_fn(decay)(averages, tensors, self.updates)
        self.updates += 1


def fit_to(average: Tensor, tensor: Tensor) -> Tensor:
    """Return an average in the form of a tensor that has replaced the averaged one.

    What they have in common stays, a block from the first index on; the rest is that of the tensor.

    >>> fit_to(torch.zeros(2, 2), torch.ones(2, 3))
    tensor([[0., 0., 1.],
            [0., 0., 1.]])
    """
    if average.shape == tensor.shape:
        return average.to(tensor)  # the same object, if device and type fit
    made = tensor.detach().clone()
    if average.dim() == made.dim():
        common = tuple(slice(min(sizes)) for sizes in zip(average.shape, made.shape, strict=True))
        made[common] = average[common].to(made)
    return made


def is_more_than_half(decays: Iterable[float]) -> bool:
    """Return whether the first weights are more than half of an average with these decays: their product.

    >>> is_more_than_half([0.999] * 692), is_more_than_half([0.999] * 693)
    (True, False)
    """
    return all(share > 0.5 for share in accumulate(decays, mul, initial=1.0))


def decay_after(updates: int, decay: float) -> float:
    """Return the decay after a number of averaged steps: small at first, so that untrained weights are soon forgotten.

    >>> decay_after(0, 0.9), decay_after(10, 0.9), decay_after(1000, 0.9)
    (0.1, 0.55, 0.9)
    """
    return min(decay, (1 + updates) / (10 + updates))
