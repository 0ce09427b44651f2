"""Each program of ``examples``: what it prints, and that some of them train as their loops by hand do.

The other trainings are compared with their loops in ``tests/capabilities/test_published.py`` and in files of their own.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.examples.comparison import assert_equal, by_hand, by_manager

PROGRAMS: dict[str, tuple[dict[str, int], str]] = {
    "actor_critic": ({"EPISODES": 2}, r"^pushes before the fall: at first "),
    "contrastive": ({"EPOCHS": 1}, r"\ntest accuracy .*\n$"),
    "detector": ({"EPOCHS": 1}, r" of the squares\n$"),
    "dict_batches": ({"EPOCHS": 1}, r"test accuracy .*\n$"),
    "diffusion": ({"STEPS": 60, "SAMPLE_EVERY": 30, "LOG_EVERY": 20}, "#"),
    "distillation": ({"EPOCHS": 1}, r"\naccuracy of the teacher .*\n$"),
    "dqn": ({"STEPS": 600, "LEARNING_STARTS": 100, "LOG_EVERY": 50, "GAMES": 20}, r" of 100 balls caught\n$"),
    "fixmatch": ({"EPOCHS": 2, "STEPS": 20, "LOG_EVERY": 10}, r"\ntest accuracy .*\n$"),
    "gan": ({"EPOCHS": 1}, r"\n(?:.{16}\n){8}$"),
    "gradnorm": ({"EPOCHS": 1}, r"^sum: .*\nGradNorm: .*\n$"),
    "graph_network": ({"EPOCHS": 1}, r"test accuracy .*\n$"),
    "hidden_state": ({"EPOCHS": 1}, r"learning rate 20\.0\n$"),
    "language_model": ({"STEPS": 16, "EVAL_EVERY": 16}, r"after 4 updates\n$"),
    "lbfgs": ({"EPOCHS": 1}, r"after 1 steps\n$"),
    "meta_learning": ({"STEPS": 2}, r"error after one step .*\n$"),
    "ppo": ({"ROLLOUTS": 3, "LENGTH": 16, "MINIBATCH": 32, "LOG_EVERY": 1}, r"falls.*$"),
    "seq2seq": ({"EPOCHS": 2, "LOG_EVERY": 8, "EXAMPLES": 1000}, r"\[0, 1, 2, 3, 4, 5\] ->.*\n$"),
    "uncertainty_weights": ({"EPOCHS": 1}, r"^sum: .*\nlearned weights: .*\n$"),
    "vae": ({"EPOCHS": 1}, r"\nepoch_1\.pgm\n$"),
    "wgan_gp": ({"EPOCHS": 1}, r"radius .*\n$"),
}
"""Numbers that make each program short, and what it prints then."""


def shortened(name: str, patch: pytest.MonkeyPatch, *modules: str) -> list[Any]:
    """Import the example, and modules beside it, with their numbers set to smaller ones."""
    if name == "dict_batches":
        pytest.importorskip("transformers")  # it imports it when it makes its network
    found = [pytest.importorskip(f"examples.{name}"), *map(importlib.import_module, modules)]
    for constant, value in PROGRAMS[name][0].items():
        for module in found:
            if hasattr(module, constant):
                patch.setattr(module, constant, value)
    return found


@pytest.mark.filterwarnings("ignore:the loss .UncertaintyLoss. has 2 parameters, which are trained too")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_it_has_come_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [example] = shortened(name, monkeypatch)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    example.main()

    assert re.search(PROGRAMS[name][1], capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("name", ["detector", "dqn", "graph_network"])
def test_a_training_equals_the_loop_by_hand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example, twin = shortened(name, monkeypatch, f"tests.examples.twins.{name}")
    options = {"train": example.play} if name == "dqn" else {}

    assert_equal(by_manager(example.manager, **options), by_hand(twin.train))
