"""A teacher that chooses the set of each batch by what the model learns from it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.resuming import assert_resumes
from train_manager import Extension, InputError, Interleaved, SkipBatch, TrainManager, add_loss
from train_manager.data.random_state import random_state
from train_manager.extensions import Curriculum, Metrics
from train_manager.testing import tiny_manager

LEVELS = ("easy", "noise", "hard")


def batches(level: str, count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(LEVELS.index(level))
    inputs = torch.randn(16 * count, 2, generator=generator)
    labels = torch.randint(2, (16 * count,), generator=generator)
    right = {"easy": (inputs[:, 0] > 0).long(), "hard": (inputs[:, 0] * inputs[:, 1] > 0).long(), "noise": labels}
    return list(zip(inputs.split(16), right[level].split(16), strict=True))


def teacher(**options: Any) -> Curriculum:
    return Curriculum({level: batches(level, 5)[4] for level in LEVELS}, **options)


def manager(curriculum: Curriculum, *extensions: Extension, **options: Any) -> TrainManager:
    data = Interleaved({level: batches(level, 4) for level in LEVELS}, choose=curriculum.choose)
    given = {"train_data": data, "steps_per_epoch": 12, "eval_data": None, "seed": 0}
    return tiny_manager(curriculum, *extensions, **{**given, **options})


def chosen_in(curriculum: Curriculum, **options: Any) -> list[str]:
    tm, names = manager(curriculum, **options), list[str]()
    tm.add_extension(post_train_step_batch=lambda datasource_name: names.append(datasource_name), name="names")
    tm.train()
    return names


# ---- the values and the choices --------------------------------------------------------------------------------------


def test_all_sets_are_equally_probable_before_anything_was_learned() -> None:
    assert teacher().probabilities() == pytest.approx(dict.fromkeys(LEVELS, 1 / 3))


def test_the_probabilities_are_those_of_the_formula() -> None:
    curriculum = teacher(temperature=0.5, explore=0.3)
    curriculum.values = {"easy": 0.2, "noise": -0.1, "hard": 0.1}

    weights = torch.tensor([0.2, -0.1, 0.1]).div(0.5 * 0.2).softmax(0)

    assert list(curriculum.probabilities().values()) == pytest.approx((0.7 * weights + 0.1).tolist())


def test_a_value_is_the_moving_average_of_how_much_the_loss_of_the_probe_fell() -> None:
    curriculum = teacher(rate=0.5, explore=1)
    tm = manager(curriculum)
    losses, values = dict[str, float](), dict.fromkeys(LEVELS, 0.0)

    def loss_of(level: str) -> float:
        inputs, labels = curriculum.probe[level]
        with torch.no_grad():
            return nn.functional.cross_entropy(tm.model(inputs), labels).item()

    def follow(datasource_name: str) -> None:
        now = loss_of(datasource_name)
        values[datasource_name] += 0.5 * (losses[datasource_name] - now - values[datasource_name])
        losses[datasource_name] = now

    losses.update({level: loss_of(level) for level in LEVELS})
    tm.add_extension(post_train_step_batch=follow, name="by_hand")
    tm.train()

    assert curriculum.values == values
    assert all(values.values())


def test_the_set_that_is_learned_fastest_is_chosen_most_often() -> None:
    names = Counter(chosen_in(teacher(), steps_per_epoch=100, epochs=1))

    assert names["easy"] > 2 * (names["noise"] + names["hard"])


def test_another_seed_makes_other_choices() -> None:
    assert chosen_in(teacher(seed=0)) == chosen_in(teacher(seed=0)) != chosen_in(teacher(seed=1))


def test_a_look_at_the_data_moves_no_choice() -> None:
    curriculum = teacher()

    assert len({curriculum.choose() for _ in range(20)}) == 1


def test_a_set_whose_batches_a_hook_skips_is_not_chosen_for_ever() -> None:
    curriculum = teacher()
    tm = manager(curriculum)
    tm.add_extension(skip_first := SkipFirst(), "skip_first")
    tm.train_steps(5)

    assert skip_first.seen > 5


class SkipFirst(Extension):
    """Skip every batch of the set that was chosen first."""

    priority = 10
    first = ""
    seen = 0

    def pre_train_step_batch(self, datasource_name: str) -> None:
        self.first = self.first or datasource_name
        self.seen += 1
        if datasource_name == self.first:
            raise SkipBatch


# ---- the training ----------------------------------------------------------------------------------------------------


class Draws(nn.Module):
    """A model that every trace of a forward pass would show in: dropout, a norm, a term of the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))

    def forward(self, inputs: Tensor) -> Tensor:
        prediction: Tensor = self.layers(inputs)
        add_loss(0.1 * prediction.square().mean())
        return prediction


