"""Saving: what a checkpoint holds of a training, in one table; saving and loading are two loops over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast, final

import torch
from torch import nn

from train_manager.checkpoints.extension_fit import extension_facts, extensions_that_differ, replaced_extensions
from train_manager.checkpoints.fit import Difference, Left
from train_manager.core.extension import Extension
from train_manager.loop.asking import Asking
from train_manager.loop.attributes import Model
from train_manager.loop.books import Lifetime, use_lifetimes
from train_manager.loop.extension_attributes import (
    RESUME,
    Known,
    awaited_states,
    has_only_tensors,
    load_attributes,
    misfits_of_attributes,
    state_with_attributes,
)
from train_manager.loop.feed import epoch_length
from train_manager.loop.level import Level
from train_manager.loop.parameter_check import ParameterCheck
from train_manager.loop.program import PHASE
from train_manager.loop.ranks import random_state_of_ranks, set_random_state_of_rank
from train_manager.loop.saved_state import (
    FORMAT,
    attribute_misfits,
    attributes_with_state,
    module_misfits,
    not_a_state,
    require_fit,
    require_format,
    restore,
    tell_of_differences,
)
from train_manager.rebuilding.recorded import as_written
from train_manager.telling.errors import TrainManagerError
from train_manager.telling.findings import Finding
from train_manager.validation import require_count

CHANGED_BY_HOOKS: Final = ("model", "loss", "optimizers", "lr_schedule", "extensions", "attributes")
"""The parts of a loaded state that a hook of load_checkpoint may change, for example by setting a learning rate."""

LOADED_AGAIN: Final = ("extensions", "fit", "random")
"""What hooks may change as the stages of the checkpoint open again: they make their objects there."""

MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""The errors that the components of a training raise if a state is not of their form."""

WITHIN: Final = ("train_step_batch", "eval", "predict")
"""The stages in which there is no state to save or to load: a part of a step is done."""

CPU: Final = torch.device("cpu")


@final
class StateEntry(NamedTuple):
    """An entry of the state: the functions that return it and restore it."""

    state_dict: Callable[[], Any]
    load_state_dict: Callable[[Any], object]


