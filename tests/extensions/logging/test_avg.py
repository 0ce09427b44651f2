from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.adding import mean_of_parts
from train_manager import Extensible, Extension, InputError, provides
from train_manager.core.fixtures import Fixtures
from train_manager.errors import CheckError
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


def test_in_an_epoch_of_ones_own_it_is_the_mean_over_its_batches() -> None:
    losses, means = list[float](), list[float]()
    show = Extension.of(post_train_step_epoch=lambda avg_loss: means.append(avg_loss.item()))
    tm = tiny_manager(Avg("loss"), show)
    with tm.run():
        for _ in range(2):
            losses += [float(tm.train_on_batch(batch) or 0) for batch in tm.train_data or ()]
            tm.end_epoch()

    assert means == pytest.approx([sum(losses[start : start + 3]) / 3 for start in (0, 3)])


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


def test_a_mean_of_numbers_whose_weights_are_all_zero_is_nan() -> None:
    assert math.isnan(Avg("height", weight="size")._renew({"height": 2.0, "size": 0}))


class Seldom(Extension):
    """Provide 10 times the number of the step, but not in the first step and not in the third."""

    def post_train_loss_forward(self, step_num: int, fixtures: Fixtures) -> None:
        if step_num % 2:
            fixtures.define("tens", 10 * step_num, stage="train_step_batch")


def means_with_seldom(avg: Avg, *names: str, batches: int) -> list[Any]:
    seen: list[Any] = []

    def note(**fixtures: Any) -> None:
        seen.append(tuple(fixtures[name] for name in names))

    tm = tiny_manager(Seldom(), avg, Extension.of(post_train_step_batch=note), steps_per_epoch=batches)
    tm.train()
    return seen


def test_a_step_without_the_fixture_is_left_out_of_its_mean_only() -> None:
    seen = means_with_seldom(Avg("tens", "step_num"), "avg_tens", "avg_step_num", batches=4)

    assert str(seen[0]) == "(nan, 1.0)"
    assert seen[1:] == [(10.0, 1.5), (10.0, 2.0), (20.0, 2.5)]


def test_a_step_without_the_weight_is_left_out() -> None:
    seen = means_with_seldom(Avg("step_num", weight="tens"), "avg_step_num", batches=4)

    assert str(seen[0]) == "(nan,)"
    assert seen[1:] == [(2.0,), (2.0,), (3.5,)]


@pytest.mark.parametrize("avg", [Avg("lss"), Avg("loss", weight="lss")])
def test_a_fixture_that_is_never_alive_is_refused_before_the_first_step(avg: Avg) -> None:
    tm = tiny_manager(avg)
    with pytest.raises(CheckError, match=r"Avg.post_train_step_batch wants 'lss'"):
        tm.train()
    assert tm.step_num == 0


def test_it_is_refused_without_a_fixture() -> None:
    with pytest.raises(InputError) as caught:
        Avg()

    assert str(caught.value) == 'Avg needs the name of a fixture, but was given none\n  name one: Avg("loss")'


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_mean_of_many_values_in_16_bits_is_their_mean(dtype: torch.dtype) -> None:
    class Steps(Extensible):
        def train(self) -> float:
            with self.staged("train_step_epoch"):
                for _ in range(3000):
                    with self.staged("train_step_batch", {"loss": torch.tensor(1.5, dtype=dtype)}):
                        pass
                return float(self.fixtures["avg_loss"])

    assert Steps([Avg("loss")]).train() == 1.5


@pytest.mark.parametrize(
    ("name", "kind", "cure"),
    [
        ("losses", "Losses", 'Metrics("losses") takes the mean of each entry'),
        ("batch", "tuple", "name a fixture that is a number or a tensor"),
    ],
)
def test_a_fixture_that_is_not_one_value_is_refused_with_its_cure(name: str, kind: str, cure: str) -> None:
    with pytest.raises(InputError) as error:
        tiny_manager(Avg(name)).train()

    assert str(error.value) == f"Avg takes the mean of numbers and tensors, but {name!r} is a {kind}\n  {cure}"


def avg_of(*steps: tuple[float, int]) -> Avg:
    avg = Avg("loss", weight="size")
    for loss, size in steps:
        avg._renew({"loss": torch.tensor(loss), "size": size})
    return avg


def test_totals_of_two_halves_give_the_mean_of_the_whole() -> None:
    first, second, whole = avg_of((1.0, 3), (2.5, 4)), avg_of((7.0, 1)), avg_of((1.0, 3), (2.5, 4), (7.0, 1))

    found = mean_of_parts(first.totals()["loss"], second.totals()["loss"])
    assert found == whole._renew({}) == torch.tensor(2.5)
