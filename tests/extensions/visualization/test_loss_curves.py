from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.fork_server import ForkServer
from tests.support.host_reads import HostReads
from tests.support.programs import code
from train_manager import (
    Extensible,
    Extension,
    InputError,
    NonFiniteLoss,
    SkipBatch,
    TrainManager,
    add_loss,
    every,
    scheduled,
)
from train_manager.errors import HookError
from train_manager.extensions import LossCurves, Metrics
from train_manager.files.atomic import replace_file
from train_manager.testing import tiny_manager

LONG = [f"validation set of the year 2024, {part}, web pages in German" for part in ("first half", "second half")]


def accuracy(prediction: Tensor, targets: Tensor) -> Tensor:
    return prediction.argmax(dim=1) == targets


class Losses(Extension):
    """Record every training loss, and its weight."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.weights: list[int] = []

    def post_train_step_batch(self, loss: Tensor, true_batch_size: int) -> None:
        self.values.append(loss.item())
        self.weights.append(true_batch_size)


class StopAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.stop("enough")


class EvalAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int, train_manager: TrainManager) -> None:
        if step_num == self.step:
            train_manager.eval_soon()


class FailAt(Extension):
    def __init__(self, step: int) -> None:
        self.step = step

    def post_train_step_batch(self, step_num: int) -> None:
        if step_num == self.step:
            raise ValueError("on purpose")


def trained(folder: Path, *others: Extension, **options: Any) -> LossCurves:
    curves = LossCurves()
    tiny_manager(curves, *others, train_dir=folder, **{"epochs": 2, **options}).train()
    return curves


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[LossCurves, Losses, Path]:
    """Return the curves, the losses and the folder of a training of two epochs, for tests that only read them."""
    folder, losses = tmp_path_factory.mktemp("plain"), Losses()
    return trained(folder, losses), losses, folder


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "plots").iterdir())


# ---- what is recorded --------------------------------------------------------------------------------------------


def test_the_training_by_batch_has_the_loss_of_every_step_over_step_num(plain: tuple[LossCurves, Losses, Path]) -> None:
    curves, losses, _ = plain
    assert curves.training["batch"].x == [1, 2, 3, 4, 5, 6]
    assert curves.training["batch"].y == losses.values


def test_the_training_by_epoch_is_the_mean_over_the_examples_of_each_epoch(
    plain: tuple[LossCurves, Losses, Path],
) -> None:
    curves, losses, _ = plain
    weighted = [loss * weight for loss, weight in zip(losses.values, losses.weights, strict=True)]
    assert curves.training["epoch"].x == [1, 2]
    assert curves.training["epoch"].y == pytest.approx([sum(weighted[:3]) / 40, sum(weighted[3:]) / 40])


def test_an_evaluation_set_has_the_results_of_the_evaluations(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    tm.train()
    assert curves.eval_sets["valid"]["epoch"].y[-1] == tm.eval()["valid"]["loss"]


def test_an_evaluation_alone_is_not_a_point_and_does_not_change_the_files(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    tm.train()
    for path in (tmp_path / "plots").iterdir():
        path.write_text("as it was")
    tm.eval()
    assert curves.eval_sets["valid"]["epoch"].x == [0, 1]
    assert {path.read_text() for path in (tmp_path / "plots").iterdir()} == {"as it was"}


def test_an_evaluation_within_an_epoch_is_a_point_by_batch_but_not_by_epoch(tmp_path: Path) -> None:
    valid = trained(tmp_path, EvalAt(4)).eval_sets["valid"]
    assert valid["batch"].x == [0, 3, 4, 6]
    assert valid["example"].x == [0, 40, 56, 80]
    assert valid["epoch"].x == [0, 1, 2]


def test_an_evaluation_as_a_call_leaves_an_epoch_is_no_point_by_epoch(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), eval_at=("epoch", "end"), train_dir=tmp_path)
    tm.train_steps(4)
    tm.train_steps(4)

    valid = curves.eval_sets["valid"]
    assert (valid["batch"].x, valid["epoch"].x) == ([3, 4, 6, 8], [1, 2])


def test_an_evaluation_in_a_loop_of_ones_own_is_a_point_by_epoch_where_one_ends(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), train_dir=tmp_path)
    with tm.run():
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)
            tm.eval()
        tm.end_epoch()
        tm.eval()

    valid = curves.eval_sets["valid"]
    assert (valid["batch"].x, valid["epoch"].x) == ([1, 2, 3, 3], [1])


def test_the_mean_of_an_epoch_leaves_out_the_stopped_epoch_before_it(tmp_path: Path) -> None:
    curves, losses = LossCurves(), Losses()
    tm = tiny_manager(curves, losses, StopAt(2), train_dir=tmp_path)
    tm.train()
    tm.train()
    assert curves.training["epoch"].y == pytest.approx(
        [sum(map(math.prod, zip(losses.values[2:], (16, 16, 8), strict=True))) / 40]
    )


def test_a_skipped_batch_is_not_a_point(tmp_path: Path) -> None:
    class SkipSecond(Extension):
        number = 0

        def post_train_loss_forward(self) -> None:
            self.number += 1
            if self.number == 2:
                raise SkipBatch

    curves = trained(tmp_path, SkipSecond(), epochs=1)
    assert curves.training["example"].x == [16, 24]


def test_all_sets_are_recorded_whatever_their_names(tmp_path: Path) -> None:
    batches = [(torch.rand(4, 2), torch.zeros(4, dtype=torch.long))]
    names = ["training", "_hidden", "a $ and a _", *LONG, "中文"]
    curves = trained(tmp_path, eval_data=dict.fromkeys(names, batches))
    assert list(curves.eval_sets) == names
    assert len(curves.training["epoch"].x) == 2


# ---- files -------------------------------------------------------------------------------------------------------


def test_the_curves_are_written_as_svg_and_nothing_else(plain: tuple[LossCurves, Losses, Path]) -> None:
    folder = plain[2]
    assert files_in(folder) == ["loss_curves.svg"]
    assert b"<svg" in (folder / "plots" / "loss_curves.svg").read_bytes()


def test_the_same_training_writes_the_same_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        trained(tmp_path / name)
    for file in files_in(tmp_path / "first"):
        assert (tmp_path / "first/plots" / file).read_bytes() == (tmp_path / "second/plots" / file).read_bytes()


def drawings_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with every picture that is written."""
    drawn: list[int] = []

    def count(path: Path, content: bytes) -> None:
        drawn.append(0)
        replace_file(path, content)

    monkeypatch.setattr("train_manager.extensions.visualization.loss_curves.replace_file", count)
    return drawn


