"""The benchmarks run, with tiny sizes and without other toolkits; what they time is never looked at here.

They check by themselves that each hook ran exactly once, and that each training ended with the same weights.
"""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from benchmarks import counts, gpu, loop, measure, page, section, subscribers, trace
from benchmarks.__main__ import NAMES
from benchmarks.measure import Spread
from benchmarks.mlp import Clocked, new_batches
from benchmarks.section import Claim, Section, better
from benchmarks.stages import BY_HAND, KINDS
from benchmarks.subscribers import Stage, require_calls
from train_manager.extensions import default_extensions

TINY: dict[str, dict[str, Any]] = {
    "dispatch": {"rounds": 1, "calls": 5, "with_peers": False},
    "counts": {"with_peers": False},
    "loop": {"rounds": 1, "steps": 5, "with_peers": False},
    "usual": {"rounds": 1, "steps": 5},
    "compiled": {"rounds": 1, "steps": 5},
    "end_to_end": {"rounds": 1, "scale": 0.02, "tools": ("plain", "Train Manager"), "names": ("MLP",)},
    "scale": {"rounds": 1, "calls": 5, "most": 100},
    "checkpoint_cost": {"rounds": 1, "megabytes": 1},
    "run_records": {"rounds": 1},
    "code_record_cost": {"rounds": 1, "files": 60, "megabytes": 1},
    "metric_cost": {"rounds": 1, "scalars": 2000, "steps": 50},
    "curve_cost": {"rounds": 1, "steps": 100, "long": 100},
    "batch_leak": {"rounds": 1, "width": 16, "examples": 4},
    "moment": {"rounds": 1, "steps": 5},
    "ranks": {"rounds": 1, "steps": 5},
    "learner": {"seeds": 1, "phase_epochs": 1, "epochs": 1},
    "soak": {"stages": 2000},
    "change_log": {"rounds": 1, "steps": 1},
    "gpu": {"rounds": 1, "scale": 0.1, "device": "cpu"},
}
KEEPING = """
import json
from benchmarks.soak import soak
from train_manager import Extension
kept = []
print(json.dumps(soak(20_000, Extension.of(post_step=lambda data: kept.append(data)))))
"""


# Of imports, trainings and calls; each takes a second or more.
LONG = {*TINY} - {"loop", "curve_cost"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.whole] * (name in LONG)) for name in TINY])
def test_a_benchmark_makes_its_section_of_the_page(name: str, tmp_path: Path) -> None:
    made = importlib.import_module(f"benchmarks.{name}").section(**TINY[name])

    page.write([made], tmp_path / "benchmarks.md")

    text = (tmp_path / "benchmarks.md").read_text()
    assert (f"\n## {made.title}\n" in text) is made.on_page
    assert [claim.what for claim in made.claims if f"| {claim.what} " in text] == [
        claim.what for claim in made.claims if claim.is_missed
    ]
    for target in re.findall(r"]\(([^)]+)\)", text):
        assert (tmp_path / target).exists()


def test_what_needs_a_gpu_is_skipped_by_name_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)

    assert gpu.section().text == "Skipped: gpu, as torch finds no device 'cuda' here."


def test_every_file_that_has_a_section_is_run() -> None:
    folder = Path(page.__file__).parent

    assert {path.stem for path in folder.glob("*.py") if "\ndef section(" in path.read_text()} == set(NAMES)


@pytest.mark.parametrize("module", [counts, measure, section, subscribers])
def test_the_examples_in_the_benchmarks_are_true(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_point_calls_each_subscriber_once_before_and_once_after(kind: str) -> None:
    stage = KINDS[kind](3)

    stage.run(2)

    require_calls(stage.subscribers, before=2, after=2)


def test_a_subscriber_that_was_called_too_often_is_complained_of() -> None:
    stage = KINDS[BY_HAND](1)
    stage.run(2)

    with pytest.raises(AssertionError, match="called 2 and 2 times, not 1 and 1"):
        require_calls(stage.subscribers, before=1, after=1)


def test_a_training_that_ends_with_other_weights_is_complained_of() -> None:
    batches = new_batches(30)

    def lazy(model: nn.Sequential, batches: Clocked, count: int) -> list[Any]:
        list(batches)
        return []

    turn = loop.turn(lazy, batches, 0, loop.trained(loop.raw, Clocked(batches, 10), 0))

    with pytest.raises(AssertionError, match="off those of the bare loop"):
        turn()


def test_memory_that_grows_is_seen() -> None:
    """In a process of its own: here, what earlier tests have freed would be used again before memory grows."""
    memory = measure.in_fresh_process(KEEPING)["memory"]

    assert memory[-1] - memory[0] > 5


def test_the_same_calls_are_counted_each_time() -> None:
    def run(times: int) -> None:
        for _ in range(times):
            stage.run(1)

    stage: Stage = KINDS[BY_HAND](2)

    assert counts.calls_of(run) == counts.calls_of(run) == (5, 0)


def test_what_another_toolkit_does_better_is_said() -> None:
    fast, slow, both = Spread(1, 2, 3), Spread(4, 5, 6), Spread(2, 3, 5)

    text = better({"ours": {0: slow, 1: fast, 5: both}, "other": {0: fast, 1: slow, 5: slow}}, "ours", ["other"])

    assert text == "Cheaper than ours: other (H = 0). Not told apart: other (H = 5)."


def test_a_limit_is_missed_kept_or_its_goal_met() -> None:
    verdicts = [Claim("a stage", measured, must=8, goal=6).verdict() for measured in (9, 8, 6)]

    assert verdicts == ["**missed**", "kept", "goal met"]
    assert Claim("as fast", 30, must=5, goal=20, at_least=True).verdict() == "goal met"


def test_the_page_names_no_machine(tmp_path: Path) -> None:
    import platform

    page.write([Section("A title", "A text.")], tmp_path / "benchmarks.md")

    assert platform.node() not in (tmp_path / "benchmarks.md").read_text()


def test_a_plain_step_runs_no_more_of_the_library_than_it_did() -> None:
    """A guard against growth, 10 % above what is reached: a step is judged by its time, in ``benchmarks/``."""
    step = trace.step()

    assert (step.opcodes <= 3_940, step.calls <= 112, len(+step.called) <= 24) == (True, True, True), step


def test_the_default_extensions_add_no_more_opcodes_to_a_step_than_they_did() -> None:
    """A guard against growth, 10 % above the 214 that are reached: a step is judged by its time."""
    extensions = default_extensions()
    del extensions["code_record"]  # works at the start and the end of a run alone, on what git knows of this folder

    plain, recorded = trace.steps(), trace.steps(extensions)

    assert recorded.opcodes - plain.opcodes <= 100 * 235, (plain.opcodes, recorded.opcodes)


def test_a_step_with_a_hook_at_each_stage_runs_no_more_of_the_library_than_it_did() -> None:
    step = trace.step(trace.Inside())

    assert (step.opcodes <= 4_650, step.calls <= 112, len(+step.called) <= 24) == (True, True, True), step
