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

    @property
    def stop_alone(self) -> Requests:
        """The request to end the training, without the others."""
        return NOTHING._replace(stop=self.stop, stop_after_epoch=self.stop_after_epoch, stopped=self.stopped)

    def joined(self, *others: Requests) -> Requests:
        """Return what any of these requests, and the examples of all.

        >>> found = SKIP_BATCH.joined(Requests(examples=6), Requests(examples=5))
        >>> found.skip_batch, found.examples
        (True, 11)

        If several stop, the reason of the first one counts.
        """
        every = self, *others
        if every.count(self) == len(every):  # as in nearly every step
            if self == NOTHING:
                return NOTHING
            return self if self.examples is None else self._replace(examples=len(every) * self.examples)
        asked = {name: any(getattr(one, name) for one in every) for name in Requests._fields[:-2]}
        stopped = [one.stopped for one in every if one.stopped is not None]
        sizes = [one.examples for one in every]
        return Requests(
            **{**asked, "stop_after_epoch": asked["stop_after_epoch"] and not asked["stop"]},
            # A stop of the whole run is one also if the first reason was meant for the present phase.
            stopped=(*stopped[0][:2], any(whole_run for _, _, whole_run in stopped)) if stopped else None,
            examples=None if None in sizes else sum(sizes),
        )

    def without(self, *names: str) -> Requests:
        """Return these requests without those of some names."""
        left = self._replace(**dict.fromkeys(names, False))  # type: ignore[arg-type]
        return NOTHING if left == NOTHING else left


NOTHING: Final = Requests()  # the loop compares with `is`, so that a step without requests costs little
OF_A_PLACE: Final = ("end_epoch", "data_ended", "skip_batch", "save_at_end")
"""The requests of the present point of decision, which the next one does not know."""
SKIP_BATCH: Final = Requests(skip_batch=True, examples=0)
DATA_ENDED: Final = Requests(data_ended=True, examples=0)
