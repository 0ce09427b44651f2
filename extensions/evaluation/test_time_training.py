"""Test-time training: a model that adapts to each evaluation set by a loss without labels, and is put back after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from train_manager.core.calls import NamedCall
from train_manager.core.extension import Extension
from train_manager.data.random_state import preserve_random_state, random_state, set_random_state
from train_manager.data.shares import ALONE
from train_manager.loop.modes import preserve_modes
from train_manager.loop.probe import another_batch
from train_manager.loop.ranks import ranks_of
from train_manager.model.buffers import preserve_buffers
from train_manager.model.modules import Chosen, choose_modules, require_module
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_count, require_number

if TYPE_CHECKING:
    from train_manager.manager import TrainManager

NORMS: Final = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
OF_ONE_ROW: Final = (
    "TestTimeTraining lets BatchNorm use the statistics of the batch, and a batch of one example has none: give "
    "batches of several examples, or TestTimeTraining(batch_statistics=False)"
)
LABELLED: Final = ("targets", "batch", "loss")  # fixtures that have labels in them


def entropy(prediction: Tensor) -> Tensor:
    """Return the mean entropy of the classes that logits give, the loss of Tent (Wang et al. 2021, arXiv:2006.10726).

    >>> entropy(torch.zeros(5, 2))  # log(2), of two classes that are equally probable
    tensor(0.6931)
    """
    return -(prediction.softmax(1) * prediction.log_softmax(1)).sum(1).mean()


@recorded
class TestTimeTraining(Extension):
    """Adapt the model to the batches of an evaluation set without their labels, and put it back after the set.

    Each batch is first trained on, by a loss that needs no labels, and then evaluated; the next batch continues from
    there. So a model can follow inputs that have changed since the training, as by noise, fog or another camera.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(TestTimeTraining(modules=["2"], steps=3, lr=0.1), epochs=5)
    >>> result = tm.train()
    >>> before = tm.model[2].weight.clone()
    >>> sure = tm.predict(torch.rand(5, 2))  # adapted to these five inputs
    >>> tm.model[2].weight.equal(before)
    True

    As it is made here, this is Tent (Wang et al. 2021, arXiv:2006.10726): norms over the batch use its own statistics,
    and the weights and biases of all norms follow the gradient of the entropy of the predictions. With a loss of a
    self-supervised task, which the model was trained on too, and ``modules=["trunk"]``, it is the online form of
    test-time training (Sun et al. 2020, arXiv:1909.13231). ``steps=0`` uses the statistics of the batches alone:
    measure it first. In ``examples/test_time_training.py`` it gives all of the gain (faint digits 0.35 -> 0.99, noisy
    ones 0.54 -> 0.64), entropy and a second task add nothing to it, and inverted digits get worse (0.02 -> 0.01).

    The weights, buffers, modes and random states, and ``requires_grad``, are after a set as they were before it, also
    after an error. The optimizer is one of its own, and gradients of the training are not touched. ``predict`` adapts
    like a set.

    *Runs at:* the start of ``run`` and ``train``; around ``eval_step_epoch`` and ``predict``, inside of ``EMA``
    (priority 100); and the start of ``eval_step_batch`` and ``predict_step_batch``.

    *Asks for:* the model, ``batch`` and ``datasource_name``; for its loss ``inputs``, ``model`` and ``prediction``.

    *Leaves behind:* predictions, and so metrics, of the adapted model.

    Args:
        loss: a function of fixtures such as ``inputs``, ``model`` and ``prediction`` that returns a scalar.
        sets: the names of the evaluation sets that it adapts to; None for all.
        modules: the modules whose parameters adapt: names, patterns or modules; None for the norms of the model.
        steps: of the optimizer, Adam, on each batch.
        lr: its learning rate.
        batch_statistics: whether BatchNorm uses the statistics of the batch in place of those of the training.

    Raises:
        InputError: ``loss`` names a fixture that has labels in it, or ``steps`` or ``lr`` is invalid; in a run, several
            processes train together, a module, a set or norms are missing, or the loss has no gradient.
    """

    __test__ = False  # pytest collects classes of this name
    priority = 100  # EMA (0) first puts its weights into the model

    def __init__(
        self,
        loss: Callable[..., Tensor] = entropy,
        sets: str | Sequence[str] | None = None,
        modules: Iterable[Chosen] | None = None,
        steps: int = 1,
        lr: float = 1e-3,
        batch_statistics: bool = True,
    ) -> None:
        self.loss, self._loss = loss, NamedCall(loss)
        labelled = next((name for name in LABELLED if name in self._loss.parameters), None)
        if labelled is not None or self._loss.takes_rest:
            what = f"the loss of TestTimeTraining may not ask for {labelled or 'all fixtures (**)'}, which has labels"
            cure = "make it a function of inputs, model or prediction"
            raise InputError(what, name="loss", asked_by="TestTimeTraining", cure=cure)
        self.sets = [sets] if isinstance(sets, str) else None if sets is None else [*sets]
        self.modules = None if modules is None else [*modules]
        self.steps, self.lr = require_count(steps, "steps", at_least=0), require_number(lr, "lr", above=0)
        self.batch_statistics = batch_statistics
        self._adapted: Adapted | None = None  # while a set is read that it adapts to

    def pre_run(self, train_manager: TrainManager) -> None:
        self._parameters(train_manager)  # what an evaluation would refuse is an error before the first step

    def pre_train(self, train_manager: TrainManager) -> None:
        sets = train_manager.eval_data  # empty in a phase that does not evaluate
        missing = next((name for name in self.sets or () if name not in sets), None)
        if sets and missing is not None:
            what = f"TestTimeTraining was given the set {missing!r}, but eval_data has {' and '.join(map(repr, sets))}"
            cure = "name the sets as in eval_data: TestTimeTraining(sets=[...])"
            raise InputError(what, name="sets", asked_by="TestTimeTraining", cure=cure)

    def around_eval_step_epoch(self, datasource_name: str, train_manager: TrainManager) -> Iterator[None]:
        if self.sets is not None and datasource_name not in self.sets:
            yield
        else:
            with self._adapting(train_manager):
                yield

    def around_predict(self, train_manager: TrainManager) -> Iterator[None]:
        with self._adapting(train_manager):
            yield

    def pre_eval_step_batch(self, batch: Any, train_manager: TrainManager) -> None:
        self._adapt(train_manager, "eval", batch)

    def pre_predict_step_batch(self, batch: Any, train_manager: TrainManager) -> None:
        self._adapt(train_manager, "predict", batch)

    def _adapt(self, train_manager: TrainManager, kind: str, batch: Any) -> None:
        adapted, store = self._adapted, train_manager._store
        if adapted is not None and self.steps:
            with adapted.own_random_state(), another_batch(store, kind, batch):
                for _ in range(self.steps):
                    adapted.step(lambda: self._loss_of(train_manager))

    def _loss_of(self, train_manager: TrainManager) -> Tensor:
        if "prediction" in self._loss.parameters:
            prediction, cells = train_manager._chosen.eval_model_forward(), train_manager._store.cells
            if "prediction" in train_manager.fixtures:
                cells["prediction"].value = prediction  # of an earlier step on this batch
            else:
                train_manager.fixtures.define_all({"prediction": prediction})
        found: Tensor = self._loss(train_manager._store)
        return found

    def _parameters(self, train_manager: TrainManager) -> list[nn.Parameter]:
        """Return the parameters that adapt, each once."""
        if ranks_of(train_manager).place is not ALONE:
            what = "TestTimeTraining adapts to whole batches in their order, but several processes share them"
            cure = "leave it out, and evaluate with it in one process"
            raise InputError(what, name="ranks", asked_by="TestTimeTraining", cure=cure)
        module = require_module(train_manager.model, "TestTimeTraining")
        if self.modules is None:
            chosen: Iterable[nn.Module] = (one for one in module.modules() if isinstance(one, NORMS))
        else:
            chosen = choose_modules(module, self.modules, "TestTimeTraining").values()
        found = list(dict.fromkeys(parameter for one in chosen for parameter in one.parameters()))
        if self.steps and not found:
            what = f"TestTimeTraining finds no parameters of norms in the model ({type(module).__name__})"
            cure = 'name the modules that adapt: TestTimeTraining(modules=["trunk"])'
            raise InputError(what, name="modules", asked_by="TestTimeTraining", cure=cure)
        return found

    @contextmanager
    def _adapting(self, train_manager: TrainManager) -> Iterator[None]:
        """Let the model adapt in a ``with`` block, and put it back."""
        parameters, model = self._parameters(train_manager), train_manager.model
        with preserve_modes(model), preserve_buffers(model), Adapted(parameters, self.lr) as adapted:
            for module in model.modules():
                if self.batch_statistics and isinstance(module, _BatchNorm):
                    module.training = True
            self._adapted = adapted
            try:
                yield
            except ValueError as error:
                if self.batch_statistics and "Expected more than 1 value per channel" in str(error):
                    error.add_note(OF_ONE_ROW)
                raise
            finally:
                self._adapted = None


@final
class Adapted:
    """The parameters that adapt to one set, in a ``with`` block at whose end they have their values again."""

    def __init__(self, parameters: list[nn.Parameter], lr: float) -> None:
        self._parameters = parameters
        self._before = [(one, one.requires_grad, one.detach().clone()) for one in parameters]
        # The optimizer steps copies: a step of the parameters themselves would fail the backward pass of a graph from
        # before the evaluation, as torch counts their changes. `.data` is not counted.
        self._copies = [one.detach().clone().requires_grad_() for one in parameters]
        self._optimizer = torch.optim.Adam(self._copies, lr=lr) if parameters else None
        self._random_state = random_state()

    def __enter__(self) -> Adapted:
        for parameter in self._parameters:
            parameter.requires_grad_(True)  # one that is frozen in training can adapt
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._put_back()
        except KeyboardInterrupt:  # Ctrl-C within it: once more, or the training would continue from adapted weights
            self._put_back()
            raise

    @contextmanager
    def own_random_state(self) -> Iterator[None]:
        """Draw from a random state of its own in a ``with`` block, so that the data of the sets are read as without."""
        with preserve_random_state():
            set_random_state(self._random_state)
            yield
            self._random_state = random_state()

    def step(self, compute_loss: Callable[[], Tensor]) -> None:
        """Step once along the gradient of a loss."""
        assert self._optimizer is not None, "a run without parameters that adapt has no steps"
        with torch.enable_grad():  # an evaluation runs under no_grad
            loss = compute_loss()
            gradients = _gradients(loss, self._parameters)
        for copy, gradient in zip(self._copies, gradients, strict=True):
            copy.grad = gradient
        self._optimizer.step()
        for parameter, copy in zip(self._parameters, self._copies, strict=True):
            parameter.data.copy_(copy.detach())
        torch.clear_autocast_cache()  # it may hold 16-bit copies of the weights before the step

    def _put_back(self) -> None:
        for parameter, required_grad, value in self._before:
            parameter.data.copy_(value)
            parameter.requires_grad_(required_grad)
        torch.clear_autocast_cache()


def _gradients(loss: Tensor, parameters: list[nn.Parameter]) -> Sequence[Tensor | None]:
    found: Sequence[Tensor | None] = ()
    if loss.requires_grad:
        # Not `backward`, which would add to the gradients of the training.
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
    if all(gradient is None for gradient in found):
        what = "the loss of TestTimeTraining has no gradient for the parameters that adapt"
        cure = "compute it from the model, or from prediction; or name other modules"
        raise InputError(what, name="loss", asked_by="TestTimeTraining", cure=cure)
    return found