class Saving(Asking[Model]):
    """The part of a TrainManager that saves and loads its state."""

    @classmethod
    def from_checkpoint(
        cls,
        path: Path | str,
        overrides: Mapping[str, Any] | None = None,
        *,
        strict: bool = True,
        **arguments: Any,
    ) -> Self:
        """Rebuild the TrainManager of a checkpoint, with its model, and load its state.

        Classes of yours are rebuilt if they are ``recorded`` and this program has imported them. Nothing else that a
        file names is imported or called, no more memory is taken than its files suggest, and extensions that ship are
        given no path of it.

        >>> from torch import nn
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
        # Imported here: most programs read no checkpoint, and need not wait for these modules.
        from train_manager.loop import rebuilt_arguments as rebuilt

        checkpoint, parameters, state = rebuilt.read_parameters(Path(path))
        with rebuilt.memory_limit_of(checkpoint):
            made = cls(**rebuilt.rebuilt_arguments(cls, parameters, overrides or {}, arguments))
            if made.train_dir is None:
                resting = rebuilt.writers_to_rest(made._registry.hooks, has_data=made.train_data is not None)
                made._registry.pause(resting)
            if "model" in arguments or "model" in (overrides or ()):
                state = rebuilt.with_given_weights(state, made.model, made.extensions)
            made._load_state(state, strict, overridden={*(overrides or ()), *arguments})
        # Checkpoints to come must say how the components were made here, with the overridden options.
        made._setup.loaded = {}
        # Once more, as the state has brought the options of the checkpoint.
        rebuilt.apply_options(made.optimizers, made.lr_schedule, overrides or {})
        return made

    # ---- the state of a training -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on, in plain dicts with tensors, which are not copied.

        The model, the loss if it has weights, optimizers, schedulers, the state of each extension (of one whose class
        writes none, its attributes with a ``state_dict``, and the tensors that have changed), of schedules on the
        manager's own hooks, further attributes with a ``state_dict``, random states, counters, the position in the
        data, gradients of open windows, phases, the history, and how all of these were made. If several processes train
        together, all of them must call it: sums and random states are those of all.

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
        cure = "in a hook, ask for it: train_manager.save_soon()"
        self._refuse_inside("state_dict", *WITHIN, cure=cure, in_hooks=False)
        levels, path, held = self._levels(), self.fixtures.path, self._frozen_parameter_ids()
        # One state for the training, and one for each open phase, with the components that only the phase has. The
        # open stages belong to the innermost level.
        training, *phases = [
            level.state_dict(around, path if level is levels[-1] else (), held, self.ranks)
            for around, level in zip([None, *levels], levels, strict=False)
        ]
        of_extensions = {"extensions": extension_facts(self._registry.extensions), "seed": self.seed}
        return {
            "format": FORMAT,
            **training,
            "fit": {**training["fit"], **of_extensions},
            "program": self._program.state_dict(),
            "phases": phases,  # those that are open
            "parameters": as_written(self._recorded_arguments),
            **{name: part.state_dict() for name, part in self._parts().items()},
        }

    def _parts(self) -> dict[str, StateEntry]:
        """Return what has one state for all levels, by its entry in the state, in the order in which it is loaded."""
        ranks, windows, progress, names = self.ranks, self._windows, self._progress, self._setup.parameter_names
        return {
            "extensions": StateEntry(self._extension_states, self._load_extension_states),
            "schedules": StateEntry(self._schedule_states, self._load_schedule_states),
            "attributes": StateEntry(self._attribute_states, self._load_attribute_states),
            "counts": StateEntry(self._counts.state_dict, self._counts.load_state_dict),
            "history": StateEntry(self.history.state_dict, self.history.load_state_dict),
            "findings": StateEntry(progress.findings_as_dicts, progress.keep_findings),
            "windows": StateEntry(
                partial(windows.state_dict, names),
                partial(windows.load_state_dict, optimizers=self.optimizers, names_of_parameters=names),
            ),
            "random": StateEntry(partial(random_state_of_ranks, ranks), partial(set_random_state_of_rank, ranks)),
        }

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Resume from what ``state_dict`` returned, in a training made of the same components.

        If the state was saved inside of phases, their states are restored as the same phases are opened again.

        Args:
            state: what ``state_dict`` returned.
            strict: refuse a state that does not fit, before anything is changed; else load what fits, and warn.

        Raises:
            CheckpointError: the state does not fit; with all that is missing, unexpected or of another shape. Or it has
                not the form of a state, or an extension cannot load its state: some components may have been restored.
            StageError: a batch is alive, or a training call is under way.
        """
        cure = "load it in a hook of load_checkpoint, or outside of a run"
        self._refuse_inside("load_state_dict", *WITHIN, cure=cure, in_hooks=False)
        self._load_state(state, strict)

    def _load_state(self, state: Mapping[str, Any], strict: bool, *, overridden: Set[str] = frozenset()) -> None:
        # In this stage a program was started again, and will make its training calls again. Elsewhere the program
        # loads a state by itself, and makes further training calls.
        is_in_run = "load_checkpoint" in self.fixtures.path
        require_format(state)
        try:
            epochs = self.epochs if is_in_run and self._progress.run.entry == "train" else None
            program = self._program.resumed_from(state, are_made_again=is_in_run, strict=strict, epochs=epochs)
            is_there = program.state is None
            differences = self._restore(state, strict, is_whole=not program.has_phases_left, is_there=is_there)
        except MALFORMED as error:
            if isinstance(error, TrainManagerError):
                raise
            raise not_a_state(error) from error
        self._program = program  # only now: after an error the manager has made no other training calls than before
        program.again = {one: state[one] for one in LOADED_AGAIN} if is_in_run else {}
        self._tell([one for one in differences if not one.is_of(overridden)])
        self._progress.saved_at = self._place_of_checkpoint()  # a training call without a step has nothing new to save

    def _restore(self, state: Mapping[str, Any], strict: bool, *, is_whole: bool, is_there: bool) -> list[Difference]:
        """Restore the levels that are open here, and all that has no level.

        Args:
            state: what ``state_dict`` returned.
            strict: refuse a state that does not fit.
            is_whole: all phases of the state have been opened here.
            is_there: the program has come to the place of the state.

        Returns:
            Where the program differs from the one that wrote the state.
        """
        found = chain(self._misfits(state, is_there=is_there), self._missing(state, is_whole=is_whole))
        differences = require_fit(found, strict=strict)  # refused before anything is changed
        held = self._frozen_parameter_ids()
        # The levels that are open here: phases of the state may still be to be opened.
        for level, saved, left in self._saved_levels(state):
            differences += level.load_state_dict(saved, left, held, is_there=is_there, ranks=self.ranks)
        # After the levels: the values of a Book belong to the epochs and phases that these have restored.
        once = {**state, "extensions": self._states_of_extensions(state)}
        for name, part in self._parts().items():
            # The gradients are of the innermost phase, so they wait until it is open.
            if name != "windows" or is_whole or not state["phases"]:
                part.load_state_dict(once[name])
        return differences

    def _saved_levels(self, state: Mapping[str, Any]) -> Iterator[tuple[Level, Mapping[str, Any], Left]]:
        """Yield each level that is open here, with its saved state, and how much it has left to train."""
        for level, saved in zip(self._levels(), [state, *state["phases"]], strict=False):
            yield level, saved, self._left_to_train(level, saved, state)

    def _left_to_train(self, level: Level, saved: Mapping[str, Any], state: Mapping[str, Any]) -> Left:
        """Return how much a level has left to train, and whether the program was edited to train more."""
        counts, setup = state["counts"], level.setup
        epochs = max(0, setup.epochs - saved["epoch_num"])
        length, steps = epoch_length(setup.train_data, setup.steps_per_epoch), counts["step_num"]
        updates = None
        if length is not None and steps and len(setup.optimizers) == 1:
            # As many updates for each batch as so far: Accumulate makes one for several.
            updates = (epochs * length - saved["data"]["batch_num"]) * counts["update_num"] // steps
        trained = [event["of"] for event in state["program"] if event["kind"] == "train"]
        has_phases = any(event["kind"] == PHASE for event in state["program"])
        is_raised = bool(trained) and max(trained) < setup.epochs and not has_phases
        return Left(epochs, updates, is_raised)

    def _tell(self, differences: list[Difference]) -> None:
        """Warn where the program differs from the one that saved the state."""
        if not self.ranks.place.rank:  # the others have the same differences
            tell_of_differences(differences)

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

    # ---- what does not fit -------------------------------------------------------------------------------------------

    def _misfits(self, state: Mapping[str, Any], *, is_there: bool) -> Iterator[str | Difference]:
        """Say why a saved state does not fit, as texts, and where the extensions differ from those here."""
        around: Level | None = None
        left = Left()
        for level, saved, left in self._saved_levels(state):
            yield from level.misfits(around, saved, left, is_there=is_there)
            around = level
        if is_there:
            yield from self._misfits_of_extensions(state, left)

    def _missing(self, state: Mapping[str, Any], *, is_whole: bool) -> Iterator[str]:
        """Say which extensions and attributes the checkpoint has a state of, and this training lacks."""
        if is_whole:  # else a phase that is still to be opened may add the extension
            for name, saved in state["extensions"].items():
                if saved and name not in self._registry.extensions and not has_only_tensors(saved):
                    yield f"the checkpoint has a state of extension {name!r}, which the training lacks"
        for name in state["attributes"]:
            if name not in self._attributes():
                yield f"the checkpoint has a state of the attribute {name!r}, which the training lacks"

    def _misfits_of_extensions(self, state: Mapping[str, Any], left: Left) -> Iterator[str | Difference]:
        fit, here = state["fit"], extension_facts(self._registry.extensions)
        if fit["seed"] != self.seed:
            yield Difference("seed", str(self.seed), str(fit["seed"]), "the random states of the checkpoint")
        yield from extensions_that_differ(here, fit["extensions"], state["extensions"])
        known = self._known_to_checkpoints()
        for name, saved in self._states_of_extensions(state).items():
            yield from self._compare_extension_state(name, saved, left)
            yield from misfits_of_attributes(f"extension {name!r}", self._registry.extensions[name], saved, known)

    def _compare_extension_state(self, name: str, saved: Any, left: Left) -> Iterable[str | Difference]:
        compare = getattr(self._registry.extensions[name], "compared_with", None)
        return () if compare is None else compare(saved, left=left)

    def _tell_of_another_program(self, state: Mapping[str, Any]) -> None:
        """Compare the program with a state that was loaded on its way, as it turns out to be another program."""
        differences = require_fit(self._misfits(state, is_there=True), strict=self._program.strict)
        self._tell([*differences, *self._setup.other_options()])

    # ---- extensions --------------------------------------------------------------------------------------------------

    def _extension_states(self) -> dict[str, Any]:
        known = self._known_to_checkpoints()
        with use_lifetimes(self._open_lifetimes(), self.ranks):
            return {
                name: state_with_attributes(one, known) if self._runs_here(one) else {}
                for name, one in self._registry.extensions.items()
                if not isinstance(one, ParameterCheck)  # a training that resumes looks anew
            }

    def _known_to_checkpoints(self) -> Known:
        """Return what a checkpoint holds beside the states of extensions."""
        found: list[Any] = [self.history, *self._attributes().values()]
        for setup in (level.setup for level in self._levels()):
            found += [*setup.own_states(None).values(), *setup.modules(), setup.train_data, *setup.eval_data.values()]
        return Known(found)

    def _runs_here(self, extension: Extension) -> bool:
        """Return whether the hooks of an extension run in this process; elsewhere it has no state."""
        return not (extension.ranks == 0 and self.ranks.place.rank)

    def _load_extension_states(self, states: Mapping[str, Any]) -> None:
        """Load the states of the extensions that are here."""
        for name, extension in self._registry.extensions.items():
            if name in states and self._runs_here(extension):
                with self._loading(f"the state of extension {name!r}"):
                    extension.load_state_dict(states[name])
        self._load_attributes_of_extensions(states)

    def _load_attributes_of_extensions(self, states: Mapping[str, Any]) -> None:
        """Load the states of the attributes of the extensions that are here."""
        known, device = self._known_to_checkpoints(), next((one.device for one in self._setup.parameters()), CPU)
        for name, extension in self._registry.extensions.items():
            if name in states and self._runs_here(extension):
                with self._loading(f"the state of extension {name!r}"):
                    load_attributes(
                        extension,
                        states[name],
                        known,
                        device,
                        place=self._step_and_stages,
                        made=partial(self._attribute_was_made, name),
                    )

    def _refused_states(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the saved states that extensions of their names cannot take; a phase may bring others that can."""
        taken, here = self._states_of_extensions(state), self._registry.extensions
        return {
            name: saved
            for name, saved in state["extensions"].items()
            if name in here
            if name not in taken
            or any(isinstance(one, str) for one in self._compare_extension_state(name, saved, Left()))
        }

    def _states_of_extensions(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the saved states of the extensions that are here, and that are of the same class."""
        here = self._registry.extensions
        replaced = replaced_extensions(extension_facts(here), state["fit"]["extensions"])
        return {
            name: state["extensions"][name] for name in here if name in state["extensions"] and name not in replaced
        }

    # ---- attributes of the manager -----------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, Any]:
        return attributes_with_state(self.__dict__)

    def _attribute_states(self) -> dict[str, Any]:
        return {name: one.state_dict() for name, one in self._attributes().items()}

    def _load_attribute_states(self, states: Mapping[str, Any]) -> None:
        for name, attribute in self._attributes().items():
            if name in states:
                restore(attribute, states[name])

    # ---- on the way to the place of a state --------------------------------------------------------------------------

    def _keep_changes_to_loaded(self) -> None:
        """Put the changes that hooks of load_checkpoint have made to the loaded components into the state."""
        # Without it, the changes would be undone as the state is restored once more, at its place in the program.
        resumed = self._program
        if resumed.state is not None and not resumed.has_phases_left:
            state = self.state_dict()
            changed: dict[str, Any] = {name: state[name] for name in CHANGED_BY_HOOKS if name in state}
            changed["extensions"] = state["extensions"] | self._refused_states(resumed.state)
            changed["fit"] = dict(resumed.state["fit"])
            for kind, loaded in self._levels()[0].setup.loaded_states(state).items():
                changed[kind] = resumed.state.get(kind, {}) | loaded
                # The states now have their parameters in the order of this program, as `fit` must say.
                now = {name: state["fit"][kind][name] for name in loaded}
                changed["fit"][kind] = resumed.state["fit"].get(kind, {}) | now
            from train_manager.checkpoints.copies import copy_state

            # A copy: state_dict holds the tensors of the model itself, which the program may change on its way.
            resumed.state |= copy_state(changed)

    def _restore_opened(self) -> None:
        """Restore what pre hooks have changed, of stages that were open in the checkpoint; once they have all run."""
        again, self._program.again = self._program.again, {}
        if not again:
            return
        states = self._states_of_extensions(again)
        known, extensions = self._known_to_checkpoints(), self._registry.extensions
        found = [misfits_of_attributes(f"extension {one!r}", extensions[one], states[one], known) for one in states]
        require_fit(chain(*found), strict=self._program.strict)
        self._load_attributes_of_extensions(states)
        set_random_state_of_rank(self.ranks, again["random"])

    @contextmanager
    def _loading(self, what: str) -> Iterator[None]:
        """Let books load the values of open epochs and phases; an error says which part of the state it is of."""
        try:
            with use_lifetimes(self._open_lifetimes(), self.ranks):
                yield
        except Exception as error:
            if isinstance(error, TrainManagerError):
                raise
            raise not_a_state(error, what) from error

    def _step_and_stages(self) -> tuple[Any, ...]:
        return self.step_num, *self.fixtures.path

    def _attribute_was_made(self, extension: str, name: str, attribute: Any, state: Any, looked_for_at: Any) -> None:
        """Load a saved state into an attribute of an extension, if a hook has looked for it and made it."""
        label, place = f"{name} of extension {extension!r}", self._step_and_stages()
        if looked_for_at == place or not self.fixtures.path:
            with self._loading(label):
                require_fit(attribute_misfits(label, attribute, state), strict=self._program.strict)
                restore(attribute, state)
        elif not self._program.again:
            # As the uninterrupted program does, for an epoch or a batch; unless hooks have missed it until here.
            what = f"{label} was made anew in {place[-1]}, without its state in the checkpoint"
            cure = f"if it is to resume, look for it first: if self.{name} is None"
            self.add_finding(
                Finding(
                    RESUME, "note" if looked_for_at is None else "warning", what, cure=cure, code="attribute-made-anew"
                )
            )

    def _tell_of_awaited_attributes(self) -> None:
        """Warn of states in the checkpoint whose attributes no extension has made."""
        for extension, one in self._registry.extensions.items():
            for name in awaited_states(one):
                what = f"the checkpoint has a state of {name} of extension {extension!r}, which was never made"
                cure = "make it as before, in __init__ or in a hook; its state is saved again until then"
                self.add_finding(Finding(RESUME, "warning", what, cure=cure, code="attribute-never-made"))

    def _open_lifetimes(self) -> dict[str, list[Lifetime]]:
        """Return the lifetimes that continue: of open epochs, of the training and the open phases, and of all."""
        levels = [level.progress for level in self._levels()]
        phases = [progress.lifetime for progress in levels]
        epochs = [lifetime for progress in levels for lifetime in progress.open_epochs()]
        return {"epoch": epochs, "phase": phases, "manager": phases[:1]}
