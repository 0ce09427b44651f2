"""Forward passes beside the training: without hooks, and without a trace in the losses and the counters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any, Final

from torch import Tensor

from train_manager.core.hooks import Provider
from train_manager.core.plan import without_hooks
from train_manager.core.store import Store
from train_manager.data.batch import unpack
from train_manager.data.shares import ALONE
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import count_rows, require_batch_size, require_scalar_loss, require_unpacked

ANEW: Final = (
    *("inputs", "targets", "true_batch_size", "global_batch_size", "prediction", "loss"),
    *("unpack_batch", "get_true_batch_size", "train_get_true_batch_size", "eval_get_true_batch_size"),
    *("model_forward", "train_model_forward", "eval_model_forward"),
)
"""The fixtures of a batch that a probe computes anew, and the methods whose fixtures it computes anew."""


@contextmanager
def beside_the_batch(store: Store, stage: str, given: Mapping[str, Any], anew: Collection[str]) -> Iterator[None]:
    """Begin the open batch anew for a ``with`` block.

    Args:
        store: the state of the manager.
        stage: the stage of the batch, as for ``beside_the_hooks``.
        given: fixtures with other values.
        anew: fixtures and methods that begin anew.
    """
    train_manager = store.value("train_manager")
    progress, collector = train_manager._progress, train_manager._collector
    before = progress.step
    # Terms that the model adds in the probe go to a Step that is dropped after the block.
    progress.step = step = progress.step.for_probe()
    try:
        with collector.collecting_beside(step.losses):
            with beside_the_hooks(store, stage, {"losses": step.losses, **given}, anew):
                yield
    finally:
        progress.step = before


@contextmanager
def beside_the_hooks(store: Store, stage: str, given: Mapping[str, Any], anew: Collection[str]) -> Iterator[None]:
    """Open an open stage once more for a ``with`` block, in which it and all other stages open without their hooks.

    The lazy fixtures of the stage are computed anew if the block asks for them; its other fixtures keep their values.
    All fixtures of the stage are put back at the end.

    Args:
        store: the state of the Extensible that has opened the stage.
        stage: the name of the stage.
        given: fixtures of the stage that have other values.
        anew: fixtures, and methods with all that they have defined, that are not alive until the block defines them.
    """
    extensible = store.value("extensible")
    # A fixture that a method in `anew` has defined is known by its definer, the code of the method. It stays out of the
    # second opening too: the method runs again in the block, and a second definition would be refused.
    methods = [vars(kind).get(name) for kind in type(extensible).__mro__ for name in anew]
    codes = {method.__code__ for method in methods if isinstance(method, FunctionType)}
    kept = {
        cell.name: cell.value
        for cell in store.open[stage].cells()
        if cell.compute is None and not isinstance(cell.definer, Provider) and cell.name not in anew
        if not (isinstance(cell.definer, tuple) and cell.definer[0] in codes)
    }
    with without_hooks(store), extensible.staged(stage) as opened:
        here = beside_the_hooks.__code__, 0  # the definer that an error about these fixtures names
        for name, value in {**kept, **given}.items():
            if store.has(name):  # a lazy fixture that a hook has modified: its provider offers it in this opening too
                store.modify(name, value, here)
            else:
                store.define(name, value, opened, here)
        yield


@contextmanager
def calling_the_model_itself(train_manager: Any) -> Iterator[None]:
    """Call the model in place of its wrapper in a ``with`` block, if several processes train together.

    The wrapper would wait for the other processes, which do not run the block.
    """
    if train_manager.ranks.place is ALONE:
        yield
        return
    called = train_manager.called_model
    train_manager.called_model = train_manager.model
    try:
        yield
    finally:
        train_manager.called_model = called


@contextmanager
def another_batch(store: Store, kind: str, batch: Any) -> Iterator[None]:
    """Put another batch, unpacked, in place of the one that is open for a ``with`` block, in the run's precision.

    Args:
        store: the state of the manager that trains on the open batch, evaluates it or predicts.
        kind: "train", "eval" or "predict".
        batch: the batch, on the device of the model.
    """
    chosen, fixtures = store.value("train_manager")._chosen, store.value("fixtures")
    bare = calling_the_model_itself(store.value("train_manager"))
    with bare, beside_the_batch(store, f"{kind}_step_batch", {"batch": batch}, ANEW):
        # As TrainManager._unpack does it, but without a check of the structure of the batch.
        as_usual = chosen.unpacks_as_usual
        unpacked = unpack(batch) if as_usual else require_unpacked(chosen.unpack_batch())
        fixtures.define_all(unpacked)
        spreads = store.value("train_manager")._spreads
        count = chosen.train_get_true_batch_size if kind == "train" else chosen.eval_get_true_batch_size
        counted = count_rows(batch, spreads, unpacked) if as_usual else count()
        size = require_batch_size(counted)
        sizes = ("true_batch_size", "global_batch_size") if kind == "train" else ("true_batch_size",)
        fixtures.define_all(dict.fromkeys(sizes, size))
        with fixtures.get("autocast", nullcontext)():
            yield


def probe_batch(store: Store, kind: str, batch: Any) -> Any:
    """Return the prediction for a batch in place of the one that is open."""
    chosen = store.value("train_manager")._chosen
    with another_batch(store, kind, batch):
        return chosen.train_model_forward() if kind == "train" else chosen.eval_model_forward()


def probe_loss(store: Store, kind: str, batch: Any) -> Tensor:
    """Return the loss of an evaluation for a batch in place of the one that is open, with terms that the model adds."""
    chosen = store.value("train_manager")._chosen
    with another_batch(store, kind, batch), Losses() as losses:
        store.value("fixtures").define_all({"prediction": chosen.eval_model_forward()})
        return require_scalar_loss(losses.total(chosen.eval_loss_forward()))