@pytest.fixture
def _costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drawing count as if it took hours, however slow the rest of the test is."""
    monkeypatch.setattr("train_manager.extensions.visualization.loss_curves.GAP", 1e9)


@pytest.mark.usefixtures("_costly")
def test_a_short_training_is_drawn_once_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = drawings_of(monkeypatch)
    trained(tmp_path, epochs=3)
    assert len(drawn) == 1


def test_a_training_that_ends_within_its_first_epoch_is_drawn(tmp_path: Path) -> None:
    def spread(prediction: Tensor, targets: Tensor, step_num: int) -> Tensor:
        loss: Tensor = torch.nn.functional.cross_entropy(prediction, targets) / 100**step_num
        return loss

    tiny_manager(LossCurves(), loss=spread, eval_data=None, train_dir=tmp_path).train_steps(2)
    assert "<svg" in (tmp_path / "plots" / "loss_curves.svg").read_text()


@pytest.mark.usefixtures("_costly")
def test_several_trainings_in_one_run_are_drawn_once_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = drawings_of(monkeypatch)
    tm = tiny_manager(LossCurves(), train_dir=tmp_path)
    with tm.run():
        for _ in range(3):
            tm.train_epochs(1)
        assert drawn == []
    assert len(drawn) == 1


@pytest.fixture
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drawing count as if it took no time."""
    monkeypatch.setattr("train_manager.extensions.visualization.loss_curves.GAP", 0)


@pytest.mark.usefixtures("_cheap")
def test_if_drawing_is_cheap_the_files_are_renewed_after_each_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = drawings_of(monkeypatch)
    trained(tmp_path, epochs=3)
    assert len(drawn) == 4


@pytest.mark.usefixtures("_cheap")
def test_without_evaluation_the_files_are_renewed_once_for_each_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = drawings_of(monkeypatch)
    trained(tmp_path, epochs=3, eval_data=None)
    assert len(drawn) == 3


def test_after_ctrl_c_the_curves_are_drawn(tmp_path: Path) -> None:
    def interrupt(step_num: int) -> None:
        if step_num == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, Extension.of(post_train_step_batch=interrupt))
    assert files_in(tmp_path) == ["loss_curves.svg"]