def drawing() -> nn.Module:
    torch.manual_seed(0)
    return Draws()


def test_the_probes_leave_no_trace_in_the_training() -> None:
    names = chosen_in(curriculum := teacher(), model=drawing(), epochs=2)
    order = iter(names)
    expected = manager(curriculum, model=drawing(), epochs=2)
    expected.remove_extension("curriculum")
    expected.train_data = Interleaved({level: batches(level, 4) for level in LEVELS}, choose=lambda: next(order))
    tm = manager(teacher(), model=drawing(), epochs=2)

    tm.train()
    state = random_state()["torch"]
    expected.train()

    assert torch.equal(state, random_state()["torch"])
    assert all(map(torch.equal, tm.model.state_dict().values(), expected.model.state_dict().values()))
    assert [row["loss"] for row in tm.history.epochs] == [row["loss"] for row in expected.history.epochs]


def test_the_history_has_the_shares_of_each_epoch() -> None:
    curriculum = teacher()
    tm, names = manager(curriculum, epochs=2), list[str]()
    tm.add_extension(post_train_step_batch=lambda datasource_name: names.append(datasource_name), name="names")
    tm.train()

    for row, chosen in zip(tm.history.epochs, (names[:12], names[12:]), strict=True):
        assert {level: row[f"share/{level}"] for level in LEVELS} == {
            level: chosen.count(level) / 12 for level in LEVELS
        }


def test_a_killed_training_makes_the_same_choices_to_the_same_bits() -> None:
    assert_resumes(lambda: manager(teacher(), model=drawing(), epochs=2), TrainManager.train, [7, 15])


# ---- what is refused -------------------------------------------------------------------------------------------------


def refusal(tm: TrainManager) -> str:
    with pytest.raises(InputError) as error:
        tm.train()
    return "\n".join(str(error.value).splitlines()[:2])


def test_data_that_it_does_not_choose_are_refused() -> None:
    data = Interleaved({level: batches(level, 4) for level in LEVELS})

    assert refusal(manager(teacher(), train_data=data)).startswith(
        "Curriculum does not choose what is trained on: train_data are Interleaved("
    )
    assert refusal(manager(teacher(), train_data=batches("easy", 4))) == (
        "Curriculum does not choose what is trained on: train_data are a list\n"
        "  give train_data=Interleaved(sets, choose=curriculum.choose); in a phase, without=[...] pauses it"
    )


def test_a_probe_of_other_sets_is_refused() -> None:
    curriculum = teacher()
    data = Interleaved({"easy": batches("easy", 4)}, choose=curriculum.choose)

    assert refusal(manager(curriculum, train_data=data)) == (
        "Curriculum has probes of 'easy', 'noise', 'hard', but train_data have 'easy'\n  give a batch for each set"
    )


def test_a_curriculum_without_a_probe_is_refused() -> None:
    with pytest.raises(InputError, match=r"^Curriculum was given no probe"):
        Curriculum({})


def test_a_probe_whose_loss_is_not_finite_is_refused() -> None:
    inputs, targets = next(iter(tiny_manager().train_data or ()))
    curriculum = Curriculum({"bad": (inputs * float("nan"), targets)})
    data = Interleaved({"bad": [(inputs, targets)]}, choose=curriculum.choose)

    assert refusal(tiny_manager(curriculum, train_data=data, steps_per_epoch=2)) == (
        "the loss of the probe of 'bad' is nan, so it says nothing about what the model learns\n"
        "  look for values that are not finite in the probe and in the model (a smaller learning rate)"
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_it_trains_with_metrics_in_any_order(is_first: bool) -> None:
    curriculum = teacher()
    tm = manager(curriculum)
    tm.remove_extension("curriculum")
    for one in [curriculum, Metrics("accuracy")][:: 1 if is_first else -1]:
        tm.add_extension(one)
    tm.train()

    assert [*tm.history.epochs[0]][-5:] == ["loss", "accuracy", *(f"share/{level}" for level in LEVELS)]
