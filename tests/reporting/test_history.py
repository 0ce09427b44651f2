"""The history: a row for each epoch and for each evaluation."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.host_reads import HostReads
from tests.support.refusals import refusal
from tests.support.training import At, skip_batch
from train_manager import Extension, InputError, TrainManager, every, modifies
from train_manager.extensions import Metrics
from train_manager.metrics.history_rows import PLACE
from train_manager.testing import tiny_manager


def values_of(rows: list[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(key) for key in keys) for row in rows]


class Losses(Extension):
    """Remembers the loss and the size of each batch."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def post_train_step_batch(self, loss: Tensor, true_batch_size: int) -> None:
        self.seen.append((loss.item(), true_batch_size))

    def mean(self) -> float:
        return sum(loss * size for loss, size in self.seen) / sum(size for _, size in self.seen)


# ---- epochs -----------------------------------------------------------------------------------------------------


def test_its_loss_is_the_mean_over_the_examples_of_the_epoch() -> None:
    tm = tiny_manager(losses := Losses())
    tm.train()

    assert tm.history.epochs[0]["loss"] == pytest.approx(losses.mean(), rel=1e-6)


def test_the_row_is_there_when_the_post_hooks_of_the_epoch_run() -> None:
    rows: list[dict[str, Any]] = []
    tm = tiny_manager(At("post_train_step_epoch", lambda train_manager: rows.append(train_manager.history.epochs[-1])))
    tm.train()

    assert rows == tm.history.epochs
    assert [*rows[0]] == ["epoch", "step", "seconds", "loss"]


def test_an_own_batch_without_a_loss_gives_a_row_without_one() -> None:
    class Steps(TrainManager):
        def train_batch(self) -> None: ...

    toy = tiny_manager()
    tm = Steps(model=toy.model, optimizer=toy.optimizer, train_data=toy.train_data)
    with pytest.warns(UserWarning, match="has not called self.update"):
        tm.train()

    assert [*tm.history.epochs[0]] == ["epoch", "step", "seconds"]


