"""Elastic weight consolidation: a second task is learned near the weights of the first (Kirkpatrick et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor, nn

from train_manager.core.declarations import modifies
from train_manager.core.extension import Extension
from train_manager.data.batch import unpack
from train_manager.data.random_state import preserve_random_state
from train_manager.data.reader import one_pass
from train_manager.loop.arguments import bind_loss
from train_manager.loop.example_losses import row
from train_manager.loop.losses import Losses, require_hooks_of_loss
from train_manager.loop.model_calls import ModelCall
from train_manager.loop.modes import preserve_modes
from train_manager.loop.outputs import count_listed, count_rows, no_targets
from train_manager.loop.overridable import Overridable
from train_manager.loop.ranks import ranks_of
from train_manager.model.modules import plain_name, require_module
from train_manager.model.per_object import name_of_part
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError, did_you_mean, near
from train_manager.telling.findings import Finding
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

# The Fisher information is measured without these methods, so their results would be left out without a word.
OWN: Final = ("unpack_batch", "model_forward", "train_model_forward", "loss_forward", "train_loss_forward")


@recorded
class EWC(Extension):
    """Keep the weights that matter to an earlier phase near their values, so that a later one does not undo it.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(ewc := EWC(weight=1.0, after="first"))
    >>> with tm.run():
    ...     with tm.phase("first"):
    ...         result = tm.train()
    ...     print(ewc.penalty(tm).item())  # at the anchor
    ...     with tm.phase("second", train_data=[(torch.zeros(8, 2), torch.ones(8).long())]):
    ...         result = tm.train()
    0.0
    >>> bool(ewc.penalty(tm) > 0)
    True

    At the end of the phase ``first`` it takes an *anchor*: the weights, and the diagonal of the Fisher information
    ``F``, the mean over examples of the squared gradient of their loss. From then on ``weight / 2 * sum(F * (weights -
    anchor)²)`` is added to the loss of each training batch (arXiv:1612.00796, equation 3; of several anchors, the sum).
    It is measured with the labels of the data, in eval mode; this takes one backward pass per example.

    Without phases call ``anchor(train_manager, "first")`` between two trainings. An anchor is taken once for each name,
    and checkpoints hold it: a program that resumes in the second phase keeps the anchor of the first.

    *Runs at:* the start of ``train``, the end of ``phase``, ``run`` and ``train_loss_forward``, there after extensions
    that weight the loss, such as ``Distil`` (priority 10).

    *Asks for:* ``phase_name``, ``loss``, ``losses``; the model, the loss and the training data.

    *Leaves behind:* ``loss`` with the penalty, which ``losses["ewc"]`` has alone.

    Args:
        weight: of the penalty, 0 or more; the larger, the less is forgotten and the less is learned.
        after: names of phases at whose end an anchor is taken.
        examples: how many examples of the training data the Fisher information is measured on.

    Raises:
        InputError: an argument is invalid; or an anchor is taken with a loss that is not called as ``loss(prediction,
            targets)``, or with an own method such as ``model_forward``; or it trains beside ``SAM``.
    """

    priority = 10  # after Distil (0), which would multiply the penalty with the weight of the labels
    needs_whole_model = True  # it calls the model by itself, which strategy "fsdp" of Distributed refuses

    def __init__(self, weight: float, after: str | Iterable[str] = (), *, examples: int = 200) -> None:
        self.weight: float = require_number(weight, "weight", at_least=0)
        self.after = (after,) if isinstance(after, str) else tuple(after)
        self.examples = require_count(examples, "examples", at_least=1)
        self._anchors: dict[str, Anchor] = {}

    def pre_train(self, train_manager: TrainManager) -> None:
        require_hooks_of_loss(train_manager, "EWC")

    def post_phase(self, train_manager: TrainManager, phase_name: str) -> None:
        # A stop of the whole run leaves the phase unfinished: a resumed program trains the rest, and is here again.
        if phase_name in self.after and not train_manager._progress.run.stops_run:
            self.anchor(train_manager, phase_name)

    def post_run(self, train_manager: TrainManager) -> None:
        phases = train_manager._program.phases
        # With an anchor the names are right, and the others are of phases that may come in later runs.
        if self.after and not self._anchors and len(phases) > 1:
            first = self.after[0]
            what = f"EWC has taken no anchor after the phase {first!r}: this program has had {', '.join(phases)}"
            cure = did_you_mean(near(first, phases)) or 'name the phases as they are opened: EWC(after="first")'
            train_manager.add_finding(Finding("EWC", "warning", what, cure=cure, code="no-anchor"))

    def anchor(self, train_manager: TrainManager, name: str) -> None:
        """Take an anchor of the present weights with the present training data, unless there is one of this name."""
        if name in self._anchors:  # a program that resumes opens the phase again, with the weights of a later one
            return
        model = require_module(train_manager.model, "EWC")
        trained = {plain_name(name): one for name, one in model.named_parameters() if one.requires_grad}
        with preserve_random_state(), preserve_modes(model), torch.enable_grad():
            model.eval()  # dropout off; BatchNorm needs the statistics of the training for a batch of one
            importance = fisher_diagonal(trained, islice(_losses(train_manager, model), self.examples))
        # A loader gives each process other examples; checkpoints have the anchor of rank 0, which a resumed one loads.
        importance = ranks_of(train_manager).of_first({name: one.cpu() for name, one in importance.items()})
        values = {name: parameter.detach().clone() for name, parameter in trained.items()}
        self._anchors[name] = Anchor(name_of_part(train_manager, "model"), values, importance)

    def penalty(self, train_manager: TrainManager) -> Tensor | None:
        """Return what is added to the loss now; None if no anchor is of the present model."""
        of = name_of_part(train_manager, "model")
        anchors = [anchor for anchor in self._anchors.values() if anchor.model == of]
        if not anchors:
            return None
        parameters = {plain_name(name): one for name, one in train_manager.model.named_parameters()}
        return self.weight / 2 * torch.stack([anchor.distance(parameters) for anchor in anchors]).sum()

    @modifies("loss")
    def post_train_loss_forward(self, train_manager: TrainManager, loss: Tensor, losses: Losses) -> Tensor:
        penalty = self.penalty(train_manager)
        if penalty is None:
            return loss
        losses.collect("ewc", penalty.detach())
        return loss + penalty

    def state_dict(self) -> dict[str, Any]:
        """Return the anchors: weights and Fisher information."""
        return {**super().state_dict(), "anchors": {name: one.state_dict() for name, one in self._anchors.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._anchors = {name: Anchor(**one) for name, one in state["anchors"].items()}


@final
class Anchor:
    """The weights at the end of a phase, and how much each of them mattered; never changed."""

    def __init__(self, model: str, values: Mapping[str, Tensor], importance: Mapping[str, Tensor]) -> None:
        self.model, self.values, self.importance = model, dict(values), dict(importance)

    def state_dict(self) -> dict[str, Any]:
        """Return the arguments of an equal anchor; the tensors are not copied, as they do not change."""
        return {"model": self.model, "values": dict(self.values), "importance": dict(self.importance)}

    def distance(self, parameters: Mapping[str, nn.Parameter]) -> Tensor:
        """Return the squared distance of parameters from their values here, weighted by their importance."""
        terms = []
        for name, parameter in parameters.items():
            # A layer that is new, or has grown, or was exchanged since, has no value to stay near.
            if name not in self.values or self.values[name].shape != parameter.shape:
                continue
            for kept in (self.values, self.importance):
                kept[name] = kept[name].to(parameter.device)  # once: it comes from the CPU
            terms.append((self.importance[name] * (parameter - self.values[name]).square()).sum())
        return torch.stack(terms).sum() if terms else torch.zeros(())


def fisher_diagonal(parameters: Mapping[str, nn.Parameter], losses: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return the mean squared gradient of losses, each of one example, by the name of the parameter.

    >>> weight = nn.Parameter(torch.tensor([1., 1.]))
    >>> examples = torch.tensor([[1., 0.], [3., 0.]])
    >>> fisher_diagonal({"weight": weight}, (weight @ example for example in examples))
    {'weight': tensor([5., 0.])}
    """
    sums, count = {name: torch.zeros_like(one) for name, one in parameters.items()}, 0
    for loss in losses:
        count += 1
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                sums[name].add_(gradient.square())
    return {name: one.detach() / max(count, 1) for name, one in sums.items()}


