from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from train_manager import Extensible, Extension, InputError, provides
from train_manager.extensions import Avg
from train_manager.testing import tiny_manager


class Notes(Extension):
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.averages: list[float] = []
        self.sizes: list[int] = []

    def post_train_step_batch(self, loss: Tensor, avg_loss: Tensor, true_batch_size: int) -> None:
        self.losses.append(loss.item())
        self.averages.append(avg_loss.item())
        self.sizes.append(true_batch_size)


def test_it_is_the_mean_over_the_epoch_so_far() -> None:
    notes = Notes()
    tiny_manager(notes, Avg("loss"), epochs=2).train()

    for start in (0, 3):
        for end in range(start + 1, start + 4):
            mean = sum(notes.losses[start:end]) / (end - start)
            assert notes.averages[end - 1] == pytest.approx(mean)


def test_values_are_weighted() -> None:
    notes = Notes()
    tiny_manager(notes, Avg("loss", weight="true_batch_size")).train()

    weighted = sum(loss * size for loss, size in zip(notes.losses, notes.sizes, strict=True)) / sum(notes.sizes)
    assert notes.averages[-1] == pytest.approx(weighted)


def test_it_lives_until_the_end_of_the_epoch() -> None:
    seen: list[Any] = []
    tiny_manager(Avg("loss"), Extension.of(post_train_step_epoch=lambda avg_loss: seen.append(avg_loss))).train()

    assert isinstance(seen[0], Tensor)
    assert not seen[0].requires_grad


def test_each_fixture_has_a_mean_also_those_of_other_extensions() -> None:
    class Norm(Extension):
        @provides("norm")
        def post_train_step_batch(self, inputs: Tensor) -> float:
            return 2.0

    seen: list[Any] = []
    show = Extension.of(
        post_train_step_epoch=lambda avg_norm, avg_true_batch_size: seen.append((avg_norm, avg_true_batch_size))
    )
    tiny_manager(Avg("norm", "true_batch_size"), Norm(), show).train()

    assert seen == [(2.0, 40 / 3)]


def test_it_works_with_the_stages_of_another_loop() -> None:
    class Loop(Extensible):
        def run(self) -> None:
            with self.staged("sweep"):
                for height in (1, 2, 6):
                    with self.staged("measure", {"height": height}):
                        pass

    seen: list[Any] = []
    show = Extension.of(post_sweep=lambda avg_height: seen.append(avg_height))
    Loop([Avg("height", at="measure", over="sweep"), show]).run()

    assert seen == [3.0]


def test_a_tensor_is_not_read_on_the_host() -> None:
    avg = Avg("loss", over="run")
    avg._renew({"loss": torch.ones((), device="meta")})

    assert avg._sums[0].device.type == "meta"


def test_it_is_refused_without_a_fixture() -> None:
    with pytest.raises(InputError) as caught:
        Avg()

    assert str(caught.value) == 'Avg needs the name of a fixture, but was given none\n  name one: Avg("loss")'
