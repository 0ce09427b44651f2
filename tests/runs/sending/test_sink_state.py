from __future__ import annotations

from pathlib import Path

import pytest

from train_manager.runs.sending.sink_state import SinkState, read_state, write_state
from train_manager.telling.errors import InputError

SENT = SinkState(("a", "b"), {"scalars": 12}, {"file": "x"}, {"pid": 1})


def test_what_was_sent_comes_back(tmp_path: Path) -> None:
    write_state(tmp_path, "mlflow", SENT)
    assert read_state(tmp_path, "mlflow") == SENT


def test_sinks_do_not_see_each_other(tmp_path: Path) -> None:
    write_state(tmp_path, "mlflow", SENT)
    write_state(tmp_path, "wandb", SinkState(("c",)))

    assert read_state(tmp_path, "mlflow") == SENT
    assert read_state(tmp_path, "tensorboard") == SinkState()


@pytest.mark.parametrize("text", ["", "[]", '{"mlflow": 1}', '{"mlflow": {"sent": 3}}'])
def test_a_file_of_another_kind_is_refused_with_a_cure(tmp_path: Path, text: str) -> None:
    (tmp_path / "sinks.json").write_text(text)
    with pytest.raises(InputError) as refused:
        read_state(tmp_path, "mlflow")

    assert f"{tmp_path}/sinks.json does not tell what was sent" in str(refused.value)
    assert "remove it, and what the sink has got so far: all is sent again" in str(refused.value)
