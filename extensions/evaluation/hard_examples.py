"""The loss of each training example over all epochs: the largest belong to hard or wrongly labelled examples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from train_manager.core.declarations import priority
from train_manager.data.batch import unpack
from train_manager.data.interleaved import Interleaved
from train_manager.data.named_sets import Endless
from train_manager.data.passes import RowBatches
from train_manager.data.random_state import preserve_random_state
from train_manager.data.seeded_loader import SeededDataLoader
from train_manager.data.shares import is_stand_in
from train_manager.data.together import Together
from train_manager.loop.books import Book
from train_manager.loop.drawing import Drawing
from train_manager.loop.example_losses import losses_of_examples
from train_manager.loop.overridable import Overridable
from train_manager.metrics.classification import LOGITS, boundary_of, classify
from train_manager.metrics.example_losses import ExampleLoss, ExampleLosses
from train_manager.rebuilding.recorded import recorded
from train_manager.reporting.pictures import grid_of
from train_manager.reporting.values import align_columns, html_table
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.manager import TrainManager
    from train_manager.runs.store.writer import MetricWriter

NAME: Final = "hard_examples"  # of the picture and the text in a MetricStore
HEAD: Final = ("example", "loss", "variability", "forgotten", "epochs")  # the columns of the table


@recorded
class HardExamples(Drawing):
    """Keep the loss of each training example over all epochs, and show the examples with the largest means.

    >>> import torch
    >>> from train_manager import InMemory
    >>> from train_manager.testing import tiny_manager
    >>> x = torch.linspace(-1, 1, 64).unsqueeze(1)
    >>> labels = (x[:, 0] > 0).long()
    >>> labels[5] = 1  # wrongly
    >>> data = InMemory(x, labels, batch_size=16, shuffle=True)
    >>> model = torch.nn.Linear(1, 2)
    >>> tm = tiny_manager(HardExamples(), model=model, train_data=data, eval_data=None, epochs=5)
    >>> result = tm.train()
    >>> tm["hard_examples"].hardest(1)[0].number
    5

    ``print(tm["hard_examples"])`` has a table of them, and so has the extension as the last line of a cell of a
    notebook. A mean that stays large is a sign of a wrong label or of an example unlike all others; a large
    variability, of an example that is learned late. For targets that are numbers of classes, or the 0 and 1 of
    ``nn.BCELoss`` and ``nn.BCEWithLogitsLoss``, ``forgotten`` counts how often an example was classified wrongly after
    it had been classified rightly (Toneva et al. 2019, "An Empirical Study of Example Forgetting during Deep Neural
    Network Learning", https://arxiv.org/abs/1812.05159); some are never learned.

    The losses are those of the training itself, with the weights of each step, so they contain the effects of dropout
    and of ``Mixup``. One more call of the loss in each step computes them, with ``reduction="none"``; a loss that does
    not take that is called for each row by itself, which takes longer. Losses that the model adds (``add_loss``) belong
    to no example. Nothing waits for the device but one copy for 64 batches.

    The data number their examples: ``InMemory``, ``Rows`` and ``SeededDataLoader`` do. Batches of ``train_on_batch``
    have no numbers, and are left out.

    Where several processes train together, each has the losses of all examples from the end of an epoch on.

    *Runs at:* the start and the end of ``train``, the end of ``train_step_batch`` and of ``train_step_epoch``, and the
    start of ``save_checkpoint``.

    *Asks for:* ``prediction``, ``targets``, ``example_index``, ``datasource_name`` and ``train_result``; ``writer`` if
    there is one.

    *Leaves behind:* with a ``MetricStore`` the picture of the hardest examples, ``plots/hard_examples-<step>.png``, and
    the table as the text ``hard_examples``; the report shows both.

    Args:
        show: how many examples the table and the picture have.

    Raises:
        InputError: ``show`` is not a whole number of at least 1; or, as a training call begins, the data do not number
            their examples, or there is no loss that it can call; or, as an epoch ends, the loss of each example by
            itself was 0, as it compares examples.
    """

    sole = True  # two would write one series

    def __init__(self, show: int = 16) -> None:
        self.show: int = require_count(show, "show", at_least=1)
        # A phase may have other data, with examples of the same numbers.
        self._losses = Book(ExampleLosses, per="phase")

    def hardest(self, n: int) -> list[ExampleLoss]:
        """Return the examples with the largest mean losses, largest first."""
        return self._losses.latest.hardest(n)

    def pre_train(self, train_manager: TrainManager) -> None:
        data = train_manager.train_data
        if not all(map(_numbers_examples, _sets_in(data).values())):
            what = f"HardExamples needs the numbers of examples, which train_data ({type(data).__name__}) do not give"
            cure = "give the data as InMemory(x, y, ...), Rows(dataset, ...) or SeededDataLoader(dataset, ...)"
            raise InputError(what, name="train_data", asked_by="HardExamples", cure=cure)
        if train_manager.loss is None and not _has_own_loss(train_manager):
            what = "HardExamples needs a loss that it can call, but the loss is made in train_batch, or in the model"
            cure = "pass loss=..., or override loss_forward(self, ...)"
            raise InputError(what, name="loss", asked_by="HardExamples", cure=cure)

    def post_train_step_batch(self, prediction: Any, datasource_name: str, train_manager: TrainManager) -> None:
        try:
            index = train_manager.fixtures["example_index"]
        except InputError:  # a batch of train_on_batch: no data have numbered its examples
            return
        # The prediction of the step is used again, so this costs a loss and no forward pass.
        losses = losses_of_examples(train_manager._store, len(index), is_own=_has_own_loss(train_manager))
        right = _right(prediction, train_manager.fixtures.get("targets"), len(index), boundary_of(train_manager.loss))
        found = self._losses.of(train_manager)
        if not train_manager._decides:
            found.append(datasource_name, index, losses, right)
        elif is_stand_in(train_manager.fixtures["true_batch_size"]):
            found.hold(datasource_name, index[:0], losses[:0], None)  # the steps of all processes must have one each
        else:
            found.hold(datasource_name, index, losses, right)

    def post_train_step_epoch(self, train_manager: TrainManager, train_result: Mapping[str, float]) -> None:
        self._join(train_manager)
        loss = train_result.get("loss", 0.0)
        if loss and self._losses.of(train_manager).are_all_zero():
            what = f"the loss of an epoch is {loss:.3g}, but that of each of its examples by itself is 0"
            cure = "leave HardExamples out: a loss that compares the examples of a batch is of none of them alone"
            raise InputError(what, name="loss", asked_by="HardExamples", cure=cure)

    @priority(-1000)  # before the hook that saves the state
    def pre_save_checkpoint(self, train_manager: TrainManager) -> None:
        self._join(train_manager)

    def _join(self, train_manager: TrainManager) -> None:
        """Add what all processes hold, so that each has the losses of all examples."""
        if train_manager._decides:
            found = self._losses.of(train_manager)
            found.join(train_manager.ranks.gather(found.totals()))

    def post_train(self, train_manager: TrainManager, writer: MetricWriter | None = None) -> None:
        hardest = self._losses.of(train_manager).hardest(self.show)
        if writer is None or not hardest:
            return
        # A picture shows examples of one set: the set of the hardest example.
        source = hardest[0].source
        numbers = [one.number for one in hardest if one.source == source]
        # The examples are fetched again from the data, since no batch was kept.
        inputs = unpack(_examples_at(_sets_in(train_manager.train_data).get(source), numbers)).get("inputs")
        if isinstance(inputs, Tensor):
            writer.image(NAME, grid_of(inputs))
        writer.text(NAME, str(self))

    def __str__(self) -> str:
        """Return the table of the hardest examples."""
        rows = _rows(self.hardest(self.show))
        return align_columns([HEAD, *rows]) if rows else "no example was seen so far"

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return html_table(HEAD, _rows(self.hardest(self.show)), "the examples with the largest mean losses")

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers of all examples."""
        return {**super().state_dict(), "losses": self._losses.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        super().load_state_dict(state)
        self._losses.load_state_dict(state["losses"])


def _has_own_loss(train_manager: TrainManager) -> bool:
    return any(train_manager._overrides(name, Overridable) for name in ("loss_forward", "train_loss_forward"))


def _sets_in(data: Any) -> dict[str, Any]:
    """Return the sets that data consist of, by the names that their batches have."""
    if isinstance(data, Endless):
        return _sets_in(data.data)
    # A batch of Interleaved carries the name of its set; the sets in it may wrap others.
    if isinstance(data, Interleaved):
        return {name: inner for name, one in data.data.items() for inner in _sets_in(one).values()}
    return {"train": data}


def _numbers_examples(data: Any) -> bool:
    # getattr_static, because the property `example_index` raises before the first batch, so that hasattr says no.
    # Together has the property too, but it gives the numbers of several sets at once.
    return not isinstance(data, Together) and inspect.getattr_static(data, "example_index", None) is not None


def _examples_at(data: Any, numbers: Sequence[int]) -> Any:
    """Return a batch of the examples of these numbers; None if the data cannot give them."""
    # Fetching an example may draw (augmentation), and must not move the random states of the training.
    with preserve_random_state():
        if isinstance(data, RowBatches):
            return data._batch(torch.tensor(numbers, device=data._device))
        if isinstance(data, SeededDataLoader) and callable(data.collate_fn):
            return data.collate_fn([data.dataset[number] for number in numbers])
    return None


def _rows(examples: Sequence[ExampleLoss]) -> list[list[str]]:
    """Return the cells of a table."""
    # The name of the set is left out while there is only one.
    several = len({one.source for one in examples}) > 1
    return [
        [
            f"{one.source} {one.number}" if several else str(one.number),
            f"{one.loss:.4f}",
            f"{one.variability:.4f}",
            "" if one.forgotten is None else str(one.forgotten) if one.learned else "never learned",
            str(one.epochs),
        ]
        for one in examples
    ]


def _right(prediction: Any, targets: Any, count: int, boundary: float | None) -> Tensor | None:
    """Return which examples were classified rightly; None if the targets are not numbers of classes."""
    try:
        found = classify(prediction, targets, NAME, LOGITS if boundary is None else boundary)
    except InputError:
        return None
    # Float targets are classes if the loss says so of a single number: 0 and 1. Predictions of pixels or tokens are
    # classes too, but several for each example.
    are_classes = not targets.is_floating_point() or (found.numbers is not None and boundary is not None)
    return found.said == found.true if len(found.said) == count and are_classes else None
