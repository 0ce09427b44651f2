from __future__ import annotations

import pytest

from train_manager.reporting.terminal import side_by_side_lines, table_lines, width_of


def lines(head: list[str], rows: list[list[str]], width: int) -> list[str]:
    return [line.text for line in side_by_side_lines(head, rows, width)]


def test_a_table_that_fits_is_shown_as_it_is() -> None:
    assert lines(["", "one", "other"], [["lr", "0.1", "0.25"], ["epochs", "3", "10"]], 80) == [
        "          one  other",
        "  lr      0.1   0.25",
        "  epochs    3     10",
    ]


def test_a_table_that_is_too_wide_continues_below_itself() -> None:
    head = ["", *(f"run-{number:09}" for number in range(4))]

    assert lines(head, [["optimizer.lr", "0.1", "0.2", "0.3", "0.4"]], 50) == [
        "                run-0…000000  run-0…000001",
        "  optimizer.lr           0.1           0.2",
        "",
        "                run-0…000002  run-0…000003",
        "  optimizer.lr           0.3           0.4",
    ]


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("runs", [2, 5, 10])
def test_no_line_is_wider_than_the_terminal(width: int, runs: int) -> None:
    head = ["", *(f"a/rather/long/name/of/a/run-{number}" for number in range(runs))]
    rows = [["extensions.checkpoints.requeue_exit_code", *(str(number) for number in range(runs))]]
    rows += [["model", *("x" * 50 * number for number in range(runs))], ["loss", *["0.3521"] * runs]]

    shown = lines(head, rows, width)

    assert max(map(width_of, shown)) <= width
    assert sum("0.3521" in line for line in shown) >= 1
    assert sum(line.count("0.3521") for line in shown) == runs


def test_what_has_no_room_stands_in_a_block_below() -> None:
    shown = table_lines(["run", "loss", "commit"], [["a", "0.5", "18afa3f"]], 12)

    assert [(line.text, line.kind) for line in shown] == [
        ("run  loss", "head"),
        ("a     0.5", "row"),
        ("", "row"),
        ("run   commit", "head"),
        ("a    18afa3f", "row"),
    ]
