"""Frozen modules: parts of a model that are not trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torch import nn

from train_manager.core.decorators import always
from train_manager.core.extension import Extension
from train_manager.model.modules import Chosen, choices, chosen, require_module
from train_manager.rebuilding.recorded import recorded
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class FreezeModules(Extension):
    """Keep parts of the model as they are, to the bit: parameters and buffers, such as the means of BatchNorm.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(FreezeModules("0"))
    >>> before = tm.model[0].weight.clone()
    >>> result = tm.train()
    >>> tm.model[0].weight.equal(before)
    True

    Frozen parameters get no gradient. Frozen modules with buffers of their own are in eval mode while the model is
    trained; the others, such as dropout, stay in train mode. When the run ends, also by an error, ``requires_grad`` and
    the modes are restored. An extension that is removed in the middle of a run unfreezes at the end of the run.

    *Runs at:* around ``run`` and ``train``, the end of ``load_checkpoint`` and of ``run``, and the start of
    ``train_step_epoch`` and of ``train_step_batch``.

    *Asks for:* ``epoch_num``; the model.

    *Leaves behind:* nothing.

    Args:
        modules: names in the model, patterns (``"trunk.*"``), or modules; each with everything inside it.
        until: train the modules after this number of epochs; None keeps them frozen.

    Raises:
        InputError: a module does not exist; the message has the nearest name.
    """

    def __init__(self, *modules: Chosen | Iterable[Chosen], until: int | None = None) -> None:
        self.modules = choices(modules, "FreezeModules")
        self.until: int | None = None if until is None else require_count(until, "until", at_least=1)
        self._frozen: list[tuple[nn.Parameter, bool]] = []  # each with its requires_grad from before
        self._with_buffers: list[nn.Module] = []
        self._is_in_run = False  # False if the extension was added to an open run: then each training freezes

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        self._is_in_run = True
        try:
            yield from self._keep_frozen(train_manager)
        finally:
            self._is_in_run = False

    def post_load_checkpoint(self, train_manager: TrainManager) -> None:
        if self._is_over(train_manager.epoch_num):  # which was 0 as the run opened
            self._unfreeze()

    @always
    def post_run(self) -> None:
        self._unfreeze()  # and once more at the end of around_run, if Ctrl-C comes here

    def around_train(self, train_manager: TrainManager) -> Iterator[None]:
        if self._is_in_run:
            yield
        else:
            yield from self._keep_frozen(train_manager)

    def pre_train_step_epoch(self, epoch_num: int) -> None:
        if self._is_over(epoch_num):
            for module in self._with_buffers:
                module.training = True
            self._unfreeze()

    def pre_train_step_batch(self) -> None:
        for module in self._with_buffers:  # in every step: code between two steps may call model.train()
            module.training = False

    def _keep_frozen(self, train_manager: TrainManager) -> Iterator[None]:
        self._unfreeze()  # what Ctrl-C has kept from being restored before
        model = require_module(train_manager.model, "FreezeModules")
        modules = chosen(model, self.modules, "FreezeModules")  # also if over: a wrong name is an error
        try:
            if not self._is_over(train_manager.epoch_num):
                self._freeze(modules.values())
            yield
        finally:
            self._unfreeze()

    def _is_over(self, epoch_num: int) -> bool:
        return self.until is not None and epoch_num >= self.until

    def _freeze(self, modules: Iterable[nn.Module]) -> None:
        inside = dict.fromkeys(inner for module in modules for inner in module.modules())
        parameters = dict.fromkeys(p for module in inside for p in module.parameters(recurse=False))
        self._frozen = [(parameter, parameter.requires_grad) for parameter in parameters]
        self._with_buffers = [module for module in inside if next(module.buffers(recurse=False), None) is not None]
        for parameter in parameters:
            parameter.requires_grad_(False)

    def _unfreeze(self) -> None:
        """Restore what was before, and forget it afterwards, so that Ctrl-C can cut it short."""
        for parameter, required_grad in self._frozen:
            parameter.requires_grad_(required_grad)
        self._frozen, self._with_buffers = [], []