def test_metrics_of_the_training_and_of_the_evaluations_have_a_panel_by_epoch(tmp_path: Path) -> None:
    metrics = Metrics(train={"right": accuracy}, eval={"right": accuracy, "wrong": accuracy})
    curves = trained(tmp_path, metrics, EvalAt(4))
    found = {name: {of: curve.x for of, curve in by.items()} for name, by in curves.metrics.items()}
    assert found == {"right": {"valid": [0, 1, 2], "training": [1, 2]}, "wrong": {"valid": [0, 1, 2]}}
    assert [axes.get_ylabel() for axes in curves.figure().axes] == [
        "epoch loss",
        "batch loss",
        "batch loss",
        "right",
        "wrong",
    ]


def test_a_training_draws_its_default_file_without_matplotlib_and_pillow(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    program = (
        "import sys; from train_manager.extensions import LossCurves; from train_manager.testing import tiny_manager\n"
        f"tiny_manager(LossCurves(), train_dir={str(tmp_path)!r}).train()\n"
        "print({'matplotlib', 'PIL'} & {*sys.modules})"
    )
    done = fork_server.run(code, program)

    assert (done.output, done.errors) == ("set()\n", "")
    assert files_in(tmp_path) == ["loss_curves.svg"]


class DrawnAt(Extension):
    """Record the steps after which there was a new picture."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "plots" / "loss_curves.svg"
        self.steps: list[int] = []

    def pre_stage(self, step_num: int) -> None:
        if self.file.exists():
            self.file.unlink()
            self.steps.append(step_num)


def test_with_a_schedule_the_files_are_renewed_after_the_steps_it_says_and_at_the_end(tmp_path: Path) -> None:
    drawn = DrawnAt(tmp_path)
    tiny_manager(LossCurves(update=every(2)), drawn, epochs=3, train_dir=tmp_path).train()
    assert drawn.steps == [2, 4, 6, 8]
    assert drawn.file.exists()  # after the last step


def test_a_schedule_does_not_change_what_is_recorded(tmp_path: Path, plain: tuple[LossCurves, Losses, Path]) -> None:
    curves = LossCurves(update=every(4))
    tiny_manager(curves, epochs=2, train_dir=tmp_path).train()
    state = curves.state_dict()
    assert state.pop("schedules") == {"around_train_step_batch": [{"count": 6}]}
    assert state == plain[0].state_dict()


def test_after_an_error_the_last_picture_is_drawn_in_spite_of_a_schedule(tmp_path: Path) -> None:
    curves = LossCurves(update=every(100))
    with pytest.raises(ValueError, match="on purpose"):
        tiny_manager(curves, FailAt(2), train_dir=tmp_path).train()
    assert files_in(tmp_path) == ["loss_curves.svg"]


def test_update_must_be_a_schedule() -> None:
    wrong: Any = 50
    with pytest.raises(HookError) as caught:
        LossCurves(update=wrong)
    assert str(caught.value) == (
        "the schedule of LossCurves.around_train_step_batch must be a Schedule, but is 50\n"
        "  give one, such as every(50)"
    )


def test_a_loss_that_is_not_finite_is_drawn_as_a_gap(tmp_path: Path) -> None:
    class Spoil(Extension):
        def pre_train_step_batch(self, step_num: int, batch: tuple[Tensor, Tensor], fixtures: Any) -> None:
            if step_num == 1:
                fixtures.modify("batch", (batch[0] * math.nan, batch[1]))

    curves = LossCurves()
    with pytest.raises(NonFiniteLoss):
        tiny_manager(curves, Spoil(), train_dir=tmp_path).train()
    assert [math.isnan(y) for y in curves.training["batch"].y][:2] == [False, True]
    assert files_in(tmp_path) == ["loss_curves.svg"]


def test_without_a_train_dir_it_is_refused() -> None:
    with pytest.raises(InputError, match="extension 'loss_curves'") as caught:
        tiny_manager(LossCurves()).train()
    assert "train_dir" in caught.value.cure


# ---- cost --------------------------------------------------------------------------------------------------------


def test_a_step_reads_nothing_on_the_host_and_an_epoch_collects_once(tmp_path: Path) -> None:
    with HostReads() as copies:
        trained(tmp_path, epochs=1)
    with HostReads() as without:
        tiny_manager(epochs=1).train()
    assert copies.count == 0
    assert copies.stacks - without.stacks == 1


def test_a_notebook_shows_the_curves_as_a_picture(plain: tuple[LossCurves, Losses, Path]) -> None:
    assert plain[0]._repr_png_().startswith(b"\x89PNG")


def test_each_loss_that_a_model_adds_has_a_curve_of_its_own(tmp_path: Path) -> None:
    class Sparse(torch.nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            outputs = super().forward(input)
            add_loss(outputs.abs(), "sparsity")
            return outputs

    curves = LossCurves()
    model = Sparse(2, 2)
    tiny_manager(curves, model=model, epochs=2, train_dir=tmp_path).train()
    sparsity = curves.parts.curves["sparsity"]
    assert (sparsity["batch"].x, sparsity["epoch"].x) == ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0])
    assert [text.get_text() for text in curves.figure().legends[0].get_texts()] == [
        "training",
        "valid",
        "sparsity (part)",
    ]


# ---- where the losses come from --------------------------------------------------------------------------------------


class OwnLoop(Extensible):
    """A loop without the fixtures `batch_losses` and `train_manager`."""

    def train(self, folder: Path) -> None:
        with self.staged("run", {"train_dir": folder, "step_num": 0, "epoch_num": 0}):
            with self.staged("train_step_epoch", {"batches_done": 0, "train_result": {}}):
                for step in (1, 2):
                    self.fixtures.modify("step_num", step)
                    batch = {"loss": torch.tensor(float(step)), "losses": {}, "true_batch_size": 4}
                    with self.staged("train_step_batch", batch):
                        pass
            with self.staged("eval", {"eval_results": {}, "standalone_eval": False}), self.staged("train"):
                pass


@pytest.mark.parametrize("most", [1, 100])
def test_a_loop_of_ones_own_gives_the_losses_to_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("train_manager.extensions.visualization.loss_curves.MOST", most)
    curves = LossCurves()
    OwnLoop([curves]).train(tmp_path)
    curves.state_dict()

    assert (curves.training["batch"].x, curves.training["batch"].y) == ([1, 2], [1.0, 2.0])


def test_a_hook_with_a_schedule_draws_the_batches_that_it_picks(tmp_path: Path) -> None:
    curves = scheduled(LossCurves(), "post_train_step_batch", every(2))
    tiny_manager(curves, epochs=2, train_dir=tmp_path).train()

    assert curves.training["batch"].x == [2, 4, 6]


def test_a_loop_of_ones_own_that_ends_no_epoch_is_drawn_as_its_run_ends(tmp_path: Path) -> None:
    curves = LossCurves()
    tm = tiny_manager(curves, train_dir=tmp_path)
    with tm.run():
        losses = [tm.train_on_batch(batch) for batch in tm.train_data or ()]

    assert len(curves.training["batch"].y) == len(losses) == 3
    assert (tmp_path / "plots" / "loss_curves.svg").is_file()


def test_curves_that_pause_in_a_phase_have_no_batch_of_it(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), epochs=1, train_dir=tmp_path)
    with tm.run():
        with tm.phase("head", without=["loss_curves"]):
            tm.train()
        tm.train()

    assert curves.training["batch"].x == [4, 5, 6]


def test_batches_that_are_a_run_each_are_drawn_without_a_wait_for_any(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), train_dir=tmp_path)
    with HostReads() as reads:
        for batch in tm.train_data or ():
            tm.train_on_batch(batch)
    with HostReads() as without:
        plain = tiny_manager()
        for batch in plain.train_data or ():
            plain.train_on_batch(batch)
    curves.state_dict()

    assert (reads.count, reads.stacks) == (without.count, without.stacks)
    assert curves.training["batch"].x == [1, 2, 3]


def test_batches_before_an_epoch_are_not_of_its_mean(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), losses := Losses(), train_dir=tmp_path)
    with tm.run():
        tm.train_on_batch(next(iter(tm.train_data or ())))
        tm.train_epoch()

    mean = sum(map(math.prod, zip(losses.values[1:], losses.weights[1:], strict=True))) / sum(losses.weights[1:])
    assert curves.training["epoch"].y == pytest.approx([mean])


def test_a_copy_that_is_made_within_a_run_draws_for_itself(tmp_path: Path) -> None:
    tm = tiny_manager(curves := LossCurves(), train_dir=tmp_path)
    with tm.run():
        tm.train_steps(1)
        again = copy.deepcopy(curves)
        tm.train_steps(1)

    assert (curves.training["batch"].x, again.training["batch"].x) == ([1, 2], [1])


def test_at_most_a_thousand_losses_wait() -> None:
    curves = LossCurves()
    for step in range(1, 1001):
        curves.post_train_step_batch({}, step, 1, torch.tensor(0.5))

    assert len(curves.training["batch"].x) == 1000
