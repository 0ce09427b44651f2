from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.host_reads import HostReads
from train_manager import Extension, Interleaved, SkipBatch, TrainManager, add_loss, modifies
from train_manager.loop import batch_losses as module
from train_manager.loop.batch_losses import BatchLosses, BatchRow
from train_manager.loop.losses import Losses
from train_manager.testing import tiny_manager


def rows_of(losses: BatchLosses, *steps: int) -> None:
    for step in steps:
        losses.add(torch.tensor(0.5), step, 16, "train", None)


def steps_of(rows: list[BatchRow]) -> list[int]:
    return [step for _, step, *_ in rows]


class Reads(Extension):
    """Read the rows of a run."""

    def __init__(self) -> None:
        self.rows: list[BatchRow] = []

    def pre_run(self, batch_losses: BatchLosses) -> None:
        batch_losses.read(self, self.rows)


# ---- readers ---------------------------------------------------------------------------------------------------------


def test_a_reader_that_reads_again_gets_its_rows_in_the_other_place_alone() -> None:
    losses, before, now = BatchLosses(), list[BatchRow](), list[BatchRow]()
    losses.read("one", before)
    losses.read("one", now)
    rows_of(losses, 1)

    assert (steps_of(before), steps_of(now)) == ([], [1])


def test_a_reader_that_rests_gets_no_rows_until_it_does_not() -> None:
    losses, rows = BatchLosses(), list[BatchRow]()
    losses.read("one", rows)
    for step, resting in enumerate([[], ["one"], []], start=1):
        losses.rest(resting)
        rows_of(losses, step)

    assert steps_of(rows) == [1, 3]


def test_readers_are_asked_to_look_after_every_thousand_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    losses, rows, looks = BatchLosses(), list[BatchRow](), list[int]()
    losses.read("one", rows, look=lambda: looks.append(len(rows)))
    rows_of(losses, *range(1, 8))

    assert looks == [3, 6]


def test_a_part_whose_memory_may_be_written_again_is_copied() -> None:
    losses, rows, part = BatchLosses(), list[BatchRow](), torch.tensor(0.25)
    part.mul_(2)
    losses.read("one", rows)
    losses.add(None, 1, 16, "train", {"part": part})
    part.zero_()

    assert rows[0][-1] == {"part": torch.tensor(0.5)}


# ---- the rows of a training ------------------------------------------------------------------------------------------


def test_a_row_has_the_loss_of_its_batch_without_the_graph() -> None:
    seen: list[Tensor] = []
    reads = Reads()
    tiny_manager(reads, Extension.of(post_train_step_batch=lambda loss: seen.append(loss))).train()

    losses = [loss for loss, *_ in reads.rows]
    assert losses == seen
    assert not any(loss is None or loss.requires_grad for loss in losses)


def test_a_row_has_the_step_and_the_examples_of_its_batch() -> None:
    reads = Reads()
    tiny_manager(reads).train()

    assert [(step, examples) for _, step, examples, *_ in reads.rows] == [(1, 16), (2, 16), (3, 8)]


def test_a_row_has_the_size_and_the_name_that_a_hook_has_left() -> None:
    class Renames(Extension):
        @modifies("datasource_name", "true_batch_size")
        def pre_train_model_forward(self, datasource_name: str, true_batch_size: int) -> tuple[str, int]:
            return "other", 2 * true_batch_size

    reads = Reads()
    tiny_manager(reads, Renames()).train()

    assert [examples for _, _, examples, *_ in reads.rows] == [32, 32, 16]
    assert {name for *_, name, _ in reads.rows} == {"other"}


def test_rows_of_two_sets_have_the_names_of_both() -> None:
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))] * 2
    reads = Reads()
    tiny_manager(reads, train_data=Interleaved({"a": batches, "b": batches})).train()

    assert {name for *_, name, _ in reads.rows} == {"a", "b"}


class Adds(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        add_loss(inputs.new_tensor(0.25), "sparsity")
        return super().forward(inputs)


def test_a_row_has_the_parts_of_the_loss_if_there_are_any() -> None:
    with_parts, without = Reads(), Reads()
    tiny_manager(with_parts, model=nn.Sequential(nn.Flatten(), Adds(2, 2))).train()
    tiny_manager(without).train()

    assert [parts for *_, parts in with_parts.rows] == [{"sparsity": torch.tensor(0.25)}] * 3
    assert [parts for *_, parts in without.rows] == [None] * 3


def test_a_row_has_the_parts_that_a_hook_has_put_in_their_place() -> None:
    reads = Reads()
    others = Extension.of(pre_train_step_batch=modifies("losses")(lambda losses: Losses(known=torch.tensor(1.0))))
    tiny_manager(reads, others, model=nn.Sequential(nn.Flatten(), Adds(2, 2))).train()

    assert [[*parts] for *_, parts in reads.rows if parts is not None] == [["known", "sparsity"]] * 3


def test_the_loss_of_a_batch_with_updates_alone_is_that_of_the_fixture() -> None:
    class Twice(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
            for factor in (1, 2):
                self.update(factor * model(inputs).square().mean())

    plain, reads = tiny_manager(), Reads()
    tm = Twice(model=plain.model, optimizer=plain.optimizer, train_data=plain.train_data, extensions=[reads])
    totals: list[Tensor] = []
    tm.add_extension(Extension.of(post_train_step_batch=lambda loss: totals.append(loss)))
    tm.train()

    assert [loss for loss, *_ in reads.rows] == totals


def test_a_skipped_batch_has_no_row() -> None:
    reads = Reads()
    skip = Extension.of(pre_train_step_batch=lambda batch_num: batch_num == 2 and _skip())
    tiny_manager(reads, skip).train()

    assert steps_of(reads.rows) == [1, 2]


def _skip() -> bool:
    raise SkipBatch


def test_without_a_reader_nothing_is_kept() -> None:
    kept: list[BatchLosses] = []
    tiny_manager(Extension.of(pre_run=lambda batch_losses: kept.append(batch_losses))).train()

    assert kept[0].latest is None


def test_rows_cost_no_wait_for_the_device() -> None:
    with HostReads() as with_rows:
        tiny_manager(Reads()).train()
    with HostReads() as without:
        tiny_manager().train()

    assert (with_rows.count, with_rows.stacks) == (without.count, without.stacks)


def test_it_dies_with_the_run() -> None:
    kept: list[weakref.ref[Any]] = []

    class Keeps(Extension):
        def pre_run(self, batch_losses: BatchLosses) -> None:
            batch_losses.read(self, [], look=_Token(kept))

    tiny_manager(Keeps()).train()
    gc.collect()

    assert kept[0]() is None


class _Token:
    def __init__(self, kept: list[weakref.ref[Any]]) -> None:
        kept.append(weakref.ref(self))

    def __call__(self) -> None: ...


def test_an_extension_that_pauses_in_a_phase_gets_no_rows_of_it() -> None:
    tm = tiny_manager(reads := Reads(), epochs=1)
    with tm.run():
        with tm.phase("head", without=["reads"]):
            tm.train()
        tm.train()

    assert steps_of(reads.rows) == [4, 5, 6]


def test_an_extension_of_a_phase_gets_the_rows_of_the_phase() -> None:
    class ReadsUntilItGoes(Reads):
        def post_run(self, batch_losses: BatchLosses) -> None:
            batch_losses.end(self)

    tm, reads = tiny_manager(epochs=1), ReadsUntilItGoes()
    with tm.run():
        with tm.phase("head", extensions=[reads]):
            tm.train()
        tm.train()

    assert steps_of(reads.rows) == [1, 2, 3]