def test_several_optimizers_have_a_column_each_and_none_for_their_sum() -> None:
    class Twice(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
            self.update(model(inputs).mean() * 0 + 1.0, "first")
            self.update(model(inputs).mean() * 0 + 2.0, "second")

    model = nn.ModuleDict({"first": nn.Linear(2, 1), "second": nn.Linear(2, 1)})
    model.forward = lambda x: model["first"](x) + model["second"](x)
    optimizers = {name: torch.optim.SGD(part.parameters(), lr=0.1) for name, part in model.items()}
    tm = Twice(model=model, optimizer=optimizers, train_data=tiny_manager().train_data)
    tm.train()

    row = tm.history.epochs[0]
    assert [*row] == ["epoch", "step", "seconds", "losses/first", "losses/second"]
    assert (row["losses/first"], row["losses/second"]) == (pytest.approx(1.0), pytest.approx(2.0))


def test_a_loss_beside_those_of_further_updates_is_that_of_the_forward_pass() -> None:
    class More(TrainManager):
        def train_batch(self, model: nn.Module, inputs: Tensor) -> None:
            self.update(self.forward())
            self.update(model(inputs).mean() * 0 + 100.0)

    toy, losses = tiny_manager(), Losses()
    tm = More(model=toy.model, loss=toy.loss, optimizer=toy.optimizer, train_data=toy.train_data, extensions=[losses])
    tm.train()

    assert tm.history.epochs[0]["loss"] == pytest.approx(losses.mean(), rel=1e-6)


def test_more_losses_than_are_kept_at_a_time_have_one_mean() -> None:
    tm = tiny_manager(losses := Losses(), train_data=list(tiny_manager().train_data or ()) * 400)
    tm.train()

    assert tm.history.epochs[0]["loss"] == pytest.approx(losses.mean(), rel=1e-6)


def test_batch_sizes_may_be_tensors() -> None:
    class Sized(TrainManager):
        def get_true_batch_size(self, targets: Tensor) -> Any:
            return torch.tensor(len(targets))

    toy, losses = tiny_manager(), Losses()
    tm = Sized(model=toy.model, loss=toy.loss, optimizer=toy.optimizer, train_data=toy.train_data, extensions=[losses])
    with HostReads() as reads:
        tm.train_epoch()

    assert tm.history.epochs[0]["loss"] == pytest.approx(float(losses.mean()), rel=1e-6)
    assert reads.count == 3  # those of the extension


def test_skipped_batches_do_not_count() -> None:
    tm = tiny_manager(At("pre_train_step_batch", skip_batch))
    tm.train()

    assert [*tm.history.epochs[0]] == ["epoch", "step", "seconds"]


# ---- parts of epochs --------------------------------------------------------------------------------------------


def test_an_epoch_that_is_left_before_its_end_has_a_partial_row() -> None:
    tm = tiny_manager()
    tm.train_steps(2)

    assert values_of(tm.history.epochs, "epoch", "step", "partial") == [(1, 2, True)]


def test_the_row_of_an_epoch_that_continues_is_that_of_the_whole_epoch() -> None:
    tm = tiny_manager(losses := Losses())
    tm.train_steps(2)
    tm.train_steps(1)

    assert values_of(tm.history.epochs, "epoch", "step", "partial") == [(1, 3, None)]
    assert tm.history.epochs[0]["loss"] == pytest.approx(losses.mean(), rel=1e-6)


def test_the_row_of_an_epoch_that_begins_anew_is_that_of_the_new_one() -> None:
    def stop_once(train_manager: TrainManager, step_num: int) -> None:
        if step_num == 2:
            train_manager.stop("for now")

    tm = tiny_manager(losses := Losses(), At("post_train_step_batch", stop_once))
    tm.train()
    losses.seen.clear()
    tm.train()

    assert values_of(tm.history.epochs, "epoch", "step", "partial") == [(1, 5, None)]
    assert tm.history.epochs[0]["loss"] == pytest.approx(losses.mean(), rel=1e-6)


def test_batches_outside_of_epochs_have_no_row() -> None:
    tm = tiny_manager()
    tm.train_on_batch(next(iter(tm.train_data or ())))

    assert tm.history.epochs == []


# ---- phases -----------------------------------------------------------------------------------------------------


def test_rows_of_a_phase_have_its_name() -> None:
    tm = tiny_manager()
    with tm.run():
        with tm.phase("head", epochs=2):
            tm.train()
        tm.train()

    assert values_of(tm.history.epochs, "phase", "epoch") == [("head", 1), ("head", 2), (None, 1)]
    assert values_of(tm.history.evaluations, "phase", "epoch") == [
        ("head", 0),
        ("head", 1),
        ("head", 2),
        (None, 1),
    ]


def test_an_epoch_that_a_phase_interrupts_continues_after_it() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.train_steps(1)
        with tm.phase("between"):
            tm.train_epoch()
        tm.train_steps(2)

    assert values_of(tm.history.epochs, "phase", "step", "partial") == [
        ("between", 4, None),
        (None, 6, None),
    ]


# ---- evaluations ------------------------------------------------------------------------------------------------


def test_each_set_of_each_evaluation_has_a_row() -> None:
    data = tiny_manager().eval_data["valid"]
    tm = tiny_manager(eval_data={"valid": data, "other": data})
    result = tm.train()

    assert values_of(tm.history.evaluations, "epoch", "step", "set") == [
        (0, 0, "valid"),
        (0, 0, "other"),
        (1, 3, "valid"),
        (1, 3, "other"),
    ]
    assert tm.history.evaluations[-1]["loss"] == result.metrics["other"]["loss"]


def test_an_evaluation_that_is_a_run_of_its_own_is_marked() -> None:
    tm = tiny_manager()
    tm.eval()
    with tm.run():
        tm.eval()

    assert values_of(tm.history.evaluations, "set", "standalone") == [("valid", True), ("valid", None)]


def test_of_a_step_it_has_the_last_result_of_each_set() -> None:
    tm = tiny_manager(epochs=2)
    tm.train()
    tm.eval()
    of_step, standalone = tm.history.evaluations[-2:]
    standalone["loss"] = -1.0

    assert tm.history.evaluation_at(6) == {"valid": {"loss": of_step["loss"]}}
    assert tm.history.evaluation_at(5) == {}


def test_a_single_batch_that_is_evaluated_has_no_row() -> None:
    tm = tiny_manager()
    tm.eval_on_batch(next(iter(tm.train_data or ())))

    assert tm.history.evaluations == []


# ---- epochs with their evaluations -----------------------------------------------------------------------------


def test_by_epoch_the_results_of_an_evaluation_stand_beside_the_training_loss() -> None:
    tm = tiny_manager(epochs=2)
    result = tm.train()

    assert [[*row] for row in tm.history.by_epoch()] == [["epoch", "step", "seconds", "loss", "valid loss"]] * 2
    assert tm.history.by_epoch()[-1]["valid loss"] == result.metrics["valid"]["loss"]


@pytest.mark.parametrize("name", PLACE)
def test_a_metric_of_an_evaluation_that_is_called_like_a_place_is_refused(name: str) -> None:
    class Sizes(Extension):
        @modifies("eval_result")
        def post_eval_step_epoch(self, eval_result: dict[str, float]) -> dict[str, float]:
            return {**eval_result, name: -1, "size": 2}

    tm = tiny_manager(Sizes())
    assert refusal(lambda: tm.train()) == (
        f"eval_result has a metric called '{name}' (of Sizes.post_eval_step_epoch), "
        f"but in the history '{name}' tells where or how a row was measured\n"
        f"  call the metric otherwise, such as 'my_{name}'"
    )
    assert values_of(tm.history.evaluations, "epoch", "step", "set", "size") == [(0, 0, "valid", 2)]


def test_a_metric_of_an_epoch_that_is_called_like_a_place_is_refused() -> None:
    """The epoch counts, and its row has all other metrics."""

    class Sizes(Extension):
        @modifies("train_result")
        def post_train_step_epoch(self, train_result: dict[str, float]) -> dict[str, float]:
            return {**train_result, "step": -1, "size": 2}

    tm = tiny_manager(Sizes(), epochs=2)
    assert refusal(lambda: tm.train()).startswith(
        "train_result has a metric called 'step' (of Sizes.post_train_step_epoch), "
    )
    assert (tm.epoch_num, values_of(tm.history.epochs, "epoch", "step", "size")) == (1, [(1, 3, 2)])
    assert tm.history.epochs[0]["loss"] > 0


def test_a_hook_that_writes_a_place_into_the_result_itself_is_named() -> None:
    class Sizes(Extension):
        def post_eval_step_epoch(self, eval_result: dict[str, float]) -> None:
            eval_result["set"] = 2

    with pytest.raises(InputError, match=r"^eval_result has a metric called 'set' \(of Sizes.post_eval_step_epoch\), "):
        tiny_manager(Sizes()).eval()


def test_of_several_evaluations_in_an_epoch_the_last_one_counts() -> None:
    tm = tiny_manager(eval_at=(every(1), "epoch"), epochs=2)
    tm.train()
    losses = [row["loss"] for row in tm.history.evaluations]

    assert [row["valid loss"] for row in tm.history.by_epoch()] == [losses[2], losses[5]]


def test_the_evaluation_before_the_first_epoch_is_of_none() -> None:
    tm = tiny_manager(eval_at="start")
    tm.train()

    assert "valid loss" not in tm.history.by_epoch()[0]


def test_a_standalone_evaluation_is_of_no_epoch() -> None:
    tm = tiny_manager()
    tm.train()
    tm.eval({"test": tm.eval_data["valid"]})

    assert "test loss" not in tm.history.by_epoch()[0]


def test_the_evaluation_at_the_start_of_a_phase_is_not_of_the_epoch_before() -> None:
    tm = tiny_manager()
    with tm.run():
        tm.train()
        before = tm.history.by_epoch()[0]
        with tm.phase("again", eval_data={"valid": list(tm.train_data or ())}):
            tm.train()

    assert tm.history.by_epoch()[0] == before


# ---- data frames ------------------------------------------------------------------------------------------------


def test_a_data_frame_has_a_row_for_each_epoch() -> None:
    pytest.importorskip("pandas")
    tm = tiny_manager(epochs=2)
    tm.train()
    frame = tm.history.to_pandas()

    assert list(frame.index) == [1, 2]
    assert list(frame) == ["step", "seconds", "loss", "valid loss"]
    assert frame["loss"].tolist() == [row["loss"] for row in tm.history.epochs]


def test_a_data_frame_of_evaluations_has_a_row_for_each_set() -> None:
    pytest.importorskip("pandas")
    tm = tiny_manager(epochs=2)
    tm.train()

    assert tm.history.to_pandas("evaluations").to_dict("records") == tm.history.evaluations


def test_where_pandas_is_missing_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert refusal(lambda: tiny_manager().history.to_pandas(), ImportError).endswith(
        'pip install "train-manager[pandas]"'
    )


def test_unknown_rows_are_refused() -> None:
    with pytest.raises(InputError, match="rows must be 'epochs' or 'evaluations', but is 'steps'"):
        tiny_manager().history.to_pandas("steps")


def x_of(line: Any) -> list[float]:
    return list(line.get_xdata())


# ---- pictures and texts -----------------------------------------------------------------------------------------


def test_the_figure_has_a_panel_for_each_metric_and_a_line_for_each_set() -> None:
    tm = tiny_manager(Metrics(accuracy=lambda p, t: p.argmax(dim=1) == t), epochs=2)
    tm.train()
    figure = tm.history.plot()
    panels = figure.axes

    assert [axes.get_ylabel() for axes in panels] == ["loss", "accuracy"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["training", "valid"]
    assert x_of(panels[0].lines[0]) == [1, 2]
    assert x_of(panels[0].lines[1]) == [0, 1, 2]


def test_an_evaluation_within_an_epoch_is_drawn_there() -> None:
    tm = tiny_manager(eval_at=every(1), epochs=2)
    tm.train()
    line = tm.history.plot().axes[0].lines[1]

    assert x_of(line) == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])


