from __future__ import annotations

from typing import Any

import pytest
import torch

from train_manager import InputError
from train_manager.metrics.monitor import is_at_start, is_best, metric_name, metric_value, mode_of, require_set

RESULTS = {"valid": {"loss": 0.5, "top5/accuracy": 0.9}, "valid/hard": {"loss": 0.7}}


@pytest.mark.parametrize(
    ("metric", "value"), [("valid/loss", 0.5), ("valid/hard/loss", 0.7), ("valid/top5/accuracy", 0.9)]
)
def test_a_metric_is_named_by_its_set_and_its_name(metric: str, value: float) -> None:
    assert metric_value(metric, RESULTS, RESULTS, "EarlyStopping") == value


def test_a_metric_that_is_a_tensor_is_read_as_a_number() -> None:
    results = {"valid": {"loss": torch.tensor(0.5)}}
    value = metric_value("valid/loss", results, results, "EarlyStopping")  # type: ignore[arg-type]
    assert type(value) is float


def test_a_set_that_is_left_out_in_this_evaluation_gives_none() -> None:
    assert metric_value("test/loss", RESULTS, ["valid", "test"], "EarlyStopping") is None


def test_an_unknown_metric_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InputError) as error:
        metric_value("valid/los", RESULTS, RESULTS, "EarlyStopping")
    assert str(error.value) == (
        "EarlyStopping monitors 'valid/los', which is not among the results of 'valid'\n  did you mean 'valid/loss'?"
    )


def test_an_unknown_set_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InputError) as error:
        require_set("vaild/loss", ["valid", "test"], "EarlyStopping")
    assert str(error.value) == (
        "EarlyStopping monitors 'vaild/loss', but eval_data has no set 'vaild'\n  did you mean 'valid'?"
    )


@pytest.mark.parametrize(("sets", "cure"), [(["dev"], "its sets are 'dev'"), ([], 'pass eval_data={"valid": batches}')])
def test_where_no_set_is_near_the_cure_says_what_there_is(sets: list[str], cure: str) -> None:
    with pytest.raises(InputError, match="\n  " + cure.replace("{", r"\{")):
        require_set("valid/loss", sets, "EarlyStopping")


@pytest.mark.parametrize("metric", ["loss", "/loss", "valid/", "", 3])
def test_a_name_without_a_set_and_a_metric_is_refused(metric: Any) -> None:
    with pytest.raises(InputError) as error:
        metric_name(metric, "EarlyStopping")
    assert str(error.value) == (
        f"monitor must name a set of eval_data and a metric, but is {metric!r}\n"
        '  put a slash between them: "valid/loss"'
    )


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("valid/loss", "min"), ("valid/kl_loss", "min"), ("valid/accuracy", "max"), ("valid/macro_F1", "max")],
)
def test_the_last_word_of_a_name_tells_the_mode(metric: str, mode: str) -> None:
    assert mode_of(metric, None, "EarlyStopping") == mode


def test_a_mode_that_cannot_be_known_is_refused() -> None:
    with pytest.raises(InputError) as error:
        mode_of("valid/score", None, "EarlyStopping")
    assert str(error.value) == (
        "EarlyStopping cannot tell from the name 'valid/score' whether a smaller or a larger value is better\n"
        '  give mode="min" or mode="max"'
    )


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(InputError) as error:
        mode_of("valid/loss", "smallest", "EarlyStopping")
    assert str(error.value) == "mode must be 'min' or 'max', but is 'smallest'"


@pytest.mark.parametrize(
    ("counts", "found"), [((0, 0, 0), True), ((0, 4, 4), True), ((0, 1, 0), False), ((1, 3, 3), False)]
)
def test_the_start_is_before_the_first_epoch_where_nothing_is_trained(
    counts: tuple[int, int, int], found: bool
) -> None:
    assert is_at_start(*counts) is found


@pytest.mark.parametrize(
    ("value", "mode", "before", "best"),
    [
        (0.5, "min", [], True),
        (0.5, "min", [0.75, 0.625], True),
        (0.5, "min", [0.75, 0.25], False),
        (0.5, "min", [0.5], False),
        (0.5, "max", [0.25], True),
        (0.5, "max", [0.75], False),
        (0.5, "min", [float("nan")], True),
        (float("nan"), "min", [], False),
    ],
)
def test_the_best_is_better_than_all_before_it(value: float, mode: str, before: list[float], best: bool) -> None:
    rows = [{"epoch": 1, "step": 3, "set": "valid", "loss": loss} for loss in before]
    assert is_best(value, "valid/loss", mode, rows) is best


def test_the_best_is_of_its_own_set_and_metric() -> None:
    rows = [{"set": "valid", "error": 0.25}, {"set": "test", "loss": 0.25}, {"set": "test", "valid/loss": 0.25}]
    assert is_best(0.5, "valid/loss", "min", rows)
