"""Frozen modules: parts of a model that are not trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

from torch import nn

from train_manager.core.decorators import always
from train_manager.core.extension import Extension
from train_manager.model.modules import Chosen, choices, chosen, require_module, warn_of_left_out
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_one_of

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

    Frozen parameters get no gradient. During a training batch frozen modules with buffers of their own are in eval
    mode: BatchNorm uses its statistics and does not change them. The others, such as dropout, stay in train mode, or
    with ``dropout="off"`` are in eval mode too. When the run ends, also by an error, ``requires_grad`` is restored; so
    it is while the extension pauses, and as it is removed.

    Names are looked up in the model that is trained: as each epoch begins, after ``tm.replace_parameters``, and in a
    phase with a model of its own. If that one lacks a name, a warning says so, and it is left out.

    Published trainings mean different things by "frozen". Keras' ``layer.trainable = False`` is what happens here by
    default: BatchNorm in inference mode, dropout on. ``backbone.eval()`` with frozen weights, or ``base(x,
    training=False)`` in Keras, is ``dropout="off"``. ``BaseFinetuning.freeze`` of Lightning leaves BatchNorm in
    training by default: for that, name the modules without the norms.

    *Runs at:* around ``run``, ``phase`` and ``train_step_batch``, the start of ``run`` and ``train_step_epoch``, and
    the end of ``load_checkpoint`` and ``run``.

    *Asks for:* ``epoch_num``; the model.

    *Leaves behind:* nothing.

    Args:
        modules: names in the model, patterns (``"trunk.*"``), or modules; each with everything inside it.
        until: train the modules after this number of epochs; None keeps them frozen. A phase counts its own epochs.
        dropout: "on" leaves frozen modules without buffers, such as dropout, in train mode; "off" does not.

    Raises:
        InputError: a module does not exist; the message has the nearest name. Or an argument is invalid.
    """

    def __init__(self, *modules: Chosen | Iterable[Chosen], until: int | None = None, dropout: str = "on") -> None:
        self.modules = choices(modules, "FreezeModules")
        self.until: int | None = None if until is None else require_count(until, "until", at_least=1)
        self.dropout: str = require_one_of(dropout, "dropout", ("on", "off"), asked_by="FreezeModules")
        self._frozen: Frozen | None = None  # None outside of runs, and while it pauses
        self._told: set[str] = set()  # what the models of phases lacked

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        try:
            # Without a word of what the model lacks: `pre_run` refuses it, and after a pause it is known.
            self._freeze(train_manager.model, self._is_over(train_manager.epoch_num), tells=False)
            yield
        finally:
            self._unfreeze()

    def pre_run(self, train_manager: TrainManager) -> None:
        model = require_module(train_manager.model, "FreezeModules")
        chosen(model, self.modules, "FreezeModules")  # also if `until` is over: a wrong name is an error

    def post_load_checkpoint(self, train_manager: TrainManager) -> None:
        self._follow(train_manager, train_manager.epoch_num)  # which was 0 as the run opened

    def around_phase(self, train_manager: TrainManager) -> Iterator[None]:
        around = self._frozen
        self._follow(train_manager, train_manager.epoch_num)
        try:
            yield
        finally:
            if around is not None and self._frozen is not None:  # else it was removed
                self._freeze(around.model, around.is_over)

    def pre_train_step_epoch(self, train_manager: TrainManager, epoch_num: int) -> None:
        self._follow(train_manager, epoch_num)

    def around_train_step_batch(self, train_manager: TrainManager, epoch_num: int) -> Iterator[None]:
        frozen = self._frozen
        if frozen is not None and not frozen.is_of(train_manager.model, self._is_over(epoch_num)):
            self._follow(train_manager, epoch_num)  # a batch of no epoch, after a phase, a swap or a replacement
        silenced = [] if self._frozen is None else [one for one in self._frozen.silenced if one.training]
        for module in silenced:  # in every batch: code between two may call model.train()
            module.training = False
        try:
            yield
        finally:
            for module in silenced:
                module.training = True

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Look up the names anew, now and, as the new parameters may come into the model later, in the next batch."""
        if self._frozen is not None:
            self._freeze(self._frozen.model, self._frozen.is_over).is_outdated = True

    @always
    def post_run(self) -> None:
        self._unfreeze()  # and once more at the end of around_run, if Ctrl-C comes here

    @property
    def frozen_parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters that are frozen now."""
        return () if self._frozen is None else tuple(self._frozen.parameters)

    def waits_for_epoch(self, epoch_num: int) -> bool:
        """Return whether the end of an epoch after this one is to change something."""
        return self.until is not None and not self._is_over(epoch_num)

    def _is_over(self, epoch_num: int) -> bool:
        return self.until is not None and epoch_num >= self.until

    def _follow(self, train_manager: TrainManager, epoch_num: int) -> None:
        """Freeze what the model that is trained now has of the modules, unless the extension was removed."""
        if self._frozen is not None:
            self._freeze(train_manager.model, self._is_over(epoch_num))

    def _freeze(self, model: Any, is_over: bool, *, tells: bool = True) -> Frozen:
        """Freeze the modules in a model, in place of what was frozen before."""
        self._unfreeze()  # also what Ctrl-C has kept from being restored
        modules = [] if is_over else [one for choice in self.modules for one in self._present(model, choice, tells)]
        frozen = self._frozen = Frozen(model, is_over, modules, with_dropout=self.dropout == "off")
        frozen.freeze()
        return frozen

    def _present(self, model: Any, choice: Chosen, tells: bool) -> Iterable[nn.Module]:
        """Return the modules that a name stands for in a model; none if the model of a phase does not have it."""
        try:
            return chosen(require_module(model, "FreezeModules"), [choice], "FreezeModules").values()
        except InputError as error:
            if tells:
                warn_of_left_out(error, self._told)
            return ()

    def _unfreeze(self) -> None:
        """Restore what was before, and forget it afterwards, so that Ctrl-C can cut it short."""
        if self._frozen is not None:
            self._frozen.release()
            self._frozen = None


