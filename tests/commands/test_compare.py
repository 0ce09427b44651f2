from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.record.sample_runs import entry, parameters, write_runs
from train_manager import cli

WITHOUT_RICH = "import sys; sys.modules['rich.console'] = sys.modules['rich'] = None; "


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two runs whose learning rates differ."""
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry(parameters=parameters(lr=0.2)))
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def in_a_terminal(code: str) -> str:
    """What a program prints in a terminal of 80 columns."""
    ours, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=its, stdin=its, env=environment) as process:
        os.close(its)
        printed = b""
        while part := _read(ours):
            printed += part
    os.close(ours)
    assert process.returncode == 1
    return printed.decode().replace("\r\n", "\n")


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # the other end is closed
        return b""


def test_what_differs_is_printed(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *runs]) == 1

    assert "  optimizer.lr  0.1  0.2" in capsys.readouterr().out.splitlines()


def test_runs_that_do_not_differ_are_well(runs: list[str]) -> None:
    assert cli.main(["compare", runs[0], runs[0]]) == 0


def test_a_page_is_written(runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *runs, "--html", str(tmp_path / "page.html")]) == 1

    assert capsys.readouterr().out.endswith(f"\nwritten to {tmp_path}/page.html\n")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_a_page_is_not_written_over_a_folder(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *runs, "--html", str(tmp_path)]) == 2

    told = f"train-manager: {tmp_path} is a folder\n  name a file: --html {tmp_path}/runs.html\n"
    assert capsys.readouterr().err == told


def test_a_run_that_is_not_there_is_told(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", runs[0], "nowhere"]) == 2

    told = "train-manager: there is no folder nowhere\n  give the train_dir of a training\n"
    assert capsys.readouterr().err == told


def test_a_program_gets_all_as_json(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *runs, "--json"]) == 1

    found = json.loads(capsys.readouterr().out)
    assert [run["label"] for run in found["runs"]] == ["a", "b"]
    assert found["parameters"]["optimizer.lr"] == ["0.1", "0.2"]
    assert found["parameters"]["epochs"] == ["2", "2"]
    assert found["metrics"]["valid/loss"] == ["0.2500", "0.2500"]
    assert found["findings"] == [[], []]


def test_a_terminal_gets_colours_if_rich_is_installed_and_the_same_text_if_not(runs: list[str]) -> None:
    code = f"from train_manager.cli import main; sys.exit(main(['compare', *{runs!r}]))"

    coloured, plain = in_a_terminal(f"import sys; {code}"), in_a_terminal(WITHOUT_RICH + code)

    assert "\x1b[1mparameters (3 the same)\x1b[0m" in coloured
    assert "\x1b" not in plain
    assert _without_colours(coloured) == plain


def _without_colours(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
