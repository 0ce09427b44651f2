"""Setup: the components of a training (model, loss, optimizers, data, ...); a phase has a setup of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

import torch
from torch import nn
from torch.optim import Optimizer

from train_manager.checkpoints.fit import Difference, Left, options_that_differ, schedule_misfit
from train_manager.checkpoints.frozen import freeze_as_saved, frozen_names
from train_manager.checkpoints.left_out import LeftOut, changed_values, left_out_values, put_back
from train_manager.checkpoints.made import Made, config_of
from train_manager.checkpoints.parameter_order import parameter_names, parameters_of
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
from train_manager.loop.eval_graphs import EvalGraphs, no_eval_graphs
from train_manager.loop.graphs import Graphs
from train_manager.loop.objectives import Objective
from train_manager.loop.optimizers import (
    require_optimizer,
    require_optimizer_of,
    warn_of_untrained_loss,
)
from train_manager.loop.parameter_check import ParameterCheck
from train_manager.loop.saved_state import find_saved, label_of, other_dtypes, restore, saved_config
from train_manager.loop.schedulers import require_lr_schedule, require_schedules_of
from train_manager.model.modules import has_state, plain_name
from train_manager.telling.errors import InputError, near
from train_manager.validation import require_count

TRAINED: Final = frozenset({"model", "wrapped", "loss", "objective", "optimizer"})
"""The components that are trained: if one of them is replaced, the parameters are looked at anew."""

KEPT: Final[Any] = object()
"""The default of an argument of ``phase``: the component stays as it is."""


@final
@dataclass
class Setup:
    """The components that the arguments of TrainManager name; each may be replaced at any time."""

    device: torch.device | None  # where the model and the batches are; None leaves both where they are
    # The constructor's argument: a phase with a model of its own makes an optimizer with it.
    optimizer_argument: Any
    # By kind and name, for checkpoints: how optimizers, schedules and modules were made in this program (their class
    # and options); and how they were made in the program whose state was loaded.
    made: dict[str, dict[str, Made]] = field(default_factory=dict, init=False)
    loaded: dict[str, dict[str, Made]] = field(default_factory=dict, init=False)
    # Values that the states of modules leave out (buffers that are not persistent, ...), as before the first run.
    left_out: dict[tuple[str, str], LeftOut] = field(default_factory=dict, init=False)
    model: Any = None
    wrapped: Any = None  # the compiled or wrapped form of the model, which is called in its place
    loss: Any = None  # a function of prediction and targets; of an Objective its method `loss`
    objective: Objective | None = None
    optimizer: Optimizer | dict[str, Optimizer] | None = None
    lr_schedule: Any = None
    train_data: Iterable[Any] | None = None
    eval_data: dict[str, Iterable[Any]] = field(default_factory=dict)
    epochs: int = 1
    steps_per_epoch: int | None = None
    checked_loss: Any = None  # the loss whose weights were looked for in the optimizers
    brought_by: dict[str, str] = field(default_factory=dict)  # component -> the phase that has replaced it
    parameter_check: ParameterCheck = field(default_factory=ParameterCheck, init=False)  # of what is trained
    graphs: Graphs = field(default_factory=Graphs, init=False)  # of the same; none unless `Compile` makes them
    eval_graphs: dict[str, EvalGraphs] = field(default_factory=no_eval_graphs, init=False)  # of the model and the loss

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        # Notes about a component are void once another object takes its place.
        if name in ("optimizer", "lr_schedule"):
            kind = "optimizers" if name == "optimizer" else name
            self.made[kind] = {name: config_of(component) for name, component in _by_name(value).items()}
            self.loaded.pop(kind, None)
        elif name in ("model", "loss"):
            self.made.pop(name, None)
            self.loaded.pop(name, None)
            self.left_out = {key: one for key, one in self.left_out.items() if key[0] != name}
        if name in TRAINED:
            self.parameter_check, self.graphs = ParameterCheck(), Graphs()
        if name in ("model", "loss"):
            self.eval_graphs = no_eval_graphs()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled: no lambda that makes optimizers, and nothing that a new training notes."""
        kept = self.optimizer_argument if isinstance(self.optimizer_argument, type) else None
        new = {"parameter_check": ParameterCheck(), "graphs": Graphs(), "eval_graphs": no_eval_graphs()}
        return {**self.__dict__, "optimizer_argument": kept, **new}

    # ---- made, and replaced by a phase ---------------------------------------------------------------------------

    def replace(self, given: Mapping[str, Any]) -> None:
        """Replace components by the given ones, in the form that the loop uses.

        Raises:
            InputError: a component is invalid.
        """
        if "model" in given:
            self.model, self.wrapped = require_model(given["model"], self.device), None
        if "loss" in given:
            loss = given["loss"]
            self.objective = loss if isinstance(loss, Objective) else None
            self.loss = require_loss(loss.loss if isinstance(loss, Objective) else loss, self.device)
        if "optimizer" in given:  # after model and loss, of whose parameters it is made
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
            given: the arguments of ``phase``; ``KEPT`` stands for a component that stays.
            phase: the name of the phase in ``brought_by``.

        Raises:
            InputError: a component is invalid.
        """
        given = {name: value for name, value in given.items() if value is not KEPT}
        if "model" in given and "optimizer" not in given:
            given["optimizer"] = _argument_again(self.optimizer_argument)
        if "optimizer" in given:
            given.setdefault("lr_schedule", None)  # the outer schedule is of the outer optimizer, so it rests
        inner = replace(self, brought_by={**self.brought_by, **dict.fromkeys(_attributes_of(given), phase)})
        # dataclasses.replace begins it anew; `replace` below does so too if the phase has components of its own.
        inner.parameter_check, inner.graphs, inner.eval_graphs = self.parameter_check, self.graphs, self.eval_graphs
        inner.replace({name: component for name, component in given.items() if name in ("model", "loss")})
        if "loss" in given:
            bind_loss(inner.loss)  # here, so that an unusable loss is refused before an optimizer is made
        inner.replace({name: component for name, component in given.items() if name not in ("model", "loss")})
        inner.note()
        return inner

    # ---- the model and the modules around it ---------------------------------------------------------------------

    @property
    def called_model(self) -> Any:
        """The model, or its compiled or wrapped form: the object that the loop calls."""
        return self.model if self.wrapped is None else self.wrapped

    def modules_of_model(self) -> list[nn.Module]:
        """Return the model and its compiled or wrapped form: the modules that training puts into train mode."""
        components = dict.fromkeys((self.model, self.called_model))
        return [component for component in components if isinstance(component, nn.Module)]

    def modules(self) -> list[nn.Module]:
        """Return the modules of the model and of the loss, which an evaluation puts into eval mode."""
        return list(dict.fromkeys((*self.modules_of_model(), *modules_in_loss(self.loss))))

    def changed_in_place(self) -> Iterator[object]:
        """Give the components that training changes in place: modules, their tensors, optimizers, schedules."""
        for module in self.modules():
            # A scripted module has its parameters in no attribute, where ``Contents`` would find them.
            yield from (module, *module.parameters(), *module.buffers())
        yield from (self.model, self.loss, *self.optimizers.values(), self.lr_schedule)

    def resting_modules(self) -> list[str]:
        """Return the names of the modules of the model that are in eval mode, as a hook may have set them."""
        modules = self.model.named_modules() if isinstance(self.model, nn.Module) else ()
        return [plain_name(name) for name, module in modules if not module.training]

    def rest(self, names: Collection[str]) -> None:
        """Set the modules of these names to eval mode, but not the submodules inside them."""
        for name, module in self.model.named_modules() if names else ():
            if plain_name(name) in names:
                module.training = False

    def wait(self) -> None:
        """Wait until the device has computed all that it was asked for, so that a clock may be read."""
        device = next((one.device for one in self.parameters()), torch.device("cpu"))
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

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
        """Check optimizers and schedules again, as attributes may have been replaced since they were given."""
        cure = "was tm.model replaced? make a new optimizer of it: tm.optimizer = AdamW(tm.model.parameters())"
        require_optimizer_of(self.optimizers, self.model, self.loss, self.called_model, cure=cure)
        require_schedules_of(self.lr_schedule, self.optimizers)
        if self.loss is not self.checked_loss:
            self.checked_loss = self.loss
            warn_of_untrained_loss(self.optimizers, self.loss)

    # ---- saved state ---------------------------------------------------------------------------------------------

    def own_states(self, around: Setup | None) -> dict[tuple[str, str], Any]:
        """Return the components with a state, by kind and name.

        Args:
            around: the setup around a phase; components that are the same object in it are left out.
        """
        found: dict[tuple[str, str], Any] = {("model", ""): self.model}
        found |= {("loss", str(number)): module for number, module in enumerate(modules_of_loss(self.loss))}
        found |= {("optimizers", name): one for name, one in _by_name(self.optimizer).items()}
        found |= {("lr_schedule", name): one for name, one in _by_name(self.lr_schedule).items()}
        outer = {} if around is None else around.own_states(None)
        return {name: one for name, one in found.items() if has_state(one) and one is not outer.get(name)}

    def state_dict(self, around: Setup | None = None, held: Collection[int] = ()) -> dict[str, Any]:
        """Return the states of the components, and how these were made.

        Args:
            around: the setup around a phase; components that are the same object in it are left out.
            held: the ids of the parameters that extensions keep from getting gradients.
        """
        state: dict[str, Any] = {"fit": {}}
        for (kind, name), component in self.own_states(around).items():
            state["fit"].setdefault(kind, {})[name] = self._fit(kind, name, component, held)
            if kind == "model":
                state[kind] = component.state_dict()
            else:
                state.setdefault(kind, {})[name] = component.state_dict()
        return state

    def _fit(self, kind: str, name: str, component: Any, held: Collection[int]) -> dict[str, Any]:
        # A resumed training says how the first program made a component: a later one may have edited the options.
        made = self.loaded.get(kind, {}).get(name) or self.made.get(kind, {}).get(name)
        if isinstance(component, nn.Module):
            found = frozen_names(component, held, made)
            loaded = self.loaded.get(kind, {}).get(name, {}).get("left_out", {})
            return {**found, "left_out": changed_values(component, self.left_out.get((kind, name), {}), loaded)}
        made = made or config_of(component)
        if isinstance(component, Optimizer):
            return {**made, "parameters": parameters_of(component, self.parameter_names())}
        return made

    def parameter_names(self) -> dict[int, str]:
        """Return the names of all parameters of the model and the loss, by their ids."""
        modules = {"": self.model} if isinstance(self.model, nn.Module) else {}
        modules |= {f"loss {number}: ": one for number, one in enumerate(modules_of_loss(self.loss))}
        return parameter_names(modules)

    def note(self) -> None:
        """Note options, frozen parameters, and values that states leave out, before a hook can change them."""
        for (kind, name), component in self.own_states(None).items():
            if isinstance(component, Optimizer):
                self.made[kind][name] = config_of(component)
            elif isinstance(component, nn.Module):
                self.made.setdefault(kind, {})[name] = frozen_names(component, ())
                self.left_out[kind, name] = left_out_values(component)

    def load_state_dict(
        self, state: Mapping[str, Any], left: Left, held: Collection[int] = (), *, is_there: bool = True
    ) -> list[Difference]:
        """Restore what ``state_dict`` returned, as far as it fits, and return where the program differs.

        Args:
            state: the state that ``state_dict`` returned.
            left: how much is left to train.
            held: the ids of the parameters that extensions keep from getting gradients.
            is_there: the program has come to the place of the state; a difference on its way is not an edit.
        """
        found: list[Difference] = []
        names, others = self.parameter_names(), set()  # others: the optimizers that cannot take their state
        for (kind, name), component in self.own_states(None).items():
            saved, made, label = find_saved(state, kind, name), saved_config(state, kind, name), label_of(kind, name)
            # A schedule stays as it is made if its optimizer does, or if the saved schedule has too few steps left.
            if saved is None or (
                kind == "lr_schedule" and (name in others or schedule_misfit("", component, saved, made, left))
            ):
                continue
            if not restore(component, saved, made, names):
                others.add(name)
            elif made is not None and isinstance(component, nn.Module) and is_there:
                put_back(component, made.get("left_out", {}))
                own = self.made.get(kind, {}).get(name) or frozen_names(component, held)
                found += [
                    *other_dtypes(label, component, saved),
                    *freeze_as_saved(label, component, made, own, saved, held),
                ]
                self.loaded.setdefault(kind, {})[name] = made
            elif made is not None and not isinstance(component, nn.Module):
                self.loaded.setdefault(kind, {})[name] = {key: made[key] for key in ("class", "options")}
        return [*self.other_options(), *found] if is_there else []

    def loaded_states(self, state: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the states of those optimizers and schedules that have loaded a state.

        The others are ones that the program has on its way; the optimizer of the checkpoint still waits to be loaded.
        """
        return {
            kind: {name: one for name, one in state.get(kind, {}).items() if name in self.loaded.get(kind, {})}
            for kind in ("optimizers", "lr_schedule")
        }

    def other_options(self) -> list[Difference]:
        """Return the options of optimizers and schedules that differ from the loaded ones."""
        found: list[Difference] = []
        for kind in ("optimizers", "lr_schedule"):
            for name, made in self.loaded.get(kind, {}).items():
                found += options_that_differ(label_of(kind, name), self.made[kind].get(name, made), made)
        return found

    def own_modules(self, around: Setup) -> dict[str, Any]:
        """Return the states of the modules that a phase has, and the setup around it has not."""
        components = {name: one for name, one in self.own_states(around).items() if isinstance(one, nn.Module)}
        return {f"{kind} {name}": component.state_dict() for (kind, name), component in components.items()}

    def load_modules(self, saved: Mapping[str, Any]) -> None:
        """Restore what ``own_modules`` returned."""
        for (kind, name), component in self.own_states(None).items():
            if f"{kind} {name}" in saved:
                restore(component, saved[f"{kind} {name}"])


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
