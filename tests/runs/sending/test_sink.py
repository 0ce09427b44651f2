from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from train_manager.runs.sending.sink import file_of


def row_of(path: str) -> Any:
    """As much of a row as is looked at."""
    return SimpleNamespace(value=(path, 1, "0" * 64))


def test_a_file_in_the_train_dir_is_sent(tmp_path: Path) -> None:
    (tmp_path / "run/plots").mkdir(parents=True)
    (tmp_path / "run/plots/a.png").touch()

    assert file_of(row_of("plots/a.png"), tmp_path / "run") == tmp_path / "run/plots/a.png"


@pytest.mark.parametrize("path", ["../secret", "{}/secret", "plots/../../secret", "link", "/etc/hostname", "gone"])
def test_a_file_outside_of_the_train_dir_is_not_sent(tmp_path: Path, path: str) -> None:
    (tmp_path / "run/plots").mkdir(parents=True)
    (tmp_path / "secret").touch()
    (tmp_path / "run/link").symlink_to("../secret")

    assert file_of(row_of(path.format(tmp_path)), tmp_path / "run") is None