def test_a_training_without_a_complete_epoch_is_drawn_over_batches() -> None:
    tm = tiny_manager(eval_at=("start", "end"))
    tm.train_steps(2)
    axes = tm.history.plot().axes[0]

    assert axes.get_xlabel() == "batches"
    assert [x_of(line) for line in axes.lines] == [[2], [0, 2]]


def test_the_figure_of_no_training_is_empty() -> None:
    assert tiny_manager().history.plot().axes == []


def test_its_text_is_short() -> None:
    tm = tiny_manager(epochs=2)
    tm.train()

    assert repr(tm.history) == "History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)"
    assert repr(tiny_manager().history) == "History(0 epochs, 0 evaluations)"


def test_a_notebook_shows_a_table() -> None:
    tm = tiny_manager(epochs=2)
    tm.train()
    html = tm.history._repr_html_()

    assert (html.count("<tr>"), html.count("<td"), ">0.654<" in html) == (3, 8, True)


# ---- copies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy])
def test_a_copy_of_the_manager_has_a_history_of_its_own(copied: Any) -> None:
    tm = tiny_manager()
    tm.train()
    other = copied(tm)
    other.train_epochs(1)

    assert (len(tm.history.epochs), len(other.history.epochs)) == (1, 2)


def test_its_state_is_loaded_as_it_was_saved() -> None:
    tm, other = tiny_manager(), tiny_manager()
    tm.train()
    state = tm.history.state_dict()
    other.history.load_state_dict(state)
    other.train()

    assert state == tm.history.state_dict()
    assert len(other.history.epochs) == 2


def test_an_epoch_on_other_data_has_nothing_of_the_part_before() -> None:
    inputs = torch.rand(2, 2)
    zeros, ones = ([(inputs, torch.full((2,), value))] * 3 for value in (0.0, 1.0))
    tm = tiny_manager(train_data=zeros, loss=lambda prediction, targets: 0 * prediction.sum() + targets.float().mean())
    tm.train_steps(2)
    tm.train_data = ones
    tm.train_epochs(1)

    assert tm.history.epochs[-1]["loss"] == 1


def test_an_epoch_continues_after_the_history_was_emptied() -> None:
    tm = tiny_manager()
    tm.train_steps(2)
    tm.history.epochs.clear()
    tm.train()
    assert [row["epoch"] for row in tm.history.epochs] == [1]


def test_a_part_without_a_batch_has_no_row() -> None:
    tm = tiny_manager(At("pre_train_step_epoch", lambda train_manager: train_manager.stop("at once")))
    tm.train()

    assert tm.history.epochs == []
