from __future__ import annotations

import pytest

from train_manager.runs.store import delivery


@pytest.fixture(autouse=True)
def patient_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a sink as long as it takes: other tests may keep the machine busy."""
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)
