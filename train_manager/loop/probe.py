"""What is done with a batch beside the training: without hooks, losses that count or counters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from train_manager.core.beside import beside_the_hooks
from train_manager.core.store import Store
from train_manager.data.batch import parts_of
from train_manager.loop.outputs import count_rows, require_batch_size, require_parts
from train_manager.loop.own_losses import OwnLosses

ANEW: Final = (
    *("inputs", "targets", "true_batch_size", "global_batch_size", "prediction", "loss"),
    *("unpack_batch", "get_true_batch_size", "model_forward", "train_model_forward", "eval_model_forward"),
)
"""What a batch makes alive: fixtures, and methods with what they define."""


@contextmanager
def beside_the_batch(store: Store, stage: str, given: Mapping[str, Any], anew: Collection[str]) -> Iterator[None]:
    """Begin the open batch anew for a ``with`` block, with other values of fixtures; as ``beside_the_hooks``."""
    train_manager = store.value("train_manager")
    progress, collector = train_manager._progress, train_manager._collector
    before = progress.step, collector.losses
    progress.step = step = progress.step.for_probe()
    step.own = collector.losses = OwnLosses(step.losses)
    try:
        with beside_the_hooks(store, stage, {"losses": step.losses, **given}, anew):
            yield
    finally:
        progress.step, collector.losses = before


def probed(store: Store, kind: str, batch: Any) -> Any:
    """Return the prediction for a batch in place of the one that is open.

    Args:
        store: the state of the manager that trains on the open one, or evaluates it.
        kind: "train" or "eval".
        batch: on the device of the model.
    """
    chosen, fixtures = store.value("train_manager")._chosen, store.value("fixtures")
    with beside_the_batch(store, f"{kind}_step_batch", {"batch": batch}, ANEW):
        as_usual = chosen.unpacks_as_usual
        fixtures.define_all(parts_of(batch) if as_usual else require_parts(chosen.unpack_batch()))
        size = require_batch_size(count_rows(batch) if as_usual else chosen.get_true_batch_size())
        sizes = ("true_batch_size", "global_batch_size") if kind == "train" else ("true_batch_size",)
        fixtures.define_all(dict.fromkeys(sizes, size))
        with fixtures.get("autocast", nullcontext)():
            return chosen.train_model_forward() if kind == "train" else chosen.eval_model_forward()
