"""Rows X01 to X12: published trainings, each equal bit for bit to the same training written by hand.

The trainings are the files of ``examples/``, the loops by hand those of ``tests/examples/twins``; the tests of their
lines of code and of their programs are in ``tests/examples``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.comparison import assert_equal, by_hand, by_manager, fork_evaluation
from train_manager import Extension
from train_manager.extensions import EMA, Accumulate, ClipGradients, MixedPrecision

Patch = pytest.MonkeyPatch


def both(name: str, patch: Patch, **shorter: int) -> tuple[Any, Any]:
    """Return the modules of an example and of its twin, with some of their numbers set to smaller ones."""
    example = importlib.import_module(f"examples.{name}")
    twin = importlib.import_module(f"tests.examples.twins.{name}")
    for constant, value in shorter.items():
        patch.setattr(example, constant, value)
        if hasattr(twin, constant):
            patch.setattr(twin, constant, value)
    return example, twin


def assert_equal_to_twin(name: str, patch: Patch, *optimizers: str, **shorter: int) -> None:
    example, twin = both(name, patch, **shorter)
    if hasattr(twin, "evaluate"):
        fork_evaluation(twin, patch)
    assert_equal(by_manager(example.manager, *optimizers), by_hand(twin.train))


def test_x01_a_gan_in_one_held_run_is_the_loop_by_hand_after_twenty_steps(monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    example, twin = both("gan", monkeypatch, EPOCHS=1)
    by_twin: list[Any] = []

    class Enough(Exception):
        """The twin has done twenty steps."""

    def note(*losses: torch.Tensor) -> None:
        by_twin.append([loss.detach().clone() for loss in losses])
        if len(by_twin) == 20:
            raise Enough

    torch.manual_seed(0)
    with pytest.raises(Enough):
        twin.train(note)
    torch.manual_seed(0)
    seen: list[Any] = []
    tm = example.manager(Extension.of(post_train_step_batch=lambda losses: seen.append([*losses.values()])))
    with tm.run():
        tm.train_steps(8)
        tm.train_steps(12)

    assert [sorted(map(float, losses)) for losses in seen] == [sorted(map(float, losses)) for losses in by_twin]


@pytest.mark.parametrize(
    "practice",
    [
        lambda: ClipGradients(0.01, optimizer="generator"),
        lambda: Accumulate(2),
        lambda: MixedPrecision(),
    ],
    ids=["clipping", "accumulation", "bf16"],
)
def test_x01_recipes_come_by_one_line_and_do_something(practice: Any, monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    example, _ = both("gan", monkeypatch, EPOCHS=1)
    trained = []
    for extensions in ([], [practice()]):
        torch.manual_seed(0)
        tm = example.manager(*extensions)
        tm.train_steps(4)
        trained.append(torch.cat([weight.flatten() for weight in tm.model["generator"].parameters()]))

    assert not torch.equal(*trained)


def test_x01_the_average_of_one_network_comes_by_one_line(monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    example, _ = both("gan", monkeypatch, EPOCHS=1)
    ema = EMA(0.5, optimizer="generator")
    tm = example.manager(ema)
    tm.train_steps(3)
    weights = tm.model.state_dict()
    averaged = {name.split(".")[0] for name, average in ema.average.items() if not torch.equal(average, weights[name])}

    assert averaged == {"generator"}


def test_x02_a_wgan_with_gradient_penalty(monkeypatch: Patch) -> None:
    assert_equal_to_twin("wgan_gp", monkeypatch, "critic", "generator", EPOCHS=2)


def test_x03_a_vae_draws_pictures_after_each_epoch(tmp_path: Path, monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    example, twin = both("vae", monkeypatch, EPOCHS=1)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()

    assert_equal(by_manager(lambda: example.manager(one)), by_hand(lambda record: twin.train(record, other)))
    assert [path.name for path in one.iterdir()] == [path.name for path in other.iterdir()] != []


def test_x04_a_language_model_carries_its_hidden_state_and_anneals_its_rate(monkeypatch: Patch) -> None:
    assert_equal_to_twin("hidden_state", monkeypatch)


def test_x05_contrastive_learning_has_several_inputs_for_each_example(monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    assert_equal_to_twin("contrastive", monkeypatch)


def test_x06_an_actor_critic_plays_each_episode_with_its_present_policy(monkeypatch: Patch) -> None:
    assert_equal_to_twin("actor_critic", monkeypatch, EPISODES=25)


def test_x07_dict_batches_and_an_output_with_a_loss_need_no_subclass(monkeypatch: Patch) -> None:
    pytest.importorskip("transformers")
    assert_equal_to_twin("dict_batches", monkeypatch)


def test_x08_lbfgs_calls_a_closure(monkeypatch: Patch) -> None:
    assert_equal_to_twin("lbfgs", monkeypatch)


def test_x09_meta_learning_differentiates_through_its_inner_loop(monkeypatch: Patch) -> None:
    assert_equal_to_twin("meta_learning", monkeypatch, STEPS=20, LOG_EVERY=10)


def test_x10_a_gpt_with_all_recipes_of_nanogpt(monkeypatch: Patch) -> None:
    """Kept and resumed is what the checkpoints will add."""
    assert_equal_to_twin("language_model", monkeypatch, STEPS=40, EVAL_EVERY=20)


def test_x11_mnist_steps_its_rate_and_measures_its_accuracy(monkeypatch: Patch) -> None:
    pytest.importorskip("sklearn")
    assert_equal_to_twin("mnist", monkeypatch, EPOCHS=2)


def test_x12_a_line_every_few_batches_needs_no_code_of_ones_own(monkeypatch: Patch) -> None:
    """The lines are those that the loop by hand prints: epoch, batch, loss."""
    pytest.importorskip("sklearn")
    example, twin = both("mnist", monkeypatch, EPOCHS=1)
    lines = by_manager(example.manager).lines

    assert lines == by_hand(twin.train).lines
    assert any("batch" in line and "loss" in line for line in lines)
