"""Mixed precision: matrix products in 16 bits, weights and sums in 32, and a loss scale where 16 bits need one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_manager.core.decorators import fixture, modifies
from train_manager.core.errors import InputError
from train_manager.core.extension import Extension
from train_manager.core.outcome import SkipStage
from train_manager.model.modules import require_module
from train_manager.model.optimizers import parameters_with_gradients

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


class MixedPrecision(Extension):
    """Run the model and the loss under torch's autocast, in training and evaluation.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(MixedPrecision())
    >>> tm.add_extension(post_train_loss_forward=lambda prediction: print(prediction.dtype)).priority
    0
    >>> result = tm.train_epochs(1)
    torch.bfloat16
    torch.bfloat16
    torch.bfloat16

    With ``torch.float16`` small gradients would become zero, so the loss is scaled up before the backward pass, and the
    gradients are scaled down before other extensions read them (torch's ``GradScaler``). If a gradient overflows,
    ``train_optimizer_step`` is skipped, ``update_num`` stays, and the scale is halved. This reads one number on the
    host per step of the optimizer, as ``GradScaler`` does by itself.

    *Runs at:* the start of ``run``; around ``train_model_forward``, ``train_loss_forward``, ``eval_model_forward`` and
    ``eval_loss_forward``; for float16 the start of ``train_backward`` and of ``train_optimizer_step``, after
    ``Accumulate`` and before hooks that clip (priority -10).

    *Asks for:* ``backward_loss``; the model and the optimizer.

    *Leaves behind:* the fixture ``autocast`` of ``run``, for hooks that call the model (``with autocast(): ...``); for
    float16 a modified ``backward_loss``.

    Args:
        dtype: ``torch.bfloat16`` or ``torch.float16``.
        device_type: ``"cuda"``, ``"cpu"``, ...; None takes the device of the model's first parameter.

    Attributes:
        scaler: the ``GradScaler`` for float16, from the first run on; None for bfloat16, which needs none.

    Raises:
        InputError: ``dtype`` or ``device_type`` is invalid.
    """

    priority = -10  # after Accumulate (-20), before SAM (-5) and ClipGradients (10)

    def __init__(self, dtype: torch.dtype = torch.bfloat16, *, device_type: str | None = None) -> None:
        if dtype not in (torch.bfloat16, torch.float16):
            what = f"dtype must be torch.bfloat16 or torch.float16, but is {dtype!r:.60}"
            raise InputError(what, name="dtype", cure="give one of them: MixedPrecision(torch.bfloat16)")
        self.dtype = dtype
        self.device_type = _checked_device_type(device_type)
        self._device_type = self.device_type or "cpu"  # of the present run
        self.scaler: GradScaler | None = None
        self._scale = 0.0  # the last value that was read on the host
        self._loaded: dict[str, Any] | None = None  # a loaded state that waits for the scaler

    def pre_run(self, train_manager: TrainManager) -> None:
        first = next(require_module(train_manager.model, "MixedPrecision").parameters(), None)
        self._device_type = self.device_type or ("cpu" if first is None else first.device.type)
        if self.scaler is None and self.dtype is torch.float16:
            self.scaler = GradScaler(self._device_type)
            self._scale = self.scaler.get_scale()
            self._restore_scale()

    # ---- forward -----------------------------------------------------------------------------------------------------

    @fixture("run")
    def autocast(self) -> Any:
        """Return a function that makes the ``with`` block in which the model runs."""
        return self._autocast

    def around_train_step_batch(self) -> Iterator[None]:
        with self._autocast():
            yield

    around_eval_step_batch = around_predict_step_batch = around_train_step_batch

    def around_train_backward(self) -> Iterator[None]:
        with torch.autocast(self._device_type, enabled=False):
            yield

    def around_train_optimizer_step(self) -> Iterator[None]:
        with torch.autocast(self._device_type, enabled=False):
            yield
        torch.clear_autocast_cache()  # it has the weights of before the step in 16 bits

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device_type, self.dtype)

    # ---- backward, for float16 ---------------------------------------------------------------------------------------

    @modifies("backward_loss")
    def pre_train_backward(self, backward_loss: Tensor) -> Tensor:
        return backward_loss if self.scaler is None else self.scaler.scale(backward_loss)

    def pre_train_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.scaler is None or next(parameters_with_gradients(optimizer), None) is None:
            return
        self.scaler.unscale_(optimizer)
        self.scaler.update()
        before, self._scale = self._scale, self.scaler.get_scale()  # waits for the device
        if self._scale < before:  # only an overflow lowers the scale
            optimizer.zero_grad(set_to_none=True)
            raise SkipStage

    # ---- saved state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the loss scale and its growth; None for bfloat16."""
        return {**super().state_dict(), "scaler": self._loaded if self.scaler is None else self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned; before the first run, as soon as it opens."""
        super().load_state_dict(state)
        self._loaded = state["scaler"]
        self._restore_scale()

    def _restore_scale(self) -> None:
        if self.scaler is not None and self._loaded is not None:
            self.scaler.load_state_dict(self._loaded)
            self._scale = self.scaler.get_scale()


def _checked_device_type(value: str | None) -> str | None:
    try:
        if value is None or torch.amp.is_autocast_available(value):
            return value
    except (RuntimeError, TypeError):  # not the name of a device, or not a text
        pass
    raise InputError(
        f"device_type must be a device with autocast, but is {value!r:.60}",
        name="device_type",
        cure='give "cuda" or "cpu", or leave it out',
    )
