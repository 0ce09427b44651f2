"""A check, in the first batch of a training, for leaks between its examples."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from train_manager.core.decorators import priority
from train_manager.core.extension import Extension
from train_manager.core.schedule import Schedule
from train_manager.diagnosis.batch_leak import check_batch_leak, could_not_look
from train_manager.diagnosis.leak_findings import CHECK
from train_manager.model.modules import Chosen
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
    batch leak  clean: 32 of 32 changes ran, train mode

    The model runs a few dozen times on the batch with half of its examples changed, as ``check_batch_leak`` says, and
    is put back; the training goes on bit for bit as without the check. An error is a warning, once.

    *Runs at:* the end of ``train_step_batch`` (priority 1000), so it does not open the inner stages.

    *Asks for:* ``batch``.

    *Leaves behind:* its findings, in ``tm.findings``.

    Args:
        at: a schedule of the batches that are looked at; None for the first one alone.
        then: what an error does: "warn", or "raise".
        allow: modules that may mix the examples, or their names.
        batch_axis: the axis along which the examples lie in the batch.
        shared: names, or positions, of parts of the batch that belong to no example.

    Attributes:
        findings: what the last check has found, and how far it looked; None before it.

    Raises:
        FoundError: in training, with ``then="raise"``: there is a leak.
        InputError: an argument is invalid.
    """

    def __init__(
        self,
        at: Schedule | None = None,
        *,
        then: Literal["warn", "raise"] = "warn",
        allow: Collection[Chosen] = (),
        batch_axis: int = 0,
        shared: Collection[str | int] = (),
    ) -> None:
        self.then: str = require_one_of(then, "then", ("warn", "raise"))
        self._options: dict[str, Any] = {"allow": allow, "batch_axis": batch_axis, "shared": shared}
        self.findings: Findings | None = None
        scheduled(self, "post_train_step_batch", once if at is None else at)

    @priority(1000)  # last: an error here must not keep other hooks from the step
    def post_train_step_batch(self, train_manager: TrainManager, batch: Any) -> None:
        self.findings = self._look(train_manager, batch)
        with warnings.catch_warnings():
            if self.then == "raise":
                warnings.simplefilter("ignore")  # the error tells it
            for one in [*self.findings, *_where_not_looked(self.findings)]:
                train_manager.add_finding(one)
        if self.then == "raise" and any(one.level != "note" for one in self.findings):
            raise FoundError(self.findings)

    def _look(self, train_manager: TrainManager, batch: Any) -> Findings:
        model = train_manager.model
        if not isinstance(model, nn.Module):
            return could_not_look(f"{type(model).__name__} trains itself")

        def call(_: nn.Module, changed: Any) -> Any:
            try:
                return train_manager.probe(changed)
            except Exception as error:
                raise _ProbeFailed(f"model_forward failed with {type(error).__name__}: {error}") from error

        try:
            return check_batch_leak(model, batch, **self._options, call=call)
        except _ProbeFailed as error:  # an own train_batch may call the model in another way
            return could_not_look(f"{error}, while train_batch calls the model in another way: override it too")


class _ProbeFailed(Exception):
    """The model gives nothing for the batch as it is."""


def _where_not_looked(findings: Findings) -> list[Finding]:
    """Return a note about each check that could not look."""
    return [Finding(CHECK, "note", f"could not look: {one.text}") for one in findings.covered if not one.could_look]