def _losses(train_manager: TrainManager, model: nn.Module) -> Iterator[Tensor]:
    """Yield the loss of each example of the training data, one after the other."""
    loss = _plain_loss(train_manager)
    call = ModelCall(model)
    with one_pass(train_manager.train_data or ()) as batches:
        for batch in batches:
            unpacked = unpack(batch)
            if listed := count_listed(unpacked, call.spreads):
                what = f"EWC calls the model with one example, but a batch has lists of {listed} examples"
                cure = "anchor with train_data whose batches are tensors, with a row for each example"
                raise InputError(what, name="batch", asked_by="EWC", cure=cure)
            for number in range(size := count_rows(batch, call.spreads, unpacked)):
                example = unpack(train_manager._setup.on_device(row(batch, number, size)))
                if "targets" not in example:
                    raise no_targets(batch)
                yield loss(call(model, example["inputs"]), example["targets"])


def _plain_loss(train_manager: TrainManager) -> Any:
    own = next((name for name in OWN if train_manager._overrides(name, Overridable)), None)
    if own is not None:
        what = f"EWC calls the model and the loss with one example, without {type(train_manager).__name__}.{own}"
    elif (objective := train_manager.objective) is not None and not objective.predicts_as_usual:
        what = f"EWC calls the model and the loss with one example, without {type(objective).__name__}.predict"
    elif train_manager.loss is None or bind_loss(train_manager.loss) is not None:
        what = "EWC needs a loss that is called as loss(prediction, targets)"
    else:
        return train_manager.loss
    cure = "give the model and the loss to TrainManager(model=..., loss=...) in this form, as F.cross_entropy has"
    raise InputError(what, name=own or "loss", asked_by="EWC", cure=cure)
