"""Distillation: a student learns the softened answers of a teacher (Hinton, Vinyals and Dean 2015)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from train_manager.core.declarations import modifies
from train_manager.core.extension import Extension
from train_manager.loop.losses import Losses, require_hooks_of_loss
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.outputs import loss_in
from train_manager.loop.overridable import Overridable
from train_manager.model.modules import require_module
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

Autocast = Callable[[], AbstractContextManager[Any]]
"""Opens the precision of the training, as the fixture ``autocast`` does."""


@recorded
class Distil(Extension):
    """Train the model on the answers of a teacher, beside the labels or in place of them.

    >>> from train_manager.testing import tiny_manager
    >>> teacher = nn.Linear(2, 2)
    >>> tm = tiny_manager(Distil(teacher, temperature=4.0, weight=0.9), epochs=2)
    >>> result = tm.train()
    >>> unlabelled = [inputs for inputs, _ in tm.train_data]
    >>> tm = tiny_manager(Distil(teacher), loss=None, train_data=unlabelled, epochs=2)
    >>> result = tm.train()

    The loss of a training batch becomes ``(1 - weight) * loss + weight * distillation_loss(prediction, taught,
    temperature)``, where ``taught`` is what the teacher predicts for the inputs of the model (arXiv:1503.02531). With
    ``loss=None`` the second term is the whole loss, also in evaluation: so neither data need labels.

    The teacher is called in eval mode and without gradients, in the precision of the training, on the device of the
    model, to which it is moved. It is not trained, stays in eval mode, and no checkpoint has its weights.

    *Runs at:* the start of ``run`` and ``train``, the start and the end of ``train_loss_forward``, the start of
    ``eval_loss_forward``.

    *Asks for:* ``inputs``, ``prediction``, ``loss``, ``losses``; ``autocast`` if it is alive.

    *Leaves behind:* ``loss`` with the term of the teacher, which ``losses["distil"]`` has alone, without its weight.

    Args:
        teacher: a trained model that takes the same inputs, and gives logits of the same shape, with the classes in
            dimension 1, as ``F.cross_entropy`` takes them.
        temperature: divides the logits of both, so that small probabilities count too.
        weight: of the teacher, from 0 to 1; the labels have the rest.

    Raises:
        InputError: an argument is invalid; the teacher and the model share a module; their predictions are not
            tensors of one shape; or it trains beside ``SAM``.
    """

    def __init__(self, teacher: nn.Module, temperature: float = 4.0, weight: float = 0.9) -> None:
        if not isinstance(teacher, nn.Module):
            raise _invalid(f"teacher must be a module, but is {teacher!r:.60}", "give a trained model: Distil(model)")
        self.teacher = teacher
        self.temperature: float = require_number(temperature, "temperature", above=0)
        self.weight: float = require_number(weight, "weight", at_least=0, at_most=1)
        self._call = ModelCall(teacher)

    def pre_run(self, train_manager: TrainManager) -> None:
        model = require_module(train_manager.model, "Distil")
        # In eval mode with the teacher, such a module would not train as the rest of the model.
        if not {*model.modules()}.isdisjoint(self.teacher.modules()):
            what = "the teacher of Distil and the model share a module"
            raise _invalid(what, "give a copy that is not trained: Distil(copy.deepcopy(model))")
        self.teacher.eval()
        first = next(model.parameters(), None)
        if first is not None:
            self.teacher.to(first.device)

    def pre_train(self, train_manager: TrainManager) -> None:
        require_hooks_of_loss(train_manager, "Distil")

    def pre_train_loss_forward(
        self,
        train_manager: TrainManager,
        inputs: Any,
        prediction: Any,
        losses: Losses,
        autocast: Autocast = nullcontext,
    ) -> None:
        if _has_no_loss(train_manager, prediction):
            losses.add("distil", self.term(inputs, prediction, autocast))

    pre_eval_loss_forward = pre_train_loss_forward

    @modifies("loss")
    def post_train_loss_forward(
        self,
        train_manager: TrainManager,
        loss: Tensor,
        inputs: Any,
        prediction: Any,
        losses: Losses,
        autocast: Autocast = nullcontext,
    ) -> Tensor:
        if _has_no_loss(train_manager, prediction):  # the hook before it has added the term as the whole loss
            return loss
        term = self.term(inputs, prediction, autocast)
        losses.collect("distil", term.detach())
        return (1 - self.weight) * loss + self.weight * term

    def term(self, inputs: Any, prediction: Tensor, autocast: Autocast = nullcontext) -> Tensor:
        """Return how far a prediction is from that of the teacher."""
        with torch.no_grad(), autocast():
            taught = self._call(self.teacher, inputs)
        shapes = [tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__ for one in (prediction, taught)]
        if len({*shapes}) > 1 or len(shapes[0]) < 2 or isinstance(shapes[0], str):
            what = f"Distil needs logits of one shape, but the model gives {shapes[0]} and the teacher {shapes[1]}"
            raise _invalid(what, "give a teacher with the same classes, in dimension 1")
        return distillation_loss(prediction, taught, self.temperature)

    def state_dict(self) -> dict[str, Any]:
        """Return no weights of the teacher: it is an argument, and does not change."""
        return super().state_dict()


def distillation_loss(prediction: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """Return the divergence of softened predictions from softened answers, times the square of the temperature.

    The gradients of softened predictions are smaller by this square, so that the term keeps its size beside others.

    >>> distillation_loss(torch.tensor([[0., 2.]]), torch.tensor([[0., 4.]]), temperature=2.0)
    tensor(0.2685)

    Args:
        prediction: the logits of the student, with the classes in dimension 1.
        taught: the logits of the teacher.
        temperature: divides both.
    """
    softened = F.log_softmax(prediction / temperature, dim=1), F.log_softmax(taught / temperature, dim=1)
    divergence = F.kl_div(*softened, reduction="none", log_target=True).sum(1)
    return divergence.mean() * temperature**2


def _has_no_loss(train_manager: TrainManager, prediction: Any) -> bool:
    own = ("loss_forward", "train_loss_forward", "eval_loss_forward")
    is_own = any(train_manager._overrides(name, Overridable) for name in own)
    return train_manager.loss is None and not is_own and loss_in(prediction) is None


def _invalid(what: str, cure: str) -> InputError:
    return InputError(what, name="teacher", asked_by="Distil", cure=cure)
