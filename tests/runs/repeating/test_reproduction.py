from __future__ import annotations

import json
from pathlib import Path

from train_manager.files.json_text import text_of
from train_manager.runs.repeating.metrics import MetricValues, compare_metrics
from train_manager.runs.repeating.reproduction import Reproduction
from train_manager.runs.store.schema import Series

LOSS = Series("loss", "train_step_batch")


def run(*losses: float, **others: list[float]) -> MetricValues:
    more = {Series(name): (list(range(1, len(values) + 1)), values) for name, values in others.items()}
    return {LOSS: (list(range(1, len(losses) + 1)), list(losses)), **more}


def test_identical_metrics_are_counted() -> None:
    report = Reproduction(compare_metrics(run(0.5, 0.25, lr=[0.1]), run(0.5, 0.25, lr=[0.1])))

    assert report.identical
    assert str(report) == "identical: 2 losses and 1 metric, bit for bit"


def test_the_first_value_that_differs_is_told_with_what_lies_around() -> None:
    metrics = compare_metrics(run(0.5, 0.25, 0.125), run(0.5, 0.3, 0.1))

    report = Reproduction(metrics, around=("packages: numpy 1.0 in the record, 2.0 now",), folder=Path("/tmp/r"))

    assert not report.identical
    assert str(report) == (
        "different from step 2 on: loss (train_step_batch) is 0.25 in the record, 0.3 in the reproduction "
        "(apart by 0.05)\n"
        "  2 values differ of 3, in loss (train_step_batch), by 0.05 at most\n"
        "what differs around it:\n"
        "  packages: numpy 1.0 in the record, 2.0 now\n"
        "files: /tmp/r"
    )


def test_a_program_gets_the_comparison_as_data() -> None:
    metrics = compare_metrics(run(0.5, 0.25, norm=[1.0]), run(0.5, float("nan"), other=[1.0]))
    data = json.loads(text_of(Reproduction(metrics, folder=Path("/tmp/r")).as_json()))

    assert (data["identical"], data["folder"], data["metrics"]["losses"]) == (False, "/tmp/r", 2)
    name = "loss (train_step_batch)"
    assert data["metrics"]["first"] == {"step": 2, "series": name, "one": 0.25, "other": {"$float": "nan"}}
    assert data["metrics"]["differing"] == {name: 1}
    assert data["metrics"]["only_in"][0] == {"norm": {"number": 1, "first": 1, "last": 1}}


def test_a_cause_is_told_where_nothing_that_was_recorded_differs() -> None:
    report = Reproduction(compare_metrics(run(0.5), run(0.25)), causes=("no seed was recorded",))

    assert str(report).splitlines()[-2:] == [
        "nothing else that was recorded differs",
        "cause, perhaps: no seed was recorded",
    ]


def test_a_reproduction_that_was_cut_short_says_up_to_where_it_is_identical() -> None:
    metrics = compare_metrics(run(0.5, 0.25, 0.125), run(0.5, 0.25))

    report = Reproduction(metrics, cut_short="as asked")

    assert report.identical
    assert str(report) == (
        "identical up to step 2: 2 losses and 0 metrics, bit for bit\n"
        "  compared up to step 2, as asked; the record has 3 steps"
    )


def test_another_length_without_a_reason_is_a_difference() -> None:
    report = Reproduction(compare_metrics(run(0.5, 0.25), run(0.5)))

    assert not report.identical
    assert str(report) == (
        "different: what was compared is identical, 1 loss and 0 metrics, but not all is there\n"
        "  compared up to step 1; the record has 2 steps, the reproduction 1\n"
        "nothing else that was recorded differs"
    )


def test_series_of_one_run_only_are_named() -> None:
    metrics = compare_metrics(run(0.5, lr=[0.1], seconds=[1.0]), run(0.5, norm=[0.1], seconds=[2.0]))

    assert str(Reproduction(metrics)).splitlines()[1:4] == [
        "  only in the record: 1 value at step 1, of lr",
        "  only in the reproduction, and not compared: 1 value at step 1, of norm",
        "  not compared, as times differ from run to run: seconds",
    ]


def test_steps_of_the_reproduction_only_are_named() -> None:
    record = {LOSS: ([4, 5], [0.2, 0.1])}

    report = Reproduction(compare_metrics(record, run(0.5, 0.4, 0.3, 0.2, 0.1)))

    assert report.identical
    assert str(report).splitlines()[1:] == [
        "  only in the reproduction, and not compared: 3 values at steps 1 to 3, of loss (train_step_batch)"
    ]


def test_many_names_are_cut() -> None:
    names = {f"norm_{number}": [0.1] for number in range(7)}

    told = str(Reproduction(compare_metrics(run(0.5, **names), run(0.5)))).splitlines()[1]

    assert told == "  only in the record: 7 values at step 1, of norm_0, norm_1, norm_2, norm_3, norm_4 and 2 more"


def test_a_record_without_rows_is_not_compared() -> None:
    report = Reproduction(compare_metrics({}, run(0.5)), cut_short="as the recorded run did not come to its end")

    assert not report.identical
    assert str(report).splitlines()[0] == ("not compared: the record and the reproduction have no metric in common")
