from __future__ import annotations

import pytest

from train_manager.reporting.terminal import print_wrapped
from train_manager.telling.findings import Finding, Findings
from train_manager.telling.wrapping import line_width, wrap_text


def in_terminal(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)


def test_a_file_has_lines_of_the_width_that_the_caller_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)

    assert (line_width(), line_width(70)) == (100, 70)


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("200", 100), ("10", 40)])
def test_a_terminal_has_its_own_width_between_two_limits(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    in_terminal(monkeypatch, columns)

    assert line_width() == width


def test_findings_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch, "80")
    found = Finding("parameters", "error", "one parameter is in none " * 5, cure="give it to an optimizer, " * 5)

    lines = str(Findings([found])).splitlines()

    assert max(map(len, lines)) <= 80
    assert all(line.startswith(" " * 12) for line in lines[1:])


def test_a_long_line_of_a_command_continues_below_its_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    print_wrapped("short\n  cause, perhaps: the threads of the process differ")

    assert capsys.readouterr().out == "short\n  cause, perhaps: the threads of the\n    process differ\n"


def test_a_word_that_is_longer_than_a_line_stays_whole() -> None:
    assert wrap_text("in ", "a/path/of/a/name and more", "   ", 10) == ["in a/path/of/a/name", "   and", "   more"]
