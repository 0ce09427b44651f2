from __future__ import annotations

from pathlib import Path

import pytest

from tests.learner.planted import forget_other_words


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder, in which there is no repository to be recorded."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def planted_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know the words of the planted files alone: messages list all words."""
    forget_other_words(monkeypatch)
