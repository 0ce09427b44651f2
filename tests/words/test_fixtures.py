"""The words of other tools for fixtures and stages are held to a TrainManager and to the extensions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.support.refusals import refusal
from train_manager import Extension
from train_manager.errors import FixtureNotFound, StageError
from train_manager.extensions import (
    Accumulate,
    Avg,
    ClipGradients,
    EvalTotals,
    LRSchedule,
    Metrics,
    MetricStore,
    MixedPrecision,
    WarmUp,
)
from train_manager.telling.words import fixture_of
from train_manager.testing import Recorder, tiny_manager
from train_manager.words.fixtures import EXTENSIONS, FIXTURES, STAGES, SUMMARIES

SHIPPED: dict[str, Callable[[], Extension]] = {
    "Accumulate(1)": lambda: Accumulate(1),
    'Avg("loss")': lambda: Avg("loss"),
    "ClipGradients": lambda: ClipGradients(1.0),
    "EvalTotals": EvalTotals,
    "LRSchedule": lambda: LRSchedule(lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 10)),
    "Metrics": Metrics,
    "MetricStore": MetricStore,
    "MixedPrecision": lambda: MixedPrecision(torch.bfloat16),
    "WarmUp": lambda: WarmUp(steps=2),
}


def born(*extensions: Extension) -> dict[str, set[str]]:
    """The names that each stage owned at its end."""
    recorder = Recorder()
    tm = tiny_manager(*extensions, recorder)
    tm.train()
    tm.predict(tm.eval_data["valid"])
    found: dict[str, set[str]] = {}
    for path, names in recorder.born.items():
        found.setdefault(path[-1], set()).update(names)
    return found


def stages_of(name: str, *extensions: Extension) -> set[str]:
    """The stages that own a fixture."""
    nodes = json.loads(tiny_manager(*extensions).explain(format="json"))
    return {node["stage"] for node in nodes if name in node["defines"]}


def test_all_that_the_table_offers_is_a_fixture_of_the_loop_or_of_an_extension() -> None:
    there = {"train_manager", *EXTENSIONS}.union(*born().values())

    assert {fixture_of(meant) for options in FIXTURES.values() for meant in options} <= there
    assert {name for _, names in SUMMARIES.values() for name in names} <= there


def test_all_that_the_table_reads_of_a_train_manager_is_there() -> None:
    expressions = {meant for options in FIXTURES.values() for meant in options if meant.startswith("train_m")}
    tm = tiny_manager()

    for expression in expressions:
        eval(expression, {"train_manager": tm})
    assert len(expressions) > 5


def test_the_stages_of_the_table_are_those_of_the_loop() -> None:
    stages = {line.strip("│├└─ ").split("  ")[0] for line in tiny_manager().explain().splitlines()}

    assert {stage for options in STAGES.values() for stage in options} <= stages
    assert not stages.intersection(STAGES)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_an_extension_provides_what_the_table_says(name: str) -> None:
    provided = EXTENSIONS[name]

    assert stages_of(name) == set()
    assert stages_of(name, SHIPPED[provided.extension]()) == {provided.stage}


# ---- in a run ------------------------------------------------------------------------------------------------------


def cure_at(hook: str, *extensions: Extension, does: Callable[[Any], object]) -> str:
    """The last line of what a hook is told that reads a fixture."""
    with pytest.raises(FixtureNotFound) as caught:
        tiny_manager(*extensions, Extension.of(**{hook: lambda fixtures: does(fixtures)})).train()
    return str(caught.value).splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("hook", "name", "cure"),
    [
        ("post_train_step_batch", "preds", "did you mean 'prediction'?"),
        ("post_train_step_batch", "trainer", "did you mean 'train_manager'?"),
        ("post_train_step_epoch", "optimizer", "did you mean train_manager.optimizer? ask for 'train_manager'"),
        (
            "post_train_step_epoch",
            "preds",
            "did you mean 'prediction'? it lived in stage 'train_step_batch', which has closed",
        ),
        (
            "post_eval_step_epoch",
            "loss",
            "ask for it inside stage 'eval_step_batch'; for its mean, ask for 'eval_result'",
        ),
        (
            "post_train_step_batch",
            "metrics",
            "add the extension Metrics of train_manager.extensions, which provides 'metrics'",
        ),
    ],
)
def test_a_fixture_that_is_not_there_in_a_run_is_told_the_same(hook: str, name: str, cure: str) -> None:
    assert cure_at(hook, does=lambda fixtures: fixtures[name]) == cure


def test_a_stage_of_another_word_that_is_not_open_is_told_the_same() -> None:
    assert refusal(
        lambda: tiny_manager(
            Extension.of(post_train_step_batch=lambda fixtures: fixtures.define("x", 1, stage="epoch"))
        ).train(),
        StageError,
    ).endswith("\n  did you mean 'train_step_epoch'?")