@final
class Frozen:
    """What is frozen of one model.

    Attributes:
        model: the model.
        is_over: its training is past ``until``, so that nothing is frozen.
        parameters: the frozen ones, each with its ``requires_grad`` from before.
        silenced: the modules that are in eval mode during a training batch.
        is_outdated: parameters of the model have been replaced since.
        held: of all models and extensions.
    """

    held: Final[WeakSet[Frozen]] = WeakSet()

    def __init__(self, model: Any, is_over: bool, modules: Iterable[nn.Module], *, with_dropout: bool) -> None:
        inside = dict.fromkeys(inner for module in modules for inner in module.modules())
        parameters = dict.fromkeys(p for module in inside for p in module.parameters(recurse=False))
        self.model, self.is_over, self.is_outdated = model, is_over, False
        self.parameters = {parameter: parameter.requires_grad for parameter in parameters}
        self.silenced = [one for one in inside if with_dropout or next(one.buffers(recurse=False), None) is not None]

    def freeze(self) -> None:
        """Let the parameters get no gradient."""
        self.held.add(self)
        for parameter in self.parameters:
            parameter.requires_grad_(False)

    def release(self) -> None:
        """Restore what was before; what another extension freezes too stays frozen, and that one restores it."""
        self.held.discard(self)
        for parameter, required_grad in self.parameters.items():
            others = [other for other in self.held if parameter in other.parameters]
            for other in others:
                other.parameters[parameter] |= required_grad
            if not others:
                parameter.requires_grad_(required_grad)

    def is_of(self, model: Any, is_over: bool) -> bool:
        """Return whether the parameters that must be frozen are still these."""
        return self.model is model and self.is_over == is_over and not self.is_outdated
