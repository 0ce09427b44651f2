from __future__ import annotations

import json

from train_manager.files.json_text import text_of
from train_manager.trials.tricks import Trick
from train_manager.trials.tune_report import Tried, TuneReport

IN_MEMORY = Trick(
    "InMemory", ("tm.train_data = InMemory(x, y, batch_size=4)",), ("from train_manager import InMemory",)
)
FUSED = Trick("fused", ("fuse(tm.optimizer)",))
AS_IT_IS = Tried((), 1.0, 0.0, 0.0)


def report(*tried: Tried) -> TuneReport:
    return TuneReport([AS_IT_IS, *tried], seconds=0.0123, steps=20, compared=8, notes=["a note"])


def test_it_shows_times_differences_failures_and_the_lines_to_paste() -> None:
    shown = report(
        Tried((FUSED,), 0.8, 2.4e-7, 3e-8),
        Tried((IN_MEMORY,), failed="OutOfMemoryError: too little"),
        Tried((FUSED, IN_MEMORY), 0.5, 0.0, 0.0),
    )

    assert str(shown).splitlines() == [
        "4 trials in turn, each 5 rounds of 20 steps after 5; the median round counts",
        "loss, weights: the largest difference after 8 steps from the training as it is",
        "",
        "                  ratio   a step     loss  weights",
        "as it is           1.00  12.3 ms        0        0",
        "fused              0.80  9.84 ms  2.4e-07  3.0e-08",
        "InMemory         failed",
        "fused, InMemory    0.50  6.15 ms        0        0",
        "InMemory failed: OutOfMemoryError: too little",
        "a note",
        "",
        "below tm = TrainManager(...), for 0.50 of the time:",
        "",
        "    from train_manager import InMemory",
        "    fuse(tm.optimizer)",
        "    tm.train_data = InMemory(x, y, batch_size=4)",
    ]


def test_a_program_gets_the_names_of_the_tricks_and_nan_as_json() -> None:
    data = json.loads(text_of(report(Tried((FUSED,), 0.8), Tried((IN_MEMORY,), failed="it failed")).as_json()))

    assert (data["best"], data["lines"], data["notes"]) == (["fused"], ["fuse(tm.optimizer)"], ["a note"])
    nan = {"$float": "nan"}
    assert data["tried"][2] == {
        "tricks": ["InMemory"],
        "ratio": nan,
        "loss": nan,
        "weights": nan,
        "failed": "it failed",
    }


def test_of_trials_that_are_as_fast_the_one_of_fewer_tricks_is_the_best() -> None:
    assert report(Tried((FUSED, IN_MEMORY), 0.50), Tried((FUSED,), 0.51)).best.name == "fused"


def test_a_gain_within_the_noise_changes_nothing() -> None:
    shown = report(Tried((FUSED,), 0.98))

    assert shown.lines == ""
    assert str(shown).endswith("nothing that was tried is faster by 3 %: leave the training as it is")
