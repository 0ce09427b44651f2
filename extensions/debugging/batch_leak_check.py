"""A check, in the first batch of a run, for leaks between its examples."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from train_manager.checks.batch_leak import CHECK, Allowed, could_not_look, find_leaks
from train_manager.core.declarations import priority
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.rebuilding.recorded import recorded
from train_manager.schedules import once, scheduled
from train_manager.telling.findings import Finding, Findings, FoundError
from train_manager.validation import require_one_of

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class BatchLeakCheck(Extension):
    """Find out in the first batch whether its examples leak into each other, and in which module.

    >>> from train_manager.testing import tiny_manager
    >>> check = BatchLeakCheck()
    >>> result = tiny_manager(check).train()
    >>> print(check.findings)
    batch leak  clean: 16 of 16 changes ran, train mode

    The model runs a few dozen times on the batch with half of its examples changed, as ``check_batch_leak`` says, and
    is put back; the run continues bit for bit as without the check. A leak is a warning, given once.

    *Runs at:* the end of ``train_step_batch`` (priority 1000), so it does not open the inner
    stages. Where several processes train together, rank 0 alone looks.

    *Asks for:* ``batch``.

    *Leaves behind:* its findings, in ``tm.findings``.

    Args:
        at: a schedule of the batches that are looked at; None for the first one alone.
        then: "warn" or "raise" if examples leak.
        allow: modules that may mix the examples, their names, or their classes.
        batch_axis: the axis along which the examples lie in the batch.
        shared: names, or positions, of the entries of the batch that belong to no example.

    Attributes:
        findings: what the last check has found, and how far it looked; None before it.

    Raises:
        FoundError: in training, with ``then="raise"``: there is a leak.
        InputError: an argument is invalid; or, in a run, several processes train with strategy "fsdp".
    """

    ranks = 0
    needs_whole_model = True  # it calls the model by itself, which strategy "fsdp" of Distributed refuses

    def __init__(
        self,
        at: Schedule | None = None,
        *,
        then: Literal["warn", "raise"] = "warn",
        allow: Allowed | Collection[Allowed] = (),
        batch_axis: int = 0,
        shared: Collection[str | int] = (),
    ) -> None:
        self.then: str = require_one_of(then, "then", ("warn", "raise"))
        self._options: dict[str, Any] = {"allow": allow, "batch_axis": batch_axis, "shared": shared}
        self.findings: Findings | None = None  # of the last check; None before the first
        # The schedule is that of this object, not of the class: two checks may look at different batches.
        scheduled(self, "post_train_step_batch", once if at is None else at)

    @priority(1000)  # last: a FoundError here must not keep the hooks of other extensions from this step
    def post_train_step_batch(self, train_manager: TrainManager, batch: Any) -> None:
        self.findings = self._look(train_manager, batch)
        with warnings.catch_warnings():
            if self.then == "raise":
                warnings.simplefilter("ignore")  # the FoundError below says the same
            # add_finding keeps each finding in tm.findings, and warns of it.
            for one in [*self.findings, *_where_not_looked(self.findings)]:
                train_manager.add_finding(one)
        if self.then == "raise" and any(one.level != "note" for one in self.findings):
            raise FoundError(self.findings)

    def _look(self, train_manager: TrainManager, batch: Any) -> Findings:
        # A model that is not an nn.Module has no forward pass that the check could repeat.
        model = train_manager.model
        if not isinstance(model, nn.Module):
            return could_not_look(f"{type(model).__name__} trains itself")

        # find_leaks calls the model itself; the manager knows
        # how it is called in this training (autocast, named inputs).
        def call(_: nn.Module, changed: Any) -> Any:
            try:
                return train_manager.probe(changed)
            except Exception as error:
                raise _ProbeFailed(f"model_forward failed with {type(error).__name__}: {error}") from error

        try:
            return find_leaks(model, batch, call, **self._options)
        except _ProbeFailed as error:
            # The training itself has just called the model on this batch:
            # so a train_batch of the user's own calls it differently.
            return could_not_look(f"{error}, while train_batch calls the model in another way: override it too")


class _ProbeFailed(Exception):
    """The model could not be called with the batch, so nothing can be said about leaks."""


def _where_not_looked(findings: Findings) -> list[Finding]:
    """Return a note about each check that could not look."""
    blind = (one.text for one in findings.covered if not one.could_look)
    return [Finding(CHECK, "note", f"could not look: {text}", code="leak-check-blind") for text in blind]
