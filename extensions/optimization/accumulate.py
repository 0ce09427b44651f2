"""Gradient accumulation: one optimizer step for several batches, as if they were one large batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from train_manager.core.declarations import fixture, modifies
from train_manager.core.extension import Extension
from train_manager.core.fixtures import Fixtures
from train_manager.loop.windows import require_no_closure
from train_manager.model.optimizers import parameters_with_gradients
from train_manager.rebuilding.recorded import recorded
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@dataclass
class Weight:
    """The weight of the batches in an optimizer's window: the sum of their sizes, in units of the first size."""

    # In these units equal batches have the weight 1, so that a loss that is scaled for float16 does not overflow. A
    # size may be a tensor on a GPU (of several processes), which must not be read on the host in each step.
    first_size: Any
    total: Any = 0.0
    last_step: int | None = None  # of the batch counted last: it counts once, however often it runs backward
    losses: list[Tensor] = field(default_factory=list)  # of the backward passes, each multiplied by its weight
    is_over: bool = False  # the optimizer steps: what is left serves update_loss alone
    running: Tensor | None = None  # the loss of the backward pass that runs, which counts once it has ended

    def of(self, size: Any) -> Any:
        """Return the weight of a batch of this size."""
        return size / self.first_size

    def add(self, size: Any, step_num: int) -> None:
        """Count a backward pass, and its batch."""
        if self.running is not None:
            self.losses.append(self.running)
        self.running = None
        if self.last_step != step_num:
            self.total = self.total + self.of(size)
            self.last_step = step_num


@recorded
class Accumulate(Extension):
    """Step each optimizer once for every ``batches`` batches, with the gradient of the one large batch that they form.

    Each batch counts by its number of examples (``global_batch_size``), also in the shorter window at the end of an
    epoch. This is exact if the loss is a mean over examples and the model treats each example alone; BatchNorm still
    sees small batches.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Accumulate(2))
    >>> result = tm.train()
    >>> tm.step_num, tm.update_num
    (3, 2)

    The windows of several optimizers end in the same batch. The gradient of an optimizer that ``train_batch`` updates
    in some batches only is the mean over these. More than one update of an optimizer in a batch is refused; several
    calls of ``backward`` and one of ``step`` are not.

    A batch that is skipped before its backward pass is not part of the window. A batch that is skipped after it, or
    that fails, ends the window, because its gradient is already in the sum: the next batch begins a new window. If the
    last batch of an epoch is skipped, the window continues in the next epoch. A window that is open as the run ends is
    dropped with a warning.

    Where the length of the data is unknown, it looks one batch ahead before it lets a window continue.

    *Runs at:* the start of ``train_step_batch``, the start and the end of ``train_backward``, the start of
    ``train_optimizer_step``, before extensions that read or change the gradients (priority -20).

    *Asks for:* ``update_begins``, ``step_num`` and ``end_step``; ``last_batch`` if the window would continue;
    ``backward_loss``, ``global_batch_size``, ``optimizer`` and ``optimizer_name``.

    *Leaves behind:* a modified ``update_ends`` and ``backward_loss``, and the mean gradient when
    ``train_optimizer_step`` runs; ``update_loss`` of that stage is the loss of the large batch, as nanoGPT and the
    Trainer of transformers log it (``Accumulate(1)``: of the single batch). Within a window that stage does not open,
    and ``update_num`` stays.

    Args:
        batches: the number of batches for one step.

    Raises:
        InputError: ``batches`` is not a whole number of at least 1; in training, the optimizer requires a closure.
        StageError: in training, an optimizer is updated twice in one batch.
    """

    priority = -20  # before MixedPrecision unscales (-10) and ClipGradients clips (10)
    only_scales_loss = True  # so Compile may compute the gradients of the loss before its hook runs

    def __init__(self, batches: int) -> None:
        self.batches: int = require_count(batches, "batches", at_least=1)
        self._first_step = 0  # `step_num` as the present window began
        self._weights: dict[str, Weight] = {}  # of the open windows, by optimizer

    @modifies("update_ends")
    def pre_train_step_batch(
        self, train_manager: TrainManager, fixtures: Fixtures, update_begins: bool, step_num: int
    ) -> bool:
        if update_begins:
            self._first_step = step_num
        is_full = step_num + 1 - self._first_step >= self.batches
        # `last_batch` comes last, as a fixture and not as a parameter:
        # where the length of the data is unknown, it reads one batch ahead.
        return is_full or step_num + 1 == train_manager.step_limit or bool(fixtures["last_batch"])

    @modifies("backward_loss")
    def pre_train_backward(
        self,
        train_manager: TrainManager,
        optimizer: Optimizer,
        optimizer_name: str,
        backward_loss: Tensor,
        global_batch_size: int | Tensor,
    ) -> Tensor:
        require_no_closure(optimizer, optimizer_name, "Accumulate")
        if optimizer_name not in train_manager.open_windows:
            # The first batch of a window, also after a window that an error has ended in the middle.
            self._weights[optimizer_name] = Weight(global_batch_size)
        # Gradients of a window are sums over batches: weighted by the sizes here, divided by their sum before the step.
        weight = self._weights[optimizer_name]
        weighted: Tensor = backward_loss * weight.of(global_batch_size)
        weight.running = weighted.detach()
        return weighted

    def post_train_backward(self, optimizer_name: str, global_batch_size: int | Tensor, step_num: int) -> None:
        # Counted after the backward pass, so that a batch that fails in it is not part of the window.
        self._weights[optimizer_name].add(global_batch_size, step_num)

    def pre_train_optimizer_step(self, optimizer: Optimizer, optimizer_name: str) -> None:
        weight = self._weights[optimizer_name]
        total, weight.is_over = weight.total, True
        with torch.no_grad():
            for parameter in parameters_with_gradients(optimizer):
                assert parameter.grad is not None
                parameter.grad.div_(total)  # in place and unread: the weight may be a tensor on a GPU

    @fixture("train_optimizer_step")
    def update_loss(self, optimizer_name: str) -> Tensor:
        """Return the loss whose gradient the optimizer steps with: the mean over the examples of the window."""
        weight = self._weights[optimizer_name]
        mean: Tensor = torch.stack(weight.losses).sum() / weight.total
        return mean

    def state_dict(self) -> dict[str, Any]:
        """Return the step at which the window began, and the weight in it for each optimizer."""
        # A window that goes on adds to its list, which must not reach the state.
        windows = {name: weight for name, weight in self._weights.items() if not weight.is_over}
        weights = {name: {**vars(weight), "losses": [*weight.losses]} for name, weight in windows.items()}
        return {**super().state_dict(), "first_step": self._first_step, "weights": weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._first_step = state["first_step"]
        saved = state["weights"].items()
        self._weights = {name: Weight(**{**weight, "losses": [*weight["losses"]]}) for name, weight in saved}
