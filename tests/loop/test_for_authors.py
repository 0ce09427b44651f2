"""The names of a TrainManager: which of them are for users, and which for authors of extensions."""

from __future__ import annotations

from unittest.mock import create_autospec

import pytest

from train_manager import TrainManager
from train_manager.testing import tiny_manager

FOR_USERS = {
    *("train", "train_epochs", "train_steps", "train_epoch", "train_on_batch", "end_epoch", "eval", "eval_on_batch"),
    *("predict", "run", "open", "close", "phase", "stop", "eval_soon", "save_soon"),
    *("model", "called_model", "loss", "optimizer", "optimizers", "lr_schedule", "learning_rates", "train_data"),
    *("eval_data", "eval_at", "epochs", "steps_per_epoch", "device", "seed", "train_dir", "check_parameters", "strict"),
    *("epoch_num", "step_num", "update_num", "optimizer_updates", "open_windows", "samples_seen", "start_step"),
    *("end_step", "stop_reason", "history", "findings", "run_id", "median_step_seconds", "fixtures"),
    *("extensions", "extension", "add_extension", "remove_extension", "check", "explain", "staged", "mode"),
    *("state_dict", "load_state_dict", "load_weights", "from_checkpoint"),
    *("initialize_params", "unpack_batch", "get_true_batch_size", "train_get_true_batch_size"),
    *("eval_get_true_batch_size", "model_forward", "train_model_forward"),
    *("eval_model_forward", "loss_forward", "train_loss_forward", "eval_loss_forward"),
    *("train_batch", "eval_batch", "forward", "update", "backward", "step"),
}
"""A new public name belongs here, or into FOR_AUTHORS."""

FOR_AUTHORS = frozenset(
    (
        *("add_finding", "call_by_name", "closure", "decide", "probe", "replace_parameters", "stop_from_outside"),
        *("batch_num", "data_seconds", "datasource_name", "example_index", "last_batch", "loss_parts"),
        *("brought_by", "entered_by", "first_step", "losses_by_optimizer", "objective", "paused_extensions"),
        *("progress", "ranks", "resumed_stages", "step_limit", "train_dir_number"),
    )
)
"""Names that only authors of extensions need; docs/reference/api/for_authors.md has them."""


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_each_public_name_is_for_users_or_for_authors() -> None:
    assert public(dir(tiny_manager())) == FOR_USERS | FOR_AUTHORS


@pytest.mark.parametrize("name", sorted(FOR_AUTHORS))
def test_a_name_for_authors_is_there(name: str) -> None:
    assert hasattr(tiny_manager(), name)


def test_the_names_of_a_subclass_are_offered() -> None:
    class Own(TrainManager):
        temperature = 2.0

        def anneal(self) -> None: ...

    tm = Own(model=tiny_manager().model, loss=tiny_manager().loss)
    tm.ramp = 3  # type: ignore[attr-defined]

    assert public(dir(tm)) == FOR_USERS | FOR_AUTHORS | {"temperature", "anneal", "ramp"}


def test_a_mock_of_a_subclass_has_the_names_for_authors() -> None:
    class Own(TrainManager):
        pass

    mock = create_autospec(Own, instance=True)

    # Without train_dir_number, which each object gets as it is made.
    assert all(hasattr(mock, name) for name in FOR_AUTHORS - {"train_dir_number"})
