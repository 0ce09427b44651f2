"""An exponential moving average of the weights, which evaluations use in place of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from train_manager.core.decorators import priority
from train_manager.core.extension import Extension
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class EMA(Extension):
    """Average the weights over the steps, the latest the most, and evaluate the average in place of the weights.

    After each step of the optimizer ``average = decay * average + (1 - decay) * weights``; the weights after the first
    step are the first average. The training itself is not changed.

    >>> from train_manager.testing import tiny_manager
    >>> ema = EMA(decay=0.9)
    >>> tm = tiny_manager(ema, epochs=5)
    >>> result = tm.train()
    >>> ema.averaged.n_averaged.item()
    15
    >>> with ema.applied(tm.model):  # to save or to export the averaged weights
    ...     exported = {name: tensor.clone() for name, tensor in tm.model.state_dict().items()}

    Buffers, such as the statistics of BatchNorm, keep the values of the training, unless ``use_buffers`` averages them.

    *Runs at:* the end of ``train_optimizer_step``, after hooks that change the weights, such as ``Constrain`` (priority
    10), and around ``eval_step_epoch``. Everything inside ``eval_step_epoch`` finds the averaged weights in the model.
    The trained weights are back when it ends, also after an error; so hooks of ``eval`` that save the model save them.

    *Asks for:* the model.

    *Leaves behind:* its attribute ``averaged``.

    Args:
        decay: the share of the old average that stays, from 0 to below 1.
        warm_up: use the smaller decay ``(1 + n) / (10 + n)`` after ``n`` steps, until it reaches ``decay``.
        use_buffers: average the buffers too.

    Attributes:
        averaged: torch's ``AveragedModel``, which can be called like the model; None before the first step.

    Raises:
        InputError: ``decay`` is not a number from 0 to below 1.
    """

    def __init__(self, decay: float = 0.999, *, warm_up: bool = False, use_buffers: bool = False) -> None:
        self.decay = require_number(decay, "decay", at_least=0, below=1)
        self.warm_up = warm_up
        self.use_buffers = use_buffers
        self.averaged: AveragedModel | None = None
        self._model: nn.Module | None = None  # the model that `averaged` belongs to
        self._updates = 0
        self._loaded: Mapping[str, Any] | None = None  # a loaded state that waits for the model

    @priority(10)  # after Constrain (0), to average the constrained weights
    def post_train_optimizer_step(self, train_manager: TrainManager) -> None:
        averaged = self._average_of(train_manager.model)
        if self.warm_up:
            averaged.multi_avg_fn = get_ema_multi_avg_fn(decay_after(self._updates, self.decay))
        averaged.update_parameters(train_manager.model)
        self._updates += 1

    def around_eval_step_epoch(self, train_manager: TrainManager) -> Iterator[None]:
        with self.applied(train_manager.model):
            yield

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Put the averaged weights into the model for a ``with`` block; before the first step, do nothing."""
        if self._loaded is not None:
            self._average_of(model)
        pairs = self._pairs(model)
        trained = [tensor.detach().clone() for tensor, _ in pairs]
        try:
            for tensor, average in pairs:
                # `.data` leaves autograd's version counter alone: a graph from before the block can run backward after
                # it, when its tensors have their values again.
                tensor.data.copy_(average.data)
            yield
        finally:
            for (tensor, _), weights in zip(pairs, trained, strict=True):
                tensor.data.copy_(weights)

    def _pairs(self, model: nn.Module) -> list[tuple[Tensor, Tensor]]:
        """Return each averaged tensor of the model with its average."""
        if self.averaged is None or model is not self._model:
            return []
        average: nn.Module = self.averaged.module
        pairs: list[tuple[Tensor, Tensor]] = list(zip(model.parameters(), average.parameters(), strict=True))
        if self.use_buffers:
            pairs += zip(model.buffers(), average.buffers(), strict=True)
        return pairs

    def _average_of(self, model: nn.Module) -> AveragedModel:
        """Return the average of this model; begin one if there is none."""
        if self.averaged is None or model is not self._model:
            average = get_ema_multi_avg_fn(self.decay)
            self.averaged = AveragedModel(model, multi_avg_fn=average, use_buffers=self.use_buffers)
            self.averaged.requires_grad_(False)
            self._model, self._updates = model, 0
        if self._loaded is not None:
            loaded, self._loaded = self._loaded, None
            self._load(self.averaged, loaded)
        return self.averaged

    def _load(self, averaged: AveragedModel, state: Mapping[str, Any]) -> None:
        self._updates = state["updates"]
        averaged.n_averaged.fill_(self._updates)
        averaged.module.load_state_dict(state["averaged"])

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the number of its steps."""
        if self._loaded is not None:
            return {**super().state_dict(), **self._loaded}
        tensors = {} if self.averaged is None else self.averaged.module.state_dict()
        return {
            **super().state_dict(),
            "updates": self._updates,
            "averaged": {name: value.detach().clone() for name, value in tensors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; before the first step, as soon as the model is known."""
        super().load_state_dict(state)
        if not state["updates"]:
            self.averaged, self._model, self._updates, self._loaded = None, None, 0, None
        elif self.averaged is None:
            self._loaded = {name: state[name] for name in ("updates", "averaged")}
        else:
            self._load(self.averaged, state)


def decay_after(updates: int, decay: float) -> float:
    """Return the decay after a number of averaged steps: small at first, so that untrained weights are soon forgotten.

    >>> decay_after(0, 0.9), decay_after(10, 0.9), decay_after(1000, 0.9)
    (0.1, 0.55, 0.9)
    """
    return min(decay, (1 + updates) / (10 + updates))
