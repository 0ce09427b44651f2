"""Frozen modules: modules of a model that are not trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, final
from weakref import WeakSet

from torch import nn

from train_manager.core.declarations import always
from train_manager.core.extension import Extension
from train_manager.model.modules import Chosen, ModulesIn, choices, choose_modules, require_module
from train_manager.rebuilding.recorded import recorded
from train_manager.validation import require_count, require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class FreezeModules(Extension):
    """Keep modules of the model as they are, to the bit: parameters and buffers, such as the means of BatchNorm.

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
        self._frozen: Frozen | None = None  # from the opening of a run to its end; None while the extension pauses
        self._present = ModulesIn(self.modules, "FreezeModules")

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        try:
            # Without warnings of missing names: as the run opens, `pre_run` refuses them below. This hook also resumes
            # after a pause, when the warnings were given before.
            self._freeze(train_manager.model, self._is_over(train_manager.epoch_num), warns=False)
            yield
        finally:
            self._unfreeze()

    def pre_run(self, train_manager: TrainManager) -> None:
        model = require_module(train_manager.model, "FreezeModules")
        choose_modules(model, self.modules, "FreezeModules")  # a wrong name is an error, also after `until`

    def post_load_checkpoint(self, train_manager: TrainManager) -> None:
        self._follow(train_manager, train_manager.epoch_num)  # the epoch was 0 until the checkpoint was loaded

    def around_phase(self, train_manager: TrainManager) -> Iterator[None]:
        around = self._frozen
        self._follow(train_manager, train_manager.epoch_num)
        try:
            yield
        finally:
            # None: the extension was removed, or paused, within the phase.
            if around is not None and self._frozen is not None:
                self._freeze(around.model, around.is_over)

    def pre_train_step_epoch(self, train_manager: TrainManager, epoch_num: int) -> None:
        self._follow(train_manager, epoch_num)

    def around_train_step_batch(self, train_manager: TrainManager, epoch_num: int) -> Iterator[None]:
        frozen = self._frozen
        if frozen is not None and not frozen.is_of(train_manager.model, self._is_over(epoch_num)):
            self._follow(train_manager, epoch_num)  # train_on_batch opens no epoch, where it would be done otherwise
        silenced = [] if self._frozen is None else [one for one in self._frozen.silenced if one.training]
        # In every batch, because code between two batches may call model.train(). The attribute is set directly: eval()
        # would also change the modules inside.
        for module in silenced:
            module.training = False
        try:
            yield
        finally:
            for module in silenced:
                module.training = True

    def replace_parameters(self, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Look up the names anew, now and in the next batch: the new parameters may not be in the model yet."""
        if self._frozen is not None:
            for old, new in replaced.items():
                # Made from a frozen parameter, the new one is frozen too (sharding does so): it would never be thawed.
                new.requires_grad_(new.requires_grad or self._frozen.parameters.get(old, False))
            self._freeze(self._frozen.model, self._frozen.is_over).is_outdated = True

    @always
    def post_run(self) -> None:
        # Before other extensions end the run; around_run does it once more, if Ctrl-C comes within this call.
        self._unfreeze()

    @property
    def frozen_parameters(self) -> tuple[nn.Parameter, ...]:
        """The parameters that are frozen now."""
        return () if self._frozen is None else tuple(self._frozen.parameters)

    def waits_for_epoch(self, epoch_num: int) -> bool:
        """Return whether the end of an epoch after this one will thaw the modules."""
        return self.until is not None and not self._is_over(epoch_num)

    def _is_over(self, epoch_num: int) -> bool:
        return self.until is not None and epoch_num >= self.until

    def _follow(self, train_manager: TrainManager, epoch_num: int) -> None:
        """Freeze the modules in the model that is trained now, unless the extension was removed."""
        if self._frozen is not None:
            self._freeze(train_manager.model, self._is_over(epoch_num))

    def _freeze(self, model: Any, is_over: bool, *, warns: bool = True) -> Frozen:
        """Freeze the modules in a model, in place of what was frozen before."""
        self._unfreeze()  # of another model or epoch; or of a run that Ctrl-C has ended within `release`
        modules = () if is_over else self._present.of(model, warns=warns).values()
        frozen = self._frozen = Frozen(model, is_over, modules, with_dropout=self.dropout == "off")
        frozen.freeze()
        return frozen

    def _unfreeze(self) -> None:
        """Restore ``requires_grad`` of the frozen parameters."""
        if self._frozen is not None:
            # Released first, forgotten afterwards: if Ctrl-C comes between, the next call releases once more.
            self._frozen.release()
            self._frozen = None


@final
class Frozen:
    """The frozen parameters and modules of one model."""

    # All that are frozen now, of every model and extension: two extensions may freeze one parameter, which is restored
    # only by the one that releases it last.
    held: Final[WeakSet[Frozen]] = WeakSet()

    def __init__(self, model: Any, is_over: bool, modules: Iterable[nn.Module], *, with_dropout: bool) -> None:
        inside = dict.fromkeys(inner for module in modules for inner in module.modules())
        parameters = dict.fromkeys(p for module in inside for p in module.parameters(recurse=False))
        self.model, self.is_over = model, is_over  # is_over: the training is past `until`, so that nothing is frozen
        self.is_outdated = False  # parameters of the model were replaced since
        # Each frozen parameter with its ``requires_grad`` from before.
        self.parameters = {parameter: parameter.requires_grad for parameter in parameters}
        # The modules that are in eval mode during a training batch: those whose buffers a forward pass would change.
        self.silenced = [one for one in inside if with_dropout or next(one.buffers(recurse=False), None) is not None]

    def freeze(self) -> None:
        """Let the parameters get no gradient."""
        self.held.add(self)
        for parameter in self.parameters:
            parameter.requires_grad_(False)

    def release(self) -> None:
        """Restore ``requires_grad``, except of parameters that another extension freezes too, which restores them."""
        self.held.discard(self)
        for parameter, required_grad in self.parameters.items():
            others = [other for other in self.held if parameter in other.parameters]
            for other in others:
                # The other one has found False if it froze the parameter after this one.
                other.parameters[parameter] |= required_grad
            if not others:
                parameter.requires_grad_(required_grad)

    def is_of(self, model: Any, is_over: bool) -> bool:
        """Return whether the parameters that must be frozen are still these."""
        return self.model is model and self.is_over == is_over and not self.is_outdated
