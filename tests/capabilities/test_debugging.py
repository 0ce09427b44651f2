"""The rows on what a model rests on, and where its time goes: J14, J16, T41."""

from __future__ import annotations

import json
import pstats
from pathlib import Path

import pytest
import torch
from torch import nn

from train_manager import InMemory
from train_manager.demo import convolution, digits
from train_manager.extensions import Attribution, OutOfDistribution, Profile
from train_manager.testing import tiny_manager


def test_j14_attributions_add_up_to_the_difference_of_the_outputs() -> None:
    attribution = Attribution(examples=8, steps=200)
    tm = tiny_manager(attribution, epochs=5)
    tm.train()

    (inputs, _), *_ = tm.eval_data["valid"]
    with torch.no_grad():
        outputs, none = tm.model(inputs[:8]), tm.model(torch.zeros_like(inputs[:8]))
    said = outputs.argmax(1, keepdim=True)
    differences = (outputs - none).gather(1, said).flatten()
    assert attribution.shares["valid"].sum(1).tolist() == pytest.approx(differences.tolist(), abs=1e-3)


def test_j16_digits_are_told_from_noise() -> None:
    torch.manual_seed(0)
    train_x, valid_x, train_y, valid_y = digits()
    noise = InMemory(torch.rand_like(valid_x), valid_y, batch_size=450)
    tm = tiny_manager(
        OutOfDistribution(outside=["noise"]),
        model=nn.Sequential(convolution(1, 16), convolution(16, 32), nn.Flatten(), nn.Linear(128, 10)),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        train_data=InMemory(train_x, train_y.long(), batch_size=32, shuffle=True, seed=0),
        eval_data={"valid": InMemory(valid_x, valid_y.long(), batch_size=450), "noise": noise},
        epochs=3,
    )
    tm.train()

    assert tm.history.evaluations[-1]["auroc_energy"] >= 0.9


def test_t41_chosen_steps_are_profiled(tmp_path: Path) -> None:
    tiny_manager(Profile(first=2, steps=2), epochs=2, train_dir=tmp_path).train()

    trace = json.loads((tmp_path / "profile" / "steps_2-3.json").read_text())
    assert [event["name"] for event in trace["traceEvents"]].count("Optimizer.step#SGD.step") == 2
    assert pstats.Stats(str(tmp_path / "profile" / "steps_4-5.prof")).total_calls > 0  # type: ignore[attr-defined]
