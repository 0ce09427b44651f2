"""Mixed precision: matrix products in 16 bits, weights and sums in 32, and a loss scale where 16 bits need one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_manager.core.declarations import fixture, modifies
from train_manager.core.extension import Extension
from train_manager.core.outcome import SkipStage
from train_manager.data.batch import map_batch
from train_manager.model.modules import Chosen, ModulesIn, require_module
from train_manager.model.optimizers import optimizer_of, parameters_with_gradients
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Finding

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

IN_A_ROW: Final = 20
"""So many skipped steps of one optimizer are told: a scale of 65,536 is below 1 after 17, so it is not the scale."""


@recorded
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

    Autocast covers a whole batch, with its hooks and what a ``train_batch`` of your own computes, except for backward
    passes and steps of optimizers. Each step ends what autocast has kept of the weights in 16 bits.

    With ``torch.float16`` small gradients would become zero, so the loss is scaled up before the backward pass, and the
    gradients are scaled down before other extensions read them. Each optimizer has a ``GradScaler`` of torch for that.
    If a gradient overflows, ``train_optimizer_step`` is skipped for this optimizer, ``update_num`` stays, and the scale
    is halved. This reads one number on the host per step of an optimizer, as ``GradScaler`` does by itself. Twenty
    skipped steps in a row are told in ``tm.findings``.

    ``MixedPrecision(optimizer="generator")`` is for one of several optimizers, named after its part of the model: the
    forward of ``model.generator`` alone runs in 16 bits, and returns 32 bits; a float16 loss is scaled for this
    optimizer only. In a phase whose model has no such part it rests, with a warning.

    *Runs at:* the start of ``run``; around ``train_step_batch``, ``eval_step_batch``, ``predict_step_batch``,
    ``train_backward`` and ``train_optimizer_step``; for float16 the start of these two, after ``Accumulate`` and before
    hooks that clip (priority -10).

    *Asks for:* ``backward_loss``, ``optimizer`` and ``optimizer_name``; the model.

    *Leaves behind:* the fixture ``autocast`` of ``run``, for hooks that call the model, also after a change of weights
    (``with autocast(): ...``); for float16 a modified ``backward_loss``.

    Args:
        dtype: ``torch.bfloat16`` or ``torch.float16``.
        device_type: ``"cuda"``, ``"cpu"``, ...; None takes the device of the model's first parameter.
        optimizer: the name of one of several optimizers, and of a part of the model; None for the whole model.

    Attributes:
        scalers: the ``GradScaler`` of each optimizer, made at its first backward pass; empty for bfloat16, which needs
            none.

    Raises:
        InputError: ``dtype``, ``device_type`` or ``optimizer`` is invalid, or the model trains itself.
    """

    priority = -10  # after Accumulate (-20), before SAM (-5) and ClipGradients (10)

    def __init__(
        self, dtype: torch.dtype = torch.bfloat16, *, device_type: str | None = None, optimizer: str | None = None
    ) -> None:
        if dtype not in (torch.bfloat16, torch.float16):
            raise _unknown_dtype(dtype)
        self.dtype = dtype
        self.device_type: str | None = _check_device_type(device_type)
        self.optimizer = optimizer
        self.scalers: dict[str, GradScaler] = {}
        self._device_type = self.device_type or "cpu"  # of the model in the present batch
        self._scales: dict[str, float] = {}  # the last values that were read on the host, by optimizer
        self._skipped = Counter[str]()  # by optimizer: the skipped steps since its last step
        self._loaded: dict[str, Any] = {}  # loaded states that wait for their optimizers, by name
        # In a phase the model may lack the module; in the model of the run `pre_run` refuses that.
        self._present = ModulesIn([optimizer or ""], "MixedPrecision", self._module)

    def pre_run(self, train_manager: TrainManager) -> None:
        if self.optimizer is not None:
            optimizer_of(train_manager, self.optimizer, "MixedPrecision")  # a wrong name is an error
        self._module(require_module(train_manager.model, "MixedPrecision"))  # raises if there is no such module

    # ---- forward -----------------------------------------------------------------------------------------------------

    @fixture("run")
    def autocast(self, train_manager: TrainManager) -> Callable[[], AbstractContextManager[None]]:
        """Return a function that makes the ``with`` block in which the model runs."""
        return partial(self._afresh, train_manager)

    def around_train_step_batch(self, train_manager: TrainManager) -> Iterator[None]:
        with self._precision(train_manager):
            yield

    around_eval_step_batch = around_predict_step_batch = around_train_step_batch

    def around_train_backward(self) -> Iterator[None]:
        with torch.autocast(self._device_type, enabled=False):
            yield

    def around_train_optimizer_step(self) -> Iterator[None]:
        with torch.autocast(self._device_type, enabled=False):
            yield
        torch.clear_autocast_cache()  # it holds 16-bit copies of the weights from before the step

    def _precision(self, train_manager: TrainManager) -> AbstractContextManager[Any]:
        modules = self._present.of(train_manager.model)
        if not modules:
            return nullcontext()
        first = next(train_manager.model.parameters(), None)
        self._device_type = self.device_type or ("cpu" if first is None else first.device.type)
        autocast = partial(torch.autocast, self._device_type, self.dtype)
        return autocast() if self.optimizer is None else _only_in(modules[self.optimizer], autocast)

    @contextmanager
    def _afresh(self, train_manager: TrainManager) -> Iterator[None]:
        """Run under autocast without its 16-bit copies of weights, which a hook may have changed, as ``SAM`` does."""
        if any(train_manager[name] is self for name in train_manager.paused_extensions):
            yield  # paused: the fixture is alive for the whole run, but batches are in 32 bits now
            return
        torch.clear_autocast_cache()
        try:
            with self._precision(train_manager):
                yield
        finally:
            torch.clear_autocast_cache()

    def _module(self, model: nn.Module, name: Chosen = "") -> dict[str, nn.Module]:
        """Return the module that runs in 16 bits, by the name of its optimizer."""
        part = model if self.optimizer is None else getattr(model, self.optimizer, None)
        if isinstance(part, nn.Module):
            return {self.optimizer or "": part}
        what = f"MixedPrecision(optimizer={self.optimizer!r}) needs model.{self.optimizer}, which is not a module"
        parts = ", ".join(name for name, _ in model.named_children()) or "there is none"
        cure = f"name the optimizer after a part ({parts}), or leave it out"
        raise InputError(what, name="optimizer", asked_by="MixedPrecision", cure=cure)

    # ---- backward, for float16 ---------------------------------------------------------------------------------------

    @modifies("backward_loss")
    def pre_train_backward(self, backward_loss: Tensor, optimizer_name: str) -> Tensor:
        if self.dtype is not torch.float16 or self.optimizer not in (None, optimizer_name):
            return backward_loss
        return self._scaler(optimizer_name).scale(backward_loss)

    def pre_train_optimizer_step(self, optimizer: Optimizer, optimizer_name: str, train_manager: TrainManager) -> None:
        # A loaded scaler counts: the checkpoint may have been written between a scaled backward pass and its step.
        is_scaled = optimizer_name in self.scalers or optimizer_name in self._loaded
        scaler = self._scaler(optimizer_name) if is_scaled else None
        if scaler is None or next(parameters_with_gradients(optimizer), None) is None:
            return
        scaler.unscale_(optimizer)
        scaler.update()
        before, self._scales[optimizer_name] = self._scales[optimizer_name], scaler.get_scale()  # waits for the GPU
        if self._scales[optimizer_name] < before:  # only an overflow lowers the scale
            optimizer.zero_grad(set_to_none=True)
            self._skipped[optimizer_name] += 1
            if self._skipped[optimizer_name] == IN_A_ROW:
                train_manager.add_finding(_overflow(optimizer_name))
            raise SkipStage
        self._skipped.pop(optimizer_name, None)

    def _scaler(self, optimizer_name: str) -> GradScaler:
        if optimizer_name not in self.scalers:
            scaler = self.scalers[optimizer_name] = GradScaler(self._device_type)
            if optimizer_name in self._loaded:
                scaler.load_state_dict(self._loaded.pop(optimizer_name))
                # The tensors of the scaler, which get_scale() reads, are made by the first call of scale().
                scaler.scale(torch.zeros((), device=self._device_type))
            self._scales[optimizer_name] = scaler.get_scale()
        return self.scalers[optimizer_name]

    # ---- saved state -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the loss scale and its growth for each optimizer, by name; none for bfloat16."""
        scalers = self._loaded | {name: scaler.state_dict() for name, scaler in self.scalers.items()}
        skipped = {"skipped": dict(self._skipped)} if self._skipped else {}
        return {**super().state_dict(), "scalers": scalers, **skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned, each scale at the next backward pass of its optimizer."""
        super().load_state_dict(state)
        self._loaded, self._skipped = dict(state["scalers"]), Counter(state.get("skipped", {}))
        self.scalers.clear()


@contextmanager
def _only_in(module: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Run the forward of one module under autocast, for the time of a ``with`` block; it returns 32 bits."""
    entered: list[AbstractContextManager[Any]] = []

    def enter(*_: Any) -> None:
        entered.append(autocast())
        entered[-1].__enter__()

    def leave(module: Any = None, inputs: Any = None, output: Any = None) -> Any:
        if entered:  # empty if another hook of the module has failed before `enter`
            entered.pop().__exit__(None, None, None)
        return _in_32_bits(output)

    with module.register_forward_pre_hook(enter, prepend=True), module.register_forward_hook(leave, always_call=True):
        try:
            yield
        finally:
            while entered:  # Ctrl-C within the forward keeps torch from calling `leave`
                leave()


def _in_32_bits(value: Any) -> Any:
    """Return the value with tensors of 16 bits in 32, also inside dicts, lists and tuples."""

    def widened(leaf: Any) -> Any:
        return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in (torch.bfloat16, torch.float16) else leaf

    return map_batch(value, widened)


def _overflow(optimizer_name: str) -> Finding:
    what = f"{IN_A_ROW} steps in a row were skipped, as the gradients overflow in float16 at any scale"
    where = "" if optimizer_name == "optimizer" else optimizer_name
    cure = "give MixedPrecision(torch.bfloat16), or look for inf and nan: NonFiniteFinder()"
    return Finding("mixed precision", "warning", what, where, cure, code="gradient-overflow")


def _unknown_dtype(value: object) -> InputError:
    what = f"dtype must be torch.bfloat16 or torch.float16, but is {value!r:.60}"
    cure = "give one of them: MixedPrecision(torch.bfloat16)"
    if isinstance(value, str) and _is_device_type(value):  # as torch.autocast("cuda") takes it
        cure = f"name the device: MixedPrecision(device_type={value!r})"
    elif isinstance(value, str):
        # The words of Lightning and others: "bf16", "bf16-mixed", "bfloat16"; "fp16", "16-mixed", "half".
        dtype = "float16" if ("16" in value and "b" not in value) or "half" in value else "bfloat16"
        cure = f"give the dtype of torch: MixedPrecision(torch.{dtype})"
    return InputError(what, name="dtype", cure=cure)


def _check_device_type(value: str | None) -> str | None:
    if value is None or _is_device_type(value):
        return value
    raise InputError(
        f"device_type must be a device with autocast, but is {value!r:.60}",
        name="device_type",
        cure='give "cuda" or "cpu", or leave it out',
    )


def _is_device_type(value: str) -> bool:
    try:
        return torch.amp.is_autocast_available(value)
    except (RuntimeError, TypeError):  # not the name of a device, or not a text
        return False
