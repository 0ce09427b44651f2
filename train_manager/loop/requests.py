"""Requests of hooks and of the data to the loop, looked at together at the point of decision."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, final


@final
class Requests(NamedTuple):
    """Requests of hooks and of the data; ``TrainManager.decide`` gets them and returns what the loop does.

    The loop asks twice for each batch: between two batches about all but ``skip_batch``; and after the batch was
    pulled and its pre hooks have run, about ``skip_batch`` and ``data_ended``. It also asks before and after each
    epoch, and as a call ends.

    Attributes:
        stop: end the training, in this epoch.
        end_epoch: end the epoch, and continue with the next.
        data_ended: the epoch's data has ended.
        evaluate: evaluate before the next batch.
        save: save a checkpoint before the next batch, after an evaluation.
        skip_batch: leave this batch out.
        stop_after_epoch: end the training after this epoch.
        save_at_end: save a checkpoint as the last thing of the training call, which ends here.
        stopped: why the training ends, which hook has asked for it, and whether it ends the whole run.
        examples: how many examples the batch has here; the decision has those of all processes. None between batches.
    """

    stop: bool = False
    end_epoch: bool = False
    data_ended: bool = False
    evaluate: bool = False
    skip_batch: bool = False
    stop_after_epoch: bool = False
    save: bool = False
    save_at_end: bool = False
    stopped: tuple[str, str | None, bool] | None = None
    examples: Any = None

    @property
    def stops(self) -> bool:
        """Whether no epoch follows the present one."""
        return self.stop or self.stop_after_epoch


NOTHING: Final = Requests()  # the loop compares with `is`, so that a step without requests costs little
SKIP_BATCH: Final = Requests(skip_batch=True, examples=0)
DATA_ENDED: Final = Requests(data_ended=True, examples=0)
