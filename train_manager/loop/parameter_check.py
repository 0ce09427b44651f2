"""The extension by which the loop looks for parameters that a training leaves out, until it knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from train_manager.core.extension import Extension
from train_manager.loop.arguments import modules_of_loss
from train_manager.model.parameters import Idle, check_first_window, names_of
from train_manager.telling.findings import Finding


@final
class ParameterCheck(Extension):
    """Warns of parameters that a training leaves out, as the first windows of its optimizers have their gradients.

    A ``Setup`` has one for the components that it trains. The loop has it among the extensions of its training calls,
    until it knows of all optimizers.
    """

    priority = -1_000_000  # before hooks that change gradients, or skip the step
    _checked_before_run = False  # an own train_batch may make no step of the loop

    def __init__(self) -> None:
        self._idle: dict[str, Idle] = {}  # by the name of the optimizer, until all is known of it
        self._known: set[str] = set()  # the optimizers of which all is known

    def pre_train_optimizer_step(self, optimizer_name: str, train_manager: Any) -> None:
        setup = train_manager._setup
        # Another one: a hook has replaced a component, which is looked at from the next training call on.
        is_present = setup.parameter_check is self
        if is_present and optimizer_name not in self._known:
            found = self._look(optimizer_name, train_manager)
            if found:
                train_manager.add_finding(*found)
        if not is_present or self.is_done(setup.optimizers):
            train_manager.remove_extension(self)

    def is_done(self, optimizers: Iterable[str]) -> bool:
        """Return whether all is known of these optimizers."""
        return self._known.issuperset(optimizers)

    def _look(self, name: str, train_manager: Any) -> list[Finding]:
        """Look at the gradients of an optimizer's window, and return what they show."""
        setup, idle, found = train_manager._setup, self._idle.get(name), list[Finding]()
        if idle is None:  # the first window: most mistakes show in it
            idle = self._idle[name] = Idle(setup.optimizers[name])
            found += check_first_window(
                setup.model,
                _names(setup),
                setup.optimizers,
                name,
                wrapped=setup.wrapped is not None,
                around=[one for level in train_manager._program.around for one in level.setup.optimizers.values()],
                frozen=train_manager._frozen_parameter_ids(),
                resting=train_manager._progress.call.resting,
            )
        else:
            idle.look()
        # With several sets of data (Interleaved), the batches of another set may use the parameters that are idle here.
        if idle.is_known or train_manager.datasource_name != "train":
            self._known.add(name)
            del self._idle[name]
            if idle.is_known:
                found += idle.find(_names(setup), setup.optimizers[name], name)
        return found


def _names(setup: Any) -> dict[int, str]:
    return names_of(setup.model, modules_of_loss(setup.loss))
