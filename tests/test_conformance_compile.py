"""What every shipped extension does beside ``Compile``: the same training, and as many graphs as the docs say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tests.test_conformance as conformance
from tests.support.graphs import use_plain_graphs
from tests.test_conformance import CASES, Case, some, some_batches
from train_manager import TrainManager
from train_manager.extensions import Compile

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "devices.md"
OTHERWISE = {
    "WeightHistograms": "one graph",
    "NonFiniteFinder that does not explain": "one graph",
    "Compile": "one graph",
}
"""Cases that are bounded less than their class may be, with the arguments that they have."""


KINDS = {"one graph": 1, "two graphs": 2, "runs eagerly": 0}


def stated(name: str) -> str:
    """Return how the page says that a batch is trained on beside an extension."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = [kind for kind, names in rows if f"`{name}`" in names]
    return found[0] if found else "one graph"


def model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Linear(16, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)]
        return nn.Sequential(nn.Flatten(), *layers)


def trained(case: Case, folder: Path, *compiled: Any) -> TrainManager:
    data: dict[str, Any] = {"train_data": some_batches(5), "eval_data": {"valid": some_batches()}}
    tm = conformance.manager(folder, *compiled, case.make(), model=model(), epochs=2, **data)
    tm.train()
    return tm


@some(8)
def test_it_trains_as_without_graphs_and_with_as_many_as_the_page_says(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = use_plain_graphs(monkeypatch).made
    (name,) = (name for name, one in CASES.items() if one is case)
    kind = type(case.make()).__name__
    eager = trained(case, tmp_path)
    compiled = trained(case, tmp_path, *([] if kind == "Compile" else [Compile()]))

    said = compiled._notes_on_stages()["train_step_batch"]
    assert said.startswith(expected := OTHERWISE.get(name) or stated(kind))
    assert len([graph for graph in made if graph.calls]) >= KINDS[expected]
    (*_, before), (*_, after) = eager.history.evaluations, compiled.history.evaluations
    assert after["loss"] == pytest.approx(before["loss"], abs=1e-6)
    states = zip(eager.model.state_dict().values(), compiled.model.state_dict().values(), strict=True)
    assert all(torch.allclose(a.double(), b.double(), rtol=0, atol=1e-6) for a, b in states)
