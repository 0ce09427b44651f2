from __future__ import annotations

import pytest

from train_manager.runs.sending import follower


@pytest.fixture(autouse=True)
def patient_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a sink as long as it takes: other tests may keep the machine busy."""
    monkeypatch.setattr(follower, "PATIENCE", 60.0)
