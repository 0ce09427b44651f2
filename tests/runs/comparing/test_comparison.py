from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from train_manager.reporting.terminal import width_of
from train_manager.runs.code.differences import CodeDifference, FileChange, FileDifference
from train_manager.runs.comparing.comparison import Comparison
from train_manager.runs.record.run_summary import RunSummary
from train_manager.telling.findings import Finding, Findings

BEGAN = datetime(2026, 5, 1, 12).astimezone()
RUNS = tuple(
    RunSummary(name, Path("runs", name), "ab12", BEGAN, 75.0, "completed", 2, 20, {}, "") for name in ("base", "other")
)
FILES = CodeDifference(
    (
        FileDifference("train.py", "changed", (FileChange(12, ("lr=0.1",), ("lr=0.2",)),)),
        FileDifference("data.bin", "binary, of 9 and 12 bytes"),
    ),
    ("the commit is gone",),
)
COMPARED = Comparison(
    RUNS,
    parameters={"epochs": ("2", "2"), "optimizer.lr": ("0.1", "0.2"), "model.width": ("8", None)},
    code={"commit": ("18afa3f", "18afa3f"), "files": (None, "2 differ, not all compared")},
    environment={},
    data={"seed": ("0", "0")},
    metrics={"valid/loss": ("0.2500", "0.3000")},
    files=(FILES,),
    notes=("base: metrics.sqlite cannot be read",),
)


def texts(compared: Comparison, width: int = 80, *, shows_all: bool = False) -> list[str]:
    return [line.text for line in compared.lines(width, shows_all=shows_all)]


def test_what_differs_is_shown() -> None:
    assert (
        "\n".join(texts(COMPARED))
        == """\
runs
  base   2026-05-01 12:00  2 epochs, 20 steps  completed  runs/base#ab12
  other  2026-05-01 12:00  2 epochs, 20 steps  completed  runs/other#ab12

parameters (1 the same)
                base  other
  optimizer.lr   0.1    0.2
  model.width      8      -

code (1 the same)
         base                       other
  files     -  2 differ, not all compared

base -> other: 2 files differ
  train.py
    line 12
      - lr=0.1
      + lr=0.2
  data.bin: binary, of 9 and 12 bytes
  note: the commit is gone

environment: not recorded

data: the same

metrics
                base   other
  valid/loss  0.2500  0.3000
note: base: metrics.sqlite cannot be read"""
    )


UNKNOWN = replace(
    COMPARED,
    parameters={
        "model": ("<a Net, which is not recorded>",) * 2,
        "loss": ("<the function train:loss, which is not recorded>",) * 2,
        "lr_schedule": ("<a lambda>",) * 2,
        "eval_data.valid": ("<a list, which is not recorded>",) * 2,
        "seed": ("<a Drawn, which is not recorded>", "1"),
        "epochs": ("2", "2"),
    },
    data={"eval_data.valid.length": ("40", "40")},
)


def test_a_value_that_is_not_recorded_does_not_count_as_the_same() -> None:
    shown = texts(UNKNOWN)

    assert shown[4:9] == [
        "parameters (1 the same)",
        "                                    base  other",
        "  seed  <a Drawn, which is not recorded>      1",
        "not recorded: model (a Net), loss (the function train:loss), lr_schedule (a",
        "  lambda); put @recorded above a class or function of yours",
    ]


def test_parameters_without_a_difference_are_the_same_as_far_as_recorded() -> None:
    alike = {"model": ("<a lambda>",) * 2, "epochs": ("2", "2")}

    shown = texts(replace(COMPARED, parameters=alike))

    assert shown[4:6] == ["parameters: the same as far as recorded", "not recorded: model (a lambda)"]


def test_code_that_is_not_in_full_is_the_same_as_far_as_recorded() -> None:
    rows = {"commit": ("18afa3f", "18afa3f")}
    notes = ("all runs: the code is not in full: git is not installed",)

    assert "code: the same" in texts(replace(COMPARED, code=rows))
    assert "code: the same as far as recorded" in texts(replace(COMPARED, code=rows, notes=notes))


def test_all_is_shown_when_it_is_asked_for() -> None:
    shown = texts(COMPARED, shows_all=True)

    assert shown[4:8] == [
        "parameters",
        "                base  other",
        "  epochs           2      2",
        "  optimizer.lr   0.1    0.2",
    ]


