"""Setup: what is trained, with what and on what; a phase has one of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import torch
from torch import nn
from torch.optim import Optimizer

from train_manager.checkpoints.fit import Difference, Made, made_of, options_that_differ, plain_name, schedule_misfit
from train_manager.checkpoints.frozen import freeze_as_saved, frozen_in
from train_manager.checkpoints.left_out import LeftOut, changed, left_out, put_back
from train_manager.checkpoints.parameter_order import gradients_for, parameter_names, parameters_of
from train_manager.data.batch import to_device
from train_manager.loop.arguments import (
    bind_loss,
    modules_in_loss,
    modules_of_loss,
    require_eval_data,
    require_loss,
    require_model,
    require_train_data,
)
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    require_lr_schedule,
    require_optimizer,
    require_optimizer_of,
    require_schedules_of,
    warn_of_untrained_loss,
)
from train_manager.loop.parameter_check import Idle
from train_manager.loop.region import Region
from train_manager.loop.saved_state import made_as, misfits, other_dtypes, restore_part, saved_of, shown
from train_manager.model.modules import has_state
from train_manager.telling.errors import InputError, near
from train_manager.validation import require_count

TRAINED_BY_A_REGION: Final = frozenset({"model", "wrapped", "loss", "objective", "optimizer"})

KEPT: Final[Any] = object()
"""The default of an argument of ``phase``: the part stays as it is."""


@final
@dataclass
class Setup:
    """The parts that the arguments of TrainManager name; each may be replaced at any time.

    Attributes:
        device: where the model and the batches are; None leaves both as they are.
        optimizer_argument: what the constructor was given: a phase with a model of its own makes one of it.
        made: how optimizers, schedules and modules were made in this program, by kind and name.
        loaded: the same of those whose state was loaded, in the program that saved it.
        left_out: what the states of modules leave out, as it was before the first run.
        wrapped: the compiled or wrapped form of the model, which is called in its place; None if it has none.
        checked_loss: the loss whose weights were looked for in the optimizers.
        brought_by: which phase has replaced a part, by the name of the part.
        region: trains on a batch; None until one is made of the parts as they are.
        looked_at: the optimizers whose parameters were looked at, with the parts as they are.
        idle: the parameters without a gradient so far, of the optimizers that are still looked at.
    """

    device: torch.device | None
    optimizer_argument: Any
    made: dict[str, dict[str, Made]] = field(default_factory=dict, init=False)
    loaded: dict[str, dict[str, Made]] = field(default_factory=dict, init=False)
    left_out: dict[tuple[str, str], LeftOut] = field(default_factory=dict, init=False)
    model: Any = None
    wrapped: Any = None
    loss: Any = None
    objective: Objective | None = None
    optimizer: Optimizer | dict[str, Optimizer] | None = None
    lr_schedule: Any = None
    train_data: Iterable[Any] | None = None
    eval_data: dict[str, Iterable[Any]] = field(default_factory=dict)
    epochs: int = 1
    steps_per_epoch: int | None = None
    checked_loss: Any = None
    brought_by: dict[str, str] = field(default_factory=dict)
    region: Region | None = field(default=None, init=False)
    looked_at: set[str] = field(default_factory=set, init=False)
    idle: dict[str, Idle] = field(default_factory=dict, init=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("optimizer", "lr_schedule"):
            kind = "optimizers" if name == "optimizer" else name
            self.made[kind] = {name: made_of(part) for name, part in _by_name(value).items()}
            self.loaded.pop(kind, None)
        elif name in ("model", "loss"):
            self.made.pop(name, None)
            self.loaded.pop(name, None)
            self.left_out = {key: one for key, one in self.left_out.items() if key[0] != name}
        if name in TRAINED_BY_A_REGION:
            self.region, self.looked_at, self.idle = None, set(), {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled; a lambda that makes optimizers cannot be."""
        kept = self.optimizer_argument if isinstance(self.optimizer_argument, type) else None
        return {**self.__dict__, "optimizer_argument": kept, "region": None, "looked_at": set(), "idle": {}}

    # ---- made, and replaced by a phase ---------------------------------------------------------------------------

    def replace(self, given: Mapping[str, Any]) -> None:
        """Put parts in the form that the loop uses in the place of others; an optimizer is made of the new model.

        Raises:
            InputError: a part is invalid.
        """
        if "model" in given:
            self.model, self.wrapped = require_model(given["model"], self.device), None
        if "loss" in given:
            loss = given["loss"]
            self.objective = loss if isinstance(loss, Objective) else None
            self.loss = require_loss(loss.loss if isinstance(loss, Objective) else loss, self.device)
        if "optimizer" in given:
            self.optimizer = require_optimizer(given["optimizer"], self.model, self.loss)
            self.checked_loss = self.loss
        if "lr_schedule" in given:
            self.lr_schedule = require_lr_schedule(given["lr_schedule"], self.optimizer)
        if "train_data" in given:
            self.train_data = require_train_data(given["train_data"])
        if "eval_data" in given:
            self.eval_data = require_eval_data(given["eval_data"])
        if "epochs" in given:
            self.epochs = require_count(given["epochs"], "epochs", at_least=0)
        if "steps_per_epoch" in given:
            steps = given["steps_per_epoch"]
            self.steps_per_epoch = None if steps is None else require_count(steps, "steps_per_epoch", at_least=1)

    def of_phase(self, given: Mapping[str, Any], phase: str) -> Setup:
        """Return the setup of a phase; with a model of its own it has an optimizer of its own too.

        Args:
            given: the arguments of ``phase``; ``KEPT`` stands for a part that stays.
            phase: what ``brought_by`` calls it.

        Raises:
            InputError: a part is invalid.
        """
        given = {name: value for name, value in given.items() if value is not KEPT}
        if "model" in given and "optimizer" not in given:
            given["optimizer"] = _argument_again(self.optimizer_argument)
        if "optimizer" in given:
            given.setdefault("lr_schedule", None)  # that of another optimizer rests
        inner = replace(self, brought_by={**self.brought_by, **dict.fromkeys(_attributes_of(given), phase)})
        inner.looked_at, inner.idle = {*self.looked_at}, self.idle  # unless it has parts of its own
        inner.replace({name: part for name, part in given.items() if name in ("model", "loss")})
        if "loss" in given:
            bind_loss(inner.loss)  # here, so that an unusable one is refused before an optimizer is made
        inner.replace({name: part for name, part in given.items() if name not in ("model", "loss")})
        inner.note()
        return inner

    # ---- the model and the modules around it ---------------------------------------------------------------------

    @property
    def called_model(self) -> Any:
        """What the loop calls: the model, or its compiled or wrapped form."""
        return self.model if self.wrapped is None else self.wrapped

    def modules_of_model(self) -> list[nn.Module]:
        """Return the model and what is called in its place: the modules that training puts into train mode."""
        parts = dict.fromkeys((self.model, self.called_model))
        return [part for part in parts if isinstance(part, nn.Module)]

    def modules(self) -> list[nn.Module]:
        """Return the modules of the model and of the loss: those that an evaluation puts into eval mode."""
        return list(dict.fromkeys((*self.modules_of_model(), *modules_in_loss(self.loss))))

    def resting_modules(self) -> list[str]:
        """Return the names of the modules of the model that are in eval mode, as a hook may have set them."""
        modules = self.model.named_modules() if isinstance(self.model, nn.Module) else ()
        return [plain_name(name) for name, module in modules if not module.training]

    def rest(self, names: Collection[str]) -> None:
        """Set the modules of these names to eval mode, without those inside them."""
        for name, module in self.model.named_modules() if names else ():
            if plain_name(name) in names:
                module.training = False

    def parameters(self) -> Iterator[nn.Parameter]:
        """Give the parameters of all modules."""
        return (parameter for module in self.modules() for parameter in module.parameters())

    def on_device(self, batch: Any) -> Any:
        """Return a batch on the device, if there is one."""
        return batch if self.device is None else to_device(batch, self.device)

    # ---- optimizers ----------------------------------------------------------------------------------------------

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name; a sole one is called "optimizer"."""
        if isinstance(self.optimizer, dict):
            return self.optimizer
        return {} if self.optimizer is None else {"optimizer": self.optimizer}

    def optimizer_name(self, name: str | None, method: str) -> str:
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

    def require_optimizers(self) -> None:
        """Look again at what was looked at when it was given, as attributes may have been replaced since."""
        cure = "was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())"
        require_optimizer_of(self.optimizers, self.model, self.loss, self.called_model, cure=cure)
        require_schedules_of(self.lr_schedule, self.optimizers)
        if self.loss is not self.checked_loss:
            self.checked_loss = self.loss
            warn_of_untrained_loss(self.optimizers, self.loss)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def own_states(self, around: Setup | None) -> dict[tuple[str, str], Any]:
        """Return the parts that have a state, by kind and name; of a phase those that are not the same around it."""
        found: dict[tuple[str, str], Any] = {("model", ""): self.model}
        found |= {("loss", str(number)): module for number, module in enumerate(modules_of_loss(self.loss))}
        found |= {("optimizers", name): one for name, one in _by_name(self.optimizer).items()}
        found |= {("lr_schedule", name): one for name, one in _by_name(self.lr_schedule).items()}
        outer = {} if around is None else around.own_states(None)
        return {name: part for name, part in found.items() if has_state(part) and part is not outer.get(name)}

    def state_dict(self, around: Setup | None = None, held: Collection[int] = ()) -> dict[str, Any]:
        """Return the states of the parts, and how these were made.

        Args:
            around: of a phase, what is the same object around it is left out.
            held: the ids of the parameters that extensions keep from getting gradients.
        """
        state: dict[str, Any] = {"fit": {}}
        for (kind, name), part in self.own_states(around).items():
            state["fit"].setdefault(kind, {})[name] = self._fit(kind, name, part, held)
            if kind == "model":
                state[kind] = part.state_dict()
            else:
                state.setdefault(kind, {})[name] = part.state_dict()
        return state

    def _fit(self, kind: str, name: str, part: Any, held: Collection[int]) -> dict[str, Any]:
        made = self.loaded.get(kind, {}).get(name) or self.made.get(kind, {}).get(name)
        if isinstance(part, nn.Module):
            found = frozen_in(part, held, made)
            loaded = self.loaded.get(kind, {}).get(name, {}).get("left_out", {})
            return {**found, "left_out": changed(part, self.left_out.get((kind, name), {}), loaded)}
        made = made or made_of(part)
        if isinstance(part, Optimizer):
            return {**made, "parameters": parameters_of(part, self._parameter_names())}
        return made

    def _parameter_names(self) -> dict[int, str]:
        modules = {"": self.model} if isinstance(self.model, nn.Module) else {}
        modules |= {f"loss {number}: ": one for number, one in enumerate(modules_of_loss(self.loss))}
        return parameter_names(modules)

    def note(self) -> None:
        """Note options, which parameters get no gradient, and what states leave out, before a hook can change that."""
        for (kind, name), part in self.own_states(None).items():
            if isinstance(part, Optimizer):
                self.made[kind][name] = made_of(part)
            elif isinstance(part, nn.Module):
                self.made.setdefault(kind, {})[name] = frozen_in(part, ())
                self.left_out[kind, name] = left_out(part)

    def misfits(self, around: Setup | None, state: Mapping[str, Any], *, is_there: bool = True) -> Iterator[str]:
        """Say what of a saved state does not fit."""
        goes_on, names = self.epochs > state["epoch_num"], self._parameter_names()
        yield from misfits(self.own_states(around), state, names, is_there=is_there, goes_on=goes_on)

    def load_state_dict(
        self, state: Mapping[str, Any], held: Collection[int] = (), *, is_there: bool = True
    ) -> list[Difference]:
        """Restore what ``state_dict`` returned, as far as it fits, and return where the program differs.

        Args:
            state: what it returned.
            held: the ids of the parameters that extensions keep from getting gradients.
            is_there: the program has come to the place of the state; what differs on its way is not an edit.
        """
        found: list[Difference] = []
        names, left = self._parameter_names(), set()
        for (kind, name), part in self.own_states(None).items():
            saved, made, label = saved_of(state, kind, name), made_as(state, kind, name), shown(kind, name)
            if saved is None or (kind == "lr_schedule" and (name in left or self._is_over(part, saved, made, state))):
                continue
            if not restore_part(part, saved, made, names):
                left.add(name)
            elif made is not None and isinstance(part, nn.Module) and is_there:
                put_back(part, made.get("left_out", {}))
                own = self.made.get(kind, {}).get(name) or frozen_in(part, held)
                found += [*other_dtypes(label, part, saved), *freeze_as_saved(label, part, made, own, saved, held)]
                self.loaded.setdefault(kind, {})[name] = made
            elif made is not None and not isinstance(part, nn.Module):
                self.loaded.setdefault(kind, {})[name] = {key: made[key] for key in ("class", "options")}
        return [*self.other_options(), *found] if is_there else []

    def loaded_states(self, state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the states of the optimizers and schedules that were loaded, out of a state of all.

        Where a program has another optimizer on its way, that of the checkpoint still waits to be loaded.
        """
        return {
            kind: {name: one for name, one in state.get(kind, {}).items() if name in self.loaded.get(kind, {})}
            for kind in ("optimizers", "lr_schedule")
        }

    def other_options(self) -> list[Difference]:
        """Return which options of this program are others than those that were loaded."""
        found: list[Difference] = []
        for kind in ("optimizers", "lr_schedule"):
            for name, made in self.loaded.get(kind, {}).items():
                found += options_that_differ(shown(kind, name), self.made[kind].get(name, made), made)
        return found

    def gradients_of_windows(self, windows: Mapping[str, Any], fit: Mapping[str, Any]) -> dict[str, Any]:
        """Return a saved state of windows, with their gradients in the order of the parameters here."""
        names, open_now = self._parameter_names(), dict(windows["open"])
        for name in open_now.keys() & self.optimizers.keys():
            ordered = gradients_for(self.optimizers[name], open_now[name]["gradients"], fit.get(name), names)
            open_now[name] = {**open_now[name], "gradients": ordered}
        return {**windows, "open": open_now}

    def own_modules(self, around: Setup) -> dict[str, Any]:
        """Return the states of the modules that a phase has and what is around it has not."""
        parts = {name: part for name, part in self.own_states(around).items() if isinstance(part, nn.Module)}
        return {f"{kind} {name}": part.state_dict() for (kind, name), part in parts.items()}

    def load_modules(self, saved: Mapping[str, Any]) -> None:
        """Restore what ``own_modules`` returned."""
        for (kind, name), part in self.own_states(None).items():
            if f"{kind} {name}" in saved:
                restore_part(part, saved[f"{kind} {name}"])

    def _is_over(self, schedule: Any, saved: Any, made: Any, state: Mapping[str, Any]) -> bool:
        return schedule_misfit("", schedule, saved, made, goes_on=self.epochs > state["epoch_num"]) is not None


def _attributes_of(given: Mapping[str, Any]) -> Iterator[str]:
    yield from given
    if "loss" in given:
        yield "objective"


def _argument_again(argument: Any) -> Any:
    """Return the constructor's optimizer argument, which must be able to make an optimizer of another model."""
    given = argument.values() if isinstance(argument, Mapping) else (argument,)
    if any(isinstance(value, Optimizer) for value in given):
        raise InputError(
            "the phase has a model of its own, but the TrainManager was given a ready optimizer, which is of another",
            name="optimizer",
            cure="give the phase one: tm.phase(..., optimizer=torch.optim.AdamW)",
        )
    return argument


def _by_name(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {} if value is None else {"optimizer": value}
