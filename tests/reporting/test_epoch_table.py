from __future__ import annotations

import pytest

from train_manager.reporting.epoch_table import EpochTable, Row

TRAINED = {"training": {"loss": 0.5}}
VALID = {"valid": {"loss": 0.25}}


def test_a_header_comes_once_as_long_as_the_columns_stay() -> None:
    table = EpochTable()
    assert [len(table.lines(Row("1", TRAINED))), len(table.lines(Row("2", TRAINED)))] == [3, 1]


def test_a_new_column_gets_a_new_header() -> None:
    table = EpochTable()
    table.lines(Row("1", TRAINED))
    assert table.lines(Row("2", {**TRAINED, **VALID}))[1].split() == ["epoch", "loss", "loss", "seconds"]
    assert len(table.lines(Row("3", TRAINED))) == 1


def test_the_training_comes_first_whatever_comes_later() -> None:
    table = EpochTable()
    table.lines(Row("start", VALID))
    assert table.lines(Row("1", TRAINED))[0].split() == ["training", "valid"]


def test_an_expected_column_has_its_place_before_it_has_a_metric() -> None:
    table = EpochTable()
    assert table.lines(Row("start", VALID), [("training", "loss")])[1].split() == ["epoch", "loss", "loss", "seconds"]
    assert len(table.lines(Row("1", TRAINED))) == 1


def test_an_expected_column_that_does_not_come_is_dropped() -> None:
    table = EpochTable()
    table.lines(Row("start", VALID), [("training", "loss"), ("training", "accuracy")])
    assert table.lines(Row("1", TRAINED))[1].split() == ["epoch", "loss", "loss", "seconds"]


def test_two_sets_with_two_metrics_fit_into_80_columns() -> None:
    metrics = {"loss": 0.012345, "accuracy": 0.98765}
    row = Row("12/12", dict.fromkeys(["training", "valid", "test"], metrics), seconds=12345.6, is_best=True)
    assert max(map(len, EpochTable().lines(row))) <= 80


SIX = dict.fromkeys(("loss", "accuracy", "precision", "recall", "f1", "auroc"), 0.5)
THREE_SETS = Row("12/12", dict.fromkeys(["training", "valid", "test"], SIX), seconds=12345.6, is_best=True)


@pytest.mark.parametrize("width", [20, 80, 120, 160])
def test_columns_that_have_no_room_are_left_out_and_counted(width: int) -> None:
    groups, names, line = EpochTable().lines(THREE_SETS, width=width)
    shown = len(names.split()) - len(["epoch", "seconds"])
    assert max(map(len, (groups, names, line))) <= width or shown == 1
    assert groups.endswith(f"  +{18 - shown} in tm.history")
    assert len(line.split()) == shown + 3


def test_the_monitored_column_is_shown_first_then_the_first_of_each_group() -> None:
    assert EpochTable().lines(THREE_SETS, width=70, monitored="valid/f1")[1].split() == [
        *("epoch", "loss", "loss", "f1", "loss", "seconds")
    ]


def test_a_table_that_fits_has_all_columns() -> None:
    widest = max(map(len, EpochTable().lines(THREE_SETS)))
    assert EpochTable().lines(THREE_SETS, width=widest) == EpochTable().lines(THREE_SETS)


def test_a_long_name_of_a_set_is_cut() -> None:
    group = "validation set of the year 2024, second half, web pages"
    assert max(map(len, EpochTable().lines(Row("1", {group: {"loss": 0.5}})))) < 50


def test_losses_of_several_optimizers_have_the_names_of_the_optimizers() -> None:
    losses = {"losses/discriminator": 0.5, "losses/generator": 2.0}
    table = EpochTable()
    assert table.lines(Row("1/2", {"training": losses}, seconds=3)) == [
        "                training",
        "epoch   discriminator  generator  seconds",
        "1/2            0.5000      2.000     3.00",
    ]
    assert "<th>discriminator</th><th>generator</th>" in table.html()


def test_a_loss_keeps_its_whole_name_beside_a_metric_of_the_short_one() -> None:
    row = Row("1", {"training": {"losses/critic": 0.5, "critic": 2.0}})
    assert EpochTable().lines(row)[1].split() == ["epoch", "losses/critic", "critic", "seconds"]


def test_html_has_names_as_they_are() -> None:
    table = EpochTable()
    table.lines(Row("1/2", {"<b>": {"a & b": 0.5}}, seconds=2, is_best=True))
    assert "&lt;b&gt;" in table.html()
    assert "a &amp; b" in table.html()
    assert "<td>1/2</td><td>0.5000</td><td>2.00</td><td>best</td>" in table.html()