def test_of_many_files_and_places_the_first_are_shown() -> None:
    places = tuple(FileChange(number, tuple("abcdef"), ()) for number in range(1, 6))
    files = CodeDifference(tuple(FileDifference(f"{number:02}.py", "changed", places) for number in range(12)))

    shown = texts(replace(COMPARED, files=(files,)))

    assert shown.count("    and 2 more places (--all shows them)") == 10
    assert shown.count("      - and 2 more lines") == 30
    assert "  and 2 more files (--all shows them)" in shown
    shown = texts(replace(COMPARED, files=(files,)), shows_all=True)
    assert not any("--all" in text for text in shown)


@pytest.mark.parametrize("letter", ["a", "損"])
@pytest.mark.parametrize("column", [5, 60, 200, 300])
def test_long_lines_show_the_place_at_which_they_differ(column: int, letter: str) -> None:
    lines = [f"{letter * column}{value}{letter * (300 - column)}" for value in ("OLD", "NEW")]
    files = CodeDifference((FileDifference("train.py", "changed", (FileChange(1, (lines[0],), (lines[1],)),)),))

    shown = texts(replace(COMPARED, files=(files,)), 80)

    removed, added = (text for text in shown if text.startswith(("      - ", "      + ")))
    assert removed.index("OLD") == added.index("NEW") <= 45
    assert max(map(width_of, (removed, added))) <= 80


@pytest.mark.parametrize("width", [80, 160])
def test_ten_runs_side_by_side_fit_a_terminal(width: int) -> None:
    runs = tuple(
        replace(RUNS[0], label=f"sweep/learning-rate-{10**-n:g}", outcome="failed: " + "x" * 99) for n in range(10)
    )
    rows = {
        "optimizer.lr": tuple(f"{10**-n:g}" for n in range(10)),
        "model": tuple("y" * 90 + str(n) for n in range(10)),
    }

    shown = texts(
        replace(COMPARED, runs=runs, parameters=rows, metrics={"loss": ("0.5000",) * 10}, code={}, data={}), width
    )

    assert max(map(width_of, shown)) <= width
    assert sum(text.count("0.5000") for text in shown) == 10
    cells = [cell for text in shown if text.startswith("  model") for cell in text.split()[1:]]
    assert [cell[-1] for cell in cells] == [*"0123456789"]
    assert all(cell.startswith("…y") for cell in cells)


def test_what_is_recorded_cannot_move_the_cursor() -> None:
    files = CodeDifference((FileDifference("\x1b[2J.py", "changed", (FileChange(1, ("\x1b[A",), ()),)),))
    rows = {"\x1b[1m": ("\x07", "\r")}
    run = replace(RUNS[0], label="\x1b[0m", train_dir=Path("\n"))

    shown = texts(replace(COMPARED, runs=(run, RUNS[1]), parameters=rows, files=(files,), notes=("\x1b",)))

    assert all(text.isprintable() for text in shown)


def test_of_a_single_run_all_is_shown() -> None:
    alone = Comparison(RUNS[:1], {"epochs": ("2",)}, {}, {}, {}, {})

    assert texts(alone)[3:6] == ["parameters", "          base", "  epochs     2"]


def test_folders_stand_below_the_runs_if_they_have_no_room_beside() -> None:
    long = replace(COMPARED, runs=(replace(RUNS[0], train_dir=Path("runs", "x" * 30)), RUNS[1]))

    assert texts(long, 80)[2:6] == [
        "  other  2026-05-01 12:00  2 epochs, 20 steps  completed",
        "",
        f"  base   runs/{'x' * 30}#ab12",
        "  other  runs/other#ab12",
    ]
    assert texts(long, 100)[2] == "  other  2026-05-01 12:00  2 epochs, 20 steps  completed  runs/other#ab12"


def test_what_checks_have_found_is_shown_of_each_run_that_they_have_found_something_in() -> None:
    found = Findings([Finding("batch leak", "error", "example 2 sees example 5", "body.mix", "split the batch")])
    with_findings = replace(COMPARED, findings=(Findings(), found), notes=())

    assert texts(with_findings)[len(texts(replace(COMPARED, notes=()))) :] == [
        "",
        "findings",
        "  other",
        "  batch leak  error: example 2 sees example 5",
        "                where  body.mix",
        "                do     split the batch",
    ]
