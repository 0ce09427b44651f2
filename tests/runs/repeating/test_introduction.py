from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.runs.code.repositories import an_entry
from train_manager.runs.code.record import VERSION
from train_manager.runs.record.environment import environment
from train_manager.runs.repeating.introduction import introduction
from train_manager.runs.repeating.run_to_repeat import RunToRepeat


def entry(run_id: str, **parts: Any) -> dict[str, Any]:
    command = {"interpreter": sys.executable}
    plain = {
        "id": run_id,
        "began": "2026-01-01T10:20:30",
        "outcome": "completed",
        "command": command,
        "environment": {},
    }
    return {**plain, **parts}


def code(commit: str) -> dict[str, Any]:
    return {"repositories": [an_entry(commit=commit, branch=None)]}


def list_lines(run: RunToRepeat, *, here: bool = False) -> list[str]:
    return list(introduction(run, here=here))


def test_a_run_is_told_with_its_outcome_and_its_code() -> None:
    run = RunToRepeat(Path("runs/a"), entry("1f"), [entry("1f")], code("0123456789abcdef"))

    assert list_lines(run) == [
        "run: runs/a#1f, begun 2026-01-01 10:20; completed",
        "code: commit 0123456789ab, without changes",
    ]
    assert list_lines(run, here=True)[1] == "code: as it is now"


def test_what_differs_here_is_told_before_the_program_runs() -> None:
    here = environment()
    before = {**here, "python": "3.10.0", "packages": {**here["packages"], "numpy": "1.0"}, "threads": {"torch": 99}}
    run = RunToRepeat(
        Path("runs/a"), entry("1", environment=before, command={"interpreter": "/other/python"}), [], None
    )

    assert list_lines(run)[1:] == [
        f"environment: python 3.10.0 there, {here['python']} here",
        f"environment: numpy 1.0 there, {here['packages']['numpy']} here",
        f"environment: interpreter /other/python there, {sys.executable} here",
    ]


def test_the_interpreter_under_another_name_is_not_a_difference() -> None:
    folder = Path(sys.executable).parent
    for name in ("python", "python3", f"../{folder.name}/python"):
        run = RunToRepeat(Path("runs/a"), entry("1", command={"interpreter": str(folder / name)}), [], None)

        assert list_lines(run)[1:] == []


def test_a_run_that_resumed_is_run_from_the_beginning(tmp_path: Path) -> None:
    first, last = entry("a1"), entry("b2", goes_on_from={"checkpoint": "step-000000000003", "step": 3, "run": "a1"})

    found = list_lines(RunToRepeat(tmp_path, last, [first, last], None))

    assert found[1:] == ["begin: it resumed after step 3 of run a1; here it runs from the beginning"]


def test_parts_with_different_code_are_told(tmp_path: Path) -> None:
    first, last = entry("a1"), entry("b2", goes_on_from={"checkpoint": "step-000000000003", "step": 3, "run": "a1"})
    (tmp_path / "code").mkdir()
    head = {"schema": "train-manager/code", "version": VERSION}
    for run_id, commit in (("a1", "11" * 20), ("b2", "22" * 20)):
        (tmp_path / "code" / f"{run_id}.json").write_text(json.dumps({**head, **code(commit)}))

    found = list_lines(RunToRepeat(tmp_path, last, [first, last], code("22" * 20)))

    assert found[-1] == "begin: its runs had different code; here all of it runs with the code of the last run"


def test_a_run_that_resumed_from_another_folder_needs_its_checkpoint_again(tmp_path: Path) -> None:
    last = entry("b2", goes_on_from={"checkpoint": "step-000000000003", "step": 3, "run": "elsewhere"})

    found = list_lines(RunToRepeat(tmp_path, last, [last], None))

    assert found[1:] == ["begin: it resumed from step-000000000003, which its program must find again"]
